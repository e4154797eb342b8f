"""Batch norm, addition and ReLU as one: the same result, on CUDA from kernels of our own."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from covlearn import kernels

Twice = tuple[Tensor, Tensor]
"""The same maps for the two branches of a block, so that their gradients arrive apart."""


def norm_relu(norm: nn.Module, x: Tensor, residual: Tensor | None = None) -> Tensor:
    """relu(norm(x) + residual)."""
    if fusible(norm, x):
        return _Fused.apply(x, residual, norm.weight, norm.bias, norm, True)[0]  # type: ignore[no-any-return, no-untyped-call]
    y: Tensor = norm(x)
    return torch.relu(y if residual is None else y + residual)


def norm_relu_twice(norm: nn.Module, x: Tensor, residual: Tensor | None = None) -> Twice:
    """relu(norm(x) + residual), twice."""
    if fusible(norm, x):
        return _Fused.apply(x, residual, norm.weight, norm.bias, norm, True)  # type: ignore[no-any-return, no-untyped-call]
    y = norm_relu(norm, x, residual)
    return y, y


def norm_only(norm: nn.Module, x: Tensor) -> Tensor:
    """norm(x)."""
    if fusible(norm, x):
        return _Fused.apply(x, None, norm.weight, norm.bias, norm, False)[0]  # type: ignore[no-any-return, no-untyped-call]
    y: Tensor = norm(x)
    return y


def fusible(norm: nn.Module, x: Tensor) -> bool:
    """Whether our kernels can take a batch norm: in training, bfloat16 maps, channels last."""
    return (
        isinstance(x, Tensor)  # and not what a tracer puts in its place
        and x.is_cuda
        and x.dtype == torch.bfloat16
        and type(norm) is nn.BatchNorm2d
        and norm.training
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
        and x.shape[1] % 64 == 0
        and x.shape[1] < x.numel() < 2**31  # of one row there is no variance: PyTorch says so
        and x.is_contiguous(memory_format=torch.channels_last)
        and not torch.compiler.is_compiling()
        and kernels.available()
    )


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        norm: nn.BatchNorm2d,
        relu: bool,
    ) -> Twice:
        from covlearn.kernels.norm import norm_forward  # noqa: PLC0415  only where Triton is

        if residual is not None:
            residual = residual.contiguous(memory_format=torch.channels_last)
        running = (norm.running_mean, norm.running_var, norm.num_batches_tracked)
        y, saved = norm_forward(
            x,
            residual,
            weight,
            bias,
            running,  # type: ignore[arg-type]
            eps=norm.eps,
            momentum=norm.momentum,  # type: ignore[arg-type]
            relu=relu,
        )
        ctx.save_for_backward(x, y if residual is not None else None, weight, bias, saved)
        ctx.relu = relu
        ctx.set_materialize_grads(False)
        # A second tensor on the same memory, which autograd does not know to be the first.
        return y, y.new_empty(0).set_(y)  # type: ignore[call-overload]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, other_dy: Tensor | None) -> tuple[Any, ...]:
        from covlearn.kernels.norm import norm_backward  # noqa: PLC0415

        if dy is None:
            dy, other_dy = other_dy, None
        if dy is None:
            return (None,) * 6
        x, y, weight, bias, saved = ctx.saved_tensors
        dy, other_dy = (
            None if g is None else g.contiguous(memory_format=torch.channels_last)
            for g in (dy, other_dy)
        )
        dx, dresidual, dweight, dbias = norm_backward(
            dy,  # type: ignore[arg-type]
            other_dy,
            x,
            y,
            weight,
            bias,
            saved,
            relu=ctx.relu,
        )
        return dx, dresidual, dweight, dbias, None, None
