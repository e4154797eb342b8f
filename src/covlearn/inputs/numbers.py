"""Columns of numbers brought to one scale, whatever their size and however far some of them lie.

Where a few values make the deviation, as incomes do, prices, or a typing error of six digits, all
others would be the same number to a network once they are divided by it. Such a column is laid on
the normal distribution by its quantiles.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

KNOTS = 65  # odd, so that the median is one of them
FAR = 2.5
"""So many times the deviation of a normal distribution of the same middle: from there on a few
values make it. That of incomes, whose logarithm is normal with deviation 1, is 1.8 times."""
MOST_ALIKE = 1 / 3
"""A column of which more are the same value is counts or a yes and no, whose middle says little."""
OUTER = 0.01


def standard(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and deviation of finite values, whatever their size."""
    scale = float(np.abs(values).max()) or 1.0
    shares = values / scale
    return float(shares.mean()) * scale, float(shares.std()) * scale


def standardised(values: NDArray[Any], mean: Any, std: Any) -> NDArray[np.float64]:
    """(values − mean) / std; halves, as the difference of two large numbers may be too large."""
    with np.errstate(over="ignore", invalid="ignore"):
        result: NDArray[np.float64] = (values / 2 - np.asarray(mean) / 2) / (np.asarray(std) / 2)
    return result


def far_knots(values: NDArray[np.float64], std: float) -> list[float] | None:
    """The quantiles to lay a column of this deviation on the normal distribution by.

    None where no few values make the deviation, so that dividing by it does.

    >>> values = np.arange(1000.0)
    >>> far_knots(values, values.std()) is None
    True
    >>> values[7] = 1e9
    >>> knots = far_knots(values, values.std())
    >>> by_rank(np.array([knots[0], knots[32], 1e9, 1e12]), knots).round(1)
    array([-2.4,  0. ,  2.4,  2.4])
    """
    normal = NormalDist()
    share = normal.cdf(1.0)
    halves = values / 2  # whose differences are not too large
    low, lower, upper, high = np.quantile(halves, (OUTER, 1 - share, share, 1 - OUTER))
    _, count = np.unique(values, return_counts=True)
    # Of all sorts of columns, and of those that have a middle.
    outer = (high - low) / normal.inv_cdf(1 - OUTER)
    middle = upper - lower if count.max() <= MOST_ALIKE * len(values) else np.inf
    if not (0 < outer < std / FAR or 0 < middle < std / FAR):
        return None
    knots = 2 * np.quantile(halves, np.linspace(0, 1, KNOTS))
    with np.errstate(over="ignore"):
        finite = bool(np.isfinite(np.diff(knots)).all())
    return knots.tolist() if finite else None


def by_rank(values: NDArray[np.float64], knots: Sequence[float]) -> NDArray[np.float64]:
    """The place of each value among the knots as a quantile of the normal distribution."""
    places, scores = scored(knots)
    return np.interp(values, places, scores)


def scored(knots: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The different knots, and of each the mean of the normal quantiles at which it stands."""
    normal = NormalDist()
    places, where = np.unique(np.asarray(knots, dtype=np.float64), return_inverse=True)
    quantiles = [normal.inv_cdf((number + 0.5) / len(knots)) for number in range(len(knots))]
    return places, np.bincount(where, weights=quantiles) / np.bincount(where)
