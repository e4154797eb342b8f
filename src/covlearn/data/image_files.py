"""Images that stay in their files until a batch needs them."""

import hashlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from covlearn.data.archives import Progress, silent

CHANNELS = 3
LISTED = 3
SHOWN_EVERY = 10_000
MOST_PIXELS = 89_478_485  # from which on Pillow warns
ENDS = {b"\xff\xd8\xff": b"\xff\xd9", b"\x89PNG\r\n\x1a\n": b"IEND"}
"""How a JPEG and a PNG start, and what comes near their end."""
TAIL = 4096  # in which the end is looked for: cameras and shops append bytes of their own
Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ImageFiles(Dataset[Tensor]):
    """Image files as uint8 (side, side, 3): the short side scaled to ``side``, the middle taken.

    Stands where a tensor (N, side, side, 3) would: ``Split.x``. The names are one string of bytes,
    since a million Python strings would be copied, page by page, into every process that reads
    them. ``identity`` is a digest of the names and sizes of the files, not of their pixels.
    """

    root: Path
    side: int
    text: bytes
    end: Positions
    """Where each name ends in ``text``."""
    place: Positions
    """Which names these are, in order."""
    identity: str

    dtype = torch.uint8

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """That of the tensor they stand for."""
        return len(self), self.side, self.side, CHANNELS

    def __len__(self) -> int:
        return len(self.place)

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(read_square(self.root / self.name(index), self.side))

    def name(self, index: int) -> str:
        """The path of an image below the root."""
        place = self.place[index]
        start = self.end[place - 1] if place else 0
        return self.text[start : self.end[place]].decode()

    def subset(self, idx: Tensor) -> "ImageFiles":
        """The images at the given positions; nothing is read."""
        place = self.place[idx.cpu().numpy()]
        identity = hashlib.sha256(self.identity.encode() + place.tobytes()).hexdigest()
        return replace(self, place=place, identity=identity)


def image_files(
    root: Path, names: Sequence[str], *, side: int, progress: Progress = silent
) -> ImageFiles:
    """The files of the given names below a folder, all of which must be there."""
    size = np.zeros(len(names), dtype=np.int64)
    missing = []
    for number, name in enumerate(names):
        if number % SHOWN_EVERY == 0:
            progress("looking for images", number, len(names))
        try:
            size[number] = os.stat(f"{root}/{name}").st_size
        except OSError:
            missing.append(name)
    if missing or not names:
        shown = ", ".join(missing[:LISTED]) + (", …" if len(missing) > LISTED else "")
        raise ValueError(
            f"{root} must hold the images that its lists name, but {len(missing):,} of "
            f"{len(names):,} are missing: {shown}"
        )
    encoded = [name.encode() for name in names]
    end = np.fromiter(accumulate(map(len, encoded)), dtype=np.int64, count=len(encoded))
    text = b"".join(encoded)
    digest = hashlib.sha256(text)
    for part in (end.tobytes(), size.tobytes(), str(side).encode()):
        digest.update(part)
    place = np.arange(len(names), dtype=np.int64)
    return ImageFiles(root, side, text, end, place, digest.hexdigest())


def seems_whole(path: Path) -> bool:
    """Whether a file is an image that can be read here, as far as its ends tell.

    Two short reads, for there may be a million. One whose ends are not as usual is read: it may
    only have more at its end.
    """
    with open(path, "rb", buffering=0) as file:
        start = file.read(max(map(len, ENDS)))
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
        tail = file.read(TAIL)
    if any(start.startswith(first) and last in tail for first, last in ENDS.items()):
        return True
    try:
        read_square(path, 1)
    except ValueError:
        return False
    return True


def read_square(path: Path, side: int) -> NDArray[np.uint8]:
    """One image (side, side, 3)."""
    try:
        with warnings.catch_warnings(), Image.open(path, formats=("JPEG", "PNG")) as image:
            warnings.simplefilter("ignore", UserWarning)  # of odd but readable metadata
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"it has over {MOST_PIXELS:,} pixels")
            # A JPEG decoder can leave out frequencies that a smaller image has no room for; both
            # sides stay at least ``side``.
            image.draft("RGB", (side, side))
            whole = image if image.mode == "RGB" else image.convert("RGB")
            short = min(whole.size)
            left, top = ((length - short) // 2 for length in whole.size)
            middle = (left, top, left + short, top + short)
            if short == side:
                return np.array(whole.crop(middle))
            return np.array(whole.resize((side, side), Image.Resampling.BILINEAR, box=middle))
    except Exception as error:  # a damaged image fails in every way there is
        raise ValueError(
            f"{path} cannot be read as an image: {error}; replace it, or take it out of its list"
        ) from error
