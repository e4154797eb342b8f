"""CAL: its two stages, where D̂ comes from, and what each switch does."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from covlearn.covariance import SecondOrder
from covlearn.engine import Plan
from covlearn.methods.cal import CAL
from covlearn.methods.ce import CE, CrossEntropy
from covlearn.reweight import kernel_mean_matching
from covlearn.schedules import Ramp
from covlearn.sieve import Refined, adjusted_loss, auto_threshold, quantile_threshold
from tests.methods.cal_runs import BRIEF, NOTHING, SIZE, TINY, fitted, probs_of, refined_of, watched
from tests.methods.toy import NUM_CLASSES, accuracy, clouds, noisy_run


@pytest.fixture
def probs_file(tmp_path: Path) -> str:
    np.save(tmp_path / "probs.npy", probs_of().numpy())
    return str(tmp_path / "probs.npy")


# ---- The whole method -------------------------------------------------------------------------

LONG = Plan(epochs=12, batch_size=32, lr=0.05, divide_lr=True)
WHOLE = CAL(sieve_plan=LONG, sieve_beta=Ramp(2.0, 1, 5), plan=LONG, beta=Ramp(1.0, 1, 5))


@cache
def accuracy_of_cross_entropy() -> float:
    return accuracy(CE(dataclasses.replace(LONG, epochs=30)).fit(noisy_run(400)))


@pytest.mark.parametrize("changes", [{}, {"relabel": True}, {"base": "gce"}], ids=str)
def test_recovers_a_toy_where_cross_entropy_learns_the_noise(changes: dict[str, Any]) -> None:
    method = dataclasses.replace(WHOLE, threshold="argmax", **changes)
    run = noisy_run(400)
    assert accuracy(method.fit(run)) > accuracy_of_cross_entropy() + 0.05
    clean = clouds(400, seed=1)[1]
    assert float((refined_of(run) == clean).float().mean()) > 0.9  # 0.6 of the labels are


def test_two_stages_and_what_is_noted() -> None:
    run = fitted(TINY)
    assert list(run.calls) == ["sieve", "cal"]
    assert list(run.nets) == ["sieve", "cal"]
    assert (run.calls["sieve"]["plan"], run.calls["cal"]["plan"]) == (BRIEF, NOTHING)
    noisy = run.split.y
    assert run.facts == {
        "refined_from": "sieve",
        "scores": "evaluation",
        "threshold": 0.0,
        "kept_share": float((refined_of(run) == noisy).float().mean()),
        "dropped": 0,
    }
    assert run.refined is not None
    assert run.refined[2] == "sieve score above the threshold"


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({"covariance": False}, ["cal"]),
        ({"covariance": False, "peer": False}, ["cal"]),
        ({"covariance": False, "base": "gce"}, ["cal"]),
        ({"covariance": False, "base": "forward"}, ["sieve", "cal"]),
        ({"covariance": False, "relabel": True}, ["sieve", "relabel"]),
        ({"peer": False}, ["sieve", "cal"]),
    ],
)
def test_a_sieve_is_trained_only_where_its_labels_are_used(
    changes: dict[str, Any], stages: list[str]
) -> None:
    run = noisy_run(60)
    method = dataclasses.replace(WHOLE, **changes)
    short = dataclasses.replace(method, sieve_plan=BRIEF, plan=BRIEF)
    short.fit(run)
    assert list(run.history) == stages
    assert (run.refined is None) == ("sieve" not in stages)


def test_without_both_terms_it_is_cross_entropy() -> None:
    run, other = noisy_run(60), noisy_run(60)
    plain = CAL(plan=BRIEF, covariance=False, peer=False).fit(run)
    model = other.net("cal")
    other.train("cal", model, CrossEntropy(), BRIEF)
    for ours, theirs in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_stage_2_starts_from_a_new_network_or_from_the_sieves() -> None:
    new = fitted(TINY)
    assert torch.equal(new.calls["cal"]["start"], new.nets["cal"])
    warm = fitted(dataclasses.replace(TINY, warm_start=True))
    assert list(warm.nets) == ["sieve"]
    assert torch.equal(warm.calls["cal"]["start"], warm.calls["sieve"]["end"])
    assert not torch.equal(warm.calls["cal"]["start"], warm.nets["sieve"])


def test_scores_are_of_the_training_pass_or_of_an_evaluation_pass() -> None:
    training, evaluation = (
        fitted(dataclasses.replace(TINY, scores=scores)) for scores in ("training", "evaluation")
    )
    ledger = training.calls["sieve"]["ledger"]
    logits, _ = evaluation.predict(evaluation.calls["sieve"]["model"])
    expected = adjusted_loss(logits.double().softmax(dim=1), evaluation.split.y)
    assert training.refined is not None
    assert evaluation.refined is not None
    assert torch.equal(training.refined[1], ledger.score)
    torch.testing.assert_close(evaluation.refined[1].double(), expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(training.refined[1], evaluation.refined[1], atol=1e-3)
    assert (training.facts["scores"], evaluation.facts["scores"]) == ("training", "evaluation")


def test_training_scores_need_a_pass_over_every_example() -> None:
    method = dataclasses.replace(TINY, scores="training", sieve_balanced_batches=1)
    with pytest.raises(ValueError, match=r"got \d+ of 120 without one; set scores=evaluation"):
        method.fit(watched())


def test_mixup_and_balanced_batches_reach_the_stages_they_are_for() -> None:
    run = fitted(
        dataclasses.replace(TINY, sieve_mixup=True, sieve_balanced_batches=2, balanced_batches=3)
    )
    sieve, second = run.calls["sieve"], run.calls["cal"]
    assert (sieve["mixup"], sieve["balanced_batches"]) == (True, 2)
    assert (second["mixup"], second["balanced_batches"]) == (False, 3)
    mixed = fitted(dataclasses.replace(TINY, target="refined", mixup=True))
    assert (mixed.calls["sieve"]["mixup"], mixed.calls["cal"]["mixup"]) == (False, True)
    relabelled = fitted(dataclasses.replace(TINY, relabel=True, balanced_batches=3))
    assert relabelled.calls["relabel"]["balanced_batches"] == 3


def test_relabel_is_plain_cross_entropy_on_the_refined_labels(tmp_path: Path) -> None:
    labels = torch.arange(SIZE) % 4 - 1
    np.save(tmp_path / "labels.npy", labels.numpy())
    run = fitted(CAL(labels=str(tmp_path / "labels.npy"), plan=NOTHING, relabel=True))
    assert list(run.calls) == ["relabel"]
    assert isinstance(run.calls["relabel"]["objective"], CrossEntropy)
    assert torch.equal(run.calls["relabel"]["labels"], labels)


# ---- Thresholds -------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", ["fixed", "quantile", "auto"])
def test_thresholds(threshold: str, probs_file: str) -> None:
    method = CAL(
        probs=probs_file, plan=NOTHING, threshold=threshold, lower=0.3, kept=0.4  # type: ignore[arg-type]
    )  # fmt: skip
    run = fitted(method)
    probs, noisy = probs_of(), run.split.y
    score = adjusted_loss(probs, noisy)
    at = {
        "fixed": 0.3,
        "quantile": quantile_threshold(score, 0.4),
        "auto": auto_threshold(score),
    }
    assert len(set(at.values())) == 3
    expected = torch.where(score <= at[threshold], noisy, probs.argmax(dim=1))
    assert run.refined is not None
    assert torch.equal(run.refined[0], expected)
    torch.testing.assert_close(run.refined[1], score)
    assert run.facts["threshold"] == at[threshold]
    assert run.facts["refined_from"] == probs_file
    assert list(run.nets) == ["cal"]  # no sieve was trained


def test_argmax_keeps_the_label_where_no_other_class_is_more_probable(probs_file: str) -> None:
    run = fitted(CAL(probs=probs_file, plan=NOTHING, threshold="argmax"))
    probs, noisy = probs_of(), run.split.y
    own = probs.gather(1, noisy.unsqueeze(1)).squeeze(1)
    kept = own >= probs.amax(dim=1)
    assert run.refined is not None
    assert torch.equal(run.refined[0], torch.where(kept, noisy, probs.argmax(dim=1)))
    assert torch.equal(run.refined[1] <= 0, kept)
    assert run.facts["kept_share"] == pytest.approx(float(kept.float().mean()))


def test_what_lies_between_the_bounds_is_dropped_and_the_rest_weighs_for_it(
    probs_file: str,
) -> None:
    method = CAL(probs=probs_file, plan=NOTHING, lower=-1.0, upper=0.5)
    run = fitted(method)
    score = adjusted_loss(probs_of(), run.split.y)
    dropped = (score > -1.0) & (score <= 0.5)
    assert 5 < int(dropped.sum()) < SIZE - 5
    assert torch.equal(refined_of(run) == -1, dropped)
    assert run.facts["dropped"] == int(dropped.sum())
    objective = run.calls["cal"]["objective"]
    gamma = kernel_mean_matching(run.split.x, ~dropped).gamma.float()  # no sieve, so the inputs
    assert torch.equal(objective.weight, gamma)
    assert float(gamma[~dropped].std()) > 0.01
    stats = SecondOrder.from_labels(
        run.split.y, refined_of(run), NUM_CLASSES, weight=gamma, empty_class="identity"
    )
    assert torch.equal(objective.transition, stats.transition)
    assert objective.kept_share == stats.kept_share

    alike = fitted(dataclasses.replace(method, match_dropped=False)).calls["cal"]["objective"]
    assert alike.weight is None
    assert not torch.equal(alike.transition, objective.transition)
    assert alike.kept_share == pytest.approx(1 - float(dropped.float().mean()))


def test_dropped_examples_are_weighed_by_the_sieves_features() -> None:
    run = watched()
    logits = nn.Linear(10, 3)(run.split.x)
    score = adjusted_loss(logits.detach().softmax(dim=1), run.split.y)
    refined = Refined(run.split.y.where(score < 0, -1), score < 0, score)
    sieve = run.net("sieve")
    _, features = run.predict(sieve, features=True)
    assert features is not None
    weight = TINY.example_weight(run, sieve, refined)
    assert weight is not None
    assert torch.equal(weight, kernel_mean_matching(features, score < 0).gamma.float())
    kept = dataclasses.replace(refined, label=run.split.y)
    assert TINY.example_weight(run, sieve, kept) is None


def test_dropping_everything_is_refused(probs_file: str) -> None:
    method = CAL(probs=probs_file, plan=NOTHING, lower=-99.0, upper=99.0, relabel=True)
    with pytest.raises(ValueError, match="must keep some example, got none"):
        method.fit(watched())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": "fixd"}, "threshold must be one of .* got 'fixd'; did you mean 'fixed'"),
        (
            {"scores": "all"},
            "scores must be one of training, evaluation, averaged, both, got 'all'",
        ),
        ({"sieve_prior": "rot"}, "sieve_prior must be one of .*'root'"),
        ({"base": "mse"}, "base must be one of ce, gce, forward, reweight, got 'mse'"),
        ({"weighting": "none"}, "weighting must be one of class, sample"),
        ({"kept": 61.54}, r"kept must lie in \(0, 1\], got 61.54"),
        ({"prior_scale": -1.0}, "prior_scale must be finite and ≥ 0, got -1"),
        ({"labels": "a.npy", "probs": "b.npy"}, "labels or from probs, got both"),
        ({"labels": "a.npy", "warm_start": True}, "warm_start goes on from the sieve"),
        ({"probs": "a.npy", "warm_start": True}, "warm_start goes on from the sieve"),
        ({"lower": 1.0, "upper": 0.0}, "expected lower ≤ upper, got lower=1.0, upper=0.0"),
        ({"threshold": "auto", "upper": 0.0}, "upper goes with threshold='fixed'"),
        ({"covariance": False, "labels": "a.npy"}, "labels would change nothing"),
        (
            {"covariance": False, "look_for_evidence": True, "balanced_subset": 9},
            "look_for_evidence and balanced_subset would change nothing",
        ),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CAL(**settings)
