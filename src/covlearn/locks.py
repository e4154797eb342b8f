"""Who may work in a run folder, or write a file: one process at a time."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


_locks: set[int] = set()
"""Descriptors of the folders that this process holds."""


class Held(ValueError):
    """Another process is at work there."""


@contextlib.contextmanager
def held(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Keeps others out of a folder, as far as the system can; ends with the process.

    ``wait`` has it wait for another process that is in it, which must not take long then.
    """
    if fcntl is None:
        yield
        return
    file = os.open(folder, os.O_RDONLY)  # no file in it: those are replaced
    _locks.add(file)
    try:
        if lock(file, wait=wait) is False:
            raise Held(
                f"another process is at work in {folder}; wait for it, or choose another folder"
            )
        yield
    finally:
        if file in _locks:  # not so in a process that was forked off
            _locks.remove(file)
            os.close(file)


def in_use(file: Path) -> bool:
    """Whether another process holds a lock file."""
    if fcntl is None:
        return False
    with contextlib.suppress(FileNotFoundError), file.open("rb") as there:
        return lock(there.fileno()) is False
    return False


def lock(file: int, *, wait: bool = False) -> bool | None:
    """Locks an open file until it is closed; False if another has, None where none can be."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def _let_go() -> None:
    """A process that was forked off, such as a reader of images, must not outlive the lock."""
    while _locks:
        os.close(_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
