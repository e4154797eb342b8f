"""Run folders that are full, read-only, left by a kill, or wanted by two processes."""

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from covlearn import records
from covlearn.cli import main
from covlearn.locks import held
from covlearn.records import Result, start_as
from tests.bench_table import small_table
from tests.runs import assert_same_run, fit
from tests.test_records import CONFIG

ROOT = Path(__file__).resolve().parents[2]
PAGE = 4096


def training(folder: Path, *, hidden: int = 8) -> list[str]:
    what = ["--data", "digits", "--method", "ce", "--device", "cpu", "--out", str(folder)]
    return ["train", *what, "--set", "plan.epochs=2", f"net.hidden=[{hidden}]"]


@contextlib.contextmanager
def mounted(place: Path, *options: str) -> Iterator[None]:
    """A file system of its own at a folder, where the system lets us."""
    done = subprocess.run(
        ["mount", *options, str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"mounting needs rights that are not at hand: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


# --- what a kill leaves


def test_a_configuration_that_was_being_written_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "config.json.17.partial").write_text("{")
    (tmp_path / "film.partial").touch()  # of somebody else
    assert start_as(Result, tmp_path, CONFIG, resume=True) is None
    assert sorted(os.listdir(tmp_path)) == ["config.json", "film.partial"]


def test_checkpoints_left_after_the_result_are_cleared_away(tmp_path: Path) -> None:
    fit(tmp_path / "run")
    stages = tmp_path / "run" / "stages"
    stages.mkdir()
    (stages / "cal.pt").write_bytes(b"left by a kill between the result and the end")
    fit(tmp_path / "run", resume=True)
    assert not stages.exists()


def test_an_export_in_a_run_folder_that_was_killed_stops_no_run(tmp_path: Path) -> None:
    fit(tmp_path / "run")
    (tmp_path / "run" / "clean.17.partial").mkdir()
    (tmp_path / "run" / "result.json.17.partial").touch()
    fit(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").glob("*.partial")] == ["clean.17.partial"]


# --- two processes


def test_who_is_refused_touches_nothing(tmp_path: Path) -> None:
    """The temporary files that it finds are those of the run at work."""

    def meanwhile(stage: str, epochs: int, history: list[dict[str, float]]) -> None:
        writing = tmp_path / "stages" / "x.pt.1-2.partial"
        writing.parent.mkdir(exist_ok=True)
        writing.touch()
        with pytest.raises(ValueError, match="another process is at work in"):
            fit(tmp_path, resume=True)
        assert writing.exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, progress=meanwhile)


def test_two_processes_that_start_at_once_are_told_apart(tmp_path: Path) -> None:
    """Before there is any file in the folder that could be locked."""
    folder = tmp_path / "run"
    folder.mkdir()
    with held(folder):
        done = subprocess.run(
            [sys.executable, "-m", "covlearn", *training(folder)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == (
        f"covlearn: another process is at work in {folder}; wait for it, or choose another folder\n"
    )
    assert os.listdir(folder) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are of POSIX systems")
def test_a_process_that_was_forked_off_does_not_keep_the_folder(tmp_path: Path) -> None:
    """Readers of images outlive a run that was killed by half a second."""
    with held(tmp_path):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        with pytest.raises(ValueError, match="another process is at work"), held(tmp_path):
            pass  # the child's going does not let go of it for us
    try:
        assert free_within(10, tmp_path)
        assert child.is_alive()
    finally:
        child.kill()
        child.join()


def free_within(seconds: float, folder: Path) -> bool:
    """A process that was just forked off may take a moment to let go."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(ValueError), held(folder):
            return True
        time.sleep(0.01)
    return False


# --- the disk


def test_a_full_disk_is_named_and_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small file system that another file fills up, but for a few pages more each time."""
    disk, whole = tmp_path / "disk", tmp_path / "run"
    disk.mkdir()
    assert main(training(whole, hidden=128)) == 0
    failures = []
    with mounted(disk, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        folder, ballast = disk / "run", disk / "ballast"
        for free in range(1, 200, 6):
            ballast.write_bytes(bytes(PAGE * (os.statvfs(disk).f_bavail - free)))
            capsys.readouterr()
            code = main([*training(folder, hidden=128), "--resume"])
            ballast.unlink()
            if code == 0:
                break
            said = capsys.readouterr().err
            failures.append(sorted(os.listdir(folder)) if folder.exists() else [])
            assert code == 2
            assert said.count("\n") == 1
            assert "No space left on device" in said
            assert str(folder) in said
            assert not list(disk.rglob("*.partial"))
        assert code == 0
        assert_same_run(folder, whole)
    assert len(failures) >= 4, failures
    assert any("stages" in names for names in failures), failures


FIT = ["--label", "label", "--device", "cpu", "--set", "net.hidden=[8]", "plan.epochs=1",
       "sieve_plan.epochs=1", "folds=2"]  # fmt: skip


@pytest.mark.parametrize("command", ["fit", "clean", "predict", "report", "noise", "bench"])
def test_a_full_disk_is_named_by_every_command_that_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    disk, run, table = tmp_path / "disk", tmp_path / "run", tmp_path / "a.csv"
    disk.mkdir()
    table.write_text("a,label\n" + "1,x\n2,y\n" * 20)
    if command in ("clean", "predict", "report"):
        assert main(["fit", str(table), "--out", str(run), *FIT]) == 0
    out = disk / "out"
    argv = {
        "fit": ["fit", str(table), "--out", str(out), *FIT],
        "clean": ["clean", str(run), "--out", str(out)],
        "predict": ["predict", str(run), str(table), "--out", str(out.with_suffix(".csv"))],
        "report": ["report", str(run), "--out", str(out.with_suffix(".html"))],
        "noise": ["noise", "--data", "digits", "--kind", "symmetric:0.4",
                  "--out", str(out.with_suffix(".npz"))],
        "bench": ["bench", str(small_table(tmp_path)), "--folder", str(out), "--device", "cpu"],
    }[command]  # fmt: skip
    with mounted(disk, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        (disk / "ballast").write_bytes(bytes(PAGE * os.statvfs(disk).f_bavail))
        capsys.readouterr()
        assert main(argv) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("covlearn: ")
        assert "No space left on device" in said
        assert str(out) in said
        assert not list(disk.rglob("*.partial"))
        (disk / "ballast").unlink()
        assert main(argv) == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's
def test_curves_that_do_not_fit_leave_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    disk = tmp_path / "disk"
    disk.mkdir()
    fit(tmp_path / "run")
    before = set(threading.enumerate())
    with mounted(disk, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        (disk / "ballast").write_bytes(bytes(PAGE * os.statvfs(disk).f_bavail))
        capsys.readouterr()
        assert main(["export", str(tmp_path / "run"), "--tensorboard", str(disk / "board")]) == 2
        assert f"{disk / 'board'}: No space left on device" in capsys.readouterr().err
        assert os.listdir(disk) == ["ballast"]
    for thread in set(threading.enumerate()) - before:
        thread.join(10)  # else what it raises is taken for the next test's


@pytest.mark.parametrize("command", ["train", "fit"])
def test_a_read_only_folder_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """A mount: permissions do not bind every user who may run this."""
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "a.csv").write_text("a,label\n" + "1,x\n2,y\n" * 20)
    argv = {
        "train": training(place / "run"),
        "fit": ["fit", str(tmp_path / "a.csv"), "--label", "label", "--out", str(place / "run")],
    }[command]
    with mounted(place, "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs"):
        assert main(argv) == 2
        said = capsys.readouterr().err
    assert said.startswith("covlearn: ")
    assert said.count("\n") == 1
    assert str(place) in said


def test_a_folder_that_becomes_read_only_keeps_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, whole = tmp_path / "place", tmp_path / "run"
    place.mkdir()
    assert main(training(whole)) == 0
    append = records.append_metrics

    def remounting(folder: Path, *line: object) -> None:
        append(folder, *line)  # type: ignore[arg-type]
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)

    with mounted(place, "-t", "tmpfs", "-o", "size=8m", "tmpfs"):
        monkeypatch.setattr(records, "append_metrics", remounting)
        capsys.readouterr()
        assert main(training(place / "run")) == 2
        said = capsys.readouterr().err
        assert "Read-only file system; nothing that was saved is lost, continue with:" in said
        subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
        monkeypatch.setattr(records, "append_metrics", append)
        assert main([*training(place / "run"), "--resume"]) == 0
        assert_same_run(place / "run", whole)


def test_a_finished_run_is_read_from_a_read_only_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    with mounted(place, "-t", "tmpfs", "-o", "size=8m", "tmpfs"):
        assert main([*training(place / "run"), "--json"]) == 0
        before = json.loads(capsys.readouterr().out)
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        assert main([*training(place / "run"), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == before


def test_a_refused_run_leaves_no_folder(tmp_path: Path) -> None:
    place = tmp_path / "run"
    settings = ["--set", "threshold=auto", "upper=1"]
    line = ["train", "--data", "digits", "--noise", "cal:0.4", "--method", "cal", *settings]
    assert main([*line, "--out", str(place)]) == 2
    assert not place.exists()
