"""What CAL's objectives compute."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from covlearn.covariance import SecondOrder, cal, covariance_term, with_covariance
from covlearn.data import Batch
from covlearn.data.batches import Mix
from covlearn.engine import Objective, Outputs, reduced
from covlearn.ledger import Ledger
from covlearn.losses import (
    confidence,
    cores,
    cross_entropy,
    forward_corrected,
    generalized_cross_entropy,
    per_class,
    reweighted,
)
from covlearn.methods.base import noisy_prior, root_prior
from covlearn.methods.cal import CAL
from covlearn.methods.cal_loss import CovarianceAssisted
from covlearn.methods.cores import CORES, Confident
from covlearn.schedules import Ramp
from tests.methods.cal_runs import LABELS, NOTHING, SIZE, TINY, fitted, write
from tests.methods.toy import NUM_CLASSES

K = 4
GENERATOR = torch.Generator().manual_seed(3)
NOISY = torch.randint(K, (60,), generator=GENERATOR)
REFINED = torch.where(torch.rand(60, generator=GENERATOR) < 0.6, NOISY, (NOISY + 1) % K)
REFINED[::7] = -1
WEIGHT = torch.rand(60, generator=GENERATOR) + 0.5
STATS = SecondOrder.from_labels(NOISY, REFINED, K, weight=WEIGHT)
PRIOR = torch.tensor([0.1, 0.2, 0.3, 0.4])
IDX = torch.randperm(60, generator=GENERATOR)[:20]
LOGITS = 2 * torch.randn(20, K, generator=GENERATOR)
BATCH = Batch(torch.zeros(20, 1), NOISY[IDX], IDX)
BASES: dict[str, Any] = {
    "ce": cross_entropy,
    "gce": generalized_cross_entropy,
    "forward": partial(forward_corrected, transition=STATS.transition),
    "reweight": partial(reweighted, transition=STATS.transition),
}


def own_expectation(base: str) -> Tensor:
    """Σ_k π_k ℓ(f(x), k) of the base loss itself, class by class; CE's has an ε of its own."""
    options = {"eps": 1e-5} if base == "ce" else {}
    classes = [torch.full((len(IDX),), k) for k in range(K)]
    return sum(PRIOR[k] * BASES[base](LOGITS, classes[k], **options) for k in range(K))  # type: ignore[no-any-return]


def losses_of(objective: Objective, epoch: int = 0) -> Tensor:
    objective.begin_epoch(epoch, Ledger(60))
    loss, weight = objective(Outputs(LOGITS), BATCH)
    assert weight is None
    return loss  # type: ignore[no-any-return]


@pytest.mark.parametrize("weighting", ["class", "sample"])
@pytest.mark.parametrize("base", BASES)
def test_the_objective_is_the_loss_of_the_covariance_module(base: Any, weighting: Any) -> None:
    objective = CovarianceAssisted(
        REFINED, STATS, WEIGHT, prior=PRIOR, beta=Ramp(0.7), base=base, weighting=weighting
    )
    options = {"weighting": weighting, "weight": WEIGHT[IDX]}
    if base != "ce":
        corrected = with_covariance(BASES[base])
        losses = corrected(LOGITS, NOISY[IDX], REFINED[IDX], STATS, **options)
        expected = losses - 0.7 * own_expectation(base)
        torch.testing.assert_close(losses_of(objective), expected)
        return
    # Here the covariance has ε = 1e-5, as published, where a general loss has its own 1e-8.
    whole = cal(LOGITS, NOISY[IDX], REFINED[IDX], STATS, prior=PRIOR, beta=0.7, **options)
    torch.testing.assert_close(losses_of(objective), whole)
    term = covariance_term(LOGITS, NOISY[IDX], REFINED[IDX], STATS, **options)
    mean = cores(LOGITS, NOISY[IDX], prior=PRIOR, beta=0.7).mean() - term
    torch.testing.assert_close(losses_of(objective).mean(), mean)


def test_the_papers_form_is_cross_entropy_against_the_row_of_the_transition() -> None:
    refined = REFINED.clamp(min=0)
    stats = SecondOrder.from_labels(NOISY, refined, K)
    objective = CovarianceAssisted(
        refined, stats, None, prior=PRIOR, beta=Ramp(0.0), weighting="sample"
    )
    expected = (stats.transition[refined[IDX]] * per_class(cross_entropy, LOGITS)).sum(dim=1)
    torch.testing.assert_close(losses_of(objective), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("base", BASES)
def test_without_the_covariance_the_base_loss_is_left(base: Any) -> None:
    objective = CovarianceAssisted(
        REFINED, STATS, WEIGHT, prior=PRIOR, beta=Ramp(0.7), covariance=False, base=base
    )
    expected = BASES[base](LOGITS, NOISY[IDX]) - 0.7 * own_expectation(base)
    torch.testing.assert_close(losses_of(objective), expected)


def test_beta_follows_its_schedule() -> None:
    objective = CovarianceAssisted(REFINED, STATS, None, prior=PRIOR, beta=Ramp(2.0, 1, 5))
    regulariser = confidence(LOGITS, prior=PRIOR)
    start = losses_of(objective, 0)
    for epoch, beta in [(1, 0.0), (3, 1.0), (5, 2.0), (9, 2.0)]:
        torch.testing.assert_close(losses_of(objective, epoch), start - beta * regulariser)
        assert objective.strength(epoch) == beta


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("ce", Ramp(2.0, 1, 5)),
        ("gce", Ramp(2.0)),
        ("forward", Ramp(0.0)),
        ("reweight", Ramp(2.0, 1, 5)),
    ],
)
def test_beta_depends_on_what_it_multiplies(base: Any, expected: Ramp) -> None:
    method = CAL(base=base, beta=Ramp(2.0, 1, 5))
    assert method.peer_strength() == expected
    assert dataclasses.replace(method, peer=False).peer_strength() == Ramp(0.0)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("covariance", [True, False])
def test_a_step_reads_no_values(base: Any, covariance: bool) -> None:
    objective = CovarianceAssisted(
        REFINED, STATS, WEIGHT, prior=PRIOR, beta=Ramp(0.7), covariance=covariance, base=base
    )
    compiled = torch.compile(objective, backend="eager", fullgraph=True)
    torch.testing.assert_close(
        reduced(compiled(Outputs(LOGITS), BATCH)), reduced(objective(Outputs(LOGITS), BATCH))
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"peer": False},
        {"covariance": False},
        {"peer": False, "covariance": False},
        {"base": "forward", "weighting": "sample"},
        {"prior_scale": 10.0},
    ],
    ids=str,
)
def test_the_fields_are_those_of_the_objective(changes: dict[str, Any], tmp_path: Path) -> None:
    labels = write(tmp_path / "labels.npy", LABELS)
    given: Any = {"labels": labels} if changes.get("covariance", True) else {}
    method = CAL(plan=NOTHING, beta=Ramp(0.5), match_dropped=False, **given, **changes)
    run = fitted(method)
    objective = run.calls["cal"]["objective"]
    refined = torch.from_numpy(LABELS)
    stats = SecondOrder.from_labels(run.split.y, refined, NUM_CLASSES)
    idx = torch.arange(0, SIZE, 3)
    logits = torch.randn(len(idx), NUM_CLASSES, generator=torch.Generator().manual_seed(0))
    objective.begin_epoch(0, Ledger(SIZE))
    loss, _ = objective(Outputs(logits), Batch(logits, run.split.y[idx], idx))

    # Forward is corrected for class-dependent noise already, and has no peer term.
    y, beta = run.split.y[idx], 0.5 if method.peer and method.base != "forward" else 0.0
    base: Any = cross_entropy
    if method.base == "forward":
        base = partial(forward_corrected, transition=stats.transition)
    expected = base(logits, y)
    if method.covariance:
        expected = with_covariance(base)(logits, y, refined[idx], stats, weighting=method.weighting)
    prior = method.prior_scale * noisy_prior(run.split)
    expected = expected - beta * confidence(logits, prior=prior)
    torch.testing.assert_close(loss, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("prior", ["root", "plain"])
def test_the_sieve_minimises_the_regularised_loss(prior: Any) -> None:
    method = dataclasses.replace(
        TINY, sieve_prior=prior, prior_scale=3.0, sieve_regularizer_eps=1e-2
    )
    run = fitted(method)
    objective = run.calls["sieve"]["objective"]
    assert isinstance(objective, Confident)
    logits = 5 * torch.randn(SIZE, NUM_CLASSES, generator=torch.Generator().manual_seed(0))
    batch = Batch(logits, run.split.y, torch.arange(SIZE))
    loss, weight = objective(Outputs(logits), batch)
    assert weight.tolist() == [1.0] * SIZE  # every example stays in
    prior_K = root_prior(run.split) if prior == "root" else noisy_prior(run.split)
    expected = cores(logits, run.split.y, prior=3 * prior_K, beta=1.0, confidence_eps=1e-2)
    torch.testing.assert_close(loss, expected)


def test_a_scaled_prior_stays_scaled_when_the_sieve_drops_examples() -> None:
    objective, ledger = Confident(NOISY, PRIOR, Ramp(1.0), 1, prior_scale=10.0), Ledger(60)
    torch.testing.assert_close(objective.prior, 10 * PRIOR)
    kept = torch.arange(60) % 3 > 0
    ledger.score.copy_(torch.where(kept, -1.0, 1.0))
    objective.begin_epoch(1, ledger)
    expected = 10 * torch.bincount(NOISY[kept], minlength=len(PRIOR)) / kept.sum()
    torch.testing.assert_close(objective.prior, expected)


@pytest.mark.parametrize("scale", [-1.0, float("inf")])
def test_a_scale_of_the_prior_that_is_none_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match=r"prior_scale must be (finite and ≥ 0|a finite number)"):
        CORES(prior_scale=scale)


def test_with_mixup_the_regulariser_is_that_of_the_inputs_themselves() -> None:
    objective = Confident(NOISY, PRIOR, Ramp(0.7))
    objective.begin_epoch(0, Ledger(60))
    mixed, partner = LOGITS.flip(0), NOISY[IDX].flip(0)
    batch = BATCH._replace(mix=Mix(BATCH.x, partner, torch.tensor(0.8), IDX.flip(0)))
    loss, _ = objective(Outputs(mixed, plain=LOGITS), batch)
    expected = 0.8 * cross_entropy(mixed, NOISY[IDX]) + 0.2 * cross_entropy(mixed, partner)
    torch.testing.assert_close(loss, expected - 0.7 * confidence(LOGITS, prior=PRIOR))
