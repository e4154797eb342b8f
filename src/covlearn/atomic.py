"""Files that are the old one or the new one, never half of either."""

import contextlib
import glob
import os
import re
import secrets
import shutil
import tempfile
import time
from pathlib import Path

from covlearn.locks import lock

PARTIAL = ".partial"  # how the name of a file that is being written ends
A_DAY = 24 * 60 * 60  # in seconds


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Writes a file beside its place and moves it there; what killed writers left is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    while not _written(path, beside(path), content):
        pass


def check_can_write(path: Path) -> None:
    """Refuses a file or a folder that could not be written, before there is something to write."""
    there = next(each for each in (path, *path.absolute().parents) if each.is_dir())
    try:  # permissions alone do not tell: root has them all, and not every disk can be written to
        with tempfile.TemporaryFile(dir=there, suffix=PARTIAL):
            pass
    except OSError as error:
        raise ValueError(
            f"{path} cannot be made: nothing can be written in {there} "
            f"({error.strerror}); choose another place"
        ) from error


def beside(path: Path) -> Path:
    """A name that nobody else has, on no machine, for what is written before it has its own."""
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")


def remove_leftovers(path: Path) -> None:
    """Removes what processes left of this file or folder that were killed while they wrote it."""
    for partial in path.parent.glob(f"{glob.escape(path.name)}.*{PARTIAL}"):
        # Earlier versions had numbers in place of the token.
        if re.fullmatch("[0-9a-f-]+", partial.name[len(path.name) + 1 : -len(PARTIAL)]):
            remove_leftover(partial)


def remove_leftover(partial: Path) -> None:
    """Removes what nobody writes: that would be locked, on whichever machine.

    Where nothing can be locked, it is a leftover after a day.
    """
    with contextlib.suppress(OSError):  # it has just been moved, or is not ours to remove
        # Links are not followed, and a pipe is not waited for.
        found = os.open(partial, os.O_RDONLY | _flag("O_NOFOLLOW") | _flag("O_NONBLOCK"))
        try:
            free = lock(found)
            if free is None:
                free = time.time() - os.fstat(found).st_mtime > A_DAY
            if free and partial.is_dir():
                shutil.rmtree(partial)
            elif free:
                partial.unlink()
        finally:
            os.close(found)


def rename_file(error: OSError, partial: Path, path: Path) -> None:
    """Has the error name the file that the user chose instead of the one beside it."""
    if error.filename is None or str(error.filename) == str(partial):
        error.filename = str(path)


def without_links(path: str, flags: int) -> int:
    """Opens a file to write to, but no link to one, which might be anywhere."""
    return os.open(path, flags | _flag("O_NOFOLLOW"), 0o666)


def _written(path: Path, partial: Path, content: bytes | memoryview) -> bool:
    """Whether the file is in its place; not if somebody took it for a leftover."""
    try:
        with partial.open("xb") as file:
            if lock(file.fileno()) is False or not partial.exists():
                return False
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":  # which moves no open file
                file.close()
            partial.replace(path)
            return True
    except OSError as error:
        rename_file(error, partial, path)
        raise
    finally:
        with contextlib.suppress(OSError):  # the first error is the one to report
            partial.unlink(missing_ok=True)


def _flag(name: str) -> int:
    return getattr(os, name, 0)  # not every system has them
