"""Columns that are not to be learned from."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from covlearn.inputs import read_examples


def frame(**more: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=40), "b": rng.normal(size=40), "label": list("xy") * 20}
    return pd.DataFrame(columns | more)


def test_an_ignored_column_has_no_part_in_the_inputs_nor_in_the_recipe() -> None:
    table = frame(team=["red", "blue"] * 20)
    whole, without = read_examples(table), read_examples(table, ignore=["team"])
    assert [each["name"] for each in whole.recipe["columns"]] == ["a", "b", "team"]
    assert [each["name"] for each in without.recipe["columns"]] == ["a", "b"]
    assert without.x.equal(whole.x[:, :2])
    assert list(without.table.columns) == list(table.columns)  # exports have it
    # New rows may do without it.
    again = read_examples(table.drop(columns="team"), recipe=without.recipe)
    assert again.x.equal(without.x)


def test_an_ignored_id_stays_ignored_when_the_recipe_is_used() -> None:
    table = frame(id=["same", "other"] * 20)
    examples = read_examples(table, ignore=["id"])
    again = read_examples(table, recipe=examples.recipe)
    assert again.ids == examples.ids == [str(row) for row in range(40)]


def test_an_ignored_column_is_neither_id_nor_image() -> None:
    table = frame(id=range(100, 140), path=[f"{n}.png" for n in range(40)])
    examples = read_examples(table, ignore=["id", "path"])
    assert examples.ids[:2] == ["0", "1"]
    assert examples.x.shape == (40, 2)


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("annotator", True),
        ("Annotator ID", True),
        ("labeled_by", True),
        ("rater", True),
        ("first_labeller", True),
        ("operator", False),
        ("rating", False),
        ("moderator", False),
        ("rated_by_age", False),
        ("n_raters", False),
        ("number of annotators", False),
    ],
)
def test_columns_that_say_who_labelled_are_left_out(name: str, left_out: bool) -> None:
    examples = read_examples(frame(**{name: ["Ann", "Bob"] * 20}))
    learned = [column["name"] for column in examples.recipe["columns"]]
    assert learned == ["a", "b"] + [name] * (not left_out)
    assert any(f"{name} (it seems to say who" in note for note in examples.notes) == left_out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ignore": ["anotator"]}, "no column 'anotator', which ignore names; did you mean"),
        ({"ignore": ["label"], "label": "label"}, "cannot be both label and ignored"),
        ({"ignore": ["label"]}, "the label\\? None that is not ignored is called label"),
        ({"ignore": "annotator"}, r"ignore must be .*, got 'annotator'"),
        ({"ignore": ["a", "b", "annotator"]}, "must have a column to learn from"),
    ],
)
def test_what_cannot_be_ignored_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_examples(frame(annotator=["Ann", "Bob"] * 20), **options)


def test_only_tables_have_columns_to_ignore(tmp_path: Path) -> None:
    x, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="the data has no columns to ignore"):
        read_examples((x, y), ignore=["a"])
    table = frame()
    recipe = read_examples(table).recipe
    with pytest.raises(ValueError, match="a recipe says which columns are used; leave ignore="):
        read_examples(table, recipe=recipe, ignore=["a"])
    np.savez(tmp_path / "data.npz", x=x, y=y)
    with pytest.raises(ValueError, match="has no columns to ignore"):
        read_examples(tmp_path / "data.npz", ignore=["x"])
    table["image"] = [f"{n}.png" for n in range(40)]
    with pytest.raises(ValueError, match="the images of its column 'image' alone"):
        read_examples(table, ignore=["a"])
    assert read_examples(table, ignore=["image"]).x.shape == (40, 2)
