"""Files are written whole, and what killed writers leave is removed."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from covlearn import atomic, locks
from covlearn.atomic import remove_leftovers, write_bytes

WRITER = """
import os, sys
from pathlib import Path
from covlearn.atomic import write_bytes
os.fsync = lambda _: (print("writing", flush=True), sys.stdin.read())
write_bytes(Path(sys.argv[1]), b"half")
"""


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_bytes(path, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_no_one_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_bytes(path, b"old")
    seen = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(path.read_bytes()))
    with path.open("rb") as opened_before:
        write_bytes(path, b"new")
        seen.append(opened_before.read())  # the new one took its place, the old one is untouched
    assert seen == [b"old"] * 2
    assert path.read_bytes() == b"new"


def test_a_file_that_cannot_be_written_is_named_not_its_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a read-only file system not even a file that is not there can be deleted."""

    def refuse(self: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    for name in ("open", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    with pytest.raises(OSError, match="Read-only") as caught:
        write_bytes(tmp_path / "table.md", b"text")
    assert caught.value.filename == str(tmp_path / "table.md")


@pytest.fixture
def writing(tmp_path: Path) -> "subprocess.Popen[str]":
    """Another process that is in the middle of writing a.json."""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "a.json")]
    other = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii"
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "writing\n"
    return other


def test_what_a_killed_writer_left_goes_with_the_next_one(
    tmp_path: Path, writing: "subprocess.Popen[str]"
) -> None:
    (tmp_path / "b.json.1-2.partial").touch()  # of another file
    (tmp_path / "a.json.partial").touch()  # nothing that is written here is called so
    writing.send_signal(signal.SIGKILL)
    writing.communicate()
    assert len(os.listdir(tmp_path)) == 3
    write_bytes(tmp_path / "a.json", b"new")
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.json.partial", "b.json.1-2.partial"]


def test_what_somebody_writes_is_left_to_them(
    tmp_path: Path, writing: "subprocess.Popen[str]"
) -> None:
    write_bytes(tmp_path / "a.json", b"new")
    (other,) = tmp_path.glob("*.partial")
    os.utime(other, (0, 0))  # however long it takes
    remove_leftovers(tmp_path / "a.json")
    assert other.exists()
    writing.communicate("go on")
    assert writing.returncode == 0
    assert os.listdir(tmp_path) == ["a.json"]
    assert (tmp_path / "a.json").read_bytes() == b"half"


def test_where_nothing_can_be_locked_a_leftover_is_a_day_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    young, old = tmp_path / "a.1-2.partial", tmp_path / "a.3-4.partial"
    for path in (young, old):
        path.touch()
    os.utime(old, (time.time() - 90_000,) * 2)
    write_bytes(tmp_path / "a", b"new")
    assert sorted(os.listdir(tmp_path)) == ["a", "a.1-2.partial"]


def test_links_and_pipes_are_no_leftovers(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.touch()
    (tmp_path / "a.1-2.partial").symlink_to(kept)
    os.mkfifo(tmp_path / "a.3-4.partial")  # which nobody must wait for
    (tmp_path / "a.5-6.partial").mkdir()
    write_bytes(tmp_path / "a", b"new")
    assert kept.exists()
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_file_that_was_taken_for_a_leftover_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between being made and being locked it may be."""
    taken: list[Path] = []

    def late(file: int) -> bool | None:
        if not taken:
            taken.extend(tmp_path.glob("*.partial"))
            taken[0].unlink()
        return locks.lock(file)

    monkeypatch.setattr(atomic, "lock", late)
    write_bytes(tmp_path / "a", b"new")
    assert len(taken) == 1
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_name_is_not_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else who has just found a file unlocked would remove the next one of its name."""
    names: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda _: names.extend(tmp_path.glob("*.partial")))
    write_bytes(tmp_path / "a", b"1")
    write_bytes(tmp_path / "a", b"2")
    assert len(set(names)) == 2


def test_a_file_that_somebody_called_so_is_no_leftover(tmp_path: Path) -> None:
    names = ["a.json.1-2.partial", "a.mine.partial", "a.json.partial"]
    for name in names:
        (tmp_path / name).touch()
    write_bytes(tmp_path / "a", b"new")
    assert sorted(os.listdir(tmp_path)) == sorted(["a", *names])
