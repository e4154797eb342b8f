"""A captured step of inputs that are read, with steps in place of graphs: what it is fed, in order.

The graphs themselves are tested where CUDA is (tests/test_gpu.py).
"""

from typing import Any

import pytest
import torch

from covlearn import engine
from covlearn.capture import CapturedEpoch, CapturedFiles
from covlearn.data import Loaded
from covlearn.engine import Machine, Plan, train
from covlearn.methods.ce import CrossEntropy
from covlearn.methods.cores import Confident
from covlearn.nets import build_net
from covlearn.schedules import Ramp
from tests.test_data import draw_split, loaded


class Step:
    """Stands for a graph: replaying it runs the step."""

    def __init__(self, captured: CapturedEpoch, size: int) -> None:
        self.captured, self.size = captured, size

    def replay(self) -> None:
        self.captured._one(self.size)


class Averaging:
    def __init__(self, captured: CapturedEpoch, steps: int) -> None:
        self.captured, self.steps = captured, steps

    def replay(self) -> None:
        assert self.captured.average is not None
        self.captured.average.update(self.steps)


def uncaptured(self: CapturedEpoch) -> None:
    """As ``_capture``, without CUDA."""
    self.graphs = {size: Step(self, size) for size in set(self.sizes)}  # type: ignore[misc]
    every = 0 if self.average is None else self.average.every
    self.averaging = {steps: Averaging(self, steps) for steps in range(1, every + 1)}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "workers"),
    [({}, 0), ({}, 2), ({"mixup": True}, 0), ({"balanced_batches": 4}, 2), ({"average": 0.9}, 0)],
    ids=str,
)
def test_it_is_fed_the_batches_of_the_epoch(
    options: dict[str, Any], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, average = draw_split(), options.get("average")
    how = {name: value for name, value in options.items() if name != "average"}

    def trained() -> tuple[list[Any], list[torch.Tensor]]:
        data = loaded(split, num_workers=workers, batch_size=16, seed=3, **how)
        assert isinstance(data, Loaded)
        model = build_net("cnn", num_classes=split.num_classes, input_shape=(3, 8, 8), seed=0)
        prior = torch.full((split.num_classes,), 1 / split.num_classes)
        mixed = "mixup" in options
        objective = Confident(split.y, prior, Ramp(1.0)) if mixed else CrossEntropy()
        plan = Plan(epochs=3, batch_size=16, lr=0.05, average=average)
        history = train(model, objective, data, plan, Machine(), seed=1)
        data.close()
        return [line["loss"] for line in history], list(model.state_dict().values())

    eager = trained()
    runs: list[CapturedFiles] = []

    def runner(step: Any, state: Any, data: Any, objective: Any, machine: Any) -> CapturedFiles:
        runs.append(CapturedFiles(step, state.parts, data))
        return runs[-1]

    monkeypatch.setattr(CapturedEpoch, "_capture", uncaptured)
    monkeypatch.setattr(engine, "_epoch_runner", runner)
    captured = trained()
    assert runs
    assert captured[0] == pytest.approx(eager[0], rel=1e-6)
    for ours, theirs in zip(captured[1], eager[1], strict=True):
        torch.testing.assert_close(ours, theirs)
