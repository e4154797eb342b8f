"""CAL with strong views: its loss against a loop, what it hands over, and whom it reaches."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covlearn import records
from covlearn.data import Batch, Resident
from covlearn.engine import Machine, Outputs, Plan, forward, make_ledger, reduced, train
from covlearn.kept import Kept
from covlearn.ledger import Ledger
from covlearn.memory import Memory
from covlearn.methods import CAL
from covlearn.methods.cal_loss import CovarianceAssisted
from covlearn.methods.ce import CrossEntropy
from covlearn.methods.consistency import Consistent, rising
from covlearn.methods.crossfit import CrossFittedCAL
from covlearn.methods.targets import Targeted
from covlearn.run import fit_and_evaluate
from covlearn.schedules import Ramp
from covlearn.testing import NET_OPTIONS, make_toy, shortened
from tests.methods.cal_runs import Watched

SIZE, CLASSES = 40, 3
THRESHOLD, FACTOR = 0.6, 0.7
CONSISTENT = CAL(
    scores="averaged", threshold="argmax", consistency=1.0, consistency_threshold=THRESHOLD
)


def drawn() -> tuple[Outputs, Batch]:
    generator = torch.Generator().manual_seed(0)
    logits, strong, other = (
        2 * torch.randn(SIZE, CLASSES, generator=generator, dtype=torch.float64) for _ in range(3)
    )
    y = torch.randint(CLASSES, (SIZE,), generator=generator)
    outputs = Outputs(logits, strong=strong, averaged=other.softmax(dim=1))
    return outputs, Batch(torch.zeros(SIZE, 1), y, torch.arange(SIZE))


def consistent(keep: Tensor | None, factor: float = FACTOR) -> Consistent:
    labelled = CrossEntropy() if keep is None else Kept(CrossEntropy(), keep)
    posterior = torch.full((SIZE, CLASSES), 1 / CLASSES)
    objective = Consistent(labelled, posterior, schedule=Ramp(factor), threshold=THRESHOLD)
    objective.begin_epoch(0, Ledger(SIZE, memory=Memory(SIZE, CLASSES, decay=0.9)))
    return objective


def probs(logits: Any) -> list[float]:
    power = np.exp(np.asarray(logits) - np.max(np.asarray(logits)))
    return list(power / power.sum())


# ---- The loss -----------------------------------------------------------------------------------


@pytest.mark.parametrize("some", [True, False])
def test_the_loss_agrees_with_the_loop(some: bool) -> None:
    outputs, batch = drawn()
    keep = torch.arange(SIZE) % 3 > 0 if some else None
    assert outputs.strong is not None
    assert outputs.averaged is not None
    own, agreement, sure = [], 0.0, 0
    for n in range(SIZE):
        now = probs(outputs.logits[n])
        if keep is None or keep[n]:
            own.append(-np.log(now[int(batch.y[n])] + 1e-8))
        teacher = [(float(a) + b) / 2 for a, b in zip(outputs.averaged[n], now, strict=True)]
        if max(teacher) >= THRESHOLD:
            sure += 1
            agreement -= np.log(probs(outputs.strong[n])[int(np.argmax(teacher))] + 1e-8)
    assert 5 < sure < SIZE - 5
    expected = np.mean(own) + FACTOR * agreement / SIZE
    found = reduced(consistent(keep)(outputs, batch))
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(float(expected), rel=1e-6)  # λ is a float32


def test_the_teacher_has_no_gradient_and_unsure_examples_none_of_the_strong_view() -> None:
    outputs, batch = drawn()
    weak, strong = outputs.logits.requires_grad_(), outputs.strong
    assert strong is not None
    assert outputs.averaged is not None
    strong.requires_grad_()
    nobody = torch.zeros(SIZE, dtype=torch.bool)
    reduced(consistent(nobody)(outputs, batch)).backward()
    assert weak.grad is not None
    assert strong.grad is not None
    assert not bool(weak.grad.any()), "nothing is labelled, and the teacher is constant"
    teacher = (outputs.averaged + weak.detach().softmax(dim=1)) / 2
    reached = strong.grad.abs().sum(dim=1) > 0
    assert torch.equal(reached, teacher.amax(dim=1) >= THRESHOLD)


def test_without_its_factor_it_is_the_labelled_loss() -> None:
    outputs, batch = drawn()
    keep = torch.arange(SIZE) % 3 > 0
    alone = reduced(Kept(CrossEntropy(), keep)(outputs, batch))
    assert float(reduced(consistent(keep, factor=0.0)(outputs, batch))) == pytest.approx(
        float(alone), rel=1e-6
    )


def test_the_factor_rises_over_the_first_tenth() -> None:
    assert [rising(2.0, 100)(epoch) for epoch in (0, 5, 10, 99)] == [0.0, 1.0, 2.0, 2.0]
    assert rising(2.0, 3)(0) == 2.0


# ---- The averages -------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [None, 2])
def test_the_averages_go_on_from_the_posterior(largest: int | None) -> None:
    posterior = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
    memory = Memory(2, 3, decay=0.9, largest=largest)
    memory.start(posterior)
    every = torch.arange(2)
    kept = posterior if largest is None else posterior.where(posterior > 0.15, 0)
    if largest is not None:
        kept = kept / kept.sum(dim=1, keepdim=True)
    torch.testing.assert_close(memory.probs(every), kept)
    if largest is None:
        now = torch.tensor([[0.2, 0.2, 0.6], [0.3, 0.4, 0.3]])
        memory.write(every, now.log())
        torch.testing.assert_close(memory.probs(every), 0.9 * posterior + 0.1 * now)


def test_an_objective_that_needs_averages_is_refused_a_plan_without() -> None:
    toy = make_toy(images=True)
    data = Resident(toy.split, batch_size=32, strong=True)
    model, objective = nn.Sequential(nn.Flatten(), nn.Linear(108, 3)), consistent(None)
    with pytest.raises(ValueError, match=r"Consistent looks at the average .* set average_predict"):
        train(model, objective, data, Plan(epochs=1), Machine(), seed=0)


def test_the_ledger_sees_the_weak_view_alone() -> None:
    data = Resident(make_toy(images=True).split, batch_size=60, strong=True)
    model, plan = nn.Sequential(nn.Flatten(), nn.Linear(108, 3)), Plan(1, 60, lr=1e-30)
    ledger = make_ledger(data, plan)
    train(model, CrossEntropy(), data, plan, Machine(), seed=0, ledger=ledger)
    differing = 0
    for batch in data.epoch(0):
        assert batch.strong is not None
        weak, strong = (model(view).argmax(dim=1) for view in (batch.x, batch.strong))
        assert torch.equal(ledger.prediction[batch.idx].long(), weak)
        differing += int((weak != strong).sum())
    assert differing > 10


# ---- The method ---------------------------------------------------------------------------------


def image_run(**options: Any) -> Watched:
    return Watched(make_toy(images=True).split, net_options=NET_OPTIONS, seed=7, **options)


@pytest.mark.parametrize("labelled", ["agreed", "all"])
@pytest.mark.parametrize("target", ["noisy", "refined", "posterior_rows"])
def test_cal_hands_over_its_own_objective_on_what_is_labelled(labelled: Any, target: Any) -> None:
    run = image_run()
    shortened(replace(CONSISTENT, consistency_labelled=labelled, target=target)).fit(run)
    call, plain = run.calls["cal"], image_run()
    shortened(replace(CONSISTENT, consistency=0.0, target=target)).fit(plain)
    objective = call["objective"]
    assert isinstance(objective, Consistent)
    assert call["plan"].average_predictions == 0.9
    assert run.refined is not None
    assert plain.refined is not None
    assert torch.equal(run.refined[0], plain.refined[0])
    agreed = run.refined[0] == run.split.y
    assert 0 < int((~agreed).sum()) < len(agreed)
    own = objective.labelled
    if labelled == "agreed":
        assert isinstance(own, Kept)
        assert torch.equal(own.keep.bool(), agreed)
        own = own.inner
    assert isinstance(own, CovarianceAssisted if target == "noisy" else Targeted)
    expected = dict(plain.calls["cal"]["objective"].named_buffers())
    for name, value in own.named_buffers():
        if name != "beta":
            assert torch.equal(value, expected[name]), name
    ledger = run.calls["sieve"]["ledger"]
    assert torch.equal(objective.posterior, ledger.memory.probs(torch.arange(len(agreed))))
    assert all(0 < line["average_sure"] <= 1 for line in run.history["cal"])
    assert "average_sure" not in plain.history["cal"][0]


def test_unlabelled_examples_reach_a_gradient() -> None:
    run = image_run()
    shortened(CONSISTENT, epochs=8).fit(run)
    call = run.calls["cal"]
    objective, model, memory = call["objective"], call["model"], call["ledger"].memory
    data = Resident(run.split, batch_size=120, seed=0, strong=True)
    batch = next(data.epoch(9))
    rest = (objective.labelled.keep[batch.idx] == 0).nonzero().flatten()
    assert len(rest) > 5
    assert batch.strong is not None
    alone = Batch(batch.x[rest], batch.y[rest], batch.idx[rest], strong=batch.strong[rest])
    sure = memory.probs(alone.idx)
    for averaged, reached in ((sure, True), (torch.zeros_like(sure), False)):
        model.zero_grad()
        outputs = forward(model, alone.x)
        outputs = outputs._replace(strong=model(alone.strong), averaged=averaged)
        reduced(objective(outputs, alone)).backward()
        assert any(bool(parameter.grad.any()) for parameter in model.parameters()) is reached


def test_it_is_recorded_like_any_run(tmp_path: Path) -> None:
    toy = make_toy(images=True)
    fit_and_evaluate(
        shortened(replace(CONSISTENT, look_for_evidence=False), epochs=8),
        toy.split,
        test=toy.test,
        clean=toy.clean,
        folder=tmp_path / "run",
        net_options=NET_OPTIONS,
    )
    record = records.read(tmp_path / "run")
    assert record.result is not None
    assert list(record.result.stages) == ["sieve", "cal"]
    lines = [line for line in record.metrics if line["stage"] == "cal"]
    assert all(0 <= line["average_sure"] <= 1 for line in lines)
    assert lines[-1]["averaged_right"] > 0.9
    assert record.result.returned.value > 0.9


def test_features_are_refused_before_a_sieve_is_trained() -> None:
    run = Watched(make_toy().split, net_options=NET_OPTIONS)
    with pytest.raises(ValueError, match=r"consistency=1.0 compares views of images, and features"):
        shortened(CONSISTENT).fit(run)
    assert not run.nets


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"consistency": -1.0}, "consistency must be finite and ≥ 0, got -1"),
        ({"consistency": float("nan")}, "consistency must be a number, got NaN"),
        ({"consistency_threshold": 95.0}, r"must lie in \(0, 1\], got 95.0; 95 % is written 0.95"),
        (
            {"consistency_labelled": "al"},
            "must be one of agreed, all, got 'al'; did you mean 'all'",
        ),
        ({"scores": "training"}, "consistency needs the probabilities that D̂ was made of"),
        ({"labels": "a.npy"}, "consistency needs the probabilities that D̂ was made of"),
        ({"relabel": True}, "goes beside CAL's own loss on D̂; leave relabel and covariance"),
        ({"covariance": False}, "goes beside CAL's own loss on D̂; leave relabel and covariance"),
        ({"balanced_batches": 3}, "every example once an epoch; leave balanced_subset and"),
        ({"balanced_subset": 3}, "every example once an epoch; leave balanced_subset and"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONSISTENT, **settings)


def test_cross_fitted_sieves_do_without() -> None:
    changes: list[dict[str, Any]] = [{"consistency": 1.0}, {"rounds": 2}]
    for settings in changes:
        with pytest.raises(
            ValueError, match=r"use method cal for .* consistency, rounds or judges"
        ):
            CrossFittedCAL(**settings)
