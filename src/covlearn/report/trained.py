"""What the files of a run of ``covlearn train`` say, checked: someone else may have made them."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from covlearn import records
from covlearn.plain_files import read_json

TRANSITIONS = {"estimated": ("T̂", "the refined label"), "true": ("T", "the clean label")}


def known_columns(record: records.Record, num_classes: int) -> dict[str, NDArray[np.float64]]:
    """The columns of labels.csv that are known, as numbers; classes are those that there are."""
    try:
        known = {
            name: np.array(column, dtype=float)
            for name, column in (record.labels or {}).items()
            if column and column[0] is not None
        }
        for name in ("given", "clean", "prediction"):
            values = known.get(name, np.zeros(0))
            if not ((values >= -1) & (values < num_classes)).all() or (values % 1).any():
                raise ValueError(f"{name} must hold class numbers below {num_classes:,}")
        if (known.get("given", np.zeros(0)) < 0).any():
            raise ValueError("given must hold a class of each example")
    except (ValueError, TypeError) as error:
        raise ValueError(f"{record.folder / records.LABELS} cannot be shown: {error}") from error
    return known


def check_result(record: records.Record) -> None:
    """What is said of D̂ is there and of its kind."""
    labels = None if record.result is None else record.result.labels
    if labels is None:
        return
    quality = labels.get("quality") if "quality" in labels else ""
    figures = quality if isinstance(quality, dict) else {"precision": None, "recall": None}
    values = [
        labels.get("changed", ""),
        *(figures.get(name, "") for name in ("precision", "recall")),
    ]
    if not isinstance(quality, dict | None) or not all(
        isinstance(value, float | int | None) for value in values
    ):
        raise ValueError(
            f"{record.folder / records.RESULT} must say how good the refined labels are; it is "
            "damaged"
        )


def known_transitions(path: Path, num_classes: int) -> dict[str, NDArray[np.float64]]:
    """What a run's refinement.json says of T and T̂."""
    made = (read_json(path) if path.exists() else {}).get("transition", {})
    try:
        found = {name: np.array(made[name], dtype=float) for name in TRANSITIONS if name in made}
        if any(values.shape != (num_classes, num_classes) for values in found.values()):
            raise ValueError("a row and a column a class were expected")
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} must hold transitions, but it is damaged: {error}") from error
    return found
