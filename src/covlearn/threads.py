"""How many threads of the processor a training step is worth.

A step on a small table is over before it could be shared, and where other processes use the cores,
or a container has fewer of them than it sees, threads wait for each other at every operation.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

WORTH_SHARING = 50_000_000  # operations of a step (benchmarks/threads.py)


@contextlib.contextmanager
def threads_for(model: nn.Module, batch_size: int) -> Iterator[None]:
    """One thread for steps on features that are not worth sharing, and then as many as before."""
    before = torch.get_num_threads()
    if operations(model, batch_size) < WORTH_SHARING:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def operations(model: nn.Module, batch_size: int) -> int:
    """Of a step on features, where every weight is used once an example: there and twice back.

    >>> operations(nn.Linear(10, 2, bias=False), batch_size=64)
    7680
    """
    weights = sum(each.numel() for each in model.parameters())
    return 6 * batch_size * weights
