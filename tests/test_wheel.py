"""The wheel: all of the package and nothing else, and its command runs where no source is."""

import importlib.metadata
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import covlearn
from tools.matrix import CONSOLE, ROOT, built, check_console, oldest, run

SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"), isolated=False)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with the wheel in it; all else is where it is installed for the tests."""
    folder = tmp_path_factory.mktemp("installed") / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    install = ["pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    run(sys.executable, "-m", *install)
    # Named in a .pth file, a folder's own .pth files are not read: the source stays out of sight.
    others = "\n".join(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(site) / "others.pth").write_text(others, encoding="utf-8")
    return folder


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    files = (path for path in (SOURCE / "covlearn").rglob("*") if path.is_file())
    assert names == {str(p.relative_to(SOURCE)) for p in files if p.parent.name != "__pycache__"}
    for name in ("py.typed", "report/assets/page.html", "report/assets/report.css", "cli/fit.py"):
        assert f"covlearn/{name}" in names


def test_it_says_what_it_needs(wheel: Path, environment: Path) -> None:
    (found,) = environment.glob("lib/python*/site-packages/covlearn-*.dist-info")
    about = importlib.metadata.PathDistribution(found)
    assert about.version == covlearn.__version__
    needed = {text for text in about.requires or [] if "extra ==" not in text}
    assert needed == {f"{name}>={version}" for name, version in oldest().items()}
    assert about.metadata["Requires-Python"] == ">=3.11"
    assert about.metadata["License-Expression"] == "Apache-2.0"
    assert (found / "licenses" / "LICENSE").is_file()
    (command,) = about.entry_points
    assert (command.name, command.value) == ("covlearn", "covlearn.cli:main")


def test_its_command_runs_where_no_source_is(environment: Path, tmp_path: Path) -> None:
    python = environment / "bin" / "python"
    where = run(python, "-c", "import covlearn; print(covlearn.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(environment)
    folder = tmp_path / "console"
    facts = check_console(environment / "bin" / "covlearn", folder)
    assert facts["covlearn"] == covlearn.__version__
    assert facts["ready"]
    assert {words[0] for words in CONSOLE} >= {"--version", "--help", "doctor", "train", "fit"}
    assert (folder / "run" / "result.json").is_file()
    assert (folder / "fit" / "report.html").stat().st_size > 10_000  # its page and styles are there
    assert len((folder / "predictions.csv").read_text().splitlines()) == 61


HELP = """
import argparse, contextlib, io, sys
from covlearn.cli import make_parser

def parsers(parser):
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                yield from parsers(part)

for parser in parsers(make_parser()):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        parser.parse_args(["--help"])
    assert said.getvalue().startswith(f"usage: {parser.prog}")
    print(parser.prog)
heavy = "torch numpy pandas sklearn scipy pyarrow PIL rich safetensors matplotlib".split()
print(*sorted({name.partition(".")[0] for name in sys.modules} & set(heavy)), file=sys.stderr)
"""


def test_help_of_every_command_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.split() == []
    shown = done.stdout.splitlines()
    assert {"covlearn", "covlearn fit", "covlearn data fetch", "covlearn bench"} <= set(shown)
    assert len(shown) > 13
