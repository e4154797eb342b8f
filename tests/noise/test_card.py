"""The noise card."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covlearn import noise
from covlearn.noise.card import with_card
from tests.noise.examples import generate
from tests.reference import noise as reference


@given(data=st.data(), num_classes=st.integers(2, 5), count=st.integers(1, 40))
def test_card_counts_as_the_loop_does(data: st.DataObject, num_classes: int, count: int) -> None:
    label = st.lists(st.integers(0, num_classes - 1), min_size=count, max_size=count)
    clean, noisy = data.draw(label), data.draw(label)
    flip_rate = np.full(count, 0.25)
    card = with_card(
        np.array(clean),
        np.array(noisy),
        flip_rate,
        num_classes=num_classes,
        variant="v",
        version=3,
        seed=9,
        requested_rate=None,
    ).card
    expected = reference.card(clean, noisy, num_classes)
    for i, row in enumerate(expected["transition"]):
        np.testing.assert_allclose(card.transition[i], np.nan if row is None else row, atol=1e-15)
        assert (card.to_dict()["transition"][i] is None) == (row is None)
    for name in ("actual_rate", "dominance", "num_dominant", "largest_share", "largest_class"):
        assert getattr(card, name) == pytest.approx(expected[name])
    listed = ", ".join(str(k) for k in expected["sinks"])
    assert len(card.warnings) == bool(listed)
    assert not listed or f"class {listed}," in card.warnings[0].replace("classes", "class")
    assert any("NaN" in note for note in card.notes) == (None in expected["transition"])


def test_card_as_json_and_as_text() -> None:
    y = np.array([0, 0, 0, 0, 2, 2])
    result = noise.symmetric(y, rate=0.5, num_classes=3, seed=2)
    card = json.loads(json.dumps(result.card.to_dict(), allow_nan=False))
    assert card["variant"] == "symmetric"
    assert card["version"] == 1
    assert card["seed"] == 2
    assert card["num_examples"] == 6
    assert card["num_classes"] == 3
    assert card["requested_rate"] == card["expected_rate"] == 0.5
    assert card["transition"][1] is None
    assert card["notes"] == ["without examples, so that their rows of T are NaN: class 1"]
    text = str(result.card)
    assert "noise card: symmetric (version 1), seed 2" in text
    assert f"asked 0.5, expected 0.5000, actual {result.card.actual_rate:.4f}" in text
    assert "nan nan nan" in text
    assert "note: without examples" in text


def test_long_lists_of_classes_are_shortened_and_wide_transitions_left_out() -> None:
    card = noise.symmetric(np.zeros(50, int), rate=0.0, num_classes=40, seed=0).card
    assert card.notes[0].endswith("classes 1, 2, 3, 4, 5, 6, 7, 8 and 31 more")
    assert "a row a clean class" not in str(card)


@pytest.mark.parametrize(
    ("count", "sinks"),
    [
        ([[70, 30, 0, 0], [0, 60, 0, 0], [0, 40, 60, 0], [0, 30, 0, 70]], [1]),
        # Grown, but only because even noise of large classes fills a small one.
        ([[60, 20, 20, 20], [2, 4, 2, 2], [20, 20, 60, 20], [20, 20, 20, 60]], []),
        # Favoured, but not grown.
        ([[90, 10, 0, 0], [0, 99, 1, 0], [0, 10, 90, 0], [0, 10, 0, 90]], []),
        # What a class itself loses does not belong to its even share.
        ([[0, 2, 0, 0], [5, 50, 2, 0], [5, 0, 50, 2], [5, 2, 0, 50]], [0]),
    ],
)
def test_sinks_are_named(count: list[list[int]], sinks: list[int]) -> None:
    pairs = [(i, j) for i in range(4) for j in range(4) for _ in range(count[i][j])]
    clean, noisy = np.array(pairs).T
    settings: dict[str, Any] = {"num_classes": 4, "variant": "v", "version": 1, "seed": 0}
    flip_rate = np.zeros(len(clean))
    card = with_card(clean, noisy, flip_rate, requested_rate=None, **settings).card
    assert reference.card(clean.tolist(), noisy.tolist(), 4)["sinks"] == sinks
    assert [text.split(",")[0] for text in card.warnings] == [f"sink: class {k}" for k in sinks]
    assert ("warning: sink" in str(card)) == bool(sinks)


def test_results_are_frozen() -> None:
    result = generate("symmetric")
    with pytest.raises(AttributeError):
        result.label = result.label  # type: ignore[misc]
    with pytest.raises(AttributeError):
        result.card.seed = 1  # type: ignore[misc]
