"""Triton kernels for what is around the network in a training step: inputs, ledger, update."""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _mix(bits):
    """As ``counter.mix``."""
    bits = bits ^ (bits >> 16)
    bits = (bits * 0x21F0AAAD) & 0xFFFFFFFF
    bits = bits ^ (bits >> 15)
    bits = (bits * 0x735A2D97) & 0xFFFFFFFF
    return bits ^ (bits >> 15)


@triton.jit
def _below(bound, key, idx, stream):
    """As ``counter.below``."""
    start = _mix((key + stream * 0x3C6EF372) & 0xFFFFFFFF)
    return (_mix(start ^ idx) * bound) >> 32


@triton.jit
def _moved(
    images,
    idx,
    key,
    scale,
    shift,
    out,
    height,
    width,
    down_stream,
    right_stream,
    flip_stream,
    CHANNELS: tl.constexpr,
    CROP: tl.constexpr,
    FLIP: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """Crop, flip and normalise: each pixel is read once, from where it comes."""
    image = tl.program_id(0)
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    there = pixel < height * width
    example = tl.load(idx + image)
    epoch_key = tl.load(key)
    row, col = pixel // width, pixel % width
    inside = there
    if FLIP:
        flipped = _below(2, epoch_key, example, flip_stream) == 1
        col = tl.where(flipped, width - 1 - col, col)
    if CROP:
        row += _below(2 * CROP + 1, epoch_key, example, down_stream).to(tl.int32) - CROP
        col += _below(2 * CROP + 1, epoch_key, example, right_stream).to(tl.int32) - CROP
        inside = there & (row >= 0) & (row < height) & (col >= 0) & (col < width)
    size = height * width * CHANNELS
    source = images + example * size + (row * width + col) * CHANNELS
    target = out + image * size + pixel * CHANNELS
    for channel in tl.static_range(CHANNELS):
        value = tl.load(source + channel, mask=inside, other=0).to(tl.float32)
        value = value * tl.load(scale + channel) + tl.load(shift + channel)
        tl.store(target + channel, value.to(out.dtype.element_ty), mask=there)


def moved(
    images_NHWC: Tensor,
    idx: Tensor,
    key: Tensor,
    scale: Tensor,
    shift: Tensor,
    *,
    crop: int,
    flip: bool,
    streams: tuple[int, int, int],
) -> Tensor:
    """The images at ``idx``, cropped, flipped and normalised, (B, C, H, W) with channels last."""
    _, height, width, channels = images_NHWC.shape
    out = scale.new_empty(len(idx), height, width, channels)
    pixels = 256
    _moved[(len(idx), triton.cdiv(height * width, pixels))](
        images_NHWC,
        idx,
        key,
        scale,
        shift,
        out,
        height,
        width,
        *streams,
        CHANNELS=channels,
        CROP=crop,
        FLIP=flip,
        PIXELS=pixels,
        num_warps=2,
        enable_fp_fusion=False,  # a product and a sum, as on the CPU: the same bits
    )
    return out.permute(0, 3, 1, 2)


@triton.jit
def _written(
    logits,
    y,
    idx,
    score,
    prediction,
    loss,
    learned,
    average,
    decay,
    size,
    num_classes,
    stride,
    CLASSES: tl.constexpr,
    AVERAGED: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """One row of the ledger, and of the average of predictions."""
    example = tl.program_id(0)
    k = tl.arange(0, CLASSES)
    inside = k < num_classes
    value = tl.load(logits + example * stride + k, mask=inside, other=-float("inf"))
    value = value.to(tl.float32)
    top = tl.argmax(value, axis=0)
    power = tl.exp(value - tl.max(value, axis=0))
    prob = power / tl.sum(power, axis=0)
    log = tl.log(prob + 1e-8)
    label = tl.load(y + example)
    row = tl.load(idx + example)
    own = -tl.sum(tl.where(k == label, log, 0.0), axis=0)
    tl.store(loss + row, own)
    tl.store(score + row, own + tl.sum(tl.where(inside, log, 0.0), axis=0) / num_classes)
    tl.store(prediction + row, top.to(tl.int32))
    # Of whole numbers: the order of additions does not matter.
    tl.atomic_add(learned + row, (top == label).to(tl.int32))
    if AVERAGED:
        # An example that comes twice in a batch is one pass over it: the last one's.
        again = 0
        for start in range(0, size, OTHERS):
            other = start + tl.arange(0, OTHERS)
            later = (other > example) & (other < size)
            same = later & (tl.load(idx + other, mask=later, other=-1) == row)
            again += tl.sum(same.to(tl.int32), axis=0)
        mine = inside & (again == 0)
        place = average + row * num_classes + k
        old = tl.load(place, mask=mine, other=0.0)
        tl.store(place, decay * old + (1 - decay) * prob, mask=mine)


def written(
    logits: Tensor,
    y: Tensor,
    idx: Tensor,
    rows: tuple[Tensor, Tensor, Tensor, Tensor],
    average: Tensor | None = None,
    decay: float = 0.0,
) -> None:
    """Writes a batch into the ledger's score, prediction, loss and number of times learned.

    With an ``average`` p̄ (N, K) also p̄ ← decay · p̄ + (1 − decay) · p, as ``Memory.write`` does.
    """
    num_classes = logits.shape[1]
    _written[(len(logits),)](
        logits,
        y,
        idx,
        *rows,
        logits if average is None else average,
        decay,
        len(logits),
        num_classes,
        logits.stride(0),
        CLASSES=triton.next_power_of_2(num_classes),
        AVERAGED=average is not None,
        OTHERS=128,
        num_warps=1,
    )


@triton.jit
def _sgd(
    master,
    average,
    gradient,
    working,
    lr,
    size,
    momentum,
    weight_decay,
    WORKING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    weight = tl.load(master + place, mask=inside)
    slope = tl.load(gradient + place, mask=inside).to(tl.float32) + weight_decay * weight
    slope += momentum * tl.load(average + place, mask=inside)
    weight -= tl.load(lr) * slope
    tl.store(average + place, slope, mask=inside)
    tl.store(master + place, weight, mask=inside)
    if WORKING:
        tl.store(working + place, weight.to(working.dtype.element_ty), mask=inside)


def sgd(
    master: Tensor,
    average: Tensor,
    gradient: Tensor,
    working: Tensor | None,
    lr: Tensor,
    *,
    momentum: float,
    weight_decay: float,
) -> None:
    """One step of ``torch.optim.SGD`` on flat tensors, and the new weights in lower precision."""
    block = 2048
    _sgd[(triton.cdiv(len(master), block),)](
        master,
        average,
        gradient,
        master if working is None else working,
        lr,
        len(master),
        momentum,
        weight_decay,
        WORKING=working is not None,
        BLOCK=block,
        num_warps=4,
    )
