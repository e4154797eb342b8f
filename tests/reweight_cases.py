"""Examples of which some are kept, and kernels by another hand."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]


def draw(seed: int, num_examples: int = 14, dimensions: int = 2) -> tuple[Floats, NDArray[Any]]:
    """Features, and a mask that keeps more where the first feature is large."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_examples, dimensions))
    kept = rng.random(num_examples) < 1 / (1 + np.exp(-0.5 - 1.5 * features[:, 0]))
    kept[:2] = True
    return features, kept


def gaussian(num_examples: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A Gaussian of two dimensions, kept with a known probability, and γ* at the kept."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(num_examples, 2, generator=generator, dtype=torch.float64)
    keep_rate = torch.sigmoid(1 + features[:, 0])
    kept = torch.rand(num_examples, generator=generator, dtype=torch.float64) < keep_rate
    ratio = 1 / keep_rate[kept]
    return features, kept, ratio / ratio.mean()


def rbf(x: Tensor, z: Tensor, *, bandwidth: float = 1.0) -> Tensor:
    return torch.exp(-(torch.cdist(x, z) ** 2) / (2 * bandwidth**2))
