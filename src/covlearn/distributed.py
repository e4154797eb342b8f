"""A few collectives that do nothing when there is one process."""

import torch
import torch.distributed as dist
from torch import Tensor


def active() -> bool:
    """Whether more than one process trains together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def process() -> int:
    """This process's number, from zero."""
    return dist.get_rank() if active() else 0


def num_processes() -> int:
    """How many processes train together."""
    return dist.get_world_size() if active() else 1


def sum_of(values: Tensor) -> Tensor:
    """The sum over processes; the gradient of each process's own part is the sum's.

    For a quantity of the whole batch that every process then turns into the same loss: with the
    parameters' gradients summed over processes, each example counts once.
    """
    return _Sum.apply(values) if active() else values  # type: ignore[no-untyped-call]


def max_of(values: Tensor) -> Tensor:
    """The largest value over processes, without a gradient."""
    largest = values.detach().clone()
    if active():
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return largest


def gathered(values: Tensor) -> Tensor:
    """The values of all processes in the order of one process's batch, without a gradient.

    Process p holds every num_processes-th example from p on, so that the order is by turns. The
    last batch may give the first processes one example more: lengths are evened out and cut again.
    """
    if not active():
        return values.detach()
    lengths = [
        torch.zeros(1, dtype=torch.long, device=values.device) for _ in range(num_processes())
    ]
    dist.all_gather(lengths, torch.tensor([values.shape[0]], device=values.device))
    longest = max(int(length) for length in lengths)
    padded = values.new_zeros(longest, *values.shape[1:])
    padded[: values.shape[0]] = values.detach()
    parts = [torch.empty_like(padded) for _ in range(num_processes())]
    dist.all_gather(parts, padded)
    return torch.stack(parts, dim=1).flatten(0, 1)[: sum(int(length) for length in lengths)]


def sum_gradients(parameters: list[Tensor]) -> None:
    """Adds up the gradients of all processes."""
    if not active():
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, values: Tensor) -> Tensor:  # noqa: ARG004
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return gradient
