"""Transition estimators against loops written from the papers, and what each must never do."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from covlearn.transition import (
    anchor_transition,
    confident_joint,
    confident_transition,
    count_transition,
    dual_transition,
    transition_error,
)
from tests.reference import transition as reference

Floats = NDArray[np.float64]
# Row sums differ from column sums: a transposed estimate cannot pass for the right one.
TRUE = np.array([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.3, 0.1, 0.6]])


def draw(seed: int, num_examples: int = 60, num_classes: int = 4) -> tuple[Floats, Any, Any]:
    """Posteriors, refined labels (some dropped) and noisy labels; every class occurs in both."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(num_classes, 0.5), size=num_examples)
    refined = rng.integers(-1, num_classes, num_examples)
    noisy = rng.integers(0, num_classes, num_examples)
    refined[:num_classes] = noisy[-num_classes:] = np.arange(num_classes)
    return probs, refined, noisy


def posteriors_of_a_known_problem(num_examples: int = 30_000) -> tuple[Floats, Any]:
    """P(noisy | x) = P(true | x) · TRUE exactly, with near-anchors, and labels drawn from it."""
    rng = np.random.default_rng(5)
    clean = rng.dirichlet(np.full(3, 0.05), size=num_examples)
    probs = clean @ TRUE
    noisy = (rng.random(num_examples)[:, None] > probs.cumsum(axis=1)[:, :2]).sum(axis=1)
    return probs, noisy


# ---------------------------------------------------------------------------------- counting


@given(
    st.integers(2, 6).flatmap(
        lambda k: st.tuples(
            st.just(k),
            st.lists(
                st.tuples(st.integers(-1, k - 1), st.integers(0, k - 1), st.floats(0.01, 10)),
                min_size=1,
                max_size=60,
            ),
        )
    ),
    st.booleans(),
)
def test_counting_equals_the_loop(case: tuple[int, list[tuple[int, int, float]]], w: bool) -> None:
    num_classes, examples = case
    examples = examples + [(i, (i + 1) % num_classes, 1.0) for i in range(num_classes)]
    refined, noisy, weight = (np.array(column) for column in zip(*examples, strict=True))
    got = count_transition(refined, noisy, num_classes=num_classes, weight=weight if w else None)
    expected = reference.count_transition(refined, noisy, num_classes, weight if w else None)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64])
def test_counting_takes_any_integer_dtype(dtype: type) -> None:
    _, refined, noisy = draw(0)
    refined = np.abs(refined)
    got = count_transition(refined.astype(dtype), noisy.astype(dtype), num_classes=4)
    assert got.dtype == torch.float64
    np.testing.assert_allclose(got, reference.count_transition(refined, noisy, 4))


def test_dropped_examples_carry_no_weight() -> None:
    _, refined, noisy = draw(1)
    kept = refined >= 0
    assert not kept.all()
    full = count_transition(refined, noisy, num_classes=4)
    assert torch.equal(full, count_transition(refined[kept], noisy[kept], num_classes=4))
    weight = kept.astype(float)  # the same drop, said with weights of zero
    assert torch.equal(full, count_transition(abs(refined), noisy, num_classes=4, weight=weight))


def test_counting_is_unbiased_when_the_refined_labels_are_right() -> None:
    rng = np.random.default_rng(3)
    clean = np.repeat(np.arange(3), 40)
    noisy = (rng.random((2000, 120))[:, :, None] > TRUE[clean].cumsum(axis=1)[:, :2]).sum(axis=2)
    mean = np.mean([count_transition(clean, y, num_classes=3).numpy() for y in noisy], axis=0)
    # The standard error of an entry is at most sqrt(0.25 / (40 · 2000)) = 0.0018.
    np.testing.assert_allclose(mean, TRUE, atol=4 * 0.0018)


def test_counting_leaves_its_input_alone() -> None:
    _, refined, noisy = draw(2)
    before = refined.copy(), noisy.copy()
    tensors = torch.from_numpy(refined), torch.from_numpy(noisy)
    count_transition(*tensors, num_classes=4, weight=torch.ones(60))
    np.testing.assert_array_equal(refined, before[0])
    np.testing.assert_array_equal(noisy, before[1])


def test_imagenet_sized_labels_are_counted() -> None:
    num_classes = 1000
    noisy = torch.arange(1_281_167) % num_classes
    transition = count_transition(noisy, noisy, num_classes=num_classes)
    assert torch.equal(transition, torch.eye(num_classes, dtype=torch.float64))


def test_an_empty_class_is_named_or_made_an_identity_row_on_demand() -> None:
    refined, noisy = torch.tensor([0, 2, -1]), torch.tensor([1, 0, 1])
    with pytest.raises(ValueError, match="class 1 has no refined example"):
        count_transition(refined, noisy, num_classes=3)
    got = count_transition(refined, noisy, num_classes=3, empty_class="identity")
    assert got.tolist() == [[0, 1, 0], [0, 1, 0], [1, 0, 0]]
    with pytest.raises(ValueError, match="class 0 has no refined example with a positive weight"):
        count_transition(
            torch.tensor([0, 1]), torch.tensor([0, 1]), num_classes=2, weight=torch.tensor([0.0, 1])
        )
    with pytest.raises(ValueError, match="class 0, 1, 2, 3, 4 and 4 more"):
        count_transition(torch.tensor([9]), torch.tensor([9]), num_classes=10)
    with pytest.raises(ValueError, match="must be one of error, identity"):
        count_transition(refined, noisy, num_classes=3, empty_class="uniform")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noisy": [0, 1, 3]}, "noisy must lie in 0…2, got 3 at position 2"),
        ({"refined": [0, 1, -2]}, "refined must lie in 0…2 .*got -2"),
        ({"refined": [0, 1]}, "refined must have one entry an example, 3, got 2"),
        ({"noisy": [0.0, 1.0, 2.0]}, "noisy must be integer"),
        ({"num_classes": 1}, "num_classes must be at least 2"),
        ({"weight": [1.0, -1.0, 1.0]}, "weight must be finite and not negative"),
        ({"weight": [1.0, 1.0]}, "weight must hold 3 floating-point values"),
    ],
)
def test_counting_refuses_bad_input(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"refined": [0, 1, 2], "noisy": [0, 1, 2], "num_classes": 3}
    case = good | change
    with pytest.raises(ValueError, match=message):
        count_transition(
            np.array(case["refined"]),
            np.array(case["noisy"]),
            num_classes=case["num_classes"],
            weight=np.array(case["weight"]) if "weight" in case else None,
        )


# ----------------------------------------------------------------------------------- anchors


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("percentile", [0.0, 50.0, 97.0, 100.0, None])
def test_anchors_equal_the_loop(percentile: float | None, dtype: torch.dtype) -> None:
    # Values with few bits are exact in every dtype, and give ties.
    numerators = np.random.default_rng(7).multinomial(16, np.full(5, 0.2), size=101)
    probs = numerators / 16
    got = anchor_transition(torch.tensor(probs, dtype=dtype), percentile=percentile)
    expected = reference.anchor_transition(probs, 100.0 if percentile is None else percentile)
    np.testing.assert_allclose(got, expected, rtol=1e-14)


@given(st.integers(1, 40), st.integers(2, 6), st.floats(0, 100), st.integers(0, 99))
def test_anchors_equal_the_loop_for_any_shape(n: int, k: int, percentile: float, seed: int) -> None:
    probs = np.random.default_rng(seed).dirichlet(np.ones(k), size=n)
    got = anchor_transition(probs, percentile=percentile)
    np.testing.assert_allclose(got, reference.anchor_transition(probs, percentile), rtol=1e-12)


def test_anchor_rows_do_not_see_what_earlier_classes_filtered() -> None:
    # Example 0 is the highest of class 0, so a filter in place zeroes its p_0; it is also the
    # anchor of class 1, whose row must still show that p_0.
    probs = np.array(
        [[0.50, 0.45, 0.05], [0.48, 0.40, 0.12], [0.30, 0.50, 0.20], [0.20, 0.10, 0.70]]
        + [[0.25, 0.15, 0.60]] * 6
    )
    got = anchor_transition(probs, percentile=97).numpy()
    trapped = reference.anchor_transition_in_place(probs, 97)
    np.testing.assert_allclose(got[1], probs[0])
    np.testing.assert_allclose(trapped[1], [0.0, 0.9, 0.1])
    np.testing.assert_allclose(got, reference.anchor_transition(probs, 97))
    np.testing.assert_array_equal(probs[0], [0.50, 0.45, 0.05])  # and the input is as it was


def test_anchor_rows_sum_to_one_where_posteriors_do_so_only_nearly() -> None:
    rows = anchor_transition(np.array([[0.90005, 0.1], [0.1, 0.8999]]), percentile=None)
    np.testing.assert_allclose(rows.sum(dim=1), 1, rtol=1e-15)


def test_anchors_agree_with_the_published_choice_where_it_has_no_trap() -> None:
    # Peaked posteriors: no example is near the top of two classes.
    rng = np.random.default_rng(11)
    probs = rng.dirichlet(np.ones(3), 90) * 0.1 + np.eye(3)[np.arange(90) % 3] * 0.9
    got = anchor_transition(probs, percentile=97)
    np.testing.assert_allclose(got, reference.anchor_transition_in_place(probs, 97), rtol=1e-12)


def test_anchors_recover_the_transition_when_there_are_anchors() -> None:
    probs, _ = posteriors_of_a_known_problem()
    assert transition_error(anchor_transition(probs, percentile=None), TRUE) < 1e-4


@pytest.mark.parametrize("percentile", [-1.0, 100.5, float("nan")])
def test_anchors_refuse_a_percentile_that_is_none(percentile: float) -> None:
    with pytest.raises(ValueError, match=r"percentile must lie in \[0, 100\]"):
        anchor_transition(np.eye(2), percentile=percentile)


def test_estimators_refuse_logits() -> None:
    logits = np.array([[3.0, 1.0], [0.5, 2.0]])
    with pytest.raises(ValueError, match="rows of probs must sum to 1"):
        anchor_transition(logits)
    with pytest.raises(ValueError, match="rows of probs must sum to 1"):
        confident_joint(logits, np.array([0, 1]), num_classes=2)
    with pytest.raises(ValueError, match="rows of probs must sum to 1"):
        dual_transition(logits, np.array([0, 1]))


# --------------------------------------------------------------------------- confident joint


@given(st.integers(5, 60), st.integers(2, 5), st.integers(0, 999), st.sampled_from([8, 16, 10**6]))
def test_confident_joint_equals_the_loop(n: int, k: int, seed: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    probs = rng.multinomial(levels, rng.dirichlet(np.ones(k)), size=n) / levels  # few levels: ties
    noisy = rng.integers(0, k, n)
    noisy[:k] = np.arange(k)
    got = confident_joint(probs, noisy, num_classes=k)
    np.testing.assert_allclose(got, reference.confident_joint(probs, noisy, k), rtol=1e-12)
    np.testing.assert_allclose(got.sum(dim=0), np.bincount(noisy, minlength=k))  # noisy counts kept


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_confident_joint_over_dtypes(dtype: torch.dtype) -> None:
    probs, _, noisy = draw(4)
    cast = torch.tensor(np.round(probs * 64) / 64, dtype=dtype)
    cast[:, 0] += 1 - cast.sum(dim=1)  # exact: multiples of 1/64
    cast = cast[(cast >= 0).all(dim=1)]
    noisy = noisy[: len(cast)]
    got = confident_joint(cast, noisy, num_classes=4)
    np.testing.assert_allclose(got, reference.confident_joint(cast.double().numpy(), noisy, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", range(1, 12))
def test_examples_at_exactly_their_threshold_are_confident(count: int, dtype: torch.dtype) -> None:
    # The mean of equal values may round up; each must still reach it.
    probs = torch.tensor([[0.7, 0.3]] * count + [[0.1, 0.9]] * count, dtype=dtype)
    joint = confident_joint(probs, torch.arange(2 * count) // count, num_classes=2)
    assert joint.tolist() == [[count, 0], [0, count]]


def test_confident_transition_normalises_rows_of_true_classes() -> None:
    probs, noisy = posteriors_of_a_known_problem(2000)
    joint = confident_joint(probs, noisy, num_classes=3)
    transition = confident_transition(probs, noisy, num_classes=3)
    np.testing.assert_allclose(transition, joint / joint.sum(dim=1, keepdim=True))
    assert not torch.allclose(transition, (joint / joint.sum(dim=0)).T, atol=0.05)  # cleanlab's
    assert transition_error(transition, TRUE) < 0.08


def test_confident_joint_names_a_class_without_labels_or_without_confident_examples() -> None:
    probs = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]])
    with pytest.raises(ValueError, match="class 2 has none, so that its threshold is undefined"):
        confident_joint(probs, np.array([0, 1]), num_classes=3)
    # The only example labelled 2 is at its threshold, but larger still in class 0.
    probs, noisy = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.8, 0.1, 0.1]]), np.arange(3)
    with pytest.raises(ValueError, match="class 2 has no example that is confidently"):
        confident_transition(probs, noisy, num_classes=3)
    got = confident_transition(probs, noisy, num_classes=3, empty_class="identity")
    assert got[2].tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="noisy must have one entry an example, 3, got 2"):
        confident_joint(probs, noisy[:2], num_classes=3)
    with pytest.raises(ValueError, match="probs must have 4 columns, one a class, got 3"):
        confident_joint(probs, noisy, num_classes=4)


# ------------------------------------------------------------------------------------- DualT


@given(st.integers(0, 200), st.sampled_from([None, 90.0, 97.0]))
def test_dual_transition_equals_the_loop(seed: int, percentile: float | None) -> None:
    probs, _, noisy = draw(seed)
    probs[:4] = np.eye(4) * 0.6 + 0.1  # every class is the argmax of some example
    got = dual_transition(probs, noisy, percentile=percentile)
    top = 100.0 if percentile is None else percentile
    np.testing.assert_allclose(got, reference.dual_transition(probs, noisy, top), rtol=1e-12)
    np.testing.assert_allclose(got.sum(dim=1), np.ones(4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dual_transition_takes_half_precision(dtype: torch.dtype) -> None:
    probs = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)).softmax(dim=1).to(dtype)
    assert not torch.allclose(probs.float().sum(dim=1), torch.ones(60), atol=1e-4)
    noisy = torch.arange(60) % 4
    expected = reference.dual_transition(probs.double().numpy(), noisy.numpy(), 100.0)
    expected /= expected.sum(axis=1, keepdims=True)  # the rows of an anchor are a hair off
    np.testing.assert_allclose(dual_transition(probs, noisy), expected, atol=1e-5)


def test_dual_transition_repairs_miscalibrated_posteriors() -> None:
    # An overconfident model: anchors alone read P(noisy | x) too sharp, counting sees the labels.
    probs, noisy = posteriors_of_a_known_problem()
    sharp = probs**3 / (probs**3).sum(axis=1, keepdims=True)
    anchors = transition_error(anchor_transition(sharp, percentile=None), TRUE)
    dual = transition_error(dual_transition(sharp, noisy), TRUE)
    assert dual < 0.75 * anchors


def test_dual_transition_names_a_class_that_is_never_predicted() -> None:
    probs, noisy = np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1]]), np.array([0, 1])
    with pytest.raises(ValueError, match="class 2 has no example whose largest probability it is"):
        dual_transition(probs, noisy)
    got = dual_transition(probs, noisy, empty_class="identity")
    np.testing.assert_allclose(got, anchor_transition(probs, percentile=None))
    with pytest.raises(ValueError, match="noisy must have one entry an example, 2, got 1"):
        dual_transition(probs, noisy[:1])


# ------------------------------------------------------------------------------------- error


@given(st.integers(2, 6), st.integers(0, 99))
def test_errors_equal_the_loop(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    estimated, true = rng.dirichlet(np.ones(k), size=(2, k))
    weight = rng.random(k)
    entry = transition_error(estimated, true)
    assert entry == pytest.approx(reference.mean_absolute_error(estimated, true))
    row = transition_error(estimated, true, kind="row", class_weight=weight)
    assert row == pytest.approx(reference.total_variation(estimated, true, weight))
    equal = transition_error(estimated, true, kind="row")
    assert equal == pytest.approx(reference.total_variation(estimated, true, np.ones(k)))
    assert transition_error(true, true) == 0


def test_errors_refuse_what_does_not_fit() -> None:
    eye = torch.eye(3)
    with pytest.raises(ValueError, match="estimated must have 3 columns, one a class, got 2"):
        transition_error(torch.eye(2), eye)
    with pytest.raises(ValueError, match="true must be a square"):
        transition_error(eye, eye[:2])
    with pytest.raises(ValueError, match="kind must be one of entry, row"):
        transition_error(eye, eye, kind="l2")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='class_weight is for kind="row"'):
        transition_error(eye, eye, class_weight=torch.ones(3))
    with pytest.raises(ValueError, match="class_weight must have a positive entry"):
        transition_error(eye, eye, kind="row", class_weight=torch.zeros(3))
