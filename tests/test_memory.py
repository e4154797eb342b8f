"""The average of each example's predictions: what it is, what its short form keeps, who reads it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from covlearn import ledger, records
from covlearn.data import Resident, Split
from covlearn.engine import Machine, Plan, make_ledger, train
from covlearn.ledger import Ledger
from covlearn.memory import Memory
from covlearn.methods import CAL
from covlearn.methods.base import view_of
from covlearn.methods.ce import CrossEntropy
from covlearn.methods.posteriors import averaged_probs
from covlearn.nets import build_net
from covlearn.run import LocalRun, fit_and_evaluate
from covlearn.testing import make_toy, shortened

ALL = torch.arange(6)


def passes(count: int, num_classes: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [3 * torch.randn(6, num_classes, generator=generator) for _ in range(count)]


def test_it_is_the_weighted_mean_of_the_passes() -> None:
    memory = Memory(6, 5, decay=0.9)
    logits = passes(4)
    for each in logits:
        memory.write(ALL, each)
    weight = torch.tensor([0.9**age for age in (3, 2, 1, 0)])
    expected = sum(w * each.softmax(dim=1) for w, each in zip(weight, logits, strict=True))
    torch.testing.assert_close(memory.probs(ALL), expected / weight.sum())


def test_a_pass_touches_its_own_examples_alone() -> None:
    memory = Memory(6, 5, decay=0.9)
    memory.write(torch.tensor([4, 1]), passes(1)[0][:2])
    assert memory.seen.tolist() == [False, True, False, False, True, False]
    assert bool(memory.probs(torch.tensor([0])).isnan().all())
    torch.testing.assert_close(memory.probs(torch.tensor([1]))[0], passes(1)[0][1].softmax(dim=0))


def test_the_largest_classes_of_all_are_all() -> None:
    whole, short = Memory(6, 5, decay=0.8), Memory(6, 5, decay=0.8, largest=5)
    for each in passes(3):
        whole.write(ALL, each)
        short.write(ALL, each)
    torch.testing.assert_close(short.probs(ALL), whole.probs(ALL))


def test_the_short_form_keeps_what_is_largest() -> None:
    short = Memory(1, 4, decay=0.5, largest=2)
    short.write(torch.tensor([0]), torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log())
    torch.testing.assert_close(
        short.probs(torch.tensor([0])), torch.tensor([[0.5 / 0.8, 0.3 / 0.8, 0, 0]])
    )
    short.write(torch.tensor([0]), torch.tensor([[0.05, 0.05, 0.8, 0.1]]).log())
    # ½·½·(0.5, 0.3, 0, 0) + ½·(0.05, 0.05, 0.8, 0.1) = (0.15, 0.1, 0.4, 0.05)
    torch.testing.assert_close(
        short.probs(torch.tensor([0])), torch.tensor([[0.15 / 0.55, 0, 0.4 / 0.55, 0]])
    )


def test_predictions_are_the_largest_averages() -> None:
    for largest in (None, 2):
        memory = Memory(6, 5, decay=0.8, largest=largest)
        for each in passes(2):
            memory.write(ALL[:5], each[:5])
        expected = memory.probs(ALL[:5]).argmax(dim=1).tolist()
        assert memory.predictions().tolist() == [*expected, -1]


@pytest.mark.parametrize(("largest", "expected"), [(None, 4 * 1000), (8, 64)])
def test_the_bytes_an_example_are_those_stated(largest: int | None, expected: int) -> None:
    memory = Memory(10, 1000, decay=0.9, largest=largest)
    assert sum(b.numel() * b.element_size() for b in memory.buffers()) == 10 * expected


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="largest must lie between 1 and the 3 classes, got 4"):
        Memory(2, 3, decay=0.9, largest=4)
    with pytest.raises(ValueError, match=r"average_predictions must lie in \(0, 1\), got 1.0"):
        Plan(epochs=1, average_predictions=1.0)


def toy_split() -> Split:
    toy = make_toy()
    return toy.split


def test_training_fills_it() -> None:
    split = toy_split()
    data = Resident(split, batch_size=16, seed=0)
    plan = Plan(epochs=3, batch_size=16, average_predictions=0.9)
    ledger = make_ledger(data, plan)
    shape = tuple(split.x.shape[1:])
    model = build_net("mlp", num_classes=split.num_classes, input_shape=shape, seed=0)
    train(model, CrossEntropy(), data, plan, Machine(), seed=0, ledger=ledger)
    assert ledger.memory is not None
    assert bool(ledger.memory.seen.all())
    probs = averaged_probs(ledger)
    torch.testing.assert_close(probs.sum(dim=1), torch.ones(len(split)))
    assert torch.equal(ledger.memory.predictions(), probs.argmax(dim=1))


def test_averages_do_not_depend_on_the_parts_they_are_read_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Ledger(6, memory=Memory(6, 5, decay=0.9))
    ledger.write(ALL, passes(1)[0], ALL % 5)
    whole = averaged_probs(ledger)
    monkeypatch.setattr("covlearn.memory.ROWS", 4)
    assert torch.equal(averaged_probs(ledger), whole)


def test_cal_takes_its_refined_labels_from_the_average() -> None:
    split = toy_split()
    method = shortened(CAL(scores="averaged", threshold="argmax"))
    run = LocalRun(split, seed=0)
    method.fit(view_of(run))
    assert run.refined is not None
    assert run.facts["scores"] == "averaged"
    explicit = replace(method, sieve_plan=replace(method.sieve_plan, average_predictions=0.9))
    again = LocalRun(split, seed=0)
    explicit.fit(view_of(again))
    assert again.refined is not None
    assert torch.equal(run.refined[0], again.refined[0])
    other = replace(method, sieve_plan=replace(method.sieve_plan, average_predictions=0.1))
    third = LocalRun(split, seed=0)
    other.fit(view_of(third))
    assert third.refined is not None
    assert not torch.equal(run.refined[1], third.refined[1]), "the decay must matter"


def test_how_good_the_average_is_stands_in_the_record(tmp_path: Path) -> None:
    toy = make_toy()
    method = shortened(CAL(scores="averaged", threshold="argmax"))
    fit_and_evaluate(method, toy.split, test=toy.test, clean=toy.clean, folder=tmp_path / "run")
    record = records.read(tmp_path / "run")
    sieve = [line for line in record.metrics if line["stage"] == "sieve"]
    assert record.result is not None
    assert record.result.labels is not None
    assert sieve[-1]["averaged_right"] == record.result.labels["quality"]["share_right"]
    assert sieve[-1]["averaged_agreement"] == 1 - record.result.labels["changed"]
    assert "averaged_right" not in record.metrics[-1], "stage 2 averages no predictions"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("largest", [None, 2])
def test_captured_steps_write_what_eager_ones_do(largest: int | None) -> None:
    split = toy_split()
    plan = Plan(
        epochs=3, batch_size=16, average=0.99, average_predictions=0.9, average_classes=largest
    )
    found = []
    for capture in (False, True):
        data = Resident(split, batch_size=16, seed=0, device="cuda")
        ledger = make_ledger(data, plan)
        shape = tuple(split.x.shape[1:])
        model = build_net("mlp", num_classes=split.num_classes, input_shape=shape, seed=0)
        machine = Machine(device="cuda", capture=capture)
        train(model, CrossEntropy(), data, plan, machine, seed=0, ledger=ledger)
        assert ledger.memory is not None
        found.append([*ledger.memory.buffers(), *model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_ledger_written_in_blocks_is_one_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(9, 4, generator=generator)
    y, idx = torch.arange(9) % 4, torch.tensor([3, 1, 7, 0, 9, 2, 5, 8, 4])
    whole, parts = Ledger(10), Ledger(10)
    whole.write(idx, logits, y)
    monkeypatch.setattr(ledger, "CACHED_VALUES", 3 * 4)  # three rows at a time
    parts.write(idx, logits, y)
    for name, rows in whole.named_buffers():
        assert torch.equal(rows, parts.get_buffer(name)), name
    assert int(parts.prediction[6]) == -1
