"""The statistics and the term against loops, their gradients, and what is refused."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from covlearn import losses
from covlearn.covariance import (
    CALLoss,
    SecondOrder,
    Weighting,
    batch_mass,
    cal,
    covariance_table,
    covariance_term,
    with_covariance,
)
from covlearn.covariance.term import class_mass, column_mass, example_share, gamma
from covlearn.sieve import Refined, SieveRecorder
from tests.covariance.examples import WEIGHTINGS, draw_labels, draw_logits, exact
from tests.reference import covariance as reference


@given(
    seed=st.integers(0, 999),
    num_classes=st.integers(2, 5),
    size=st.integers(6, 30),
    dropped=st.sampled_from([0.0, 0.3]),
    weighted=st.booleans(),
)
def test_statistics_and_term_agree_with_the_loops(
    seed: int, num_classes: int, size: int, dropped: float, weighted: bool
) -> None:
    noisy, refined = draw_labels(seed, size, num_classes, dropped=dropped)
    weight = torch.ones(size, dtype=torch.float64)
    if weighted:
        weight = torch.rand(size, generator=torch.Generator().manual_seed(seed)).double() + 0.1
    given_weight = weight if weighted else None
    stats = SecondOrder.from_labels(noisy, refined, num_classes, weight=given_weight)
    T, P = reference.statistics(noisy.numpy(), refined.numpy(), num_classes, weight.numpy())
    np.testing.assert_allclose(stats.transition, T, atol=1e-6)
    np.testing.assert_allclose(stats.class_weight, P, atol=1e-6)
    assert stats.kept_share == pytest.approx(float(weight[refined >= 0].sum()) / size)

    batch = torch.arange(size)[: max(1, size // 2)]
    logits = draw_logits(seed, len(batch), num_classes)
    loss = reference.losses(logits.numpy())
    stats = exact(stats, noisy, refined, weight)
    mean_loss = torch.rand(num_classes, num_classes, dtype=torch.float64)
    prior = torch.full((num_classes,), 1 / num_classes, dtype=torch.float64)
    for weighting in WEIGHTINGS:
        for centre in (None, mean_loss):
            options: dict[str, Any] = {
                "weighting": weighting,
                "mean_loss": centre,
                "weight": None if given_weight is None else given_weight[batch],
            }
            term = covariance_term(logits, noisy[batch], refined[batch], stats, **options)
            expected = reference.term(
                loss,
                noisy[batch].numpy(),
                refined[batch].numpy(),
                T,
                P,
                weighting,
                weight[batch].numpy(),
                float(stats.kept_share),
                None if centre is None else centre.numpy(),
            )
            assert term.shape == ()
            assert term.item() == pytest.approx(expected, abs=1e-9)
            whole = cal(
                logits, noisy[batch], refined[batch], stats, prior=prior, beta=0.7, **options
            )
            assert whole.shape == (len(batch),)
            assert whole.mean().item() == pytest.approx(
                reference.cal_mean(
                    logits.numpy(), noisy[batch].numpy(), prior.numpy(), 0.7, expected
                ),
                abs=1e-9,
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_low_precision_logits_agree_with_the_loops_in_float32(
    weighting: Weighting, dtype: torch.dtype
) -> None:
    noisy, refined = draw_labels(0, 40, 5)
    stats = SecondOrder.from_labels(noisy, refined, 5)
    logits = draw_logits(0, 40, 5).to(dtype)
    loss = reference.losses(logits.double().numpy())
    T, P = reference.statistics(noisy.numpy(), refined.numpy(), 5, np.ones(40))
    labels = noisy.numpy(), refined.numpy()
    expected = reference.term(loss, *labels, T, P, weighting, np.ones(40), 1.0)
    prior = torch.full((5,), 0.2)
    with torch.autocast("cpu", torch.bfloat16):
        term = covariance_term(logits, noisy, refined, stats, weighting=weighting)
        whole = cal(logits, noisy, refined, stats, prior=prior, beta=0.7, weighting=weighting)
        corrected = with_covariance(partial(losses.cross_entropy, eps=1e-5))(
            logits, noisy, refined, stats, weighting=weighting
        )
        table = covariance_table(logits, noisy, refined, stats)
    assert term.dtype == whole.dtype == corrected.dtype == table.dtype == torch.float32
    assert term.item() == pytest.approx(expected, abs=1e-5)
    mean = reference.cal_mean(logits.double().numpy(), labels[0], prior.numpy(), 0.7, expected)
    assert whole.mean().item() == pytest.approx(mean, abs=2e-5)
    base = np.mean([loss[n, labels[0][n]] for n in range(40)])
    assert corrected.mean().item() == pytest.approx(base - expected, abs=2e-5)
    np.testing.assert_allclose(table, reference.table(loss, *labels, 5, np.ones(40)), atol=1e-5)


def test_class_weighting_misses_the_classes_that_a_batch_misses() -> None:
    """Its mean over batches is Σ_i P_i (1 − (1 − P_i)^B) Cov_i; "sample" has the full value."""
    noisy, refined = draw_labels(13, 3000, 100)
    stats = SecondOrder.from_labels(noisy, refined, 100)
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(3000, 100, generator=generator)
    logits[torch.arange(3000), noisy] += 3  # so that labels and losses have something in common
    by_class = stats.class_weight * covariance_table(logits, noisy, refined, stats).sum(dim=1)
    seen = 1 - (1 - stats.class_weight) ** 128
    expected = {"sample": by_class.sum().item(), "class": (seen * by_class).sum().item()}
    assert expected["class"] / expected["sample"] == pytest.approx(0.72, abs=0.02)
    for weighting in WEIGHTINGS:
        terms = torch.empty(400)
        for trial in range(400):
            idx = torch.randint(3000, (128,), generator=generator)
            terms[trial] = covariance_term(
                logits[idx], noisy[idx], refined[idx], stats, weighting=weighting
            )
        standard_error = float(terms.std()) / 20
        assert abs(float(terms.mean()) - expected[weighting]) < 4 * standard_error


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_gradient(weighting: Weighting) -> None:
    noisy, refined = draw_labels(1, 12, 3, dropped=0.2)
    stats = SecondOrder.from_labels(noisy, refined, 3)
    prior = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    logits = draw_logits(1, 12, 3).requires_grad_()
    check = partial(torch.autograd.gradcheck, inputs=logits)
    assert check(lambda z: covariance_term(z, noisy, refined, stats, weighting=weighting))
    assert check(
        lambda z: cal(z, noisy, refined, stats, prior=prior, beta=1.5, weighting=weighting)
    )
    assert check(
        lambda z: with_covariance(losses.generalized_cross_entropy)(
            z, noisy, refined, stats, weighting=weighting
        )
    )


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_centring_changes_no_gradient(weighting: Weighting) -> None:
    noisy, refined = draw_labels(2, 20, 4)
    stats = SecondOrder.from_labels(noisy, refined, 4)
    logits = draw_logits(2, 20, 4).requires_grad_()
    centre = torch.rand(4, 4, dtype=torch.float64)
    values, gradients = [], []
    for mean_loss in (None, centre):
        value = covariance_term(
            logits, noisy, refined, stats, weighting=weighting, mean_loss=mean_loss
        )
        values.append(value)
        gradients.append(torch.autograd.grad(value, logits)[0])
    torch.testing.assert_close(gradients[0], gradients[1])
    # Over the data the statistics came from, centring adds Σ_j (T̂ − T̂) m = 0 to the value too.
    torch.testing.assert_close(values[0], values[1], atol=1e-6, rtol=0)


@given(seed=st.integers(0, 999), num_classes=st.integers(2, 6), size=st.integers(8, 40))
def test_noisy_labels_as_refined_labels_make_the_term_exactly_zero(
    seed: int, num_classes: int, size: int
) -> None:
    noisy, _ = draw_labels(seed, size, num_classes)
    noisy[:num_classes] = torch.arange(num_classes)
    stats = SecondOrder.from_labels(noisy, noisy, num_classes)
    logits = draw_logits(seed, size, num_classes).float()
    for weighting in WEIGHTINGS:
        assert covariance_term(logits, noisy, noisy, stats, weighting=weighting).item() == 0.0


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_dropped_examples_carry_no_weight(weighting: Weighting) -> None:
    noisy, refined = draw_labels(7, 30, 3, dropped=0.4)
    dropped = refined < 0
    assert 0 < int(dropped.sum()) < 27
    stats = SecondOrder.from_labels(noisy, refined, 3)
    kept = SecondOrder.from_labels(noisy[~dropped], refined[~dropped], 3)
    torch.testing.assert_close(stats.transition, kept.transition)
    torch.testing.assert_close(stats.class_weight, kept.class_weight)
    logits = draw_logits(7, 30, 3)
    term = covariance_term(logits, noisy, refined, stats, weighting=weighting)
    moved = torch.where(dropped[:, None], -logits, logits)
    assert covariance_term(moved, noisy, refined, stats, weighting=weighting) == term
    # The whole data without them gives the same term: it is an average over D̂.
    alone = covariance_term(
        logits[~dropped], noisy[~dropped], refined[~dropped], kept, weighting=weighting
    )
    torch.testing.assert_close(term, alone)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_a_batch_of_dropped_examples_adds_nothing(weighting: Weighting) -> None:
    noisy, refined = draw_labels(8, 30, 3)
    stats = SecondOrder.from_labels(noisy, refined, 3)
    logits = draw_logits(8, 4, 3).requires_grad_()
    term = covariance_term(logits, noisy[:4], torch.full((4,), -1), stats, weighting=weighting)
    term.backward()
    assert term.item() == 0.0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_class_that_the_batch_misses(weighting: Weighting) -> None:
    noisy, refined = draw_labels(9, 60, 4)
    stats = SecondOrder.from_labels(noisy, refined, 4)
    batch = refined != 2
    logits = draw_logits(9, 60, 4)[batch]
    labels = noisy[batch], refined[batch]
    term = covariance_term(logits, *labels, stats, weighting=weighting)
    T, P = reference.statistics(noisy.numpy(), refined.numpy(), 4, np.ones(60))
    loss, ones = reference.losses(logits.numpy()), np.ones(len(logits))
    expected = reference.term(loss, labels[0].numpy(), labels[1].numpy(), T, P, weighting, ones, 1)
    assert term.item() == pytest.approx(expected, abs=1e-6)


def test_second_derivatives_and_vmap() -> None:
    noisy, refined = draw_labels(16, 6, 3)
    stats = SecondOrder.from_labels(noisy, refined, 3)
    logits = draw_logits(16, 6, 3)
    prior = torch.full((3,), 1 / 3, dtype=torch.float64)
    loss = partial(cal, y=noisy, refined=refined, stats=stats, prior=prior, beta=1.0)
    assert torch.autograd.gradgradcheck(loss, logits.clone().requires_grad_())
    trials = torch.stack([logits, -logits])
    torch.testing.assert_close(
        torch.func.vmap(loss)(trials), torch.stack([loss(trial) for trial in trials])
    )


class Operations(TorchDispatchMode):
    """The names of all operations that run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("num_classes", [2, 10, 100])
def test_sums_of_columns_are_the_same_masses(num_classes: int) -> None:
    generator = torch.Generator().manual_seed(num_classes)
    refined = torch.randint(-1, num_classes, (128,), generator=generator)
    mass = gamma(refined, torch.rand(128, generator=generator), torch.float32)
    expected = class_mass(refined, mass, num_classes)
    torch.testing.assert_close(column_mass(refined, mass, num_classes), expected)
    assert expected.count_nonzero() > num_classes / 2


def test_the_mass_of_a_batch_takes_arrays() -> None:
    expected = [1.0, 0.0, 2.0, 4.0]
    weight = np.array([1.0, 0.5, 1.5, 9.0])
    assert batch_mass(torch.tensor([0, 2, 2, -1]), 3).tolist() == expected
    assert batch_mass(np.array([0, 2, 2, -1], np.int32), 3, weight=weight).tolist() == expected


def test_an_accelerator_adds_nothing_up_in_no_fixed_order() -> None:
    refined = torch.zeros(128, dtype=torch.long, device="meta")
    stats = SecondOrder(torch.eye(10), torch.full((10,), 0.1), 1.0).to("meta")
    with Operations() as operations:
        batch_mass(refined, 10)
        example_share(refined, stats, "class", None, None, torch.float32)
    assert any("scatter" in name for name in operations.names)
    assert not any("add" in name or "put" in name for name in operations.names)


def test_no_value_is_read_while_the_step_is_traced() -> None:
    noisy, refined = draw_labels(12, 32, 4)
    criterion = CALLoss(noisy, refined, num_classes=4)
    logits, idx = draw_logits(12, 8, 4).float(), torch.arange(8)
    compiled = torch.compile(criterion, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits, noisy[:8], idx), criterion(logits, noisy[:8], idx))


LABELS = torch.tensor([0, 1, 2, 0])
STATS = SecondOrder.from_labels(LABELS, LABELS, 3)
BAD_CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "no refined labels": (lambda: CALLoss(LABELS, None, 3), "needs refined labels.*SieveRecorder"),
    "a recorder": (lambda: CALLoss(LABELS, SieveRecorder(LABELS, 3), 3), r"D̂, got SieveRecorder; build them with refine\(\)"),  # type: ignore[arg-type]
    "statistics without D̂": (lambda: SecondOrder.from_labels(LABELS, None, 3), "labels D̂, got None; .*clean labels never"),  # type: ignore[arg-type]
    "statistics of arrays": (lambda: covariance_term(torch.zeros(4, 3), LABELS, LABELS, SecondOrder(np.eye(3), torch.ones(3), 1.0)), "must hold tensors.* got transition a ndarray"),  # type: ignore[arg-type]
    "statistics of other classes": (lambda: covariance_term(torch.zeros(4, 3), LABELS, LABELS, SecondOrder(torch.eye(2), torch.ones(3), 1.0)), r"transition a Tensor of shape \(2, 2\)"),
    "probabilities": (lambda: CALLoss(LABELS, LABELS, 3)(torch.tensor([[0.2, 0.3, 0.5], [0.0, 0.9, 0.1]]), LABELS[:2], torch.arange(2)), "what the network gives before softmax"),
    "lengths": (lambda: SecondOrder.from_labels(LABELS, LABELS[:3], 3), "one entry an example, 4, got 3"),
    "refined too large": (lambda: SecondOrder.from_labels(LABELS, LABELS + 1, 3), "0…2.*−1"),
    "noisy dropped": (lambda: SecondOrder.from_labels(LABELS - 1, LABELS, 3), "noisy must lie"),
    "empty class": (lambda: SecondOrder.from_labels(LABELS, torch.zeros(4, dtype=torch.long), 3), "class 1, 2 has no refined example"),
    "all dropped": (lambda: SecondOrder.from_labels(LABELS, torch.full((4,), -1), 3, empty_class="identity"), "keep some example"),
    "one class": (lambda: SecondOrder.from_labels(LABELS * 0, LABELS * 0, 1), "at least 2"),
    "float labels": (lambda: SecondOrder.from_labels(LABELS.float(), LABELS, 3), "integer class numbers"),
    "negative weight": (lambda: SecondOrder.from_labels(LABELS, LABELS, 3, weight=torch.tensor([1.0, -1, 1, 1])), "not negative"),
    "batch weight": (lambda: covariance_term(torch.zeros(4, 3), LABELS, LABELS, STATS, weight=torch.ones(3)), "4 floating-point"),
    "nan logits": (lambda: covariance_term(torch.full((4, 3), torch.nan), LABELS, LABELS, STATS), "finite"),
    "columns": (lambda: covariance_term(torch.zeros(4, 2), LABELS, LABELS, STATS), "3 columns, one a class, got 2"),
    "weighting": (lambda: covariance_term(torch.zeros(4, 3), LABELS, LABELS, STATS, weighting="both"), "'class' .* or 'sample'"),  # type: ignore[arg-type]
    "mean_loss": (lambda: covariance_term(torch.zeros(4, 3), LABELS, LABELS, STATS, mean_loss=torch.ones(3)), "mean_loss must"),
    "loss weighting": (lambda: CALLoss(LABELS, LABELS, 3, weighting="both"), "'class' .* or 'sample'"),  # type: ignore[arg-type]
    "beta": (lambda: CALLoss(LABELS, LABELS, 3, beta=-1.0), "beta must lie in"),
    "block_size": (lambda: covariance_table(torch.zeros(4, 3), LABELS, LABELS, STATS, block_size=0), "block_size must be positive"),
    "labels of another length": (lambda: CALLoss(LABELS, LABELS, 3)(torch.zeros(2, 3), LABELS[:1], torch.arange(2)), "y must have one entry"),
    "reduction": (lambda: CALLoss(LABELS, LABELS, 3, reduction="sum"), "'mean' or 'none'"),  # type: ignore[arg-type]
    "idx range": (lambda: CALLoss(LABELS, LABELS, 3)(torch.zeros(1, 3), LABELS[:1], torch.tensor([4])), "0…3"),
    "idx length": (lambda: CALLoss(LABELS, LABELS, 3)(torch.zeros(1, 3), LABELS[:1], torch.tensor([0, 1])), "1 integer positions"),
    "labels of other examples": (lambda: CALLoss(LABELS, LABELS, 3)(torch.zeros(1, 3), torch.tensor([1]), torch.tensor([0])), "noisy labels of the examples at idx"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_is_refused_with_a_reason(case: str) -> None:
    call, message = BAD_CALLS[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_an_empty_class_can_be_allowed_by_name() -> None:
    stats = SecondOrder.from_labels(LABELS, LABELS.clamp(max=1), 3, empty_class="identity")
    assert stats.transition[2].tolist() == [0.0, 0.0, 1.0]
    assert stats.class_weight[2] == 0
    table = covariance_table(torch.randn(4, 3), LABELS, LABELS.clamp(max=1), stats)
    assert table[2].isnan().all()
    assert table[:2].isfinite().all()


def test_statistics_of_a_refined_are_those_of_its_labels() -> None:
    made = Refined(LABELS.roll(1), keep=LABELS >= 0, score=torch.zeros(4))
    ours, theirs = (SecondOrder.from_labels(LABELS, each, 3) for each in (made, made.label))
    assert torch.equal(ours.transition, theirs.transition)
    assert torch.equal(ours.class_weight, theirs.class_weight)


def test_a_base_loss_in_half_precision_is_corrected_in_single() -> None:
    """As a loss with a matrix product in it is under autocast."""
    logits, rows = draw_logits(21, 4, 3), LABELS.roll(1)

    def half(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return losses.cross_entropy(logits, y).bfloat16()

    def rounded(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return half(logits, y).float()

    ours, theirs = (with_covariance(loss)(logits, LABELS, rows, STATS) for loss in (half, rounded))
    assert ours.dtype == torch.float32
    assert torch.equal(ours, theirs)
