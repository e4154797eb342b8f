"""What the term must equal: risks, expectations, and the one weighting the other."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covlearn import losses
from covlearn.covariance import (
    SecondOrder,
    Weighting,
    cal,
    covariance_term,
    with_covariance,
)
from tests.covariance.examples import WEIGHTINGS, draw_labels, draw_logits, exact
from tests.reference import covariance as reference


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
