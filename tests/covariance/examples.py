"""Labels and logits to try the statistics on."""

import torch
from torch import Tensor

from covlearn.covariance import (
    SecondOrder,
    Weighting,
)
from tests.reference import covariance as reference

WEIGHTINGS: tuple[Weighting, Weighting] = ("class", "sample")


def draw_labels(
    seed: int, size: int, num_classes: int, *, dropped: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Noisy and refined labels that agree on most examples; every class is in D̂."""
    generator = torch.Generator().manual_seed(seed)
    noisy = torch.randint(num_classes, (size,), generator=generator)
    other = torch.randint(num_classes, (size,), generator=generator)
    refined = torch.where(torch.rand(size, generator=generator) < 0.6, noisy, other)
    refined[torch.rand(size, generator=generator) < dropped] = -1
    refined[:num_classes] = torch.arange(num_classes)
    return noisy, refined


def draw_logits(seed: int, size: int, num_classes: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(size, num_classes, generator=generator, dtype=torch.float64)


def exact(stats: SecondOrder, noisy: Tensor, refined: Tensor, weight: Tensor) -> SecondOrder:
    """The same statistics in float64, from the reference's loops."""
    T, P = reference.statistics(
        noisy.numpy(), refined.numpy(), len(stats.class_weight), weight.numpy()
    )
    return SecondOrder(torch.from_numpy(T), torch.from_numpy(P), stats.kept_share)
