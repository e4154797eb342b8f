"""Clouds far apart whose noisy labels a network can also learn by heart."""

import dataclasses
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn

from covlearn.data import Split
from covlearn.run import LocalRun

NUM_CLASSES = 3


def clouds(num_examples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs in ten dimensions with their clean labels."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.arange(num_examples) % NUM_CLASSES
    x = torch.randn(num_examples, 10, generator=generator)
    x[torch.arange(num_examples), clean] += 4
    return x, clean


def symmetric(clean: Tensor, rate: float, seed: int) -> Tensor:
    """Labels of which exactly the share ``rate`` is wrong, all wrong ones alike."""
    generator = torch.Generator().manual_seed(seed)
    wrong = torch.randperm(len(clean), generator=generator)[: round(rate * len(clean))]
    noisy = clean.clone()
    shift = torch.randint(1, NUM_CLASSES, (len(wrong),), generator=generator)
    noisy[wrong] = (clean[wrong] + shift) % NUM_CLASSES
    return noisy


def noisy_run(num_examples: int, *, rate: float = 0.4, width: int = 64, **options: Any) -> LocalRun:
    """A run on noisy clouds with a network of one hidden layer."""
    x, clean = clouds(num_examples, seed=1)
    split = Split(x, symmetric(clean, rate, seed=2), NUM_CLASSES)
    return LocalRun(split, net_options={"hidden": [width]}, **options)


def accuracy(model: nn.Module) -> float:
    """On new examples with clean labels."""
    x, clean = clouds(900, seed=101)
    return float((model(x).argmax(dim=1) == clean).float().mean())


def weights(model: nn.Module) -> Tensor:
    """All parameters in one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def rebuilt(kind: Any, value: Any) -> Any:
    """A dataclass from what JSON made of it."""
    if not dataclasses.is_dataclass(kind):
        return tuple(value) if isinstance(value, list) else value
    hints = get_type_hints(kind)
    assert isinstance(kind, type)
    return kind(**{name: rebuilt(hints[name], part) for name, part in value.items()})
