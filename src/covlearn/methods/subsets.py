"""Examples drawn once, as many of each noisy class."""

import torch
from torch import Tensor

from covlearn.data import counter
from covlearn.methods.base import Run


def balanced_subset(run: Run, most: int) -> Tensor:
    """Which examples (N,): of each noisy class ``most``, or as many as the smallest class has."""
    noisy = run.split.y.cpu()
    each = min(most, int(noisy.bincount(minlength=run.split.num_classes).min()))
    if each == 0:
        raise ValueError(
            "balanced_subset needs an example of each class, got a class without one; leave it out"
        )
    key, part = counter.key(run.seed, 0), torch.zeros_like(noisy, dtype=torch.bool)
    order = counter.bits(key, torch.arange(len(noisy)), counter.SUBSET).argsort()
    for label in range(run.split.num_classes):
        part[order[noisy[order] == label][:each]] = True
    run.note(subset=int(part.sum()), subset_of_each_class=each)
    return part
