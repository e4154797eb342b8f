"""Thumbnails of a run's examples, many to a sheet, so that a page of thousands stays small."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from covlearn.fitted import Fitted
from covlearn.inputs import Progress, arrays
from covlearn.inputs.images import BadImage, ImageLike, check_image, load_image

LARGEST_TILE, SMALLEST_TILE = 96, 32  # pixels
SHEET = 8  # tiles a side
MOST = 4096
QUALITY = 72

Find = Callable[[int], ImageLike | None]
"""The picture of the example at a position, None where there is none."""


def find_pictures(fitted: Fitted) -> Find | None:
    """Where the run's pictures are: image files, or the arrays of the source; None for no images.

    Raises ValueError, with the reason, where there were pictures that are out of reach now.
    """
    paths = fitted.paths
    if any(path is not None for path in paths):
        return paths.__getitem__
    if fitted.recipe.get("kind") != "images":
        return None
    source = Path(fitted.config["source"].get("path") or "")
    if source.suffix.lower() not in (".npz", ".npy") or not source.is_file():
        raise ValueError("the pictures: they are no files of their own, or are not there any more")
    images, ids = arrays_of(source, fitted.recipe)
    place = {key: row for row, key in enumerate(ids)}
    keys = fitted.labels["id"]
    if images is None or any(key not in place for key in keys):
        raise ValueError("the pictures: the source has others now")
    return lambda position: images[place[keys[position]]]


def arrays_of(
    source: Path, recipe: Mapping[str, Any]
) -> tuple[NDArray[np.uint8] | None, list[str]]:
    """The images of an array file, and the ids of its rows: their numbers, if it names no other."""
    if source.suffix.lower() == ".npz":
        named = arrays.read_npz(source)
        x, ids = (named.get(recipe.get(name) or "") for name in ("image", "id"))
    else:
        x, ids = arrays.read_npy(source), None
    images = None if x is None else arrays.as_images(np.asarray(x))
    count = 0 if images is None else len(images)
    return images, [str(key) for key in (range(count) if ids is None else ids.tolist())]


def sheets(
    find: Find, chosen: Sequence[int], *, most_bytes: int, progress: Progress | None = None
) -> dict[str, Any]:
    """Thumbnails of the chosen examples, as far as there is room, as sheets of ``SHEET``² tiles.

    ``where`` has the place of each chosen example, −1 for none; ``unreadable`` counts pictures that
    could not be read any more.
    """
    chosen = chosen[:MOST]
    size = tile_size([find(position) for position in chosen[:32]])
    made: list[str] = []
    where = [-1] * len(chosen)
    used = count = unreadable = 0
    sheet = blank(size)
    for number, position in enumerate(chosen):
        if progress is not None:
            progress(number, len(chosen), "making thumbnails")
        picture = find(position)
        try:
            tile = None if picture is None else load_image(picture, size)
        except BadImage:
            tile = None
        if tile is None:
            unreadable += 1
            continue
        place = count % SHEET**2
        sheet.paste(Image.fromarray(tile), (place % SHEET * size, place // SHEET * size))
        where[number] = count
        count += 1
        if count % SHEET**2 == 0:
            made.append(encoded(sheet))
            used += len(made[-1])
            sheet = blank(size)
            if used >= most_bytes - len(made[-1]):  # another one might not fit
                break
    if count % SHEET**2:
        made.append(encoded(sheet))
    return {
        "size": size,
        "side": SHEET,
        "sheets": made,
        "where": where,
        "unreadable": unreadable,
    }


def tile_size(pictures: Sequence[ImageLike | None]) -> int:
    """Small pictures are not blown up."""
    sides = []
    for picture in pictures:
        try:
            sides.append(LARGEST_TILE if picture is None else min(check_image(picture)))
        except BadImage:
            continue
    return max(SMALLEST_TILE, min(LARGEST_TILE, max(sides, default=LARGEST_TILE)))


def blank(size: int) -> Image.Image:
    """An empty sheet."""
    return Image.new("RGB", (size * SHEET, size * SHEET), "#808080")


def encoded(sheet: Image.Image) -> str:
    """A sheet as WebP in base64."""
    file = io.BytesIO()
    sheet.save(file, "WEBP", quality=QUALITY)
    return base64.b64encode(file.getvalue()).decode()
