"""Columns that say what the label says: who learns from them learns its errors, too."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

FEWEST_COMPARED = 50  # rows from which a column can be told to be the label again
MOST_VALUES, ROWS_A_VALUE = 50, 10
TELLING = 0.9


def repeats_labels(column: Any, labels: Sequence[Any]) -> bool:
    """Whether each value belongs to one class and each class to one value."""
    if not _comparable(column) or column.isna().any():
        return False
    pairs = set(zip(column.astype(str), map(str, labels), strict=True))
    return len(pairs) == len({value for value, _ in pairs}) == len({label for _, label in pairs})


def share_told(column: Any, labels: Sequence[Any]) -> float:
    """The share of the labels that come with the column's value most often, or 0.

    It is 0 where the column cannot stand for the label: of a class fewer than half are told, as
    where one class is nearly all there is, or it has so many values that each comes with one label
    by chance. A missing cell is a value, too.

    >>> share_told(pd.Series(["m", "m", "m", "b"] * 25), ["bad", "bad", "good", "good"] * 25)
    0.75
    """
    if not _comparable(column):
        return 0.0
    classes = pd.factorize(pd.Series(map(str, labels)), sort=True)[0]  # whatever the rows' order
    values = _codes(column)
    num_classes, num_values = int(classes.max()) + 1, int(values.max()) + 1
    most = min(max(MOST_VALUES, 2 * num_classes), len(values) // ROWS_A_VALUE)
    if not num_classes <= num_values <= most:
        return 0.0
    cells = np.bincount(values * num_classes + classes, minlength=num_values * num_classes)
    counts = cells.reshape(num_values, num_classes)
    told = np.zeros(num_classes)
    np.add.at(told, counts.argmax(axis=1), counts.max(axis=1))
    if (2 * told < counts.sum(axis=0)).any():
        return 0.0
    return float(told.sum() / len(values))


def _codes(column: Any) -> Any:
    """A number for each value; cells that cannot be compared count by their text."""
    try:
        return pd.factorize(column, use_na_sentinel=False)[0]
    except TypeError:
        return pd.factorize(column.map(str), use_na_sentinel=False)[0]


def _comparable(column: Any) -> bool:
    if len(column) < FEWEST_COMPARED:
        return False
    return not isinstance(column.iloc[0], np.ndarray | list | tuple | dict | set)
