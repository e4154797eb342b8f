"""Columns in which a few far values would make all others the same number."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from covlearn.inputs import read_examples
from covlearn.inputs.numbers import KNOTS, by_rank, far_knots, standard

RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=1000)


def with_some(values: NDArray[Any], far: float, count: int = 2) -> NDArray[Any]:
    changed = values.astype(float)
    changed[:count] = far
    return changed


@pytest.mark.parametrize(
    ("values", "ranked"),
    [
        (NORMAL, False),
        (np.exp(NORMAL), False),
        (RNG.exponential(size=1000), False),
        (RNG.uniform(size=1000), False),
        ((RNG.uniform(size=1000) < 0.03).astype(float), False),  # a rare yes
        (RNG.poisson(0.5, size=1000).astype(float), False),
        (np.where(RNG.uniform(size=1000) < 0.7, 0.0, np.abs(NORMAL)), False),
        (np.arange(10.0), False),
        (np.exp(2 * NORMAL), True),
        (RNG.standard_cauchy(size=1000), True),
        (with_some(NORMAL, 1e6), True),
        (with_some(NORMAL, -1e300), True),
        (with_some(RNG.poisson(0.5, size=1000), 99_999.0), True),
        (with_some(NORMAL, -999.0, 100), True),  # stands for a missing value
    ],
)
def test_ranks_count_where_few_values_make_the_deviation(
    values: NDArray[np.float64], ranked: bool
) -> None:
    knots = far_knots(values, standard(values)[1])
    assert (knots is not None) == ranked
    if knots is None:
        return
    made = by_rank(values, knots)
    assert np.abs(made).max() < 2.5
    assert 0.4 < made.std() < 1.1
    order = values.argsort()
    assert (np.diff(made[order]) >= 0).all()


@given(st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=KNOTS))
def test_more_is_never_less(knots: list[float]) -> None:
    values = np.sort(np.concatenate([knots, np.linspace(min(knots) - 1, max(knots) + 1, 50)]))
    made = by_rank(values, sorted(knots))
    assert np.isfinite(made).all()
    assert (np.diff(made) >= -1e-12).all()


def test_a_typing_error_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    table = pd.DataFrame({"x": NORMAL, "other": NORMAL[::-1], "label": NORMAL > 0})
    table.loc[5, "x"] = 1e7
    table.loc[6, "x"] = None
    table.to_csv(tmp_path / "t.csv", index=False)
    examples = read_examples(tmp_path / "t.csv", label="label")
    assert "columns in which few values lie far off, so that ranks count: x" in examples.notes
    column, missing, *_ = examples.x.numpy().T
    rest = np.flatnonzero(np.abs(table["x"]) < 1.5)
    np.testing.assert_allclose(column[rest], NORMAL[rest], atol=0.2)
    assert column[5] > 2.3
    assert (column[6], missing[6]) == (0.0, 1.0)
    again = read_examples(tmp_path / "t.csv", recipe=examples.recipe)
    assert (again.x == examples.x).all()


@pytest.mark.parametrize("knots", [[1.0], "much", [1.0, "two"]])
def test_damaged_knots_are_refused(tmp_path: Path, knots: Any) -> None:
    table = pd.DataFrame({"x": np.exp(3 * NORMAL), "label": NORMAL > 0})
    table.to_csv(tmp_path / "t.csv", index=False)
    recipe = dict(read_examples(tmp_path / "t.csv", label="label").recipe)
    recipe["columns"] = [recipe["columns"][0] | {"knots": knots}]
    with pytest.raises(ValueError, match="it is damaged"):
        read_examples(tmp_path / "t.csv", recipe=recipe)
