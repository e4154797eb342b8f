"""A second, strong view of each image: cropped and flipped anew, changed in two ways, cut out.

All of it is tensor operations on the batch, with no number that the host would have to send, so
that a step which makes it can be captured.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from covlearn.data import counter
from covlearn.data.augment import Augmentation, Linear, move, normalise, rotation

SOLARISED_FROM = 128
COLOURS = (counter.BRIGHTNESS, counter.CONTRAST, counter.SATURATION)


@dataclass(frozen=True)
class Strength:
    """How far a strong view may be from its image; crop and flip are those of the augmentation.

    ``rotate`` in degrees, ``shear`` as a slope, ``scale`` as the largest factor (the smallest is
    its inverse), ``colour`` as what brightness, contrast and saturation may be off one,
    ``solarise`` as a probability, ``cut`` as a share of the shorter side. Each view has two of the
    seven changes, and is cut; all ``together`` leave little of an image (docs/log.md).
    """

    rotate: float = 30.0
    shear: float = 0.3
    scale: float = 4 / 3
    colour: float = 0.6
    solarise: float = 0.5
    cut: float = 0.5
    together: bool = False

    @property
    def deforms(self) -> bool:
        """Whether pixels move beyond crop and flip."""
        return bool(self.rotate or self.shear or self.scale != 1)


STRENGTH = Strength()


def strong_view(
    image_BHWC: Tensor,
    idx: Tensor,
    key: Tensor,
    how: Augmentation,
    strength: Strength = STRENGTH,
) -> Tensor:
    """uint8 images as normalised float32 (B, C, H, W), as ``augment`` gives them."""
    key = counter.strong(key)
    deforming, colouring = _chosen(idx, key, strength)
    linear = _deformation(idx, key, strength, deforming) if strength.deforms else None
    moved = move(image_BHWC, idx, key, how, linear)
    coloured = _recoloured(moved, idx, key, strength, colouring)
    return _cut_out(normalise(coloured, how), idx, key, strength)


def _chosen(
    idx: Tensor, key: Tensor, strength: Strength
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(B,) for each of the three deformations and the four changes of colour: one, or zero."""
    first = counter.below(7, key, idx, counter.FIRST)
    second = (first + 1 + counter.below(6, key, idx, counter.SECOND)) % 7
    chosen = [((first == n) | (second == n) | strength.together).float() for n in range(7)]
    return tuple(chosen[:3]), tuple(chosen[3:])


def _between(low: float, high: float, idx: Tensor, key: Tensor, stream: int) -> Tensor:
    return low + (high - low) * counter.uniform(key, idx, stream)


def _deformation(
    idx: Tensor, key: Tensor, strength: Strength, chosen: tuple[Tensor, ...]
) -> Linear:
    """Where pixels come from: scaled, sheared along the rows, then rotated."""
    rotated, sheared, scaled = chosen
    cos, sin = rotation(idx, key, strength.rotate * rotated)
    slope = sheared * _between(-strength.shear, strength.shear, idx, key, counter.SHEAR)
    largest = math.log(strength.scale)
    factor = (scaled * _between(-largest, largest, idx, key, counter.SCALE)).exp()
    return factor * (cos + sin * slope), factor * sin, factor * (cos * slope - sin), factor * cos


def _recoloured(
    image_BHWC: Tensor, idx: Tensor, key: Tensor, strength: Strength, chosen: tuple[Tensor, ...]
) -> Tensor:
    """Brightness b, contrast c, saturation s, all at once, and perhaps solarised; floats 0–255.

    b · [c · (s · x + (1 − s) · g) + (1 − c) · m] with the grey value g of each pixel and the mean m
    of each image.
    """
    size = len(image_BHWC)
    image = image_BHWC.float()
    *coloured, solarised = chosen
    b, c, s = (
        (1 + own * _between(-strength.colour, strength.colour, idx, key, n)).view(size, 1, 1, 1)
        for own, n in zip(coloured, COLOURS, strict=True)
    )
    grey = image.mean(dim=3, keepdim=True)
    mean = grey.mean(dim=(1, 2), keepdim=True)
    offset = b * c * (1 - s) * grey + b * (1 - c) * mean
    image = (b * c * s * image + offset).clamp_(0, 255)
    share = strength.solarise * solarised
    turned = (counter.uniform(key, idx, counter.SOLARISE) < share).view(size, 1, 1, 1)
    return (255 - image).where(turned & (image >= SOLARISED_FROM), image)


def _cut_out(image_BCHW: Tensor, idx: Tensor, key: Tensor, strength: Strength) -> Tensor:
    """A square in which all is the mean, which is zero by now.

    Its middle lies anywhere, so that it may reach beyond the border: one of half the side that lay
    inside would hide the middle of every image.
    """
    size, _, height, width = image_BCHW.shape
    side = round(strength.cut * min(height, width))
    top = counter.below(height, key, idx, counter.CUT_DOWN).view(size, 1, 1) - side // 2
    left = counter.below(width, key, idx, counter.CUT_RIGHT).view(size, 1, 1) - side // 2
    row = torch.arange(height, device=image_BCHW.device).view(1, height, 1)
    col = torch.arange(width, device=image_BCHW.device).view(1, 1, width)
    cut = (row >= top) & (row < top + side) & (col >= left) & (col < left + side)
    return image_BCHW.masked_fill_(cut.unsqueeze(1), 0)
