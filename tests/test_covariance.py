import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from covlearn import losses
from covlearn.covariance import (
    CALLoss,
    SecondOrder,
    Weighting,
    batch_mass,
    cal,
    class_mean_loss,
    covariance_table,
    covariance_term,
    with_covariance,
)
from covlearn.covariance.term import class_mass, column_mass, example_share, gamma
from covlearn.sieve import SieveRecorder
from tests.reference import covariance as reference

WEIGHTINGS: tuple[Weighting, Weighting] = ("class", "sample")


def draw_labels(
    seed: int, size: int, num_classes: int, *, dropped: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Noisy and refined labels that agree on most examples; every class is in D̂."""
    generator = torch.Generator().manual_seed(seed)
    noisy = torch.randint(num_classes, (size,), generator=generator)
    other = torch.randint(num_classes, (size,), generator=generator)
    refined = torch.where(torch.rand(size, generator=generator) < 0.6, noisy, other)
    refined[torch.rand(size, generator=generator) < dropped] = -1
    refined[:num_classes] = torch.arange(num_classes)
    return noisy, refined


def draw_logits(seed: int, size: int, num_classes: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(size, num_classes, generator=generator, dtype=torch.float64)


def exact(stats: SecondOrder, noisy: Tensor, refined: Tensor, weight: Tensor) -> SecondOrder:
    """The same statistics in float64, from the reference's loops."""
    T, P = reference.statistics(
        noisy.numpy(), refined.numpy(), len(stats.class_weight), weight.numpy()
    )
    return SecondOrder(torch.from_numpy(T), torch.from_numpy(P), stats.kept_share)


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
                stats.kept_share,
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


def test_class_mean_loss_centres_the_losses_of_each_class() -> None:
    noisy, refined = draw_labels(14, 50, 4, dropped=0.2)
    stats = SecondOrder.from_labels(noisy, refined, 4)
    logits = draw_logits(14, 50, 4)
    mean_loss = class_mean_loss(logits, noisy, refined, stats, block_size=7)
    loss = reference.losses(logits.numpy())
    for i in range(4):
        members = [n for n in range(50) if refined[n] == i]
        np.testing.assert_allclose(mean_loss[i], loss[members].mean(axis=0), rtol=1e-6)


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


def grid(seed: int, num_classes: int, points: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """A finite noisy problem written out: each point once with every noisy label j, weighed by its
    probability. Sums over the rows are exact expectations. Returns point number, Y*, ỹ, weight
    T_{Y* j}(x), and logits of the points."""
    generator = torch.Generator().manual_seed(seed)
    best = torch.arange(points) % num_classes
    rows = torch.rand(points, num_classes, generator=generator, dtype=torch.float64) + 0.05
    rows = rows / rows.sum(dim=1, keepdim=True)
    point = torch.arange(points).repeat_interleave(num_classes)
    noisy = torch.arange(num_classes).repeat(points)
    logits = 2 * torch.randn(points, num_classes, generator=generator, dtype=torch.float64)
    return point, best, noisy, rows, logits


BASES: dict[str, Callable[..., Tensor]] = {
    "ce": losses.cross_entropy,
    "gce": losses.generalized_cross_entropy,
    "truncated gce": losses.truncated_generalized_cross_entropy,
    "forward": partial(losses.forward_corrected, transition=torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.0, 0.3, 0.7]])),
    "reweight": partial(losses.reweighted, transition=torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.0, 0.3, 0.7]])),
    "cores": partial(losses.cores, prior=torch.tensor([0.2, 0.5, 0.3]), beta=2.0),
    "squared, one label only": losses.one_class_at_a_time(
        lambda z, y: (z.softmax(1) - torch.nn.functional.one_hot(y, 3)).square().sum(1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@given(seed=st.integers(0, 999))
def test_any_loss_less_its_covariance_is_the_class_dependent_risk(
    weighting: Weighting, base: str, seed: int
) -> None:
    """The paper's central claim, exactly: E[ℓ(f, ỹ)] − Cov = Σ_i P_i Σ_j T_ij E[ℓ_j | Y* = i]."""
    point, best, noisy, rows, logits = grid(seed, 3, 9)
    weight = rows.flatten()
    refined = best[point]
    stats = SecondOrder.from_labels(noisy, refined, 3, weight=weight)
    T, P = reference.statistics(noisy.numpy(), refined.numpy(), 3, weight.numpy())
    stats = SecondOrder(torch.from_numpy(T), torch.from_numpy(P), stats.kept_share)
    table = losses.per_class(BASES[base], logits)

    noisy_risk = (rows * table).sum(dim=1).mean()
    class_risk = torch.stack([stats.transition[best[n]] @ table[n] for n in range(9)]).mean()

    # One row of the written-out problem carries its probability once, and so must its base loss;
    # the mean over rows of a loss without covariance is what this subtracts again.
    corrected = with_covariance(BASES[base])(
        logits[point], noisy, refined, stats, weighting=weighting, weight=weight
    )
    plain = table[point].gather(1, noisy[:, None]).squeeze(1)
    covariance = (plain - corrected).mean()
    torch.testing.assert_close(noisy_risk - covariance, class_risk, rtol=1e-9, atol=1e-9)
    assert abs(covariance) > 1e-6  # the noise here does depend on the instance


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@given(seed=st.integers(0, 999))
def test_class_dependent_noise_has_no_covariance(weighting: Weighting, seed: int) -> None:
    point, best, noisy, rows, logits = grid(seed, 3, 9)
    rows = rows[:3][best]  # one row of probabilities a class
    weight, refined = rows.flatten(), best[point]
    stats = SecondOrder.from_labels(noisy, refined, 3, weight=weight)
    stats = exact(stats, noisy, refined, weight)
    term = covariance_term(logits[point], noisy, refined, stats, weighting=weighting, weight=weight)
    assert term.item() == pytest.approx(0.0, abs=1e-12)


def test_class_dependent_noise_has_no_covariance_on_average() -> None:
    """The same from draws: the mean over 400 noisy data sets is within its standard error of 0."""
    generator = torch.Generator().manual_seed(0)
    best = torch.arange(60) % 3
    T = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    logits = draw_logits(0, 60, 3)
    terms = []
    for _ in range(400):
        noisy = torch.multinomial(T[best], 1, generator=generator).squeeze(1)
        stats = SecondOrder.from_labels(noisy, best, 3)
        terms.append(covariance_term(logits, noisy, best, stats))
    values = torch.stack(terms)
    # T̂ is counted on the same draw, so that each term is centred by construction and its mean is
    # zero exactly; the bound is four standard errors.
    assert values.std() > 1e-3
    assert abs(values.mean()) < 4 * values.std() / 20


@given(seed=st.integers(0, 999), copies=st.integers(1, 4))
def test_the_two_weightings_agree_when_the_batch_has_the_frequencies_of_the_data(
    seed: int, copies: int
) -> None:
    noisy, refined = draw_labels(seed, 12, 3)
    stats = exact(
        SecondOrder.from_labels(noisy, refined, 3), noisy, refined, torch.ones(12).double()
    )
    noisy, refined = noisy.repeat(copies), refined.repeat(copies)
    logits = draw_logits(seed, len(noisy), 3)
    by_class, by_sample = (
        covariance_term(logits, noisy, refined, stats, weighting=w) for w in WEIGHTINGS
    )
    torch.testing.assert_close(by_class, by_sample)


def test_the_two_weightings_differ_when_it_has_not() -> None:
    noisy, refined = draw_labels(3, 60, 3)
    stats = SecondOrder.from_labels(noisy, refined, 3)
    logits = draw_logits(3, 60, 3)
    batch = (refined == 0) | (torch.arange(60) % 7 == 0)
    by_class, by_sample = (
        covariance_term(logits[batch], noisy[batch], refined[batch], stats, weighting=w).item()
        for w in WEIGHTINGS
    )
    assert abs(by_class - by_sample) > 1e-3


def test_the_sample_form_is_cross_entropy_against_the_row_of_the_transition() -> None:
    """ℓ_ỹ − c_n = Σ_j T̂_{ŷ j} ℓ_j: the example's own noisy label drops out (one ε)."""
    noisy, refined = draw_labels(4, 30, 4)
    stats = SecondOrder.from_labels(noisy, refined, 4)
    logits = draw_logits(4, 30, 4)
    prior = torch.zeros(4)
    values = cal(logits, noisy, refined, stats, prior=prior, beta=0.0, weighting="sample", eps=1e-5)
    table = losses.per_class(losses.cross_entropy, logits, eps=1e-5)
    expected = (stats.transition[refined] * table).sum(dim=1)
    torch.testing.assert_close(values, expected)


def test_transition_is_unbiased_when_refined_labels_are_right() -> None:
    generator = torch.Generator().manual_seed(1)
    T = torch.tensor([[0.5, 0.4, 0.1], [0.0, 0.9, 0.1], [0.3, 0.0, 0.7]])
    best = torch.arange(30) % 3
    estimates = []
    for _ in range(2000):
        noisy = torch.multinomial(T[best], 1, generator=generator).squeeze(1)
        estimates.append(SecondOrder.from_labels(noisy, best, 3).transition)
    stacked = torch.stack(estimates)
    standard_error = stacked.std(dim=0) / 2000**0.5
    assert ((stacked.mean(dim=0) - T).abs() <= 4 * standard_error + 1e-7).all()


def test_batch_estimates_centre_on_the_full_data_and_their_variance_falls_with_the_batch() -> None:
    """Batches drawn from the data: mean = full-data term; variance ∝ 1/B ("sample" is linear)."""
    noisy, refined = draw_labels(5, 2000, 4, dropped=0.2)
    stats = SecondOrder.from_labels(noisy, refined, 4)
    logits = draw_logits(5, 2000, 4)
    full = covariance_term(logits, noisy, refined, stats, weighting="sample").item()
    generator = torch.Generator().manual_seed(0)
    variances: dict[Weighting, list[float]] = {"class": [], "sample": []}
    for weighting in WEIGHTINGS:
        for size in (32, 128, 512):
            terms = torch.empty(1000, dtype=torch.float64)
            for trial in range(1000):
                idx = torch.randint(2000, (size,), generator=generator)
                terms[trial] = covariance_term(
                    logits[idx], noisy[idx], refined[idx], stats, weighting=weighting
                )
            variances[weighting].append(float(terms.var()))
            standard_error = float(terms.std()) / 1000**0.5
            assert abs(float(terms.mean()) - full) < 4 * standard_error
    for weighting in WEIGHTINGS:
        small, middle, large = variances[weighting]
        assert small / middle == pytest.approx(4, rel=0.3)
        assert middle / large == pytest.approx(4, rel=0.3)


@given(seed=st.integers(0, 999), num_classes=st.integers(2, 5), weighted=st.booleans())
def test_table_agrees_with_the_definition_and_sums_to_the_term(
    seed: int, num_classes: int, weighted: bool
) -> None:
    size = 40
    noisy, refined = draw_labels(seed, size, num_classes, dropped=0.2)
    weight = torch.ones(size, dtype=torch.float64)
    if weighted:
        weight = torch.rand(size, generator=torch.Generator().manual_seed(seed)).double() + 0.1
    stats = SecondOrder.from_labels(noisy, refined, num_classes, weight=weight)
    logits = draw_logits(seed, size, num_classes)
    table = covariance_table(logits, noisy, refined, stats, weight=weight, block_size=7)
    expected = reference.table(
        reference.losses(logits.numpy()),
        noisy.numpy(),
        refined.numpy(),
        num_classes,
        weight.numpy(),
    )
    np.testing.assert_allclose(table, expected, atol=2e-6)
    for weighting in WEIGHTINGS:
        term = covariance_term(logits, noisy, refined, stats, weighting=weighting, weight=weight)
        total = (stats.class_weight.unsqueeze(1) * table).sum().item()
        assert total == pytest.approx(term.item(), abs=2e-6)


def test_the_dense_construction_gives_the_same_number() -> None:
    noisy, refined = draw_labels(6, 200, 5)
    stats = SecondOrder.from_labels(noisy, refined, 5)
    logits = draw_logits(6, 200, 5)
    dense = reference.dense_term(reference.losses(logits.numpy()), noisy.numpy(), refined.numpy())
    assert covariance_term(logits, noisy, refined, stats).item() == pytest.approx(dense, abs=1e-6)


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


def test_cal_loss_in_a_loop_learns_and_matches_the_function() -> None:
    noisy, refined = draw_labels(10, 64, 4)
    criterion = CALLoss(noisy, refined, num_classes=4, beta=1.0, reduction="none")
    idx = torch.randperm(64, generator=torch.Generator().manual_seed(0))[:16]
    logits = draw_logits(10, 16, 4)
    stats = SecondOrder.from_labels(noisy, refined, 4)
    expected = cal(
        logits,
        noisy[idx],
        refined[idx],
        stats,
        prior=torch.bincount(noisy, minlength=4) / 64,
        beta=1.0,
    )
    torch.testing.assert_close(criterion(logits, noisy[idx], idx), expected)
    mean = CALLoss(noisy, refined, num_classes=4, beta=1.0)
    torch.testing.assert_close(mean(logits, noisy[idx], idx), expected.mean())
    mean.beta = 0.0
    assert mean(logits, noisy[idx], idx) > expected.mean()


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_cal_loss_uses_example_weights_and_survives_a_state_dict(weighting: Weighting) -> None:
    noisy, refined = draw_labels(11, 64, 4, dropped=0.3)
    weight = torch.rand(64, generator=torch.Generator().manual_seed(0)) + 0.2
    make = partial(CALLoss, noisy, num_classes=4, weighting=weighting)
    criterion = make(refined, weight=weight, beta=0.3)
    idx = torch.arange(20)
    logits = draw_logits(11, 20, 4)
    value = criterion(logits, noisy[idx], idx)
    assert value != make(refined, beta=0.3)(logits, noisy[idx], idx)
    other = make(torch.arange(64) % 4, weight=torch.ones(64))
    assert other(logits, noisy[idx], idx) != value
    other.load_state_dict(criterion.state_dict())
    torch.testing.assert_close(other(logits, noisy[idx], idx), value)
    again = pickle.loads(pickle.dumps(criterion))
    torch.testing.assert_close(again(logits, noisy[idx], idx), value)


def test_cal_loss_shares_no_memory_with_its_arguments() -> None:
    noisy, refined = draw_labels(15, 40, 3)
    arguments = [noisy.int(), refined.int(), torch.ones(40), torch.full((3,), 1 / 3)]
    criterion = CALLoss(arguments[0], arguments[1], 3, weight=arguments[2], prior=arguments[3])
    logits, idx = draw_logits(15, 10, 3), torch.arange(10)
    before = criterion(logits, noisy[:10], idx)
    for argument in arguments:
        argument.zero_()
    assert torch.equal(criterion(logits, noisy[:10], idx), before)


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


def test_recorder_and_loss_in_one_loop() -> None:
    """The engineer's loop: warm up, record an epoch, refine, go on with CAL."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.arange(300) % 3
    x = torch.nn.functional.one_hot(clean, 3) * 6 + torch.randn(300, 3, generator=generator)
    noisy = torch.where(torch.rand(300, generator=generator) < 0.3, (clean + 1) % 3, clean)
    model = torch.nn.Linear(3, 3)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prior = torch.bincount(noisy) / 300
    for _ in range(40):
        optimizer.zero_grad()
        losses.cores(model(x), noisy, prior=prior, beta=1.5).mean().backward()
        optimizer.step()
    recorder = SieveRecorder(noisy, num_classes=3)
    for idx in torch.arange(300).split(64):
        recorder.update(idx, model(x[idx]))
    refined = recorder.refine()
    right_before = (noisy == clean).float().mean()
    assert (refined.label == clean).float().mean() > right_before + 0.15
    criterion = CALLoss(noisy, refined.label, num_classes=3, beta=1.0)
    for _ in range(40):
        optimizer.zero_grad()
        criterion(model(x), noisy, torch.arange(300)).backward()
        optimizer.step()
    assert (model(x).argmax(dim=1) == clean).float().mean() > 0.95


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


def test_an_accelerator_adds_nothing_up_in_no_fixed_order() -> None:
    refined = torch.zeros(128, dtype=torch.long, device="meta")
    stats = SecondOrder(torch.eye(10), torch.full((10,), 0.1), 1.0).to("meta")
    with Operations() as operations:
        batch_mass(refined, 10)
        example_share(refined, stats, "class", None, None, torch.float32)
    assert any("scatter" in name for name in operations.names)
    assert not any("add" in name or "put" in name for name in operations.names)


def test_labels_of_imagenet_size_are_kept_in_four_bytes() -> None:
    noisy = torch.arange(1_281_167) % 1000
    criterion = CALLoss(noisy, noisy.flip(0), num_classes=1000)
    held = sum(buffer.numel() * buffer.element_size() for buffer in criterion.buffers())
    assert held == 2 * 4 * 1_281_167 + 4 * 1000 * 1000 + 2 * 4 * 1000


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
    "beta": (lambda: CALLoss(LABELS, LABELS, 3, beta=-1.0), "beta must be finite"),
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
