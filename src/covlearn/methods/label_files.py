"""Refined labels, or probabilities to refine labels by, that were made elsewhere."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from covlearn import npz
from covlearn.checks import check_labels, check_probs

SUGGESTED = "suggested"  # the column of a run's labels.csv that holds D̂


def read_labels(path: str, num_examples: int, num_classes: int) -> Tensor:
    """D̂ (N,) from a file of N class numbers, −1 where an example was dropped.

    A table may have one column, or like a run's labels.csv one that is called ``suggested``.
    """
    readers = {".npy": _read_array, ".npz": _read_array, ".txt": _read_text, ".csv": _read_text}
    values = _read(path, readers, what="labels")
    try:
        return check_labels(
            values, num_classes=num_classes, length=num_examples, name="labels", dropped=True
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}{_held_out(values, num_examples)}") from error


def read_probs(path: str, num_examples: int, num_classes: int) -> Tensor:
    """Probabilities (N, K) from a file, one row an example in the order of the training set."""
    values = _read(path, {".npy": _read_array, ".npz": _read_array}, what="probs")
    try:
        probs = check_probs(values, num_classes=num_classes)
        if len(probs) != num_examples:
            raise ValueError(
                f"probs must have one row an example, {num_examples}, got {len(probs)}"
            )
    except ValueError as error:
        raise ValueError(f"{path}: {error}{_held_out(values, num_examples)}") from error
    return probs


def _held_out(values: NDArray[Any], num_examples: int) -> str:
    if values.ndim == 0 or len(values) == num_examples:
        return ""
    return "; what is held out is no training example, and the file must not have it either"


def _read(path: str, readers: dict[str, Any], *, what: str) -> NDArray[Any]:
    read = readers.get(Path(path).suffix.lower())
    if read is None:
        raise ValueError(f"{what} must be a file that ends in {', '.join(readers)}, got {path!r}")
    if not Path(path).is_file():
        raise ValueError(f"{what} must be a file, and {path!r} is none; check the path")
    try:
        values: NDArray[Any] = read(Path(path), what)
    except (ValueError, OverflowError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as {what}: {error}") from error
    return values


def _read_array(path: Path, what: str) -> NDArray[Any]:
    if path.suffix.lower() == ".npy":
        return npz.read_array(path)
    arrays = npz.read_arrays(path)
    if what not in arrays and len(arrays) != 1:
        raise ValueError(f"expected one array, or one named {what}, got {', '.join(arrays)}")
    return arrays[what if what in arrays else next(iter(arrays))]


def _read_text(path: Path, what: str) -> NDArray[Any]:  # noqa: ARG001  as _read_array
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    column = 0
    if rows and not _is_integer(rows[0][0]):
        header = [name.strip() for name in rows.pop(0)]
        column = header.index(SUGGESTED) if SUGGESTED in header else 0
        if len(header) > 1 and SUGGESTED not in header:
            raise ValueError(
                f"expected one column, or one named {SUGGESTED}, got {', '.join(map(repr, header))}"
            )
        place = header.index("idx") if "idx" in header else None
        if place is not None and any(
            row[place : place + 1] != [str(number)] for number, row in enumerate(rows)
        ):
            raise ValueError(
                "expected the examples in order, idx 0, 1, 2, …, got others; labels of a run that "
                "held examples out fit no other run: train it with --holdout 0"
            )
    elif rows and len(rows[0]) > 1:
        raise ValueError(f"expected one label a line, got {len(rows[0])} values in the first")
    labels = []
    for number, row in enumerate(rows):
        cell = row[column] if column < len(row) else ""
        if not _is_integer(cell):
            raise ValueError(f"expected a class number, got {cell!r} for example {number}")
        labels.append(int(cell))
    return np.array(labels, dtype=np.int64)


def _is_integer(text: str) -> bool:
    return text.strip().removeprefix("-").isdecimal()
