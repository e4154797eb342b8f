"""Randomness as a function of (seed, epoch, idx): the same on every device, in every process.

Order and augmentation draw from here and from nowhere else, so that batches do not depend on how
they are loaded, on how many processes share them, or on where a run was interrupted.
"""

from typing import TypeVar

import torch
from torch import Tensor

Bits = TypeVar("Bits", int, Tensor)

MASK = 0xFFFFFFFF
# Streams:
ORDER, CROP_DOWN, CROP_RIGHT, FLIP, ROTATE, PARTNER, MIX, BALANCE, PEER, SUBSET = range(10)


def mix(bits: Bits) -> Bits:
    """A bijection of 32-bit integers (tensors hold them in int64) that scatters its input."""
    # Multipliers below 2³¹ keep the product of two 32-bit numbers inside int64.
    bits = bits ^ (bits >> 16)
    bits = (bits * 0x21F0AAAD) & MASK
    bits = bits ^ (bits >> 15)
    bits = (bits * 0x735A2D97) & MASK
    return bits ^ (bits >> 15)


def key(seed: int, epoch: int) -> Tensor:
    """One 32-bit number for a seed and an epoch, as a tensor that a captured step can read."""
    value = seed & MASK
    for part in ((seed >> 32) & MASK, epoch & MASK):
        value = mix((mix(value) + part) & MASK)
    return torch.tensor(value)


def bits(key: Tensor, idx: Tensor, stream: int) -> Tensor:
    """32 random bits for each example; distinct for distinct idx."""
    return mix(mix((key + stream * 0x3C6EF372) & MASK) ^ idx)


def below(bound: int, key: Tensor, idx: Tensor, stream: int) -> Tensor:
    """An integer in 0…bound−1 for each example."""
    return (bits(key, idx, stream) * bound) >> 32


def uniform(key: Tensor, idx: Tensor, stream: int) -> Tensor:
    """A float32 in [0, 1) for each example."""
    return (bits(key, idx, stream) >> 8).float() * 2.0**-24


def permutation(key: Tensor, num_examples: int) -> Tensor:
    """An order of all examples; the keys are distinct, so that sorting them has no ties."""
    idx = torch.arange(num_examples, device=key.device)
    return bits(key, idx, ORDER).argsort()
