"""Columns as numbers, and a recipe by which other rows become the same numbers."""

import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covlearn.inputs import Examples, dates, read_examples
from covlearn.inputs.tables import feature_names
from tests.inputs.make import text


def table(**columns: Any) -> pd.DataFrame:
    length = len(next(iter(columns.values())))
    return pd.DataFrame({**columns, "label": ["a", "b"] * (length // 2) + ["a"] * (length % 2)})


def columns_of(examples: Examples) -> dict[str, list[float]]:
    names = feature_names(examples.recipe)
    assert len(names) == examples.x.shape[1]
    return {name: examples.x[:, place].tolist() for place, name in enumerate(names)}


def test_numbers_are_standardised() -> None:
    values = [1.0, 2.0, 4.0, 9.0]
    examples = read_examples(table(size=values))
    expected = (np.array(values) - 4) / np.sqrt(9.5)
    np.testing.assert_allclose(examples.x.flatten(), expected, rtol=1e-6)
    assert examples.x.dtype == torch.float32
    assert examples.recipe["kind"] == "table"
    assert examples.recipe["label"] == "label"
    assert examples.paths is None


def test_missing_numbers_are_the_mean_and_have_a_column() -> None:
    columns = columns_of(read_examples(table(size=[1.0, None, 3.0, np.nan], whole=[5.0, 6, 8, 7])))
    assert columns["size"] == [-1, 0, 1, 0]
    assert columns["size: missing"] == [0, 1, 0, 1]
    assert "whole: missing" not in columns


def test_categories_are_columns_of_zero_and_one() -> None:
    columns = columns_of(read_examples(table(colour=["red", "blue ", None, "red"])))
    assert columns == {
        "colour=blue": [0, 1, 0, 0],
        "colour=red": [1, 0, 0, 1],
        "colour: missing": [0, 0, 1, 0],
    }


def test_truth_and_other_numbers() -> None:
    examples = read_examples(
        table(
            truth=[True, False, True, True],
            nullable=pd.array([1, None, 3, 4], dtype="Int64"),
            exact=[Decimal("1.5"), Decimal("2"), Decimal("2"), Decimal("4")],
        )
    )
    kinds = {column["name"]: column["kind"] for column in examples.recipe["columns"]}
    assert kinds == {"truth": "number", "nullable": "number", "exact": "number"}
    assert columns_of(examples)["nullable: missing"] == [0, 1, 0, 0]


def test_dates_are_days() -> None:
    texts = ["2024-01-01", "2024-01-02", "2024-01-03T12:00:00Z", None]
    for column in (texts, pd.to_datetime(pd.Series(texts), format="ISO8601", utc=True)):
        examples = read_examples(table(when=column))
        (recipe,) = examples.recipe["columns"]
        assert recipe["kind"] == "date"
        assert recipe["mean"] == pytest.approx(19723 + 3.5 / 3)  # days since 1970
        assert columns_of(examples)["when: missing"] == [0, 0, 0, 1]
    days = columns_of(
        read_examples(table(when=["2024-01-01", "2024-01-02", "2024-01-05", "2024-01-02"]))
    )
    first, second, third, _ = days["when"]
    assert (third - first) / (second - first) == pytest.approx(4, rel=1e-5)
    old = read_examples(table(when=["1600-01-01", "1600-01-03", "2999-01-01", "2024-01-01"]))
    first, second, *_ = columns_of(old)["when"]
    deviation = old.recipe["columns"][0]["std"]
    assert (second - first) * deviation == pytest.approx(2, rel=0.05)  # float32 of five centuries
    # 2024-13-01 reads like a date and is none: the column is text.
    examples = read_examples(table(when=["2024-13-01", "2024-01-02"] * 2))
    assert examples.recipe["columns"][0]["kind"] == "category"


def test_lists_of_numbers_are_vectors() -> None:
    vectors = [[1.0, 10.0], [2.0, 20.0], [3.0, 60.0], [2.0, 30.0]]
    examples = read_examples(table(embedding=vectors))
    expected = np.array(vectors)
    expected = (expected - expected.mean(axis=0)) / expected.std(axis=0)
    np.testing.assert_allclose(examples.x, expected, rtol=1e-6)
    with pytest.raises(
        ValueError, match=r"1: column 'embedding' must hold a list of 2 finite numbers"
    ):
        read_examples(table(embedding=[[1.0, 10.0], [2.0], [3.0, 60.0], [3.0, 4.0]]))


def test_columns_that_are_left_out_are_named() -> None:
    many = 60
    examples = read_examples(
        table(
            customer_id=np.arange(many)[::-1] * 7,
            number=np.arange(5, 5 + many),
            constant=[3] * many,
            same=["x"] * many,
            nothing=[None] * many,
            name=[f"person {place}" for place in range(many)],
            mostly=[f"text {min(place, 57)}" for place in range(many)],
            blob=[b"x", b"y", b"z"] * (many // 3),
            area=np.arange(many) ** 2,  # all different, and no id
            size=np.linspace(0, 1, many),
        )
    )
    assert [column["name"] for column in examples.recipe["columns"]] == ["area", "size"]
    reasons = examples.recipe["left_out"]
    assert reasons["customer_id"] == reasons["number"] == "it looks like an id"
    assert reasons["constant"] == reasons["same"] == "it has one value only"
    assert reasons["nothing"] == "it is empty"
    assert reasons["name"] == "every row has another text"
    assert "come once only" in reasons["mostly"]
    assert "bytes" in reasons["blob"]
    assert any("customer_id (it looks like an id)" in note for note in examples.notes)


def test_the_label_again_is_left_out() -> None:
    count = 60
    columns: dict[str, Any] = {
        "label_number": [0, 1] * (count // 2),
        "label_name": ["cat", "dog"] * (count // 2),
        "nearly": ["cat", "dog"] * (count // 2 - 1) + ["dog", "dog"],
        "finer": ["cat", "dog", "cat", "wolf"] * (count // 4),
    }
    examples = read_examples(table(**columns))
    assert [column["name"] for column in examples.recipe["columns"]] == ["nearly", "finer"]
    assert examples.recipe["left_out"] == {
        "label_number": "it says the same as the label",
        "label_name": "it says the same as the label",
    }
    few = {name: values[:40] for name, values in columns.items()}
    assert len(read_examples(table(**few)).recipe["columns"]) == 4  # too few rows to tell


def test_a_table_of_nothing_usable() -> None:
    with pytest.raises(ValueError, match=r"none is usable: constant \(it has one value only\)"):
        read_examples(table(constant=[1, 1, 1, 1]))
    with pytest.raises(ValueError, match="none is usable: no other"):
        read_examples(pd.DataFrame({"label": ["a", "b"] * 2}))


def test_rare_categories_are_one() -> None:
    frequent = [f"c{place:02}" for place in range(50)] * 2
    rare = [f"a{place}" for place in range(10)]  # first in the alphabet
    values = frequent + rare
    columns = columns_of(read_examples(table(kind=values)))
    assert len(columns) == 51
    assert columns["kind: other"] == [0] * 100 + [1] * 10
    assert np.sum(list(columns.values()), axis=0).tolist() == [1] * 110


def test_other_rows_become_the_same_numbers() -> None:
    trained = read_examples(
        table(size=[1.0, 2.0, None, 5.0], colour=["red", "blue", "red", None], extra=[1, 2, 3, 5])
    )
    recipe = json.loads(json.dumps(trained.recipe))
    new = pd.DataFrame(
        {
            "unasked": [0, 0, 0],
            "colour": [None, "green", "red"],
            "extra": ["2", 3, 1.0],
            "size": [5.0, None, 1.0],
        }
    )
    examples = read_examples(new, recipe=recipe)
    columns, known = columns_of(examples), columns_of(trained)
    assert examples.given is None
    assert examples.recipe == trained.recipe
    assert columns["size"] == [known["size"][3], 0, known["size"][0]]
    assert columns["size: missing"] == [0, 1, 0]
    assert columns["colour=red"] == [0, 0, 1]
    assert columns["colour=blue"] == [0, 0, 0]  # green is not known, and 0 everywhere
    assert columns["colour: missing"] == [1, 0, 0]
    assert columns["extra"] == [known["extra"][place] for place in (1, 2, 0)]


def test_whole_numbers_as_categories_may_become_floats() -> None:
    trained = read_examples(table(kind=pd.Categorical([1, 2, 1, 2])))
    # A missing cell makes floats of the others.
    new = read_examples(pd.DataFrame({"kind": [1, None]}), recipe=trained.recipe)
    assert columns_of(new) == {"kind=1": [1, 0], "kind=2": [0, 0]}


def test_what_training_had_none_of() -> None:
    trained = read_examples(table(size=[1.0, 2.0, 3.0, 5.0], colour=["red", "blue"] * 2))
    examples = read_examples(
        pd.DataFrame({"size": [None, 2.0], "colour": ["red", None]}), recipe=trained.recipe
    )
    columns = columns_of(examples)
    assert columns["size"][0] == 0
    assert columns["colour=red"] == [1, 0]
    assert columns["colour=blue"] == [0, 0]


def test_columns_that_are_missing_are_named() -> None:
    trained = read_examples(table(size=[1.0, 2.0, 3.0, 5.0], colour=["red", "blue"] * 2))
    with pytest.raises(ValueError, match=r"but colour is missing; it has size, weight"):
        read_examples(pd.DataFrame({"size": [1.0], "weight": [2]}), recipe=trained.recipe)


def test_bad_cells_are_named_with_row_and_column() -> None:
    trained = read_examples(table(size=[1.0, 2.0, 3.0, 5.0]))
    new = pd.DataFrame({"size": ["1", "many", "inf", "1_0", "1e300"]})
    with pytest.raises(ValueError, match=r"4 examples .* 1: column 'size' must hold .* got many"):
        read_examples(new, recipe=trained.recipe)
    examples = read_examples(new, recipe=trained.recipe, on_bad="skip")
    assert examples.ids == ["0"]
    assert torch.equal(examples.x, trained.x[:1])
    assert [item.id for item in examples.skipped] == ["1", "2", "3", "4"]
    with pytest.raises(ValueError, match=r"2: column 'size' must hold a finite number"):
        read_examples(table(size=[1.0, 2.0, np.inf, 5.0]))
    examples = read_examples(table(size=[1.0, 2.0, np.inf, 5.0, 6.0, 7.0]), on_bad="skip")
    assert examples.ids == ["0", "1", "3", "4", "5"]
    assert examples.table["size"].tolist() == [1, 2, 5, 6, 7]
    assert bool(examples.x.isfinite().all())


def test_the_table_is_left_as_it_was() -> None:
    source = table(size=[1.0, None, 3.0, 5.0], colour=["red ", "blue"] * 2)
    before = source.copy(deep=True)
    examples = read_examples(source)
    pd.testing.assert_frame_equal(source, before)
    pd.testing.assert_frame_equal(examples.table, before)


def test_the_other_kind_of_recipe(tmp_path: Path) -> None:
    trained = read_examples((np.eye(4), ["a", "b"] * 2))
    with pytest.raises(
        ValueError,
        match=r"the table holds a table, but the model was fitted to features; name an .npz or .npy file, or a",
    ):
        read_examples(table(size=[1.0, 2.0]), recipe=trained.recipe)
    with pytest.raises(ValueError, match="recipe must be that of examples"):
        read_examples(table(size=[1.0, 2.0]), recipe={"kind": "table"})
    with pytest.raises(ValueError, match="recipe must have format 1, got 99"):
        read_examples(table(size=[1.0, 2.0]), recipe=trained.recipe | {"format": 99})
    whole = read_examples(table(size=[1.0, 2.0, 3.0, 5.0])).recipe
    (column,) = whole["columns"]
    for damaged in ({"decimal_comma": "no"}, {"columns": [column | {"odd_is_missing": 1}]}):
        with pytest.raises(ValueError, match="it is damaged"):
            read_examples(table(size=[1.0, 2.0]), recipe=whole | damaged)


NUMBERS = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-9, 9))
WORDS = st.one_of(
    st.none(),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=6),
    st.sampled_from(["01", "1", "1.0", "NA", "x", "2024-05-31", "true"]),
)


@given(st.data())
def test_rows_of_a_csv_file_are_the_same_in_any_other(data: st.DataObject) -> None:
    length = data.draw(st.integers(4, 12))

    def drawn(cells: st.SearchStrategy[Any]) -> list[Any]:
        return data.draw(st.lists(cells, min_size=length, max_size=length))

    whole = table(
        sure=np.sqrt(np.arange(length)),
        number=drawn(NUMBERS),
        word=drawn(WORDS),
        other=drawn(WORDS),
    )
    some_rows = data.draw(
        st.lists(st.integers(0, length - 1), min_size=1, max_size=length, unique=True)
    )
    with tempfile.TemporaryDirectory() as folder:
        whole.to_csv(Path(folder) / "train.csv", index=False)
        trained = read_examples(Path(folder) / "train.csv")
        written = trained.table.iloc[some_rows]
        written.to_csv(Path(folder) / "new.csv", index=False)
        new = read_examples(Path(folder) / "new.csv", recipe=trained.recipe)
        again = read_examples(written, recipe=trained.recipe)
    assert bool(trained.x.isfinite().all())
    assert torch.equal(new.x, trained.x[some_rows])
    assert torch.equal(again.x, trained.x[some_rows])
    assert new.given == [(trained.given or [])[row] for row in some_rows]


def test_scales_of_any_size() -> None:
    for scale in (1e-300, 1e-30, 1.0, 1e30, 1e300):
        values = np.array([-1.7, 1.0, 0.5, 0.2]) * scale
        examples = read_examples(table(size=values))
        expected = np.array([-1.7, 1.0, 0.5, 0.2])
        np.testing.assert_allclose(
            examples.x.flatten(), (expected - expected.mean()) / expected.std(), rtol=1e-5
        )


def test_numbers_whose_difference_is_none() -> None:
    values = np.array([-1.7, 1.7, 1.7, 1.6])
    examples = read_examples(table(size=values * 1e308))
    np.testing.assert_allclose(
        examples.x.flatten(), (values - values.mean()) / values.std(), rtol=1e-5
    )


def test_parquet_and_csv_agree(tmp_path: Path) -> None:
    source = table(size=[1.25, 2.5, np.nan, 5.0], colour=["red", "blue", None, "red"])
    source.to_csv(tmp_path / "x.csv", index=False)
    source.to_parquet(tmp_path / "x.parquet")
    csv, parquet, memory = (
        read_examples(which) for which in (tmp_path / "x.csv", tmp_path / "x.parquet", source)
    )
    assert torch.equal(csv.x, parquet.x)
    assert torch.equal(csv.x, memory.x)
    assert csv.recipe == parquet.recipe == memory.recipe
    text(tmp_path / "new.csv", "size,colour", "1.25,red")
    new = read_examples(tmp_path / "new.csv", recipe=csv.recipe)
    assert torch.equal(new.x, csv.x[:1])


@pytest.mark.parametrize(
    ("written", "days"),
    [
        ("0001-01-01", -719162),
        ("1600-01-01", -135140),
        ("1600-01-01 12:00", -135139.5),
        ("1600-01-01T00:00:00+12:00", -135140.5),
        ("9999-12-31T23:59:59.999999Z", 2932896.99999999998),
        ("1600-13-01", None),
        ("9999-12-31 25:00", None),
    ],
)
def test_dates_beyond_nanoseconds(written: str, days: float | None) -> None:
    (found,), (bad,) = dates.days_of(pd.Series([written]), "year first")
    assert bad == (days is None)
    assert bad or found == pytest.approx(days, abs=1e-9)


WRITTEN = pd.DataFrame(
    {"width": np.arange(40) ** 2 / 8, "weight": np.arange(40) % 3 + 0.5, "label": ["a", "b"] * 20}
)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_decimal_commas(tmp_path: Path, delimiter: str) -> None:
    WRITTEN.to_csv(tmp_path / "x.csv", sep=delimiter, decimal=",", index=False)
    examples = read_examples(tmp_path / "x.csv")
    assert torch.equal(examples.x, read_examples(WRITTEN).x)
    (note,) = examples.notes
    assert note == "columns of numbers that were read with a decimal comma: width, weight"
    assert read_examples(tmp_path / "x.csv", look=True).notes == examples.notes
    # 3,125 alone could be thousands, but training has said what it is.
    new = text(tmp_path / "new.csv", f"width{delimiter}weight", f"3,125{delimiter}2,5")
    assert torch.equal(read_examples(new, recipe=examples.recipe).x, examples.x[5:6])
    plain = read_examples(WRITTEN.iloc[5:6], recipe=examples.recipe)
    assert torch.equal(plain.x, examples.x[5:6])


def test_commas_that_are_not_clear_stay_text(tmp_path: Path) -> None:
    thousands = [f"{place % 7 + 1},{place % 5}00" for place in range(40)]
    for delimiter, cells in ((";", thousands), (",", [f'"{cell}"' for cell in thousands])):
        lines = [f"{cell}{delimiter}{'ab'[place % 2]}" for place, cell in enumerate(cells)]
        examples = read_examples(text(tmp_path / "x.csv", f"n{delimiter}label", *lines))
        assert examples.recipe["columns"][0]["kind"] == "category"
        assert any("look like numbers but were read as text: n (40 of" in n for n in examples.notes)
    lines = [f'"{place % 7},5",{"ab"[place % 2]}' for place in range(40)]  # answers 1 and 5
    examples = read_examples(text(tmp_path / "x.csv", "n,label", *lines))
    assert examples.recipe["columns"][0]["kind"] == "category"


def test_a_few_texts_among_numbers_are_missing(tmp_path: Path) -> None:
    cells = [str(place**2) for place in range(58)]
    odd = table(area=[*cells, "?", " unknown"])
    odd.to_csv(tmp_path / "x.csv", index=False)
    for source in (tmp_path / "x.csv", odd):
        examples = read_examples(source)
        columns = columns_of(examples)
        assert columns["area: missing"] == [0] * 58 + [1, 1]
        assert columns["area"][58:] == [0, 0]
        assert columns["area"][3] == pytest.approx(
            (9 - np.mean(np.arange(58) ** 2)) / np.std(np.arange(58) ** 2)
        )
        said = "cells in columns of numbers that are none and count as missing: area (2 cells: ?, "
        assert examples.notes == [f"{said}unknown)"]
    recipe = json.loads(json.dumps(examples.recipe))
    new = read_examples(pd.DataFrame({"area": ["?", "9", "n. a."]}), recipe=recipe)
    assert columns_of(new)["area: missing"] == [1, 0, 1]
    assert new.x[1].tolist() == examples.x[3].tolist()
    assert new.notes == [f"{said.replace('unknown', '')}n. a.)"]
    # Numbers in another form than that of training are not missing.
    with pytest.raises(ValueError, match=r"column 'area' must hold .* got 1,5"):
        read_examples(pd.DataFrame({"area": ["1,5", "2,5", "?"]}), recipe=recipe)


def test_kinds_that_are_called_by_numbers_stay_categories() -> None:
    examples = read_examples(table(size=["1", "2", "3"] * 33 + ["XL"]))
    assert examples.recipe["columns"][0]["categories"] == ["1", "2", "3", "XL"]
    assert examples.notes == [
        "columns that look like numbers but were read as text: size (99 of 100 cells; not XL)"
    ]
    many = table(code=[*map(str, range(0, 80, 2)), *(f"A{place // 2}" for place in range(20))])
    examples = read_examples(many)  # 40 numbers of 60 are not nearly all
    assert examples.recipe["columns"][0]["kind"] == "category"


@pytest.mark.parametrize("kind", [object, "string", "category"])
def test_texts_that_say_nothing_are_missing_whatever_the_source(tmp_path: Path, kind: Any) -> None:
    source = table(
        country=["NA", "DE", None, "null"] * 5 + ["", "FR"], size=[1.0, 2, 5, 4] * 5 + [7, 8]
    )
    source["country"] = source["country"].astype(kind)
    source.to_csv(tmp_path / "x.csv", index=False)
    source.to_parquet(tmp_path / "x.parquet")
    csv, parquet, memory = (
        read_examples(which) for which in (tmp_path / "x.csv", tmp_path / "x.parquet", source)
    )
    assert csv.recipe == parquet.recipe == memory.recipe
    assert torch.equal(csv.x, parquet.x)
    assert torch.equal(csv.x, memory.x)
    assert columns_of(csv)["country: missing"] == [1, 0, 1, 1] * 5 + [1, 0]
    for name in ("x.csv", "x.parquet"):
        assert torch.equal(read_examples(tmp_path / name, recipe=memory.recipe).x, csv.x)


@pytest.mark.parametrize(
    ("name", "values", "left_out"),
    [
        ("respondent", 1000 + 3 * np.arange(60), True),  # counts up, with gaps
        ("photo_no", np.random.default_rng(0).permutation(60), True),  # by its name
        ("pid", np.random.default_rng(0).permutation(60), True),
        ("income", np.random.default_rng(0).permutation(60), False),
        ("piano", np.random.default_rng(0).permutation(60), False),
        ("level", np.arange(60) // 2, False),  # rises, but says the same of two rows
        ("height", 150 + 0.5 * np.arange(60), False),
    ],
)
def test_serial_numbers_are_no_inputs(name: str, values: Any, left_out: bool) -> None:
    """Of rows that are sorted by label they would give the label away."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"a": rng.normal(size=60), name: values, "label": ["x"] * 30 + ["y"] * 30})
    examples = read_examples(table)
    names = [each["name"] for each in examples.recipe["columns"]]
    assert (name not in names) is left_out
    assert any(f"{name} (it looks like an id)" in note for note in examples.notes) is left_out


def test_texts_that_say_nothing_are_kept_as_they_are_written(tmp_path: Path) -> None:
    """NA may be a region: who learns takes it for missing, who writes it again keeps it."""
    path = tmp_path / "regions.csv"
    rows = [f"{number},{text},{text == 'NA'},{'xy'[number % 2]}" for number, text in
            enumerate(["NA", "EU", "n/a", "", "NA", "EU"] * 4)]  # fmt: skip
    path.write_text("\n".join(["size,region,flag,label", *rows]))
    examples = read_examples(path)
    assert examples.table["region"].fillna("").tolist() == ["NA", "EU", "n/a", "", "NA", "EU"] * 4
    (region,) = (each for each in examples.recipe["columns"] if each["name"] == "region")
    assert region["categories"] == ["EU"]
    assert region["missing"]
    assert read_examples(path, recipe=examples.recipe).x.equal(examples.x)


def test_categories_that_training_did_not_have_are_noted() -> None:
    kinds = ["oak", "elm"] * 10
    recipe = read_examples(table(kind=kinds, size=list(range(20)))).recipe
    new = table(kind=["oak", "ash", None, "ash", "fir"], size=[1, 2, 3, 4, 5])
    examples = read_examples(new, recipe=recipe)
    assert examples.notes == [
        "cells of categories that training did not have, which count as none: "
        "kind (3 cells: ash, fir)"
    ]
    many = [f"k{row // 2}" for row in range(110)]  # of which the rare ones count as others
    recipe = read_examples(table(kind=many)).recipe
    assert not read_examples(table(kind=["k1", "new"]), recipe=recipe).notes


@pytest.mark.filterwarnings("error")
def test_huge_numbers_are_read_without_a_warning() -> None:
    size = np.random.default_rng(0).normal(size=60) * 1e300
    size[:2] = 1.7e308, -1.7e308
    assert np.isfinite(read_examples(table(size=size.tolist())).x.numpy()).all()
