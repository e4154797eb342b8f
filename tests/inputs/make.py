"""Small data of every kind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from covlearn.inputs import Examples, read_examples
from covlearn.inputs.examples import Reading

CLASSES = ("cat", "dog")


def reading(on_bad: Any = "refuse") -> Reading:
    return Reading("the source", on_bad)


def pixels(seed: int, height: int = 20, width: int = 20) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def picture(
    path: Path, seed: int = 0, *, size: tuple[int, int] = (20, 20), mode: str = "RGB"
) -> Path:
    """An image file; ``size`` is width and height."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(seed, size[1], size[0])).convert(mode).save(path)
    return path


def class_folders(
    root: Path, classes: Sequence[str] = CLASSES, *, each: int = 3, **options: Any
) -> Path:
    for number, name in enumerate(classes):
        for place in range(each):
            picture(root / name / f"{place}.png", number * each + place, **options)
    return root


def read_pixels(source: Any, **options: Any) -> Examples:
    return read_examples(source, features="none", **options)


def text(path: Path, *lines: str, encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding=encoding)
    return path
