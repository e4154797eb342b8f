"""PTD: the loss with an instance's matrix, and runs."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from covlearn.data import Batch, Split
from covlearn.engine import Outputs, Plan
from covlearn.ledger import Ledger
from covlearn.methods.base import Method
from covlearn.methods.ce import CE, CrossEntropy
from covlearn.methods.ptd import (
    PTD,
    Correction,
    PartDependent,
    noisy_prob,
)
from covlearn.run import LocalRun
from tests.methods.toy import accuracy, noisy_run, rebuilt, weights
from tests.reference.losses import softmax

Floats = NDArray[np.float64]


def problem(
    seed: int, size: int = 7, num_classes: int = 4, num_parts: int = 3
) -> tuple[Floats, NDArray[np.int64], Floats, Floats]:
    """Logits, labels, mixtures h and part matrices P."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(size, num_classes))
    y = rng.integers(0, num_classes, size)
    mixture = rng.dirichlet(np.ones(num_parts), size=size)
    parts = rng.dirichlet(np.full(num_classes, 0.7), size=(num_parts, num_classes))
    return logits, y, mixture, parts


def instance_transition(mixture_R: Floats, parts: Floats) -> Floats:
    transition = np.zeros(parts.shape[1:])
    for k in range(len(parts)):
        transition += mixture_R[k] * parts[k]
    return transition


def batch_of(logits: Floats, y: NDArray[np.int64], idx: Tensor) -> tuple[Outputs, Batch]:
    labels = torch.from_numpy(y)
    return Outputs(torch.from_numpy(logits)), Batch(torch.zeros(len(y), 1), labels, idx)


# ---- The loss ---------------------------------------------------------------------------------


@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(2, 5), st.integers(1, 4))
def test_losses_agree_with_one_matrix_an_example(
    seed: int, size: int, num_classes: int, num_parts: int
) -> None:
    logits, y, mixture, parts = problem(seed, size, num_classes, num_parts)
    probs = softmax(logits)
    idx = torch.randperm(size, generator=torch.Generator().manual_seed(seed % 2**31))
    mixture = mixture[idx.numpy()]  # example n of the batch is row idx[n] of the set
    noisy, forward, reweight = np.zeros(size), np.zeros(size), np.zeros(size)
    for n in range(size):
        transition = instance_transition(mixture[n], parts)
        for i in range(num_classes):
            noisy[n] += probs[n, i] * transition[i, y[n]]
        forward[n] = -np.log(noisy[n] + 1e-8)
        own = probs[n, y[n]] + 1e-8
        reweight[n] = -own / (noisy[n] + 1e-8) * np.log(own)
    tensors = (torch.from_numpy(part) for part in (probs, y, mixture, parts))
    np.testing.assert_allclose(noisy_prob(*tensors), noisy, rtol=1e-10)

    of_set = torch.zeros(size, num_parts, dtype=torch.float64)
    of_set[idx] = torch.from_numpy(mixture)
    expected: list[tuple[Correction, Floats]] = [("forward", forward), ("reweight", reweight)]
    for correction, values in expected:
        for revise in (False, True):
            objective = PartDependent(
                of_set, torch.from_numpy(parts), correction=correction, revise=revise
            )
            loss, weight = objective(*batch_of(logits, y, idx))
            assert weight is None
            np.testing.assert_allclose(loss.detach(), values, rtol=2e-5)  # h and P are float32


def revising(seed: int, **options: Any) -> tuple[PartDependent, Outputs, Batch]:
    logits, y, mixture, parts = problem(seed)
    objective = PartDependent(
        torch.from_numpy(mixture), torch.from_numpy(parts), revise=True, **options
    )
    outputs, batch = batch_of(logits, y, torch.arange(len(y)))
    return objective.double(), outputs, batch


@pytest.mark.parametrize("correction", ["forward", "reweight"])
@pytest.mark.parametrize("constant_weight", [True, False])
def test_the_slack_has_its_gradient(correction: Correction, constant_weight: bool) -> None:
    objective, outputs, batch = revising(0, correction=correction, constant_weight=constant_weight)

    def mean_loss(slack: Tensor) -> Tensor:
        loss, _ = torch.func.functional_call(objective, {"slack": slack}, (outputs, batch))
        mean: Tensor = loss.mean()
        return mean

    # Rows keep their sum, so that a step along a row's mean changes nothing.
    slack = 0.01 * torch.randn(
        4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    assert torch.autograd.gradcheck(mean_loss, (slack.requires_grad_(),))
    (gradient,) = torch.autograd.grad(mean_loss(slack), slack)
    assert float(gradient.abs().max()) > 1e-3
    torch.testing.assert_close(gradient.sum(dim=1), torch.zeros(4, dtype=torch.float64))


def test_a_revised_mixture_is_valid_and_moves_by_the_slack() -> None:
    objective, _, _ = revising(1)
    parts = torch.full((3, 4, 4), 0.25, dtype=torch.float64)
    objective.parts.copy_(parts)
    with torch.no_grad():
        objective.slack.copy_(torch.tensor([[0.1, -0.1, 0, 0], [5, 0, 0, 0], [0] * 4, [0] * 4]))
    revised = objective.part_matrices().detach()
    torch.testing.assert_close(revised.sum(dim=2), torch.ones(3, 4, dtype=torch.float64))
    assert float(revised.min()) >= 0
    for k in range(3):
        assert revised[k, 0].tolist() == pytest.approx([0.35, 0.15, 0.25, 0.25])
        assert revised[k, 1].tolist() == pytest.approx([1, 0, 0, 0])  # cut back to the simplex
        assert revised[k, 2].tolist() == pytest.approx([0.25] * 4)


def test_only_a_revision_learns_the_slack() -> None:
    _, _, mixture, parts = map(torch.from_numpy, problem(2))
    assert list(PartDependent(mixture, parts).parameters()) == []
    (slack,) = PartDependent(mixture, parts, revise=True).parameters()
    assert slack.shape == (4, 4)
    assert slack.count_nonzero() == 0


def test_a_constant_weight_is_a_number_to_the_network() -> None:
    for constant_weight in (True, False):
        objective, outputs, batch = revising(3, constant_weight=constant_weight)
        logits = outputs.logits.requires_grad_()
        loss, _ = objective(Outputs(logits), batch)
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        probs = logits.detach().softmax(dim=1)
        own = probs.gather(1, batch.y[:, None])
        noisy = noisy_prob(probs, batch.y, objective.mixture, objective.parts)[:, None]
        one_hot = torch.nn.functional.one_hot(batch.y, 4)
        as_a_number = own / noisy * (probs - one_hot)
        assert torch.allclose(gradient, as_a_number, rtol=1e-4, atol=1e-6) == constant_weight


def test_no_matrix_an_example_is_kept() -> None:
    objective = PartDependent(torch.full((5000, 2), 0.5), torch.eye(10).expand(2, -1, -1))
    assert sum(buffer.numel() for buffer in objective.buffers()) == 5000 * 2 + 2 * 100 + 100


@pytest.mark.parametrize("correction", ["forward", "reweight"])
@pytest.mark.parametrize("revise", [False, True])
def test_a_step_reads_no_values(correction: Correction, revise: bool) -> None:
    logits, y, mixture, parts = problem(0)
    objective = PartDependent(
        torch.from_numpy(mixture), torch.from_numpy(parts), correction=correction, revise=revise
    )
    assert objective.capturable
    batch = batch_of(logits, y, torch.arange(len(y)))
    compiled = torch.compile(objective, backend="eager", fullgraph=True)(*batch)
    torch.testing.assert_close(compiled[0], objective(*batch)[0])


# ---- Runs -------------------------------------------------------------------------------------

LONG = Plan(epochs=20, batch_size=32)
SHORT = Plan(epochs=4, batch_size=32, lr=0.02)
REVISION = Plan(epochs=3, batch_size=32, optimizer="adam", lr=1e-4)


@pytest.mark.parametrize("correction", ["forward", "reweight"])
def test_beats_cross_entropy_on_a_separable_toy(correction: Correction) -> None:
    run = noisy_run(400)
    method = PTD(SHORT, parts=5, correction=correction, plan=LONG, revision_plan=REVISION)
    model = method.fit(run)
    assert accuracy(model) > accuracy(CE(LONG).fit(noisy_run(400))) + 0.05
    assert 0.1 < run.facts["estimated_rate"] < 0.5
    assert 0 < run.facts["largest_revision"] < 0.1
    assert run.facts["negative_features"] == 0


BRIEF = Plan(epochs=4, batch_size=16)
TINY = PTD(
    BRIEF,
    parts=3,
    anchors=5,
    plan=BRIEF,
    revision_plan=dataclasses.replace(BRIEF, optimizer="adam", lr=1e-3),
)
STAGES = ["estimation", "ptd", "revision"]


def tiny_run(**options: Any) -> LocalRun:
    return noisy_run(70, width=8, **options)


def test_the_same_seed_gives_the_same_bits() -> None:
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    first, again, other = (weights(TINY.fit(tiny_run(seed=seed))) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # type: ignore[index]  # noqa: NPY002


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_that_was_cut_off_ends_with_the_same_bits(stage: str, tmp_path: Path) -> None:
    whole = tiny_run()
    expected = weights(TINY.fit(whole))

    def cut_off(at: str, epoch: int, model: nn.Module, ledger: Ledger) -> dict[str, float]:
        if (at, epoch) == (stage, 2):
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        TINY.fit(tiny_run(folder=tmp_path, checkpoint_seconds=0.0, after_epoch=cut_off))

    seen: list[tuple[str, int]] = []

    def watch(at: str, epoch: int, model: nn.Module, ledger: Ledger) -> dict[str, float]:
        seen.append((at, epoch))
        return {}

    resumed = tiny_run(folder=tmp_path, checkpoint_seconds=0.0, after_epoch=watch)
    assert torch.equal(weights(TINY.fit(resumed)), expected)
    assert resumed.facts == whole.facts
    later = STAGES[STAGES.index(stage) + 1 :]
    assert seen == [(stage, 2), (stage, 3), *((at, epoch) for at in later for epoch in range(4))]


def test_without_epochs_nothing_is_revised() -> None:
    run = tiny_run()
    dataclasses.replace(TINY, revision_plan=Plan(epochs=0)).fit(run)
    assert run.facts["largest_revision"] == 0
    assert run.history["revision"] == []


# What the selection has to tell apart: a network that learns, one that is thrown about, one that is new.
GOOD = Plan(epochs=8, batch_size=16, lr=0.05)
BAD = Plan(epochs=2, batch_size=16, lr=30.0, momentum=0.0)
NONE = Plan(epochs=0)


@pytest.mark.parametrize(
    ("plan", "revision", "selected"), [(GOOD, BAD, "ptd"), (NONE, GOOD, "revision")]
)
def test_held_out_noisy_labels_choose_the_better_network(
    plan: Plan, revision: Plan, selected: str
) -> None:
    method = dataclasses.replace(TINY, plan=plan, revision_plan=revision, selection_share=0.3)
    run = noisy_run(300, rate=0.2, width=16)
    model = method.fit(run)
    before, after = run.facts["selection_accuracy"]
    assert (before > after) == (selected == "ptd")
    assert run.facts["selected"] == selected
    assert accuracy(model) > 0.8
    alone = dataclasses.replace(method, selection_share=0.0)
    assert (accuracy(alone.fit(noisy_run(300, rate=0.2, width=16))) > 0.8) == (plan is NONE)


def test_labels_that_choose_teach_nothing() -> None:
    method = dataclasses.replace(TINY, revision_plan=Plan(epochs=0), selection_share=0.2)
    first, second = tiny_run(), tiny_run()
    choosing = method.choosing(first)
    assert len(choosing) == len(choosing.unique()) == 14
    second.split = dataclasses.replace(
        second.split, y=second.split.y.index_copy(0, choosing, 2 - second.split.y[choosing])
    )
    assert not torch.equal(first.split.y, second.split.y)
    assert torch.equal(weights(method.fit(first)), weights(method.fit(second)))
    # Nothing was revised, and of two that are as good the revised one is taken.
    assert first.facts["selected"] == "revision"
    other = dataclasses.replace(method, selection_share=0.0)
    assert not torch.equal(weights(other.fit(tiny_run())), weights(method.fit(tiny_run())))


def test_the_choice_is_by_the_noisy_label_that_the_network_expects() -> None:
    run = tiny_run()
    model = run.net("a")
    # Every label is expected to be moved on by one class.
    objective = PartDependent(torch.ones(70, 1), torch.eye(3).roll(1, dims=1).unsqueeze(0))
    at = torch.arange(10, 30)
    expected = (model(run.split.x[at]).argmax(dim=1) + 1) % 3
    share = float((expected == run.split.y[at]).double().mean())
    assert objective.noisy_accuracy(run, model, at=at) == share
    assert 0 < share < 1


@pytest.mark.parametrize("warm_start", [False, True])
def test_a_stage_may_end_with_its_best_epoch_and_go_on_from_there(warm_start: bool) -> None:
    method = dataclasses.replace(
        TINY,
        plan=dataclasses.replace(BRIEF, epochs=6, lr=2.0),  # up and down
        revision_plan=NONE,
        selection_share=0.4,
        warm_start=warm_start,
        best_epoch=True,
    )
    run = tiny_run()
    shown: dict[tuple[str, int], Tensor] = {}

    def keep(stage: str, epoch: int, model: nn.Module, ledger: Ledger) -> dict[str, float]:
        shown[stage, epoch] = weights(model)
        return {}

    run.after_epoch = keep
    model = method.fit(run)
    judged = [record["judged"] for record in run.history["ptd"]]
    best = judged.index(max(judged))
    assert best < 5, "the last epoch is the best one: this shows nothing"
    assert torch.equal(weights(model), shown["ptd", best])
    assert run.facts["selection_accuracy"] == [max(judged)] * 2

    # Where the training began: with no steps, the best epoch of the estimation, or new weights.
    start = weights(dataclasses.replace(method, plan=NONE).fit(tiny_run()))
    agreed = [record["judged"] for record in run.history["estimation"]]
    estimated = shown["estimation", agreed.index(max(agreed))]
    assert torch.equal(start, estimated) == warm_start
    assert torch.equal(start, weights(tiny_run().net("ptd"))) == (not warm_start)


@pytest.mark.parametrize("stage", STAGES)
def test_the_best_epoch_survives_an_interruption(stage: str, tmp_path: Path) -> None:
    method = dataclasses.replace(TINY, selection_share=0.4, warm_start=True, best_epoch=True)
    expected = weights(method.fit(tiny_run()))

    def cut_off(at: str, epoch: int, model: nn.Module, ledger: Ledger) -> dict[str, float]:
        if (at, epoch) == (stage, 3):
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        method.fit(tiny_run(folder=tmp_path, checkpoint_seconds=0.0, after_epoch=cut_off))
    resumed = method.fit(tiny_run(folder=tmp_path, checkpoint_seconds=0.0))
    assert torch.equal(weights(resumed), expected)


def test_a_best_epoch_needs_labels_to_choose_by() -> None:
    with pytest.raises(ValueError, match=r"best_epoch=true.*selection_share=0; set it to 0\.1"):
        PTD(best_epoch=True, selection_share=0.0)
    with pytest.raises(ValueError, match=r"selection_share=0\.001 of \d+ examples is none"):
        dataclasses.replace(TINY, best_epoch=True, selection_share=0.001).fit(tiny_run())


def test_a_judge_must_say_a_number() -> None:
    """Nothing is as good as NaN, and the network of before the training would be taken."""
    run = tiny_run()
    with pytest.raises(ValueError, match="judged, which must be a number, got nan"):
        run.train("a", run.net("a"), CrossEntropy(), BRIEF, keep_best=lambda _: float("nan"))


def test_negative_features_are_recorded() -> None:
    split = tiny_run().split
    run = LocalRun(Split(split.x, split.y, 3), net_name="linear")  # its features are the inputs
    dataclasses.replace(TINY, plan=Plan(epochs=1), revision_plan=Plan(epochs=0)).fit(run)
    assert run.facts["negative_features"] == pytest.approx(float((split.x < 0).float().mean()))


def test_the_settings_round_trip_through_json() -> None:
    for method in (TINY, PTD()):
        assert isinstance(method, Method)
        assert rebuilt(PTD, json.loads(json.dumps(dataclasses.asdict(method)))) == method


def test_defaults_are_the_common_protocol() -> None:
    common = Plan(epochs=100, batch_size=128, lr=0.1, lr_milestones=(60,), weight_decay=5e-4)
    assert PTD().plan == common
    assert (PTD().parts, PTD().percentiles, PTD().correction) == (20, (97.0, 99.0), "reweight")
    assert (PTD().revision_plan.optimizer, PTD().revision_plan.lr) == ("adam", 5e-7)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("parts", 0),
        ("anchors", 0),
        ("ridge", -1.0),
        ("percentiles", (99.0, 97.0)),
        ("percentiles", (97.0, 101.0)),
        ("correction", "backward"),
        ("selection_share", 1.0),
        ("selection_share", -0.1),
    ],
)
def test_bad_settings_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        PTD(**{field: value})
