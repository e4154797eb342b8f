"""How many threads of the processor a training step is worth.

A step on a small table is over before it could be shared, and where other processes use the cores,
or a container has fewer of them than it sees, threads wait for each other at every operation.
"""

import contextlib
import threading
from collections.abc import Iterator

import torch
from torch import nn

WORTH_SHARING = 500_000_000  # operations of a step (benchmarks/threads.py)

# The number of threads is the whole process's: with fits side by side in threads of Python, the
# first lowers it and the last one restores it.
_lock = threading.Lock()
_inside = 0
_before = 1


@contextlib.contextmanager
def threads_for(model: nn.Module, batch_size: int) -> Iterator[None]:
    """One thread for steps that are not worth sharing, and then as many as before."""
    if operations(model, batch_size) >= WORTH_SHARING:
        yield
        return
    global _inside, _before  # noqa: PLW0603
    with _lock:
        if _inside == 0:
            _before = torch.get_num_threads()
            torch.set_num_threads(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                torch.set_num_threads(_before)


def operations(model: nn.Module, batch_size: int) -> float:
    """Of a step, there and twice back, where each weight is used once an example; else infinity.

    >>> operations(nn.Linear(10, 2, bias=False), batch_size=64)
    7680
    >>> operations(nn.Conv2d(3, 8, 3), batch_size=64)
    inf
    """
    if any(isinstance(each, nn.Conv1d | nn.Conv2d | nn.Conv3d) for each in model.modules()):
        return float("inf")
    return 6 * batch_size * sum(each.numel() for each in model.parameters())
