"""Evaluation against loops."""

import dataclasses
from math import nan
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from sklearn.metrics import average_precision_score

from covlearn.metrics import (
    accuracy,
    accuracy_of,
    average_precision,
    calibration_error,
    label_quality,
    memorisation,
    reliability,
)
from tests.reference import metrics as reference

K = 4


@st.composite
def labelled(draw: st.DrawFn) -> dict[str, list[int]]:
    """Labels of each kind, of one length, with few classes so that all cases come up."""
    length = draw(st.integers(1, 12))

    def column(lowest: int, highest: int) -> list[int]:
        return draw(st.lists(st.integers(lowest, highest), min_size=length, max_size=length))

    highest = draw(st.sampled_from([0, 1, K - 1]))  # with 0, no label is wrong
    return {
        "clean": column(0, highest),
        "noisy": column(0, highest),
        "refined": column(-1, highest),
        "prediction": column(-1, K - 1),
    }


def tensor(values: list[int]) -> torch.Tensor:
    return torch.tensor(values)


@given(labelled())
def test_accuracy_and_memorisation_equal_the_loops(columns: dict[str, list[int]]) -> None:
    prediction, noisy, clean = (columns[name] for name in ("prediction", "noisy", "clean"))
    assert accuracy(tensor(prediction), tensor(clean)) == reference.accuracy(prediction, clean)
    ours = memorisation(tensor(prediction).int(), np.array(noisy), tensor(clean))
    assert ours == reference.memorisation(prediction, noisy, clean)


@given(labelled())
def test_label_quality_equals_the_loop(columns: dict[str, list[int]]) -> None:
    refined, noisy, clean = (columns[name] for name in ("refined", "noisy", "clean"))
    ours = label_quality(tensor(refined), tensor(noisy), tensor(clean), num_classes=K)
    theirs = reference.label_quality(refined, noisy, clean, K)
    for name, value in dataclasses.asdict(ours).items():
        assert (value is None) == (theirs[name] is None), name
        assert value == pytest.approx(theirs[name]), name


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=30))
def test_average_precision_is_scikit_learns(pairs: list[tuple[int, bool]]) -> None:
    score, wrong = (list(column) for column in zip(*pairs, strict=True))
    ours = average_precision(torch.tensor(score), torch.tensor(wrong))
    if any(wrong):
        assert ours == pytest.approx(average_precision_score(wrong, score))
    else:
        assert ours is None


def test_label_quality_by_hand() -> None:
    # One wrong label repaired, one found but repaired wrongly, one missed, one right label changed.
    clean, noisy = tensor([0, 1, 2, 0, 1, 2]), tensor([1, 2, 0, 0, 1, 2])
    refined = tensor([0, 0, 0, 1, 1, -1])
    quality = label_quality(refined, noisy, clean, num_classes=3)
    assert quality.share_right == 2 / 5
    assert (quality.precision, quality.recall) == (2 / 4, 2 / 3)
    assert quality.f1 == 4 / 7
    assert quality.repaired == 1 / 3


def test_perfect_labels_have_no_transition_error() -> None:
    clean, noisy = tensor([0, 1, 2, 0, 1, 2]), tensor([1, 1, 2, 0, 2, 2])
    quality = label_quality(clean, noisy, clean, num_classes=3)
    assert quality.transition_error == 0
    assert (quality.share_right, quality.f1, quality.repaired) == (1, 1, 1)
    assert label_quality(noisy, noisy, clean, num_classes=3).transition_error > 0.1


shares = st.integers(0, 4).map(lambda n: n / 4)  # few values, so that ties come up


@given(
    st.lists(st.tuples(shares, shares), min_size=1, max_size=25),
    st.booleans(),
)
def test_figures_equal_the_loop(epochs: list[tuple[float, float]], held_out: bool) -> None:
    history = [
        {"epoch": e, "test_accuracy": test, "holdout_accuracy": held if held_out else nan}
        for e, (test, held) in enumerate(epochs)
    ]
    ours: dict[str, Any] = dataclasses.asdict(accuracy_of(history))
    for name, expected in reference.figures(history).items():
        if expected is None:
            assert ours[name] is None
            continue
        assert ours[name]["value"] == pytest.approx(expected[0])
        assert ours[name]["epoch"] == expected[1]
        assert ours[name]["rule"]


def test_no_epoch_has_no_figure() -> None:
    assert set(dataclasses.asdict(accuracy_of([])).values()) == {None}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: accuracy(tensor([0, 1]), tensor([0])), "same length"),
        (lambda: accuracy(torch.zeros(0), torch.zeros(0)), "at least one"),
        (lambda: memorisation(tensor([0]), tensor([0]), tensor([0, 1])), "same length"),
        (
            lambda: label_quality(tensor([0]), tensor([0, 1]), tensor([0, 1]), num_classes=2),
            "refined must have one entry an example",
        ),
        (
            lambda: label_quality(tensor([0]), tensor([0]), tensor([-1]), num_classes=2),
            "clean must lie in",
        ),
    ],
)
def test_bad_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_stated_probabilities_are_compared_with_what_came_true() -> None:
    stated = torch.tensor([0.05, 0.15, 0.17, 0.95, 1.0])
    rows = reliability(stated, torch.tensor([False, False, True, True, True]))
    assert rows == [(1, 0.05, 0.0), (2, 0.16, 0.5), (2, 0.975, 1.0)]
    assert calibration_error(rows) == pytest.approx((0.05 + 2 * 0.34 + 2 * 0.025) / 5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        reliability(torch.tensor([1.5]), torch.tensor([True]))


def test_what_is_refused_says_why() -> None:
    right = tensor([0, 1])
    with pytest.raises(ValueError, match="score must be finite, got nan at position 1; leave out"):
        average_precision(torch.tensor([0.1, nan]), right)
    with pytest.raises(ValueError, match=r"one length, a value for each label, got shapes \(3,\)"):
        average_precision(torch.zeros(3), right)
    for labels in (torch.tensor([0.1, 0.9]), np.array([0.0, nan])):
        with pytest.raises(ValueError, match=r"whole numbers, got a Tensor .* as probs > 0\.5"):
            accuracy(labels, right)
    assert accuracy(torch.tensor([0.1, 0.9]) > 0.5, right) == 1
    assert accuracy(np.array([0.0, 1.0]), right) == 1
    with pytest.raises(ValueError, match=r"argmax\(axis=1\) makes labels"):
        accuracy(torch.eye(2), right)
    with pytest.raises(ValueError, match="between 0 and 1 for each of 2 examples"):
        reliability(torch.tensor([0.5, nan]), right)
