"""Files that are the old one or the new one, never half of either."""

import contextlib
import glob
import os
import threading
import time
from pathlib import Path
from typing import BinaryIO

from covlearn.locks import lock

PARTIAL = ".partial"  # how the name of a file that is being written ends
A_DAY = 24 * 60 * 60  # in seconds


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Writes a file beside its place and moves it there; what killed writers left is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    # A name of its own for each writer, so that no two of them share a file.
    partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}{PARTIAL}")
    try:
        with _begun(partial) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":  # which moves no open file
                file.close()
            partial.replace(path)
    except OSError as error:
        rename_file(error, partial, path)
        raise
    finally:
        with contextlib.suppress(OSError):  # the first error is the one to report
            partial.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Removes what processes left of this file that were killed while they wrote it.

    A file that somebody is writing, on whichever machine, is locked. Where nothing can be locked,
    it is a leftover after a day.
    """
    for partial in path.parent.glob(f"{glob.escape(path.name)}.*{PARTIAL}"):
        with contextlib.suppress(OSError):  # it has just become the file, or is not ours to remove
            # Links are not followed, and a pipe is not waited for.
            found = os.open(partial, os.O_RDONLY | _flag("O_NOFOLLOW") | _flag("O_NONBLOCK"))
            try:
                free = lock(found)
                if free is None:
                    free = time.time() - os.fstat(found).st_mtime > A_DAY
                if free:
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


def _begun(partial: Path) -> BinaryIO:
    """A new file with a lock on it, so that nobody takes it for a leftover."""
    while True:
        partial.unlink(missing_ok=True)  # nobody's link at this place is followed out of the folder
        file = partial.open("xb")
        if lock(file.fileno()) is not False and os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # somebody took it for one before it was locked


def _flag(name: str) -> int:
    return getattr(os, name, 0)  # not every system has them
