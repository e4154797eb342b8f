"""Runs of CAL that keep what it handed over."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from covlearn.engine import Objective, Plan
from covlearn.ledger import Ledger
from covlearn.methods.cal import CAL
from covlearn.run import LocalRun
from covlearn.schedules import Ramp
from tests.methods.toy import NUM_CLASSES, clouds, noisy_run, weights

NOTHING = Plan(epochs=0)
BRIEF = Plan(epochs=3, batch_size=32, lr=0.05)
TINY = CAL(sieve_plan=BRIEF, sieve_beta=Ramp(1.0), plan=NOTHING, beta=Ramp(0.5), lower=0.0)
SIZE = 120


@dataclass
class Watched(LocalRun):
    """A run that keeps what the method handed over."""

    nets: dict[str, Tensor] = field(default_factory=dict)
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)

    def net(self, name: str) -> nn.Module:
        model = super().net(name)
        self.nets[name] = weights(model)
        return model

    def train(
        self, stage: str, model: nn.Module, objective: Objective, plan: Plan, **options: Any
    ) -> Ledger:
        start = weights(model)
        ledger = super().train(stage, model, objective, plan, **options)
        self.calls[stage] = {
            "objective": objective,
            "plan": plan,
            "start": start,
            "end": weights(model),
            "model": model,
            "ledger": ledger,
            **options,
        }
        return ledger


def watched(num_examples: int = SIZE) -> Watched:
    return Watched(noisy_run(num_examples).split, net_options={"hidden": [16]})


def fitted(method: CAL) -> Watched:
    run = watched()
    method.fit(run)
    return run


def refined_of(run: LocalRun) -> Tensor:
    assert run.refined is not None
    return run.refined[0]


def probs_of(num_examples: int = SIZE) -> Tensor:
    """Another model's probabilities: mostly right, unsure at times."""
    x, _ = clouds(num_examples, seed=1)
    return (0.7 * x[:, :NUM_CLASSES]).double().softmax(dim=1).where(x[:, 4:5] < 2, 1 / 3)


LABELS = torch.randint(-1, NUM_CLASSES, (SIZE,), generator=torch.Generator().manual_seed(0)).numpy()


def write(path: Path, content: Any) -> str:
    """An array, several by name, or text, in the way that the file's name asks for."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    elif isinstance(content, dict):
        np.savez(path, **content)
    else:
        np.save(path, content)
    return str(path)
