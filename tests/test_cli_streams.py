"""The command line in places that are not as usual: closed output, odd encodings, folders that
cannot be looked into, and folders with files that libraries might take for modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from covlearn import cli
from tests.bench_table import small_table
from tests.test_cli_fit import QUICK, clouds

FIT = ["fit", "cells.csv", "--label", "kind", "--out", "run", *QUICK, "plan.epochs=1", "decays=[]"]


def write_cells(path: Path) -> None:
    rows = [[*map(str, x), f"class {y}"] for x, y in zip(*clouds(60, seed=0), strict=True)]
    lines = [["a", "b", "c", "d", "kind"], *rows]
    path.write_text("".join(f"{','.join(line)}\n" for line in lines))


def in_shell(line: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """A line with the command as its console script is: modules are not looked for in ``cwd``.

    Output is kept back as Python does unless told otherwise, so that some is left at the end.
    """
    program = f'"{sys.executable}" -P -m covlearn '
    env = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        line.replace("covlearn ", program),
        shell=True,
        cwd=cwd,
        env=env,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_files_beside_the_data_are_no_modules(tmp_path: Path) -> None:
    """Libraries look for optional ones, and would run a file of such a name."""
    write_cells(tmp_path / "cells.csv")
    names = ("pytz", "opt_einsum", "pynvml", "bottleneck", "numexpr", "timm", "triton", "own")
    for name in names:
        (tmp_path / f"{name}.py").write_text(f"open('ran-{name}', 'w')\n")
    done = in_shell(f"covlearn {' '.join(FIT)}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("ran-*")) == []
    named = in_shell("covlearn methods own:Method", tmp_path)  # but what is named is found there
    assert named.returncode == 2
    assert (tmp_path / "ran-own").exists()


@pytest.mark.parametrize(
    "line",
    [
        "covlearn methods >&-",
        "covlearn noise --list >&-",
        "covlearn data list >&-",
        "covlearn noise --data digits --kind symmetric:0.2 --out labels.npz >&- 2>&-",
        "PYTHONIOENCODING=ascii covlearn methods >out.txt",
        "PYTHONIOENCODING=ascii covlearn fit --help >out.txt",
        "PYTHONIOENCODING=latin-1 covlearn noise --list >out.txt",
    ],
)
def test_output_that_is_closed_or_not_in_utf8_stops_nothing(line: str, tmp_path: Path) -> None:
    done = in_shell(line, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    write_cells(tmp_path / "cells.csv")
    for line in ("data list", "methods", " ".join(FIT)):
        done = in_shell(f"covlearn {line} >/dev/full", tmp_path)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1:] == [
            "covlearn: cannot read or write the output: No space left on device"
        ]
    assert (tmp_path / "run" / "result.json").exists()  # the run itself is whole


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("covlearn fit --help >/dev/full", 2, "the output: No space left on device\n"),
        ("covlearn --version >/dev/full", 2, "the output: No space left on device\n"),
        ("covlearn data check labels nothing.npz 2>/dev/full", 2, ""),
        ("covlearn data fetch 2>/dev/full", 2, ""),
        ("(covlearn fit --help; echo $? >code) | true", 1, ""),
        ("(covlearn data list; echo $? >code) | true", 1, ""),
        ("(covlearn data check labels nothing.npz 2>&1; echo $? >code) | true", 2, ""),
    ],
)
def test_a_broken_stream_ends_in_a_code_and_no_traceback(
    line: str, code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "code").write_text("")
    done = in_shell(line, tmp_path)
    ended = (tmp_path / "code").read_text()
    assert (int(ended) if ended else done.returncode) == code
    assert done.stderr.endswith(said)
    assert done.stderr.count("\n") == bool(said)


def test_progress_that_nobody_reads_any_more_ends_no_run(tmp_path: Path) -> None:
    small_table(tmp_path)
    line = "covlearn bench small.toml --trials 1 --folder runs --device cpu"
    done = in_shell(f"({line} 2>&1 >table; echo $? >code) | true", tmp_path)
    assert (done.stderr, (tmp_path / "code").read_text()) == ("", "0\n")
    assert len(list(tmp_path.glob("runs/*/*/*/0/result.json"))) == 4
    assert "A small table" in (tmp_path / "table").read_text()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal that can be closed")
def test_a_terminal_that_is_closed_ends_no_run(tmp_path: Path) -> None:
    """One that was left by disown, or by setsid, which is sent no signal then."""
    write_cells(tmp_path / "cells.csv")
    ours, theirs = os.openpty()
    command = [sys.executable, "-P", "-m", "covlearn", *FIT]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=theirs, stdout=subprocess.PIPE, start_new_session=True
    ) as running:
        os.close(theirs)
        assert os.read(ours, 1000), "bars"
        os.close(ours)
        said = running.communicate(timeout=300)[0].decode()
    assert running.returncode == 0
    assert "Look and decide: run/report.html" in said


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    done = in_shell("cd gone && rmdir ../gone && covlearn methods own:Method", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("covlearn: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["fit", "train", "clean", "predict"])
@pytest.mark.parametrize("name", ["x" * 300, "file/run", "dangling", "odd\udcff"])
def test_a_place_that_cannot_be(
    command: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_cells(Path("cells.csv"))
    if command in ("clean", "predict"):
        assert cli.main(FIT) == 0
        capsys.readouterr()
    Path("file").touch()
    Path("dangling").symlink_to("nowhere")
    words = {
        "fit": ["cells.csv", "--label", "kind"],
        "train": ["--data", "digits", "--method", "ce"],
        "clean": ["run"],
        "predict": ["run", "cells.csv"],
    }[command]
    code = cli.main([command, *words, "--out", name])
    if command in ("clean", "predict") and name.startswith("odd"):  # no record has their name
        assert code == 0
        return
    assert code == 2
    said = capsys.readouterr().err
    assert said.startswith("covlearn: ")
    assert said.count("\n") == 1
    assert not Path("nowhere").exists()
