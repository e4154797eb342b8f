"""Rows that took long to compute, in one file that is mapped into memory.

``NAME.npy`` is an ordinary array file that gets its name last; ``NAME.json`` beside it says which
examples were bad. Until all is done rows are appended to
``NAME.part``, and ``NAME.part.json`` says how far it has come: a run that was killed goes on from
there. One process at a time works on a name.
"""

import contextlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from covlearn import npz, records
from covlearn.plain_files import parse_json

try:
    import fcntl
except ImportError:  # where there is none, two processes at once are the user's care
    fcntl = None  # type: ignore[assignment]

HEADER_BYTES = 128
FACTS = {"done", "rows", "bad", "levels"}
LEVELS = 256  # of a byte
MAPPED_FROM = 2 << 30  # bytes; what is smaller is read into memory


@dataclass(frozen=True)
class Rows:
    """Rows in order, and why some examples have none: position and reason.

    ``levels`` counts the values of uint8 rows, (channels, 256), along their last axis.
    """

    rows: NDArray[Any]
    bad: list[tuple[int, str]]
    levels: NDArray[np.int64]


def level_counts(rows: NDArray[Any]) -> NDArray[np.int64]:
    """How often each value comes in each channel of uint8 rows; nothing of other rows."""
    if rows.dtype != np.uint8:
        return np.zeros((0, LEVELS), dtype=np.int64)
    return np.stack(
        [
            np.bincount(rows[..., channel].ravel(), minlength=LEVELS)
            for channel in range(rows.shape[-1])
        ]
    )


class RowFile:
    """The file of some rows in a folder, each of one shape and dtype."""

    def __init__(self, folder: Path, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.path = folder / f"{name}.npy"
        self.facts = folder / f"{name}.json"
        self.part = folder / f"{name}.part"
        self.part_facts = folder / f"{name}.part.json"

    def finished(self) -> Rows | None:
        """The rows, if all are there."""
        facts = _read(self.facts)
        if facts is None:
            return None
        try:
            large = self.path.stat().st_size >= MAPPED_FROM
            # Copy on write: torch wants memory that can be written, and the file must stay.
            rows = npz.read_array(self.path, mapped="c" if large else None)
            bad, levels = _bad(facts), _levels(facts)
        except (OSError, ValueError, TypeError, OverflowError):  # what is damaged is made anew
            return None
        if rows.shape != (facts["rows"], *self.shape) or rows.dtype != self.dtype:
            return None
        return Rows(rows, bad, levels)

    def header(self, rows: int) -> bytes:
        """The head of an array file, always of one length."""
        head = io.BytesIO()
        shape = (rows, *self.shape)
        np.lib.format.write_array_header_1_0(
            head, {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        )
        assert head.tell() == HEADER_BYTES
        return head.getvalue()


class Appending:
    """Appends rows to a :class:`RowFile`, from where an earlier process was stopped."""

    def __init__(self, file: RowFile) -> None:
        self.file = file
        self.row_bytes = int(np.prod(file.shape)) * file.dtype.itemsize
        file.path.parent.mkdir(parents=True, exist_ok=True)
        if file.part.is_symlink():  # somebody's link out of the folder is not written through
            file.part.unlink()
        self.stream = file.part.open("r+b" if file.part.exists() else "w+b")
        self.done, self.rows, self.bad = 0, 0, list[tuple[int, str]]()
        self.levels = level_counts(np.empty((0, *file.shape), dtype=file.dtype))

    def __enter__(self) -> "Appending":
        if fcntl is not None:
            try:
                fcntl.flock(self.stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self.stream.close()
                raise ValueError(
                    f"another process is reading the same data into {self.file.part}; wait for it, "
                    "or choose another cache folder"
                ) from error
        if not self._goes_on(_read(self.file.part_facts)):
            self.stream.write(self.file.header(0))
        self.stream.truncate(self._length(self.rows))
        self.stream.seek(0, os.SEEK_END)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stream.close()
        if kind is not None and self.done == 0:  # nothing that a later process could go on from
            self.file.part.unlink()
            with contextlib.suppress(OSError):  # others' rows may lie there
                self.file.part.parent.rmdir()

    def append(self, rows: NDArray[Any], *, done: int, bad: Sequence[tuple[int, str]]) -> None:
        """Rows more; from here a later process would go on with example ``done``."""
        assert rows.shape[1:] == self.file.shape
        assert rows.dtype == self.file.dtype
        self.stream.write(np.ascontiguousarray(rows).data)
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.done, self.rows = done, self.rows + len(rows)
        self.bad.extend(bad)
        self.levels = self.levels + level_counts(rows)
        records.write_json(self.file.part_facts, self._facts())

    def finish(self) -> Rows:
        """Gives the file its name and reads it back."""
        self.stream.seek(0)
        self.stream.write(self.file.header(self.rows))
        self.stream.flush()
        os.fsync(self.stream.fileno())
        # In this order a kill between the two leaves what the next process only has to rename.
        records.write_json(self.file.facts, self._facts())
        self.file.part.replace(self.file.path)
        self.file.part_facts.unlink(missing_ok=True)
        finished = self.file.finished()
        assert finished is not None
        return finished

    def _goes_on(self, facts: dict[str, Any] | None) -> bool:
        """Takes up what an earlier process left, if it is whole."""
        if facts is None or self._length(facts["rows"]) > self.file.part.stat().st_size:
            return False
        try:
            bad, levels = _bad(facts), _levels(facts)
        except (ValueError, TypeError, OverflowError):
            return False
        self.done, self.rows, self.bad, self.levels = facts["done"], facts["rows"], bad, levels
        return True

    def _length(self, rows: int) -> int:
        return HEADER_BYTES + rows * self.row_bytes

    def _facts(self) -> dict[str, Any]:
        bad = [list(entry) for entry in self.bad]
        return {
            "done": self.done,
            "rows": self.rows,
            "bad": bad,
            "levels": self.levels.tolist(),
        }


def _levels(facts: dict[str, Any]) -> NDArray[np.int64]:
    return np.array(facts["levels"], dtype=np.int64).reshape(-1, LEVELS)


def _bad(facts: dict[str, Any]) -> list[tuple[int, str]]:
    return [(position, reason) for position, reason in facts["bad"]]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        facts = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(facts, dict) or set(facts) != FACTS:
        return None
    counts = (facts["done"], facts["rows"])
    return facts if all(type(count) is int and count >= 0 for count in counts) else None
