"""A look-alike of Clothing1M: its layout, its files and its kind of noise, with drawn images.

To try a recipe, or measure how fast images are read, where the real data is not at hand.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from covlearn.data.archives import Progress, silent
from covlearn.data.clothing1m import CATEGORIES, KEY_LISTS, LABELS, NUM_CLASSES
from covlearn.kinds import checked

RIGHT = 0.6154  # the share of noisy labels that are right, as the data's authors estimate
SHOWN_EVERY = 500


@checked
def write_lookalike(
    root: Path,
    *,
    noisy: int = 20_000,
    clean: int = 140,
    sizes: Sequence[tuple[int, int]] = ((300, 400), (400, 300), (400, 400)),
    drawn: int = 140,
    seed: int = 0,
    progress: Progress = silent,
) -> NDArray[np.int64]:
    """Writes ``noisy`` images to train on and ``clean`` in each other part; the right labels of
    the noisy ones come back and are written nowhere.

    ``drawn`` different images of the given sizes (width, height) are made, as many of each class;
    files repeat them. A wrong label is that of the next class, so that the noise has a direction.
    """
    for what, count in {"noisy": noisy, "clean": clean, "drawn": drawn}.items():
        if count < 1:
            raise ValueError(f"{what} must be at least 1, got {count}")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    if not sizes:
        raise ValueError("sizes must hold the width and height of an image at least, got none")
    generator = np.random.default_rng(seed)
    files = [
        _jpeg(generator, number % NUM_CLASSES, sizes[number // NUM_CLASSES % len(sizes)])
        for number in range(max(NUM_CLASSES, drawn))
    ]
    labels: dict[str, dict[str, int]] = {kind: {} for kind in LABELS}
    right = np.zeros(noisy, dtype=np.int64)
    for part, name in KEY_LISTS.items():
        count = noisy if part == "noisy_train" else clean
        label = generator.integers(NUM_CLASSES, size=count)
        label[:NUM_CLASSES] = np.arange(NUM_CLASSES)[:count]  # each class is there
        given = label
        if part == "noisy_train":
            right = label
            wrong = generator.random(count) > RIGHT
            wrong[:NUM_CLASSES] = False
            given = np.where(wrong, (label + 1) % NUM_CLASSES, label)
        keys = []
        for number in range(count):
            if number % SHOWN_EVERY == 0:
                progress(f"writing {part}", number, count)
            key = f"images/{number % 10}/{number % 100}/{part}{number},{number % 7}.jpg"
            # One of the images of the class.
            place = int(generator.integers(len(files) // NUM_CLASSES)) * NUM_CLASSES
            path = root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[place + int(label[number])])
            labels[part.partition("_")[0]][key] = int(given[number])
            keys.append(key)
        (root / name).write_text("".join(f"{key}\n" for key in keys), encoding="utf-8")
    for kind, by_key in labels.items():
        text = "".join(f"{key} {label}\n" for key, label in by_key.items())
        (root / LABELS[kind]).write_text(text, encoding="utf-8")
    names = "".join(f"Class {number}\n" for number in range(NUM_CLASSES))
    (root / CATEGORIES).write_text(names, encoding="utf-8")
    return right


def _jpeg(generator: np.random.Generator, label: int, size: tuple[int, int]) -> bytes:
    """A picture whose colour tells its class, with detail at all scales as photographs have it."""
    width, height = size
    turn = 2 * np.pi * label / NUM_CLASSES
    colour = 128 + 70 * np.cos(turn + np.array([0, 2, 4]) * np.pi / 3)
    picture = np.full((height, width, 3), colour)
    cell = 2
    while cell < max(size):
        rough = generator.normal(size=(-(-height // cell), -(-width // cell), 3))
        smooth = np.stack(
            [
                np.asarray(
                    Image.fromarray(rough[..., channel].astype(np.float32)).resize(
                        size, Image.Resampling.BICUBIC
                    )
                )
                for channel in range(3)
            ],
            axis=2,
        )
        picture = picture + 2.5 * cell**0.5 * smooth
        cell *= 2
    file = io.BytesIO()
    Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
    return file.getvalue()
