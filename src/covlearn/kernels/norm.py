"""Triton kernels for batch norm with addition and ReLU, forward and back.

Images lie channels last, so that a batch of maps is a matrix with one row a pixel and one column a
channel. Sums over rows are made in two steps of fixed order, parts of the rows in one kernel and
their sum in the next: no atomic additions, the same bits every time.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDE = 64  # channels a program looks after: 128 bytes of a row in bfloat16


@triton.jit
def _fetch(matrix, place, row, rows, more):
    """A tile of a matrix; zeros beyond its end, or all of them where there is no more."""
    return tl.load(matrix + place, mask=(row < rows) & more, other=0.0)


@triton.jit
def _moments(x, sums, rows, channels, tiles, ROWS: tl.constexpr, WIDE: tl.constexpr):
    """Parts of Σ(x − s) and Σ(x − s)², s being the first row: no cancellation if |mean| ≫ std."""
    part = tl.program_id(0)
    channel = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    shift = tl.load(x + channel).to(tl.float32)[None, :]
    first = tl.zeros((ROWS, WIDE), tl.float32)
    second = tl.zeros((ROWS, WIDE), tl.float32)
    row = part * tiles * ROWS + tl.arange(0, ROWS)[:, None]
    place = row * channels + channel[None, :]
    value = _fetch(x, place, row, rows, True)
    for tile in range(tiles):
        # The next tile is on its way while this one is summed.
        place += ROWS * channels
        ahead = _fetch(x, place, row + ROWS, rows, tile + 1 < tiles)
        centred = tl.where(row < rows, value.to(tl.float32) - shift, 0.0)
        first += centred
        second += centred * centred
        value = ahead
        row += ROWS
    store = sums + part * 2 * channels + channel
    tl.store(store, tl.sum(first, axis=0))
    tl.store(store + channels, tl.sum(second, axis=0))


@triton.jit
def _total(sums, channel, channels, parts, PARTS: tl.constexpr):
    """The two sums of some channels over all parts."""
    part = tl.arange(0, PARTS)[:, None]
    place = sums + part * 2 * channels + channel[None, :]
    first = tl.load(place, mask=part < parts, other=0.0)
    second = tl.load(place + channels, mask=part < parts, other=0.0)
    return tl.sum(first, axis=0), tl.sum(second, axis=0)


@triton.jit
def _normalise(
    x,
    residual,
    weight,
    bias,
    sums,
    y,
    saved,
    running_mean,
    running_var,
    count,
    rows,
    channels,
    tiles,
    parts,
    eps,
    momentum,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
    PARTS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    RELU: tl.constexpr,
):
    """y = relu(norm(x) + residual); keeps mean and 1/std, and moves the running statistics."""
    program = tl.program_id(0)
    channel = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    row = program * tiles * ROWS + tl.arange(0, ROWS)[:, None]
    place = row * channels + channel[None, :]
    value = _fetch(x, place, row, rows, True)
    if RESIDUAL:
        added = _fetch(residual, place, row, rows, True)
    shift = tl.load(x + channel).to(tl.float32)
    scale = tl.load(weight + channel)
    offset = tl.load(bias + channel)
    first, second = _total(sums, channel, channels, parts, PARTS)
    first = first / rows
    variance = tl.maximum(second / rows - first * first, 0.0)
    mean = shift + first
    inverse = 1.0 / tl.sqrt(variance + eps)
    scale = scale * inverse
    offset = offset - mean * scale
    for tile in range(tiles):
        ahead = _fetch(x, place + ROWS * channels, row + ROWS, rows, tile + 1 < tiles)
        result = value.to(tl.float32) * scale[None, :] + offset[None, :]
        if RESIDUAL:
            result += added.to(tl.float32)
            added = _fetch(residual, place + ROWS * channels, row + ROWS, rows, tile + 1 < tiles)
        if RELU:
            result = tl.maximum(result, 0.0)
        tl.store(y + place, result.to(y.dtype.element_ty), mask=row < rows)
        value = ahead
        place += ROWS * channels
        row += ROWS
    if program == 0:
        tl.store(saved + channel, mean)
        tl.store(saved + channels + channel, inverse)
        old = tl.load(running_mean + channel)
        tl.store(running_mean + channel, (1 - momentum) * old + momentum * mean)
        old = tl.load(running_var + channel)
        unbiased = variance * rows / (rows - 1)
        tl.store(running_var + channel, (1 - momentum) * old + momentum * unbiased)
        if tl.program_id(1) == 0:
            tl.store(count, tl.load(count) + 1)


@triton.jit
def _gradient_sums(
    dy,
    other_dy,
    x,
    y,
    weight,
    bias,
    saved,
    masked,
    sums,
    rows,
    channels,
    tiles,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
    RESIDUAL: tl.constexpr,
    RELU: tl.constexpr,
    TWO: tl.constexpr,
):
    """Parts of Σ g and Σ g (x − mean), g the gradient behind the ReLU, kept where needed again."""
    part = tl.program_id(0)
    channel = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    row = part * tiles * ROWS + tl.arange(0, ROWS)[:, None]
    place = row * channels + channel[None, :]
    slope = _fetch(dy, place, row, rows, True)
    value = _fetch(x, place, row, rows, True)
    if TWO:
        other = _fetch(other_dy, place, row, rows, True)
    if RELU and RESIDUAL:
        result = _fetch(y, place, row, rows, True)
    mean = tl.load(saved + channel)[None, :]
    scale = tl.load(weight + channel)[None, :] * tl.load(saved + channels + channel)[None, :]
    offset = tl.load(bias + channel)[None, :] - mean * scale
    first = tl.zeros((ROWS, WIDE), tl.float32)
    second = tl.zeros((ROWS, WIDE), tl.float32)
    for tile in range(tiles):
        more = tile + 1 < tiles
        after = place + ROWS * channels
        gradient = slope.to(tl.float32)
        slope = _fetch(dy, after, row + ROWS, rows, more)
        here = value.to(tl.float32)
        value = _fetch(x, after, row + ROWS, rows, more)
        if TWO:
            gradient += other.to(tl.float32)
            other = _fetch(other_dy, after, row + ROWS, rows, more)
        if RELU:
            if RESIDUAL:
                above = result.to(tl.float32) > 0
                result = _fetch(y, after, row + ROWS, rows, more)
            else:
                above = here * scale + offset > 0
            gradient = tl.where(above, gradient, 0.0)
        if RESIDUAL or TWO:
            tl.store(masked + place, gradient.to(masked.dtype.element_ty), mask=row < rows)
        first += gradient
        second += gradient * (here - mean)  # beyond the end, the gradient is zero
        place = after
        row += ROWS
    store = sums + part * 2 * channels + channel
    tl.store(store, tl.sum(first, axis=0))
    tl.store(store + channels, tl.sum(second, axis=0))


@triton.jit
def _gradient(
    gradient,
    x,
    weight,
    bias,
    saved,
    sums,
    dx,
    dweight,
    dbias,
    rows,
    channels,
    tiles,
    parts,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
    PARTS: tl.constexpr,
    RELU: tl.constexpr,
):
    """dx = w/std · (g − mean g − x̂ · mean g x̂), and the gradients of weight and bias.

    With RELU the gradient given is that of the ReLU's output, and is masked here once more.
    """
    program = tl.program_id(0)
    channel = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    row = program * tiles * ROWS + tl.arange(0, ROWS)[:, None]
    place = row * channels + channel[None, :]
    value = _fetch(x, place, row, rows, True)
    mean = tl.load(saved + channel)
    inverse = tl.load(saved + channels + channel)
    scale = tl.load(weight + channel) * inverse
    offset = tl.load(bias + channel) - mean * scale
    slope = _fetch(gradient, place, row, rows, True)
    first, second = _total(sums, channel, channels, parts, PARTS)
    tilt = second * inverse * inverse / rows
    level = first / rows
    for tile in range(tiles):
        more = tile + 1 < tiles
        after = place + ROWS * channels
        here = value.to(tl.float32)
        value = _fetch(x, after, row + ROWS, rows, more)
        g = slope.to(tl.float32)
        slope = _fetch(gradient, after, row + ROWS, rows, more)
        if RELU:
            g = tl.where(here * scale[None, :] + offset[None, :] > 0, g, 0.0)
        g = (g - level[None, :] - (here - mean[None, :]) * tilt[None, :]) * scale[None, :]
        tl.store(dx + place, g.to(dx.dtype.element_ty), mask=row < rows)
        place = after
        row += ROWS
    if program == 0:
        tl.store(dbias + channel, first)
        tl.store(dweight + channel, second * inverse)


class _Layout:
    """How a matrix is divided among programs. Measured on an H200, for the maps of a ResNet."""

    rows = 64  # of a tile

    def __init__(self, rows: int, channels: int, *, summing: bool) -> None:
        columns = channels // WIDE
        # What one program sums is a part that every program that writes has to sum up again: in
        # between, fewer and larger programs are faster.
        fewer = summing and 264 < triton.cdiv(rows, self.rows) * columns <= 528
        programs, self.warps = (132, 8) if fewer else (264, 4)
        self.tiles = triton.cdiv(rows, max(1, programs // columns) * self.rows)
        self.parts = triton.cdiv(rows, self.tiles * self.rows)
        self.grid = self.parts, columns


def norm_forward(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor, Tensor],
    *,
    eps: float,
    momentum: float,
    relu: bool,
) -> tuple[Tensor, Tensor]:
    """relu(norm(x) + residual) in training, with mean and 1/std (2, C) for the way back."""
    channels = x.shape[1]
    rows = x.numel() // channels
    summing = _Layout(rows, channels, summing=True)
    writing = _Layout(rows, channels, summing=False)
    sums = torch.empty(summing.parts, 2, channels, device=x.device)
    saved = torch.empty(2, channels, device=x.device)
    y = torch.empty_like(x)
    _moments[summing.grid](
        x,
        sums,
        rows,
        channels,
        summing.tiles,
        ROWS=summing.rows,
        WIDE=WIDE,
        num_warps=summing.warps,
    )
    _normalise[writing.grid](
        x,
        x if residual is None else residual,
        weight,
        bias,
        sums,
        y,
        saved,
        *running,
        rows,
        channels,
        writing.tiles,
        summing.parts,
        eps,
        momentum,
        ROWS=writing.rows,
        WIDE=WIDE,
        PARTS=triton.next_power_of_2(summing.parts),
        RESIDUAL=residual is not None,
        RELU=relu,
        num_warps=writing.warps,
    )
    return y, saved


def norm_backward(
    dy: Tensor,
    other_dy: Tensor | None,
    x: Tensor,
    y: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    saved: Tensor,
    *,
    relu: bool,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Gradients of x, of the residual, of weight and bias.

    ``y`` is given where there was a residual. ``other_dy`` is a second gradient of y, to be added.
    """
    channels = x.shape[1]
    rows = x.numel() // channels
    summing = _Layout(rows, channels, summing=True)
    writing = _Layout(rows, channels, summing=False)
    residual, two = y is not None, other_dy is not None
    masked = torch.empty_like(x) if residual or two else None
    sums = torch.empty(summing.parts, 2, channels, device=x.device)
    _gradient_sums[summing.grid](
        dy,
        dy if other_dy is None else other_dy,
        x,
        x if y is None else y,
        weight,
        bias,
        saved,
        x if masked is None else masked,
        sums,
        rows,
        channels,
        summing.tiles,
        ROWS=summing.rows,
        WIDE=WIDE,
        RESIDUAL=residual,
        RELU=relu,
        TWO=two,
        num_warps=summing.warps,
    )
    dx = torch.empty_like(x)
    dweight, dbias = torch.empty_like(weight), torch.empty_like(bias)
    _gradient[writing.grid](
        dy if masked is None else masked,
        x,
        weight,
        bias,
        saved,
        sums,
        dx,
        dweight,
        dbias,
        rows,
        channels,
        writing.tiles,
        summing.parts,
        ROWS=writing.rows,
        WIDE=WIDE,
        PARTS=triton.next_power_of_2(summing.parts),
        RELU=relu and masked is None,
        num_warps=writing.warps,
    )
    return dx, masked if residual else None, dweight, dbias
