"""Dates in text: which number is the day, the same in new data, and what is left as text."""

import copy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from covlearn.inputs import read_examples
from covlearn.inputs.dates import EXAMPLES, ORDERS, date_order, days_of

WRITTEN = {
    "day first": ["31.12.2023", "1.1.2024", "02.01.2024", "5.1.2024"],
    "month first": ["12/31/2023", "1/1/2024", "01/02/2024", "1/5/2024"],
    "year first": ["2023-12-31", "2024-01-01", "2024-01-02", "2024-01-05"],
}


def table(when: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({"when": when, "label": ["a", "b", "a", "b"]})


@pytest.mark.parametrize("order", ORDERS)
def test_all_orders_are_the_same_days(order: str) -> None:
    examples = read_examples(table(WRITTEN[order]))
    (column,) = examples.recipe["columns"]
    assert (column["kind"], column["order"]) == ("date", order)
    assert column["mean"] == pytest.approx(19722 + 8 / 4)
    assert torch.equal(examples.x, read_examples(table(WRITTEN["year first"])).x)
    said = [note for note in examples.notes if "were read with the" in note]
    expected = f"columns of dates that were read with the {order}: when"
    assert said == ([] if order == "year first" else [expected])


@pytest.mark.parametrize("order", ORDERS)
def test_new_dates_are_read_in_the_order_of_training(order: str) -> None:
    examples = read_examples(table(WRITTEN[order]))
    # Alone, the third could be either.
    new = pd.DataFrame({"when": [WRITTEN[order][2]]})
    assert torch.equal(read_examples(new, recipe=examples.recipe).x, examples.x[2:3])
    with pytest.raises(ValueError, match=f"must hold a date as {EXAMPLES[order]}, got soon"):
        read_examples(pd.DataFrame({"when": ["soon"]}), recipe=examples.recipe)


def test_times_and_other_marks() -> None:
    days, bad = days_of(
        pd.Series(["1-2-2024 12:00", "1.2.1600", "31.2.2024", "1.2/2024"]), "day first"
    )
    assert bad.tolist() == [False, False, True, True]
    assert days[0] == pytest.approx(19754.5)
    assert days[1] == pytest.approx(-135109)


@pytest.mark.parametrize(
    ("cells", "order"),
    [
        (["1.2.2024", "3.4.2024"], "day first"),
        (["1/2/2024", "3/4/2024"], "day or month first"),
        (["13/2/2024", "3/4/2024"], "day first"),
        (["1-2-2024", "3-14-2024"], "month first"),
        (["13/2/2024", "3/14/2024"], None),
        (["1.2.2024", "3.14.2024"], "month first"),
        (["1.2.24", "3.4.24"], None),
        (["1.2.2024", "soon"], None),
        (["1.2.2024", "2024-02-01"], None),
        (["32.1.2024", "1.1.2024"], None),
        (["2024-13-01", "2024-01-02"], None),
        (["soon", "1.2.2024"], None),
    ],
)
def test_the_order_is_told_by_all_cells(cells: list[str], order: str | None) -> None:
    assert date_order(pd.Series(cells)) == order


def test_what_could_be_either_is_text_with_a_word() -> None:
    examples = read_examples(table(["1/2/2024", "3/4/2024"] * 2))
    assert examples.recipe["columns"][0]["kind"] == "category"
    assert any(
        note
        == "columns of dates in which day and month could be either, read as text: when; write "
        "them as 2024-05-31"
        for note in examples.notes
    )


def test_a_csv_file_with_such_dates(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    table(WRITTEN["day first"]).to_csv(path, index=False)
    examples = read_examples(path, label="label")
    assert examples.recipe["columns"][0]["order"] == "day first"


def test_recipes_from_before_have_the_year_first_and_others_must_have_an_order() -> None:
    examples = read_examples(table(WRITTEN["year first"]))
    before = copy.deepcopy(examples.recipe)
    del before["columns"][0]["order"]
    new = pd.DataFrame({"when": WRITTEN["year first"]})
    assert torch.equal(read_examples(new, recipe=before).x, examples.x)
    before["columns"][0]["order"] = "last"
    with pytest.raises(ValueError, match="it is damaged"):
        read_examples(new, recipe=before)
