"""CAL with two judges: the network that was trained on D̂ has a say in which labels are wrong."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from covlearn.methods.base import view_of
from covlearn.methods.cal import CAL
from covlearn.methods.crossfit import CrossFittedCAL
from covlearn.run import LocalRun
from covlearn.testing import make_toy, shortened

BOTH = CAL(scores="averaged", threshold="argmax", look_for_evidence=True, judges="both")


def fitted(method: CAL, **changes: Any) -> tuple[LocalRun, nn.Module]:
    run = LocalRun(replace(make_toy(600).split, **changes), seed=0)
    short: Any = shortened(method, epochs=8)
    # A sieve that has hardly begun leaves something to the other judge.
    return run, replace(short, sieve_plan=replace(short.sieve_plan, epochs=1)).fit(view_of(run))


def test_labels_are_judged_by_the_mean_of_both_and_nothing_else_changes() -> None:
    (alone, before), (run, model) = fitted(replace(BOTH, judges="sieve")), fitted(BOTH)
    for name, value in before.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name
    assert alone.refined_by is not None
    logits, _ = run.predict(model)
    mean = (alone.refined_by.exp() + logits.softmax(dim=1)) / 2
    assert run.refined is not None
    assert run.refined_by is not None
    torch.testing.assert_close(run.refined_by.exp(), mean, rtol=0, atol=1e-6)
    label, score, reason = run.refined
    assert torch.equal(label, mean.argmax(dim=1))
    assert torch.equal(label != run.split.y, score > 0)
    assert reason == "predictions of the sieve and the last network"
    assert alone.refined is not None
    assert bool((label != alone.refined[0]).any()), "or this test would show nothing"


def test_after_an_early_stop_the_sieve_is_still_the_first_of_both() -> None:
    (once, model), (stopped, same) = fitted(BOTH), fitted(replace(BOTH, rounds=3, rounds_stop=1.0))
    assert len(stopped.facts["rounds_changed"]) == 1
    for name, value in model.state_dict().items():
        assert torch.equal(value, same.state_dict()[name]), name
    assert once.refined_by is not None
    assert stopped.refined_by is not None
    assert torch.equal(once.refined_by, stopped.refined_by)


def test_both_judge_also_where_no_evidence_is_looked_for() -> None:
    run, _ = fitted(replace(BOTH, look_for_evidence=False))
    assert run.refined_by is not None


def test_what_a_person_decided_stays() -> None:
    trusted = torch.arange(600) < 300
    run, _ = fitted(BOTH, trusted=trusted)
    assert run.refined is not None
    assert torch.equal(run.refined[0][trusted], run.split.y[trusted])
    assert bool((run.refined[0] != run.split.y)[~trusted].any())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"judges": "all"}, "judges must be one of sieve, both, got 'all'"),
        ({"judges": "both"}, "set threshold=argmax"),
        ({"judges": "both", "threshold": "argmax", "covariance": False}, "leave covariance"),
        ({"judges": "both", "threshold": "argmax", "labels": "a.npy"}, "needs the probabilities"),
        ({"judges": "both", "threshold": "argmax", "scores": "training"}, "needs the prob"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CAL(**settings)


def test_cross_fitted_sieves_have_no_second_judge() -> None:
    with pytest.raises(ValueError, match="use method cal for judges, or leave it out"):
        CrossFittedCAL(judges="both", threshold="argmax")
