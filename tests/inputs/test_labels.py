"""Labels of any type as text, and classes in order."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covlearn.inputs import read_examples
from covlearn.inputs.labels import class_names, label_texts, positions
from tests.inputs.make import reading


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (["a", "b"], ["a", "b"]),
        ([1, 2.0, "3", np.int8(4), np.float32(5), torch.tensor(6)], list("123456")),
        ([True, np.bool_(False)], ["True", "False"]),
        ([0.5, 1.5], ["0.5", "1.5"]),
        (
            [None, float("nan"), np.nan, pd.NA, pd.NaT, "", "  ", np.datetime64("NaT", "s")],
            [""] * 8,
        ),
        ([" a", "b\t", "\xa0c"], ["a", "b", "c"]),
        (["e\u0301", "\xe9"], ["\xe9", "\xe9"]),
        (["1.0", "2.0"], ["1.0", "2.0"]),
        (["1.0", "1", "2.00"], ["1", "1", "2.00"]),
        (["007", "7"], ["007", "7"]),
        ([b"a", np.str_("b")], ["a", "b"]),
        ([np.array([3]), torch.tensor([4])], ["3", "4"]),
    ],
)
def test_texts(values: list[Any], texts: list[str]) -> None:
    assert label_texts(values, reading()) == texts


def test_what_was_put_right_is_noted() -> None:
    how = reading()
    label_texts(["a ", " a", "a", 1, "1", "1.0"], how)
    stripped, mixed, merged = how.notes
    assert stripped.startswith("2 labels had spaces around")
    assert stripped.endswith("put right, to 'a'")
    assert "mixed types (numbers, text)" in mixed
    assert "'1.0' and '1'" in merged
    one = reading()
    label_texts([" a ", "a"], one)
    assert one.notes[0].startswith("1 label had spaces around")
    quiet = reading()
    label_texts(["a", "b", ""], quiet)
    assert quiet.notes == []


def test_lists_are_no_labels() -> None:
    for value in ([0, 1], np.array([0, 1]), {"a": 1}):
        with pytest.raises(ValueError, match="a label must be one name or number"):
            label_texts([value], reading())


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["b", "a", "", "b"], ["a", "b"]),
        (["10", "9", "-1", "2.5"], ["-1", "2.5", "9", "10"]),
        (["10", "9", "x"], ["10", "9", "x"]),
        (["nan", "9", "10"], ["10", "9", "nan"]),
        (["1", "01"], ["01", "1"]),
    ],
)
def test_order(texts: list[str], names: list[str]) -> None:
    assert class_names(texts) == names


@given(st.lists(st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.floats())))
def test_every_text_has_its_place(values: list[Any]) -> None:
    texts = label_texts(values, reading())
    assert len(texts) == len(values)
    assert texts == label_texts(texts, reading())  # nothing is left to be put right
    names = class_names(texts)
    assert names == class_names(list(reversed(texts)))
    for text, place in zip(texts, positions(texts, names).tolist(), strict=True):
        assert (names[place] == text) if text else place == -1


def frame(labels: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(
        {"size": np.arange(len(labels)) * 1.5, "label": pd.Series(labels, dtype=object)}
    )


def test_examples_without_a_label_are_listed() -> None:
    table = frame(["a", "b", None, "a", "b", " "])
    with pytest.raises(ValueError, match=r"2 examples that cannot be used: 2: it has no label; 5:"):
        read_examples(table)
    examples = read_examples(table, on_bad="skip")
    assert examples.ids == ["0", "1", "3", "4"]
    assert [(item.id, item.reason) for item in examples.skipped] == [
        ("2", "it has no label"),
        ("5", "it has no label"),
    ]
    # The mean is that of the rows which are there.
    assert examples.recipe["columns"][0]["mean"] == pytest.approx(1.5 * 2)


def test_measurements_are_no_classes() -> None:
    with pytest.raises(ValueError, match=r"must be classes, but 200 of 200 come once only"):
        read_examples(frame([0.37 * place for place in range(200)]))


def test_many_rare_classes_are_skipped_where_most_are_not_rare() -> None:
    labels = [place // 2 for place in range(200)] + [1000, 1001]
    examples = read_examples(frame(labels), on_bad="skip")
    assert len(examples.classes) == 100
    assert [item.id for item in examples.skipped] == ["200", "201"]


def test_classes_that_differ_in_case_are_noted() -> None:
    examples = read_examples(frame(["Cat", "cat", "dog"] * 2))
    assert examples.classes == ["Cat", "cat", "dog"]
    assert any("upper and lower case: Cat, cat" in note for note in examples.notes)


def test_labels_when_predicting() -> None:
    trained = read_examples(frame(["a", "b"] * 3))
    examples = read_examples(frame(["b", "new", None, " a"]), recipe=trained.recipe)
    assert examples.given == ["b", "new", "", "a"]
    assert examples.y is not None
    assert examples.y.tolist() == [1, -1, -1, 0]
    assert examples.skipped == []
    nothing = read_examples(frame([None, None]), recipe=trained.recipe)
    assert nothing.given is None
    assert nothing.y is None
