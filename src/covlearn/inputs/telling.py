"""Columns that say what the label says: who learns from them learns its errors, too."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

FEWEST_COMPARED = 50  # rows from which a column can be told to be the label again
MOST_VALUES, ROWS_A_VALUE = 50, 10
TELLING = 0.9
CERTAIN = 0.99  # of a column of many numbers, which may well tell nine labels in ten by itself
ROWS_LOOKED_AT = 20_000


def classes_of(labels: Sequence[Any]) -> NDArray[np.int64]:
    """Labels as numbers, in the order of their texts whatever the rows' is.

    Whoever asks about many columns makes them once.
    """
    classes: NDArray[np.int64] = pd.factorize(pd.Series(map(str, labels)), sort=True)[0]
    return classes


def repeats_labels(column: Any, classes: NDArray[np.int64]) -> bool:
    """Whether each value belongs to one class and each class to one value."""
    if not _comparable(column) or column.isna().any():
        return False
    num_classes = int(classes.max()) + 1
    if column.dtype.kind in "iuf" and column.nunique() > num_classes:
        return False  # it has no fewer texts, which take long to make
    values = pd.factorize(column.astype(str))[0]
    pairs = len(np.unique(values * num_classes + classes))
    return bool(pairs == values.max() + 1 == num_classes)


def share_told(column: Any, classes: NDArray[np.int64]) -> float:
    """The share of the labels that come with the column's value most often, or 0.

    It is 0 where the column cannot stand for the label: of a class fewer than half are told, as
    where one class is nearly all there is, or it has so many values that each comes with one label
    by chance. A missing cell is a value, too.

    >>> classes = classes_of(["bad", "bad", "good", "good"] * 25)
    >>> share_told(pd.Series(["m", "m", "m", "b"] * 25), classes)
    0.75
    """
    if not _comparable(column):
        return 0.0
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


def share_split(values: NDArray[np.float64], column: Any, classes: NDArray[np.int64]) -> float:
    """The share of the labels that one range of a column of numbers for each class tells, or 0.

    ``values`` are those of the column's cells that are there. A score of an earlier model tells
    them so. It is 0 where always naming the largest class errs less than ten times as often.

    >>> score = pd.Series([0.1, 0.2, 0.3, 0.7, 0.8] * 20)
    >>> share_split(score.to_numpy(), score, classes_of(["no", "no", "no", "yes", "yes"] * 20))
    1.0
    """
    if not _comparable(column):
        return 0.0
    step = max(1, len(values) // ROWS_LOOKED_AT)
    classes = classes[column.notna().to_numpy()][::step]
    values = values[::step]
    counts = np.bincount(classes)
    if np.isnan(values).any() or not 2 <= np.count_nonzero(counts) <= MOST_VALUES:
        return 0.0
    places = np.argsort(values, kind="stable")
    values, classes = values[places], classes[places]
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    middle = {one: np.median(np.flatnonzero(classes == one)) for one in np.flatnonzero(counts)}
    told = np.zeros(len(ends) + 1)  # at most, of the rows up to each place, by the classes so far
    for one in sorted(middle, key=middle.__getitem__):
        of_class = np.append(0, np.cumsum(classes == one)[ends])
        told = of_class + np.maximum.accumulate(told - of_class)
    untold = len(classes) - told[-1]
    if 10 * untold > len(classes) - counts.max():
        return 0.0
    return float(told[-1] / len(column.iloc[::step]))


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
