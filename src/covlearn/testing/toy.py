"""What the checks train on, and what must be the same of two runs."""

import json
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from covlearn.config import plain
from covlearn.data import Augmentation, Split
from covlearn.evaluation import model_bytes
from covlearn.kinds import checked
from covlearn.methods import Method
from covlearn.noise import symmetric
from covlearn.run import LocalRun
from covlearn.testing.short import shortened

NET_OPTIONS = {"hidden": [32]}
"""Of the mlp that the checks train."""
SEED = 7

Outcome = dict[str, Any]


class Toy(NamedTuple):
    """Three clouds in eight dimensions, or images of three colours, a fifth wrongly labelled."""

    split: Split
    """For training, with noisy labels."""
    clean: Tensor
    """The right labels of ``split``."""
    test: Split
    """For evaluation, with right labels."""


@checked
def make_toy(num_examples: int = 120, *, images: bool = False) -> Toy:
    """The same toy whenever it is asked for; a linear classifier gets its test labels right."""
    if num_examples < 3:
        raise ValueError(f"num_examples must be at least 3, one a class, got {num_examples}")
    generator = torch.Generator().manual_seed(0)

    def clouds() -> Split:
        clean = torch.arange(num_examples) % 3
        if images:
            pixels = 20 * torch.randn(num_examples, 6, 6, 3, generator=generator)
            pixels += 60 + 120 * torch.eye(3)[clean].view(num_examples, 1, 1, 3)
            how = Augmentation((0.4,) * 3, (0.25,) * 3, crop=1, flip=True)
            return Split(pixels.clamp(0, 255).to(torch.uint8), clean, 3, how)
        noise = torch.randn(num_examples, 8, generator=generator)
        return Split(noise + 5 * torch.eye(8)[clean], clean, 3)

    train, test = clouds(), clouds()
    noisy = torch.from_numpy(symmetric(train.y, rate=0.2, num_classes=3, seed=0).label)
    return Toy(replace(train, y=noisy), train.y, test)


def toy_run(split: Split, **options: Any) -> LocalRun:
    """A run on a toy with a network that has no batch norm."""
    return LocalRun(split, net_options=NET_OPTIONS, seed=SEED, checkpoint_seconds=0.0, **options)


def fit(method: Method, **options: Any) -> tuple[Outcome, LocalRun]:
    """The shortened method on the toy."""
    return fit_as_it_is(shortened(method), **options)


def fit_as_it_is(method: Method, **options: Any) -> tuple[Outcome, LocalRun]:
    """A method that is short already on the toy."""
    run = toy_run(make_toy().split, **options)
    return outcome_of(method.fit(run), run), run


def outcome_of(model: nn.Module, run: LocalRun) -> Outcome:
    """All that must be the same of two runs, as what can be compared bit by bit."""
    require(isinstance(model, nn.Module), f"fit must return a network, got {type(model).__name__}")
    lines = {
        stage: [{**line, "seconds": None} for line in epochs]
        for stage, epochs in run.history.items()
    }
    ledger = {} if run.last_ledger is None else dict(run.last_ledger.named_buffers())
    return {
        "network": model_bytes(model),
        "refined labels": None if run.refined is None else [bits(part) for part in run.refined],
        "facts": json.dumps(plain(run.facts)),
        "records": json.dumps(plain(lines)),
        "ledger": {name: bits(rows) for name, rows in ledger.items()},
    }


def bits(value: Any) -> Any:
    """A value that ``==`` compares bit by bit."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(bits(part) for part in value) if isinstance(value, tuple) else value


def require_same(first: Outcome, second: Outcome, sentence: str) -> None:
    """Two outcomes with the same bits."""
    differ = [name for name in first if first[name] != second[name]]
    require(not differ, f"{sentence} ({', '.join(differ)})")


def require(condition: bool, sentence: str) -> None:
    """An assertion that ``python -O`` does not leave out."""
    if not condition:
        raise AssertionError(sentence)
