"""Co-teaching, Co-teaching+ and JoCoR: who learns from which examples, and their runs."""

import dataclasses
import json
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from covlearn import distributed
from covlearn.data import Batch
from covlearn.engine import Outputs, Plan, reduced
from covlearn.ledger import Ledger
from covlearn.methods.base import Method
from covlearn.methods.ce import CE
from covlearn.methods.coteaching import CoTeaching, CoTeachingPlus, Exchange, Forgetting, smallest
from covlearn.methods.jocor import JoCoR, Joint
from covlearn.run import LocalRun
from covlearn.schedules import Ramp
from tests.methods.toy import accuracy, noisy_run, weights
from tests.reference import selection as reference
from tests.reference.losses import softmax

LEDGER = Ledger(1)


def batch_of(
    seed: int, size: int, num_classes: int = 4, *, agree: float = 0.5
) -> tuple[Outputs, Batch]:
    """Logits of two networks that have about the share ``agree`` of their predictions in common."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(2, size, num_classes)) * 2
    same = rng.random(size) < agree
    logits[1, same] = logits[0, same] + 0.01 * rng.normal(size=(int(same.sum()), num_classes))
    y = torch.from_numpy(rng.integers(0, num_classes, size))
    return Outputs(torch.from_numpy(logits)), Batch(torch.zeros(size, 1), y, torch.arange(size))


def arrays(outputs: Outputs, batch: Batch) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return outputs.logits.detach().numpy(), batch.y.numpy()


def chosen(weight_B: Tensor) -> set[int]:
    assert set(weight_B.tolist()) <= {0.0, 1.0}
    return set(weight_B.nonzero().flatten().tolist())


# ---- Small losses -----------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 20),
)
def test_smallest_agrees_with_the_loop(rows: list[tuple[int, bool]], twentieths: int) -> None:
    loss = np.array([float(value) for value, _ in rows])  # few values: many are equal
    candidates = [n for n, (_, is_candidate) in enumerate(rows) if is_candidate]
    share = Fraction(twentieths, 20)
    picked = smallest(
        torch.from_numpy(loss), float(share), torch.tensor([candidate for _, candidate in rows])
    )
    assert chosen(picked) == reference.smallest(loss, share, candidates)
    picked = smallest(torch.from_numpy(loss), float(share))
    assert chosen(picked) == reference.smallest(loss, share, list(range(len(rows))))


def test_smallest_ranks_each_network_for_itself() -> None:
    picked = smallest(torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), 1 / 3)
    assert picked.tolist() == [[1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("size", [10, 80, 128])
def test_whole_counts_are_not_rounded_up(size: int) -> None:
    for percent in range(100):
        share = 1 - percent / 100  # 1 − 0.7 is 0.30000000000000004
        picked = smallest(torch.rand(size, generator=torch.Generator().manual_seed(0)), share)
        assert int(picked.sum()) == -(-(100 - percent) * size // 100)


@pytest.mark.parametrize(
    ("rate", "forget_epochs"), [("1/5", 10), ("2/5", 10), ("3/5", 3), ("1/2", 0)]
)
def test_the_share_that_is_forgotten_rises_to_the_rate(rate: str, forget_epochs: int) -> None:
    tau = Fraction(rate)
    objective = Forgetting(Ramp(float(tau), end=forget_epochs))
    for epoch in range(15):
        objective.begin_epoch(epoch, LEDGER)
        expected = 1 - reference.forget_rate(epoch, tau, forget_epochs)
        assert float(objective.keep_share) == pytest.approx(float(expected), abs=1e-12)


# ---- The objectives ---------------------------------------------------------------------------


@given(
    st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 10), st.sampled_from([0.0, 0.5, 1.0])
)
def test_each_network_learns_from_what_the_other_picked(
    seed: int, size: int, tenths: int, agree: float
) -> None:
    outputs, batch = batch_of(seed, size, agree=agree)
    share = Fraction(tenths, 10)
    for disagreeing in (False, True):
        objective = Exchange(Ramp(1 - tenths / 10), disagree_from=7 if disagreeing else None)
        objective.begin_epoch(7, LEDGER)
        loss, weight = objective(outputs, batch)
        picked, value = reference.coteaching(
            *arrays(outputs, batch), share, disagreeing=disagreeing
        )
        assert [chosen(row) for row in weight] == picked
        # A mean over the picked, and over nothing else: it is not divided by their number again.
        assert float(reduced((loss, weight))) == pytest.approx(value, rel=1e-9)


def test_agreement_is_no_matter_during_the_warm_up() -> None:
    outputs, batch = batch_of(0, 20)
    plain, plus = Exchange(Ramp(0.4)), Exchange(Ramp(0.4), disagree_from=5)
    for epoch in (4, 5):
        for objective in (plain, plus):
            objective.begin_epoch(epoch, LEDGER)
        same = torch.equal(plain(outputs, batch)[1], plus(outputs, batch)[1])
        assert same == (epoch == 4)


def test_where_none_disagree_all_take_part() -> None:
    outputs, batch = batch_of(1, 20)
    outputs = Outputs(torch.stack([outputs.logits[0], 2 * outputs.logits[0]]))
    objective = Exchange(Ramp(0.25), disagree_from=0)
    objective.begin_epoch(0, LEDGER)
    _, weight = objective(outputs, batch)
    assert weight.sum(dim=1).tolist() == [15, 15]


def test_one_that_disagrees_is_enough() -> None:
    outputs, batch = batch_of(1, 20)
    outputs = Outputs(torch.stack([outputs.logits[0], 2 * outputs.logits[0]]))
    outputs.logits[1, 6] *= -1
    objective = Exchange(Ramp(0.25), disagree_from=0)
    objective.begin_epoch(0, LEDGER)
    _, weight = objective(outputs, batch)
    assert [chosen(row) for row in weight] == [{6}, {6}]


def test_a_selection_has_no_gradient_and_what_was_left_out_has_none() -> None:
    outputs, batch = batch_of(3, 16)
    logits = outputs.logits.requires_grad_()
    for objective in (Exchange(Ramp(0.5), disagree_from=0), Joint(Ramp(0.5), 0.7)):
        objective.begin_epoch(0, LEDGER)
        loss, weight = objective(Outputs(logits), batch)
        assert not weight.requires_grad
        (gradient,) = torch.autograd.grad(reduced((loss, weight)), logits)
        touched = gradient.abs().sum(dim=2) > 0
        assert torch.equal(touched, weight.expand(2, -1) > 0)


def test_published_departures_are_off_and_do_what_they_say() -> None:
    outputs, batch = batch_of(5, 20)
    share = Fraction(3, 4)
    logits, y = arrays(outputs, batch)
    _, value = reference.coteaching(logits, y, share)
    objective = Exchange(Ramp(0.25), divide_twice=True)
    objective.begin_epoch(0, LEDGER)
    assert float(reduced(objective(outputs, batch))) == pytest.approx(value / 15, rel=1e-9)

    twice = Exchange(Ramp(0.25), disagree_from=1, softmax_twice=True)
    twice.begin_epoch(0, LEDGER)  # not in the warm-up
    assert float(reduced(twice(outputs, batch))) == pytest.approx(value, rel=1e-9)
    twice.begin_epoch(1, LEDGER)
    probs = np.stack([softmax(part) for part in logits])
    _, value = reference.coteaching(probs, y, share, disagreeing=True)
    assert float(reduced(twice(outputs, batch))) == pytest.approx(value, rel=1e-9)

    for method in (CoTeaching(), CoTeachingPlus()):
        assert not method.divide_twice
    assert not CoTeachingPlus().softmax_twice


@given(
    st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 10), st.sampled_from([0.0, 0.3, 0.9])
)
def test_jocor_has_one_set_for_both_networks(
    seed: int, size: int, tenths: int, agreement: float
) -> None:
    outputs, batch = batch_of(seed, size)
    objective = Joint(Ramp(1 - tenths / 10), agreement)
    objective.begin_epoch(0, LEDGER)
    loss, weight = objective(outputs, batch)
    picked, value = reference.jocor(*arrays(outputs, batch), Fraction(tenths, 10), agreement)
    assert loss.shape == weight.shape == (size,)
    assert chosen(weight) == picked
    assert float(reduced((loss, weight))) == pytest.approx(value, rel=1e-9)


OBJECTIVES: dict[str, Callable[[], Forgetting]] = {
    "coteaching": lambda: Exchange(Ramp(0.4)),
    "coteaching_plus": lambda: Exchange(Ramp(0.4), disagree_from=0, softmax_twice=True),
    "jocor": lambda: Joint(Ramp(0.4), 0.9),
}


def part_of(outputs: Outputs, batch: Batch, process: int) -> tuple[Outputs, Batch]:
    x, y, idx = (rows[process::2] for rows in batch[:3])
    return Outputs(outputs.logits[:, process::2]), Batch(x, y, idx)


@pytest.mark.parametrize("size", [12, 13])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_processes_pick_what_one_does(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, batch = batch_of(2, size)
    objective = OBJECTIVES[name]()
    objective.begin_epoch(0, LEDGER)
    loss, weight = objective(outputs, batch)

    seen: list[Tensor] = []

    def listen(rows: Tensor) -> Tensor:
        seen.append(rows)
        return rows

    monkeypatch.setattr(distributed, "gathered", listen)
    parts = [part_of(outputs, batch, process) for process in range(2)]
    for part in parts:
        objective(*part)
    monkeypatch.setattr(distributed, "num_processes", lambda: 2)

    def gathered(rows: Tensor) -> Tensor:
        whole = rows.new_zeros(size, *rows.shape[1:])
        whole[0::2], whole[1::2] = seen
        return whole

    monkeypatch.setattr(distributed, "gathered", gathered)
    for process, part in enumerate(parts):
        monkeypatch.setattr(distributed, "process", lambda process=process: process)
        own_loss, own_weight = objective(*part)
        assert torch.equal(own_weight, weight[..., process::2])
        torch.testing.assert_close(own_loss, loss[..., process::2], rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_step_reads_no_values(name: str) -> None:
    outputs, batch = batch_of(0, 12)
    objective = OBJECTIVES[name]()
    objective.begin_epoch(0, LEDGER)
    assert objective.capturable
    compiled = torch.compile(objective, backend="eager", fullgraph=True)(outputs, batch)
    for ours, expected in zip(compiled, objective(outputs, batch), strict=True):
        torch.testing.assert_close(ours, expected)


# ---- The methods ------------------------------------------------------------------------------

SGD = Plan(epochs=20, batch_size=32)
ADAM = Plan(epochs=20, batch_size=32, optimizer="adam", lr=3e-3)
SHORT = Plan(epochs=4, batch_size=32, lr=0.02)
RECOVERING: dict[str, CoTeaching | CoTeachingPlus | JoCoR] = {
    "coteaching": CoTeaching(SGD, rate_plan=SHORT, forget_epochs=4),
    "coteaching_plus": CoTeachingPlus(ADAM, rate_plan=SHORT, forget_epochs=4, warm_up_epochs=6),
    "jocor": JoCoR(SGD, rate_plan=SHORT, forget_epochs=4),
}


@cache
def accuracy_of_cross_entropy(plan: Plan) -> float:
    return accuracy(CE(plan).fit(noisy_run(400)))


@pytest.mark.parametrize("name", RECOVERING)
def test_recovers_a_separable_toy_where_cross_entropy_learns_the_noise(name: str) -> None:
    method = RECOVERING[name]
    run = noisy_run(400)
    model = method.fit(run)
    assert accuracy(model) > accuracy_of_cross_entropy(method.plan) + 0.05
    assert run.facts == {"estimated_rate": pytest.approx(0.4, abs=0.06)}


BRIEF = Plan(epochs=4, batch_size=16)
TINY: dict[str, CoTeaching | CoTeachingPlus | JoCoR] = {
    "coteaching": CoTeaching(BRIEF, rate_plan=BRIEF, forget_epochs=3),
    "coteaching_plus": CoTeachingPlus(BRIEF, rate_plan=BRIEF, forget_epochs=3, warm_up_epochs=2),
    "jocor": JoCoR(BRIEF, rate_plan=BRIEF, forget_epochs=3),
}


def tiny_run(**options: Any) -> LocalRun:
    return noisy_run(70, width=8, **options)


@pytest.mark.parametrize("name", TINY)
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (weights(TINY[name].fit(tiny_run(seed=seed))) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", TINY)
def test_a_rate_that_is_given_is_not_estimated(name: str) -> None:
    run = tiny_run()
    dataclasses.replace(TINY[name], rate=0.4).fit(run)
    assert list(run.history) == [name]
    assert run.facts == {}
    other = tiny_run()
    TINY[name].fit(other)
    assert list(other.history) == ["rate", name]
    assert [record["loss"] for record in run.history[name]] != [
        record["loss"] for record in other.history[name]
    ]


@pytest.mark.parametrize("name", TINY)
def test_the_first_of_two_different_networks_is_returned(name: str) -> None:
    shown: list[nn.Module] = []

    def look(stage: str, epoch: int, model: nn.Module, ledger: Ledger) -> dict[str, float]:
        shown.append(model)
        return {}

    run = tiny_run(after_epoch=look)
    model = TINY[name].fit(run)
    first, second = shown[-1].members  # type: ignore[misc]
    assert model is first
    assert not torch.equal(weights(first), weights(second))
    assert model(run.split.x).shape == (70, 3)


@pytest.mark.parametrize("stage", ["rate", "own"])
@pytest.mark.parametrize("name", TINY)
def test_a_run_that_was_cut_off_ends_with_the_same_bits(
    name: str, stage: str, tmp_path: Path
) -> None:
    whole = tiny_run()
    expected = weights(TINY[name].fit(whole))
    stage = name if stage == "own" else stage

    def cut_off(at: str, epoch: int, model: nn.Module, ledger: Ledger) -> dict[str, float]:
        if (at, epoch) == (stage, 2):
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        TINY[name].fit(tiny_run(folder=tmp_path, checkpoint_seconds=0.0, after_epoch=cut_off))

    seen: list[tuple[str, int]] = []

    def watch(at: str, epoch: int, model: nn.Module, ledger: Ledger) -> dict[str, float]:
        seen.append((at, epoch))
        return {}

    resumed = tiny_run(folder=tmp_path, checkpoint_seconds=0.0, after_epoch=watch)
    assert torch.equal(weights(TINY[name].fit(resumed)), expected)
    assert resumed.facts == whole.facts
    later = [(name, epoch) for epoch in range(4)] if stage == "rate" else []
    assert seen == [(stage, 2), (stage, 3), *later]


def rebuilt(kind: Any, value: Any) -> Any:
    """A dataclass from what JSON made of it."""
    if not dataclasses.is_dataclass(kind):
        return tuple(value) if isinstance(value, list) else value
    hints = get_type_hints(kind)
    assert isinstance(kind, type)
    return kind(**{name: rebuilt(hints[name], part) for name, part in value.items()})


@pytest.mark.parametrize("name", TINY)
def test_the_settings_round_trip_through_json(name: str) -> None:
    for method in (TINY[name], type(TINY[name])()):
        assert isinstance(method, Method)
        text = json.dumps(dataclasses.asdict(method))
        assert rebuilt(type(method), json.loads(text)) == method


def test_defaults_are_the_common_protocol() -> None:
    common = Plan(epochs=100, batch_size=128, lr=0.1, lr_milestones=(60,), weight_decay=5e-4)
    for method in (CoTeaching(), CoTeachingPlus(), JoCoR()):
        assert method.plan == common
        assert method.rate is None
        assert method.forget_epochs == 10
    assert CoTeachingPlus().warm_up_epochs == 20
    assert JoCoR().agreement == 0.9


@pytest.mark.parametrize("kind", [CoTeaching, CoTeachingPlus, JoCoR])
@pytest.mark.parametrize(
    ("field", "value"), [("rate", 1.0), ("rate", -0.1), ("rate", 40.0), ("forget_epochs", -1)]
)
def test_bad_settings_are_refused(kind: Any, field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        kind(**{field: value})


def test_bad_settings_of_one_method_are_refused() -> None:
    with pytest.raises(ValueError, match="warm_up_epochs"):
        CoTeachingPlus(warm_up_epochs=-1)
    with pytest.raises(ValueError, match="agreement"):
        JoCoR(agreement=1.1)
