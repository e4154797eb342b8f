"""What covlearn runs with, tried in empty environments: ``python -m tools.matrix oldest newest``.

Each gets torch, then the wheel with what it depends on, in the oldest versions that pyproject.toml
allows or in the newest there are. The console script is run there, and a part of the tests on what
was installed; results/matrix.json gets a row.
"""

import argparse
import csv
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from covlearn.cli.progress import step_bars
from covlearn.evaluation import commit
from covlearn.records import write_json

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "results" / "matrix.json"
TESTS = (
    "tests/test_estimator.py",
    "tests/inputs",
    "tests/test_cli_fit.py",
    "tests/test_records.py",
    "tests/test_old_runs.py",
    "tests/test_losses.py",
    "tests/covariance",
    "tests/test_exports.py",
    # pyarrow 17 installs a package of its own that is called benchmarks, which this test wants.
    "--ignore=tests/inputs/test_real_images.py",
    # scikit-learn 1.6 is older than what pytest has come to dislike in its checks.
    "-Wignore:Passing a non-Collection iterable:pytest.PytestRemovedIn10Warning",
    # What torch says where it compiles with 3.13.0, and with no later 3.13.
    "-Wignore:Guards may run slower on Python 3.13.0:RuntimeWarning",
)
QUICK = ["--device", "cpu", "--set", "net.hidden=[8]", "sieve_plan.epochs=1", "plan.epochs=1"]
CONSOLE = (
    ["--version"],
    ["--help"],
    ["doctor"],
    ["train", "--data", "digits", "--noise", "cal:0.4", "--method", "cal", "--out", "run", *QUICK],
    ["fit", "table.csv", "--label", "kind", "--out", "fit", *QUICK, "folds=2"],
    ["predict", "fit", "table.csv", "--out", "predictions.csv"],
)
Show = Callable[[str, int, int], None]


def main() -> int:
    """Tries what was asked for; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("ages", nargs="+", choices=["oldest", "newest"], help="versions of the dependencies")
    add("--python", default=sys.executable, help="an interpreter (default: this one)")
    add("--torch", default=pinned("torch"), help="a version (default: that of constraints.txt)")
    args = parser.parse_args()
    failed = False
    for age in args.ages:
        with tempfile.TemporaryDirectory() as folder, step_bars() as show:
            row = tried(age, args.python, args.torch, Path(folder), show)
        known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
        minor = ".".join(row["python"].split(".")[:2])
        write_json(RECORD, known | {f"{age}, Python {minor}, torch {args.torch}": row})
        print(json.dumps(row))
        failed |= bool(row["tests"]["failed"])
    return int(failed)


def tried(age: str, python: str, torch: str, folder: Path, show: Show) -> dict[str, Any]:
    """One row: an environment, what is in it, and what ran there."""

    def say(done: int, what: str) -> None:
        show(f"{age}: {what}", done, 6)

    say(0, "building the wheel")
    wheel = built(folder / "wheel", isolated=True)
    say(1, "making an environment")
    environment = folder / "environment"
    run(python, "-m", "venv", environment)
    pip: list[str | Path] = [
        environment / "bin" / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
    ]
    # torch comes first, so that nothing else decides which.
    say(2, "installing torch")
    run(*pip, f"torch=={torch}")
    limits = folder / "limits.txt"
    bounds = oldest() if age == "oldest" else {}
    limits.write_text("".join(f"{n}=={v}\n" for n, v in {**bounds, "torch": torch}.items()))
    tools = [f"{name}=={pinned(name)}" for name in ("pytest", "hypothesis")]
    say(3, "installing the rest")
    run(*pip, "--constraint", limits, wheel, *tools)
    say(4, "running the console script")
    facts = check_console(environment / "bin" / "covlearn", folder / "console")
    say(5, "running tests")
    counts = tested(environment / "bin" / "python", folder)
    return {
        "python": facts["python"],
        "covlearn": facts["covlearn"],
        "commit": commit(),
        "machine": platform.machine(),
        "packages": facts["packages"],
        "console": [" ".join(words) for words in CONSOLE],
        "tests": counts,
    }


def oldest() -> dict[str, str]:
    """The lower bound of each dependency."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return dict(text.split(">=") for text in project["dependencies"])


def pinned(name: str) -> str:
    """The version in constraints.txt."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (version,) = re.findall(rf"^{name}==(.+)$", text, re.MULTILINE)
    return str(version)


def built(folder: Path, *, isolated: bool) -> Path:
    """The wheel of this source; without isolation hatchling must be installed."""
    how = [] if isolated else ["--no-build-isolation"]
    run(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", *how, "--wheel-dir", folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_console(script: Path, folder: Path) -> dict[str, Any]:
    """Runs the installed command as a user would; what its doctor says."""
    folder.mkdir()
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
        rows = ([n % 7, n % 3, "abc"[n % 3]] for n in range(60))
        csv.writer(file).writerows([["size", "weight", "kind"], *rows])
    for words in CONSOLE:
        run(script, *words, cwd=folder)
    facts: dict[str, Any] = json.loads(run(script, "doctor", "--json", cwd=folder))
    return facts


def tested(python: Path, folder: Path) -> dict[str, int]:
    """How many of the tests passed, on what is installed."""
    found = folder / "tests.xml"
    where = [f"--junitxml={found}", f"--basetemp={folder / 'tests'}", "-pno:cacheprovider"]
    done = subprocess.run(
        [python, "-m", "pytest", *TESTS, *where],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"the tests could not be run:\n{done.stdout}{done.stderr}")
    if done.returncode == 1:
        print(done.stdout, file=sys.stderr)
    (suite,) = ElementTree.parse(found).getroot()
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    skipped = int(suite.attrib["skipped"])
    passed = int(suite.attrib["tests"]) - failed - skipped
    return {"passed": passed, "skipped": skipped, "failed": failed}


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a command prints; its errors if it fails."""
    done = subprocess.run(
        command, cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def clean_environment() -> dict[str, str]:
    """The variables of this process without a path to the sources."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    sys.exit(main())
