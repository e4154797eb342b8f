"""Who may work in a run folder: one process at a time."""

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
def held(folder: Path) -> Iterator[None]:
    """Keeps others out of a run folder, as far as the system can; ends with the process."""
    if fcntl is None:
        yield
        return
    lock = os.open(folder, os.O_RDONLY)  # no file in it: those are replaced
    _locks.add(lock)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Held(
                f"another process is at work in {folder}; wait for it, or choose another folder"
            ) from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        if lock in _locks:  # not so in a process that was forked off
            _locks.remove(lock)
            os.close(lock)


def in_use(file: Path) -> bool:
    """Whether another process holds a lock file."""
    if fcntl is None:
        return False
    with contextlib.suppress(FileNotFoundError), file.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
    return False


def is_alive(process: int) -> bool:
    """Whether there is a process of this number on this machine, as far as can be told."""
    if os.name != "posix":
        return True  # where signal 0 would end it
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    return process > 0  # 0 is this group of processes


def _let_go() -> None:
    """A process that was forked off, such as a reader of images, must not outlive the lock."""
    while _locks:
        os.close(_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
