"""Augmentation as tensor operations on a batch of images that are already on the device."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from covlearn import kernels
from covlearn.data import counter
from covlearn.kinds import check_fields


@dataclass(frozen=True)
class Augmentation:
    """What happens to an image on its way into a batch: crop, flip, rotate, then normalise.

    ``crop`` is the number of black pixels around the image of which a window of its size is taken;
    ``window`` is the side of a smaller window that is taken of the image itself, anywhere or, with
    ``centred``, in the middle. ``rotate`` is the largest angle in degrees, ``mean`` and ``std`` are
    those of the channels at scale 0–1.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: int = 0
    flip: bool = False
    rotate: float = 0.0
    window: int = 0
    centred: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.rotate <= 360:
            raise ValueError(f"rotate must lie between 0 and 360 degrees, got {self.rotate}")
        if self.window < 0 or self.crop < 0 or (self.window and self.crop):
            raise ValueError(
                "augmentation takes either a window of the image or a crop of what is around it, "
                f"got window={self.window} and crop={self.crop}"
            )

    @property
    def moves(self) -> bool:
        """Whether anything but normalisation happens."""
        return bool(self.crop or self.flip or self.rotate or self.window)

    @property
    def still(self) -> "Augmentation":
        """The same normalisation without any movement, for evaluation."""
        return replace(self, crop=0, flip=False, rotate=0.0, centred=bool(self.window))

    def shape(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of what becomes of an image of these."""
        if self.window > min(height, width):
            raise ValueError(
                f"augmentation.window must fit into images of {height} × {width}, got {self.window}"
            )
        return (self.window, self.window) if self.window else (height, width)


def augment(image_BHWC: Tensor, idx: Tensor, key: Tensor, how: Augmentation) -> Tensor:
    """uint8 images as normalised float32 (B, C, H, W), channels last in memory.

    Movements are composed to one source position a pixel, so that each image is read once.
    """
    if how.moves:
        image_BHWC = _moved(image_BHWC, idx, key, how)
    return normalise(image_BHWC, how)


def gathered(image_NHWC: Tensor, idx: Tensor, key: Tensor, how: Augmentation) -> Tensor:
    """``augment`` of the images at ``idx``, with the same bits; on CUDA in one pass."""
    if not image_NHWC.is_cuda or how.rotate or how.window or not kernels.available():
        return augment(image_NHWC[idx], idx, key, how)
    from covlearn.kernels.step import moved  # noqa: PLC0415  only where Triton is

    return moved(
        image_NHWC,
        idx,
        key,
        *_affine(how, image_NHWC.device),
        crop=how.crop,
        flip=how.flip,
        streams=(counter.CROP_DOWN, counter.CROP_RIGHT, counter.FLIP),
    )


def normalise(image_BHWC: Tensor, how: Augmentation) -> Tensor:
    """(x / 255 − mean) / std, as (B, C, H, W), channels last in memory."""
    size, height, width, channels = image_BHWC.shape
    # By whole rows, and as floats first: a CPU does neither three channels at a time nor two types
    # of numbers at once quickly.
    scale, shift = (each.repeat(width) for each in _affine(how, image_BHWC.device))
    rows = image_BHWC.reshape(size, height, width * channels).float().mul_(scale).add_(shift)
    return rows.view(size, height, width, channels).permute(0, 3, 1, 2)


@lru_cache
def _affine(how: Augmentation, device: torch.device) -> tuple[Tensor, Tensor]:
    """x·scale + shift = (x / 255 − mean) / std; kept, since a captured step cannot make them."""
    scale = torch.tensor([1 / (255 * s) for s in how.std], device=device)
    shift = torch.tensor([-m / s for m, s in zip(how.mean, how.std, strict=True)], device=device)
    return scale, shift


def _windows(image_BHWC: Tensor, idx: Tensor, key: Tensor, how: Augmentation) -> Tensor:
    """Windows, perhaps flipped, cut out one by one: on a CPU faster than pixel by pixel."""
    height, width = how.shape(*image_BHWC.shape[1:3])
    starts = []
    for full, part, stream in (
        (image_BHWC.shape[1], height, counter.CROP_DOWN),
        (image_BHWC.shape[2], width, counter.CROP_RIGHT),
    ):
        anywhere = counter.below(full - part + 1, key, idx, stream)
        starts.append([(full - part) // 2] * len(idx) if how.centred else anywhere.tolist())
    flipped = counter.below(2, key, idx, counter.FLIP).tolist()
    cut = []
    for image, top, left, flip in zip(image_BHWC, *starts, flipped, strict=True):
        window = image[top : top + height, left : left + width]
        cut.append(window.flip(1) if how.flip and flip else window)
    return torch.stack(cut)


def _moved(image_BHWC: Tensor, idx: Tensor, key: Tensor, how: Augmentation) -> Tensor:
    if how.window and not how.rotate and not image_BHWC.is_cuda:
        return _windows(image_BHWC, idx, key, how)
    size, full_height, full_width, channels = image_BHWC.shape
    height, width = how.shape(full_height, full_width)
    device = image_BHWC.device
    row = torch.arange(height, device=device).view(1, height, 1)
    col = torch.arange(width, device=device).view(1, 1, width)
    # From the picture that is wanted back to the picture that is there: the last movement first.
    inside = torch.ones((), dtype=torch.bool, device=device)
    if how.rotate:
        turn = (2 * counter.uniform(key, idx, counter.ROTATE) - 1) * math.radians(how.rotate)
        cos, sin = turn.cos().view(size, 1, 1), turn.sin().view(size, 1, 1)
        x, y = col + 0.5 - width / 2, row + 0.5 - height / 2
        row = (cos * y + sin * x + height / 2).floor().long()
        col = (cos * x - sin * y + width / 2).floor().long()
        inside = (row >= 0) & (row < height) & (col >= 0) & (col < width)
    if how.flip:
        flipped = counter.below(2, key, idx, counter.FLIP).view(size, 1, 1) == 1
        col = torch.where(flipped, width - 1 - col, col)
    if how.window and how.centred:
        row, col = row + (full_height - height) // 2, col + (full_width - width) // 2
    elif how.crop or how.window:
        # The places of a window in the image, or in what is `crop` pixels larger on each side.
        spare = (full_height - height + 2 * how.crop, full_width - width + 2 * how.crop)
        down = counter.below(spare[0] + 1, key, idx, counter.CROP_DOWN).view(size, 1, 1)
        right = counter.below(spare[1] + 1, key, idx, counter.CROP_RIGHT).view(size, 1, 1)
        row, col = row + down - how.crop, col + right - how.crop
    if how.crop:
        inside = inside & (row >= 0) & (row < full_height) & (col >= 0) & (col < full_width)
    row, col = row.clamp(0, full_height - 1), col.clamp(0, full_width - 1)
    source = (row * full_width + col).expand(size, height, width)
    flat = image_BHWC.reshape(size, full_height * full_width, channels)
    moved = flat.gather(1, source.reshape(size, -1, 1).expand(-1, -1, channels))
    moved = moved.view(size, height, width, channels)
    return moved if inside.ndim == 0 else moved * inside.expand(size, height, width).unsqueeze(-1)


def check_inputs(
    dtype: torch.dtype, shape: tuple[int, ...], augmentation: Augmentation | None
) -> None:
    """uint8 images with an augmentation, or float features without."""
    if dtype == torch.uint8:
        if len(shape) != 4 or augmentation is None:
            raise ValueError(
                "uint8 inputs must be images (N, H, W, C) with an augmentation that holds at least "
                f"mean and std, got shape {shape} and augmentation {augmentation}"
            )
        if len(augmentation.mean) != shape[3] or len(augmentation.std) != shape[3]:
            raise ValueError(
                f"augmentation must have a mean and a std for each of {shape[3]} channels, got "
                f"{len(augmentation.mean)} and {len(augmentation.std)}"
            )
        augmentation.shape(*shape[1:3])  # refuses a window that does not fit
    elif not dtype.is_floating_point or augmentation is not None:
        raise ValueError(
            f"inputs must be uint8 images with an augmentation or float features without, got "
            f"{dtype} and augmentation {augmentation}"
        )
