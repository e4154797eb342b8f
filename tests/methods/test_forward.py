"""Forward and Reweight-R: the transition, estimated and revised."""

import dataclasses
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from covlearn.data import Split
from covlearn.engine import Plan
from covlearn.job import Job, settled
from covlearn.methods import PTD, Method, ReweightR, presets
from covlearn.methods.base import view_of
from covlearn.methods.forward import Forward, check_anchors
from covlearn.methods.reweight_r import Revised
from covlearn.methods.scaled import from_scratch, recommended
from covlearn.run import LocalRun
from tests.methods.loss_cases import (
    NOISE,
    TINY,
    batch_of,
    noisy_toy,
    shapes,
    tiny_run,
    transition_of,
    values,
)
from tests.reference import losses as reference
from tests.reference.transition import anchor_transition


@pytest.mark.parametrize("percentile", [90.0, None])
def test_the_transition_is_read_off_the_estimation_network_and_recorded(
    percentile: float | None,
) -> None:
    run = tiny_run()
    Forward(Plan(epochs=0), percentile, Plan(epochs=0)).fit(run)
    logits, _ = run.predict(run.net("estimation"))
    probs = logits.double().softmax(dim=1).numpy()
    expected = anchor_transition(probs, 100.0 if percentile is None else percentile)
    np.testing.assert_allclose(run.facts["transition"], expected, rtol=1e-12)
    rate = sum(1 - expected[p.argmax(), p.argmax()] for p in probs) / len(probs)
    assert run.facts["estimated_rate"] == pytest.approx(rate, rel=1e-6)


def test_the_estimate_is_near_the_truth_on_plenty_of_easy_data() -> None:
    run = LocalRun(noisy_toy(3000), net_options={"hidden": [16]})
    plan = Plan(epochs=6, batch_size=64, lr=0.02)
    # A third of the examples are of a class: the 85th percentile of p_i lies amid those of class i.
    Forward(plan, 85.0, Plan(epochs=0)).fit(run)
    torch.testing.assert_close(torch.tensor(run.facts["transition"]), NOISE, atol=0.12, rtol=0)
    assert run.facts["estimated_rate"] == pytest.approx(0.4, abs=0.05)


@shapes()
def test_the_slack_has_the_gradient_of_the_loop(seed: int, size: int, num_classes: int) -> None:
    outputs, batch = batch_of(seed, size, num_classes)
    transition = transition_of(seed + 1, num_classes)
    for constant_weight in (True, False):
        objective = Revised(transition, constant_weight=constant_weight)
        values(objective, outputs, batch).sum().backward()
        assert objective.slack.grad is not None
        # Along a direction that keeps the sums of rows, T + ΔT needs no projection.
        step = np.random.default_rng(seed).normal(size=(num_classes, num_classes))
        step -= step.mean(axis=1, keepdims=True)
        z, y = outputs.logits.detach().double().numpy(), batch.y.numpy()
        ahead, behind = (
            reference.reweighted(z, y, transition.numpy() + h * step).sum() for h in (1e-5, -1e-5)
        )
        slope = float((objective.slack.grad.double().numpy() * step).sum())
        assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-3, abs=1e-4)


def test_a_constant_weight_is_a_number_to_the_network_and_not_to_the_slack() -> None:
    outputs, batch = batch_of(3, 6, 3)
    transition = transition_of(3, 3)
    z, y = outputs.logits.detach(), batch.y
    prob = z.softmax(dim=1)
    weight = prob[torch.arange(6), y] / (prob @ transition.float())[torch.arange(6), y]
    by_hand = weight.unsqueeze(1) * (prob - torch.nn.functional.one_hot(y, 3))
    for constant_weight in (True, False):
        objective = Revised(transition, constant_weight=constant_weight)
        (grad,) = torch.autograd.grad(values(objective, outputs, batch).sum(), outputs.logits)
        assert torch.allclose(grad, by_hand, atol=1e-5) == constant_weight


def test_revision_moves_the_transition_and_keeps_it_one() -> None:
    run = tiny_run()
    TINY["reweight_r"].fit(run)
    start, end = (torch.tensor(run.facts[key]) for key in ("transition", "revised_transition"))
    assert float((start - end).abs().max()) > 1e-3
    assert bool((end >= 0).all())
    torch.testing.assert_close(end.sum(dim=1), torch.ones(3))

    unrevised = tiny_run()
    dataclasses.replace(  # type: ignore[type-var]
        TINY["reweight_r"], revision_plan=Plan(epochs=0)
    ).fit(unrevised)
    torch.testing.assert_close(torch.tensor(unrevised.facts["revised_transition"]), start)


@pytest.mark.parametrize(
    "method", [Forward(), ReweightR(), PTD()], ids=lambda each: each.__class__.__name__
)
def test_anchors_that_would_be_of_other_classes_are_refused(method: Method) -> None:
    y = torch.arange(68) % 34
    run = LocalRun(Split(torch.zeros(68, 2), y, 34))
    with pytest.raises(
        ValueError, match=r"97th percentile must lie among .* set percentiles?="
    ) as e:
        method.fit(view_of(run))
    assert not run.history, "before a network is trained for it"
    assert "of 34 classes each has 2.9 % on average" in str(e.value)
    check_anchors(97.0, 33, remedy="")  # which three in a hundred just suit


def test_recommended_for_many_classes_has_anchors_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "many.npz"
    np.savez(path, x=np.zeros((200, 3), dtype=np.float32), y=np.arange(200) % 100)
    for name in ("forward", "reweight_r"):
        job = Job(str(path), name, preset="recommended")
        assert settled(job)[0].percentile is None  # type: ignore[attr-defined]
        assert settled(replace(job, preset="paper"))[0].percentile == 97  # type: ignore[attr-defined]
    assert settled(Job(str(path), "ptd", preset="recommended"))[0].percentiles == (99.0, 99.9)  # type: ignore[attr-defined]
    assert settled(Job(str(path), "dmi", preset="recommended"))[0].plan.batch_size == 1000  # type: ignore[attr-defined]
    few = settled(Job("digits", "forward", preset="recommended"))[0]
    assert few.percentile == 97  # type: ignore[attr-defined]
    assert presets.inside(tmp_path / "none.npz") is None
    table = recommended("forward", num_examples=900, num_classes=40, shape=(5,)).method
    images = from_scratch("forward", num_examples=20_000, num_classes=40).method
    assert table.percentile is images.percentile is None  # type: ignore[attr-defined]
