"""Co-teaching, Co-teaching+ and JoCoR: who learns from which examples."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from covlearn import distributed
from covlearn.data import Batch
from covlearn.engine import Outputs, reduced
from covlearn.ledger import Ledger
from covlearn.methods.coteaching import CoTeaching, CoTeachingPlus, Exchange, Forgetting, smallest
from covlearn.methods.jocor import Joint
from covlearn.schedules import Ramp
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
