"""Columns that say what the label says."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from covlearn.inputs import read_examples, telling
from covlearn.inputs.tables import make_recipe
from tests.inputs.make import reading

ROWS = 200
LABEL = np.array(["benign", "malign", "unclear", "benign"] * (ROWS // 4))


def share_told(column: pd.Series, labels: Sequence[object]) -> float:
    return telling.share_told(column, telling.classes_of(labels))


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
        (np.where(LABEL == "benign", "b", "other"), 0.0),  # fewer values than classes
        (np.where(LABEL == "unclear", "b", nearly(0.97)), 0.0),  # one class is never told
        (np.arange(ROWS) // 2, 0.0),  # so many values that each goes with a label by chance
        (["m", None, None, None] * (ROWS // 4), 0.0),
        ([[1.0, 2.0]] * ROWS, 0.0),
    ],
)
def test_the_share_that_a_column_tells(column: object, told: float) -> None:
    assert share_told(pd.Series(column), LABEL.tolist()) == pytest.approx(told)


def test_what_is_rare_must_be_told_too() -> None:
    labels = ["ok"] * 190 + ["fraud"] * 10
    flagged = pd.Series([False] * 199 + [True])
    assert share_told(flagged, labels) == 0  # 95.5 %, where a constant tells 95 %
    assert share_told(pd.Series([False] * 192 + [True] * 8), labels) == pytest.approx(0.99)


def test_in_whatever_order_the_rows_are() -> None:
    column, labels = pd.Series(["u"] * 90 + ["v"] * 10), ["a"] * 95 + ["b"] * 5
    assert share_told(column, labels) == share_told(column[::-1], labels[::-1])


@pytest.mark.parametrize(("num_values", "num_classes", "told"), [(60, 2, 0.0), (70, 60, 1.0)])
def test_how_many_values_it_may_have(num_values: int, num_classes: int, told: float) -> None:
    value = np.arange(2_100) % num_values
    assert share_told(pd.Series(value), (value % num_classes).tolist()) == told


@pytest.mark.parametrize(
    "dtype", ["object", "str", "float64", "Int64", "category", "datetime64[ns]"]
)
def test_a_missing_cell_is_a_value(dtype: str) -> None:
    code = pd.Series(LABEL).map({"benign": 0, "malign": 1, "unclear": 2}).astype(dtype)
    code[::4] = None  # rows of the first class
    assert share_told(code, LABEL.tolist()) == 1
    examples = read_examples(table(code=code, year=2000.0), label="diagnosis")
    assert len(examples.x) == ROWS


def test_yes_no_and_missing_are_three_values() -> None:
    answer = pd.Series([None, True, False, None] * (ROWS // 4), dtype="boolean")
    assert share_told(answer, LABEL.tolist()) == 1


def test_labels_are_looked_at_once_for_all_columns() -> None:
    """Of two thousand columns theirs was most of the time."""
    looked_at = []

    class Label(str):
        def __str__(self) -> str:
            looked_at.append(self)
            return str.__str__(self)

    numbers = np.random.default_rng(0).normal(size=(ROWS, 5))
    columns = pd.DataFrame({"code": nearly(0.97)}).join(
        pd.DataFrame(numbers, columns=list("abcde"))
    )
    make_recipe(columns, list(columns), reading(), labels=[Label(name) for name in LABEL])
    assert len(looked_at) == ROWS


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


@pytest.mark.parametrize(("share", "noted"), [(0.86, True), (0.78, False)])
def test_from_nine_in_ten_on(share: float, noted: bool) -> None:
    examples = read_examples(table(code=nearly(share)), label="diagnosis")
    assert (share_told(pd.Series(nearly(share)), LABEL.tolist()) >= 0.9) == noted
    assert any("tell nearly all labels" in note for note in examples.notes) == noted


def test_left_out_it_is_not_noted() -> None:
    examples = read_examples(table(code=nearly(0.97)), label="diagnosis", ignore=["code"])
    assert not [note for note in examples.notes if "tell nearly all" in note]


def test_a_good_feature_is_not_noted() -> None:
    rng = np.random.default_rng(1)
    grade = np.where(rng.random(ROWS) < 0.75, LABEL, "benign")  # right for most, tells each class
    examples = read_examples(table(grade=grade), label="diagnosis")
    assert share_told(pd.Series(grade), LABEL.tolist()) < 0.9
    assert not [note for note in examples.notes if "tell nearly all" in note]


def scored(*, wrong: int, classes: int = 2) -> pd.DataFrame:
    """A score by which so many rows are on the wrong side, with the labels it was made from."""
    rng = np.random.default_rng(0)
    given = np.arange(ROWS) % classes
    score = given + rng.uniform(-0.4, 0.4, ROWS)
    score[:wrong] = (given[:wrong] + 1) % classes
    return pd.DataFrame({"size": rng.normal(size=ROWS), "score": score, "label": given})


@pytest.mark.parametrize("classes", [2, 3])
def test_a_score_that_was_made_from_the_labels_is_noted(classes: int) -> None:
    for wrong in (0, 1):
        (note,) = read_examples(scored(wrong=wrong, classes=classes)).notes
        assert "tell nearly all labels by themselves: score (" in note
    gaps = scored(wrong=0, classes=classes)
    gaps.loc[0, "score"] = np.nan
    assert "score (99.5 % of them)" in read_examples(gaps).notes[0]


def test_a_feature_that_tells_many_labels_is_not() -> None:
    assert not read_examples(scored(wrong=6)).notes
    rare = scored(wrong=0)
    rare["label"] = np.arange(ROWS) == 7  # a constant tells 99.5 %
    assert not read_examples(rare.assign(label=rare["label"] | (np.arange(ROWS) == 11))).notes
