"""Columns that say what the label says."""

import numpy as np
import pandas as pd
import pytest

from covlearn.inputs import read_examples
from covlearn.inputs.telling import share_told

ROWS = 200
LABEL = np.array(["benign", "malign", "unclear", "benign"] * (ROWS // 4))


def nearly(share: float) -> np.ndarray:
    """A code for each label, for some rows that of another."""
    code = np.array([{"benign": "b", "malign": "m", "unclear": "u"}[name] for name in LABEL])
    code[: round(ROWS * (1 - share))] = "x"
    return code


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (nearly(0.97), 0.985),  # x comes with benign, which is three of its six rows
        (np.arange(ROWS) % 4, 1.0),  # two numbers for one class
        (np.where(LABEL == "benign", "b", "other"), 0.0),  # tells one class from the rest
        (np.arange(ROWS) // 2, 0.0),  # so many values that each goes with a label by chance
        (["m", None, None, None] * (ROWS // 4), 0.0),
        ([[1.0, 2.0]] * ROWS, 0.0),
    ],
)
def test_the_share_that_a_column_tells(column: object, told: float) -> None:
    assert share_told(pd.Series(column), LABEL.tolist()) == pytest.approx(told)


def test_few_rows_tell_nothing() -> None:
    assert share_told(pd.Series(["a", "b"] * 20), [0, 1] * 20) == 0


def table(**columns: object) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"size": rng.normal(size=ROWS), **columns, "diagnosis": LABEL})


def test_it_is_noted_and_stays() -> None:
    examples = read_examples(table(code=nearly(0.97)), label="diagnosis")
    assert examples.x.shape[1] == 5
    (note,) = (note for note in examples.notes if "tell nearly all labels" in note)
    assert "code (98.5 % of them)" in note
    assert "--ignore" in note


def test_left_out_it_is_not_noted() -> None:
    examples = read_examples(table(code=nearly(0.97)), label="diagnosis", ignore=["code"])
    assert not [note for note in examples.notes if "tell nearly all" in note]


def test_a_good_feature_is_not_noted() -> None:
    rng = np.random.default_rng(1)
    grade = np.where(rng.random(ROWS) < 0.75, LABEL, "benign")  # right for most, tells each class
    examples = read_examples(table(grade=grade), label="diagnosis")
    assert share_told(pd.Series(grade), LABEL.tolist()) < 0.9
    assert not [note for note in examples.notes if "tell nearly all" in note]
