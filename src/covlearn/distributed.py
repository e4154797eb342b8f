"""A few collectives that do nothing when there is one process, and batch norm over all of them."""

import datetime
import os
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from covlearn.kinds import checked

TURNS = 3
T = TypeVar("T")


def active() -> bool:
    """Whether more than one process trains together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


@checked
def join(backend: str, *, timeout: datetime.timedelta) -> None:
    """Joins the processes that torchrun started."""
    store, rank, world_size = next(iter(rendezvous("env://", timeout=timeout)))
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(_start_of(store, rank, world_size), store),  # type: ignore[attr-defined]
        rank=rank,
        world_size=world_size,
        timeout=timeout,
    )


def _start_of(store: Any, rank: int, world_size: int) -> str:
    """A name for this start of the processes, on which all of them agree.

    torchrun keeps its store when it starts processes again, and what the dead ones left there would
    be taken for the living. So each draws a number, and the first one calls the roll of the numbers
    that it finds until all have answered; only who reads its own number there knows the roll for
    one of this start.
    """
    mine = uuid.uuid4().hex
    store.set(f"here/{rank}", mine)
    others = range(1, world_size)
    while True:
        if rank == 0:
            roll = [mine, *(store.get(f"here/{other}").decode() for other in others)]
            store.set("roll", " ".join(roll))
            if all(
                store.check([f"heard/{other}"]) and store.get(f"heard/{other}").decode() == mine
                for other in others
            ):
                return mine
        else:
            roll = store.get("roll").decode().split()
            if mine in roll:
                store.set(f"heard/{rank}", roll[0])
                return str(roll[0])
        time.sleep(0.02)


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


def of_first(compute: Callable[[], T]) -> T:
    """What the first process computes, given to all; a failure there is raised in all of them.

    For what only the first process can know: the others may run on machines without its files.
    """
    if not active():
        return compute()
    outcome: list[Any] = [None, None]
    if process() == 0:
        try:
            outcome[0] = compute()
        except (ValueError, OSError) as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome)
    value, failure = outcome
    if failure is not None:
        raise failure
    return cast("T", value)


def in_turns(compute: Callable[[], T]) -> T:
    """The first process computes, then the first one of each other machine, then the rest.

    For what leaves files that the next in turn need not make again.
    """
    if not active():
        return compute()
    first_here = os.environ.get("LOCAL_RANK", "0") == "0"
    turn = 0 if process() == 0 else 1 if first_here else 2
    for now in range(TURNS):
        if now == turn:
            value = compute()
        dist.barrier()
    return value


def sum_gradients(parameters: list[Tensor]) -> None:
    """Adds up the gradients of all processes."""
    if not active():
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


@torch.no_grad()
def average_buffers(model: nn.Module) -> None:
    """Gives all processes the mean of their running statistics, so that all predict alike.

    Parameters are the same anyway; a batch norm's statistics are of each process's own examples.
    """
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if not active() or not buffers:
        return
    flat = torch.cat([buffer.flatten() for buffer in buffers])
    dist.all_reduce(flat)
    flat /= num_processes()
    for buffer, part in zip(buffers, flat.split([b.numel() for b in buffers]), strict=True):
        buffer.copy_(part.view_as(buffer))


def share_batch_norm(model: nn.Module) -> nn.Module:
    """The model with batch norms that take mean and variance over the batch of all processes.

    Weights, statistics and their names stay; with one process nothing is changed.
    """
    if not active():
        return model
    for name, part in model.named_children():
        setattr(model, name, share_batch_norm(part))
    if not isinstance(model, nn.modules.batchnorm._BatchNorm):
        return model
    shared = SharedBatchNorm(
        model.num_features,
        eps=model.eps,
        momentum=model.momentum,
        affine=model.affine,
        track_running_stats=model.track_running_stats,
    )
    shared._parameters, shared._buffers = model._parameters, model._buffers
    return shared.train(model.training)


class SharedBatchNorm(nn.SyncBatchNorm):
    """PyTorch's, which takes GPUs alone, and the same as tensor operations on the CPU."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalises by the batch of all processes in training, by the running mean after it."""
        if input.device.type != "cpu" or not self.training or not active():
            return super().forward(input)
        x = input.float()
        over = [axis for axis in range(x.ndim) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
        count = sum_of(x.new_tensor(float(x.numel() // x.shape[1])))
        mean_C = _JoinedSum.apply(x.sum(dim=over)) / count  # type: ignore[no-untyped-call]
        centred = x - mean_C.view(shape)
        variance_C = _JoinedSum.apply(centred.square().sum(dim=over)) / count  # type: ignore[no-untyped-call]
        self._follow(mean_C.detach(), variance_C.detach() * count / (count - 1))
        y = centred * (variance_C + self.eps).rsqrt().view(shape)
        if self.affine:
            y = y * self.weight.view(shape) + self.bias.view(shape)
        normed: Tensor = y.to(input.dtype)
        return normed

    def _follow(self, mean_C: Tensor, unbiased_C: Tensor) -> None:
        if not self.track_running_stats:
            return
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        seen = float(self.num_batches_tracked)
        share = 1 / seen if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean_C, share)
        self.running_var.lerp_(unbiased_C, share)


class _JoinedSum(torch.autograd.Function):
    """The sum over processes of which each makes a loss of its own: its gradient is summed, too."""

    @staticmethod
    def forward(ctx: object, values: Tensor) -> Tensor:  # noqa: ARG004
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # noqa: ARG004
        total = gradient.clone()
        dist.all_reduce(total)
        return total


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, values: Tensor) -> Tensor:  # noqa: ARG004
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return gradient
