"""Noisy clouds, batches and short settings for the tests of single losses."""

import dataclasses
from functools import partial
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covlearn.data import Batch, Split
from covlearn.engine import Objective, Outputs, Plan
from covlearn.methods.base import Method
from covlearn.methods.dmi import DMI
from covlearn.methods.forward import Forward
from covlearn.methods.gce import GCE
from covlearn.methods.peer import Peer
from covlearn.methods.reweight_r import ReweightR
from covlearn.noise import class_dependent
from covlearn.run import LocalRun
from covlearn.schedules import Ramp

NOISE = torch.tensor([[0.60, 0.35, 0.05], [0.05, 0.60, 0.35], [0.35, 0.05, 0.60]])


def toy(num_examples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three clouds far apart, in ten dimensions, where a network can also learn noise by heart."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.arange(num_examples) % 3
    x = torch.randn(num_examples, 10, generator=generator)
    x[torch.arange(num_examples), clean] += 4
    return x, clean


def noisy_toy(num_examples: int, seed: int = 1) -> Split:
    x, clean = toy(num_examples, seed)
    noisy = class_dependent(clean, transition=NOISE.double(), seed=seed).label
    return Split(x, torch.from_numpy(noisy), 3)


BRIEF = Plan(epochs=4, batch_size=16)
TINY: dict[str, Method] = {
    "gce": GCE(BRIEF),
    # Prunes once, so that a resumed run must have kept what was pruned.
    "gce truncated": GCE(BRIEF, truncate=True, k=0.3, prune_from=1, prune_every=3),
    "peer": Peer(dataclasses.replace(BRIEF, divide_lr=True), Ramp(1.0, start=0, end=3)),
    "dmi": DMI(BRIEF, dataclasses.replace(BRIEF, lr=1e-3)),
    "forward": Forward(BRIEF, 90.0, BRIEF),
    "reweight_r": ReweightR(
        BRIEF, None, BRIEF, revision_plan=dataclasses.replace(BRIEF, optimizer="adam", lr=1e-3)
    ),
}


def tiny_run(**options: Any) -> LocalRun:
    return LocalRun(noisy_toy(70), net_options={"hidden": [8]}, **options)


def batch_of(seed: int, size: int, num_classes: int) -> tuple[Outputs, Batch]:
    """Logits and labels of examples in random places of a training set of 3·size."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(size, num_classes, generator=generator)
    y = torch.randint(num_classes, (size,), generator=generator)
    idx = torch.randperm(3 * size, generator=generator)[:size]
    return Outputs(logits.requires_grad_()), Batch(torch.zeros(size, 1), y, idx)


def transition_of(seed: int, num_classes: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(num_classes, num_classes, generator=generator).double()
    rows = rows + num_classes * torch.eye(num_classes)
    return rows / rows.sum(dim=1, keepdim=True)


def values(objective: Objective, outputs: Outputs, batch: Batch) -> Tensor:
    """The losses of a batch; none of these objectives weighs examples against each other."""
    loss, weight = objective(outputs, batch)
    assert weight is None
    assert loss.shape == batch.y.shape
    return loss  # type: ignore[no-any-return]


shapes = partial(
    given,
    seed=st.integers(0, 10**6),
    size=st.integers(1, 9),
    num_classes=st.integers(2, 5),
)
