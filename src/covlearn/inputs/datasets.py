"""Datasets of others: PyTorch map-style datasets, and Hugging Face's (extra ``hf``)."""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from covlearn.inputs.arrays import as_array
from covlearn.inputs.examples import Reading, Skipped, some
from covlearn.inputs.images import BadImage, ImageLike
from covlearn.inputs.pictures import Pictures
from covlearn.inputs.sources import Rows, Wanted, from_arrays, from_pictures, from_table
from covlearn.inputs.table_files import LABEL_NAMES

SMALLEST_IMAGE = 8  # pixels: a float array of this side, or larger, with values in 0…1 is an image


def is_hugging_face(source: Any) -> bool:
    """Whether it is a Dataset or DatasetDict of Hugging Face's; their library is not imported."""
    return any(kind.__module__.startswith("datasets.") for kind in type(source).__mro__)


def from_saved(path: Path, wanted: Wanted, reading: Reading) -> Rows:
    """A folder that ``dataset.save_to_disk`` wrote."""
    library = _library(f"{path} is a Hugging Face dataset")
    try:
        source = library.load_from_disk(str(path))
        for part in source.values() if isinstance(source, dict) else [source]:
            _check_offsets(part)
    except Exception as error:  # damaged ones fail in every way there is
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} cannot be read as a Hugging Face dataset: {reason}") from error
    return from_hugging_face(source, wanted, reading, folder=path)


def _check_offsets(source: Any) -> None:
    """Arrow's files say where each value begins; a wrong place would be read, or crash."""
    for table in (source.data, source._indices):
        if table is not None:
            table.table.validate(full=True)


def from_hugging_face(
    source: Any, wanted: Wanted, reading: Reading, *, folder: Path | None = None
) -> Rows:
    """A Dataset: with a column of images it is a set of images, else a table.

    Of one that was read from a ``folder``, images are in it or in files below it.
    """
    if isinstance(source, dict):
        raise ValueError(
            f"{reading.where} must be one dataset, but it has the splits {some(list(source))}; "
            "name one of them, as dataset['train'] or the folder of that name"
        )
    if not hasattr(source, "to_pandas") or not hasattr(source, "__len__"):
        raise ValueError(
            f"{reading.where} must be a Dataset in memory or on disk, got {type(source).__name__}; "
            "a stream can be made one with Dataset.from_list(list(stream))"
        )
    kinds = {name: type(feature).__name__ for name, feature in source.features.items()}
    pictures = [name for name, kind in kinds.items() if kind == "Image"]
    image = wanted.name("image", pictures)
    if image in pictures:
        pictures = [image]
    if len(pictures) > 1:
        raise ValueError(
            f"{reading.where} has several columns of images, {some(pictures)}; name one with image="
        )
    table = source.remove_columns(pictures).to_pandas()
    for name, kind in kinds.items():
        if kind == "ClassLabel":
            names = source.features[name].names
            table[name] = [
                names[int(value)] if value is not None and 0 <= value < len(names) else None
                for value in source[name]
            ]
    if not pictures:
        return from_table(table, wanted, reading)
    label, id = (wanted.name(option, list(table.columns)) for option in ("label", "id"))
    if label is None:
        known = [name for name, kind in kinds.items() if kind == "ClassLabel"]
        usual = [name for name in table.columns if name.lower() in LABEL_NAMES]
        label = next(iter(usual or (known if len(known) == 1 else [])), None)
    if label is not None and label not in table.columns:
        raise ValueError(
            f"{reading.where} has no column {label!r}; it has {some(list(kinds), listed=20)}"
        )
    if label is None and wanted.training:
        raise ValueError(
            f"which column of {reading.where} is the label? Name one of "
            f"{some(list(table.columns), listed=20)} with label= (--label)"
        )
    ids = [str(row) for row in range(len(source))]
    if id is not None:
        if id not in table.columns:
            raise ValueError(f"{reading.where} has no column {id!r}, which id names")
        ids = [str(key) for key in table[id]]
    raw = source.cast_column(
        pictures[0], _library("a column of images").Image(decode=False)
    ).select_columns(pictures)

    def make(keep: NDArray[np.int64]) -> Pictures:
        def load(position: int) -> ImageLike:
            cell = raw[int(keep[position])][pictures[0]]
            if cell is None or (cell["bytes"] is None and not cell["path"]):
                raise BadImage("it has no image")
            if cell["bytes"] is not None:
                return bytes(cell["bytes"])
            place = Path(os.path.abspath(cell["path"]))
            if folder is not None and not place.is_relative_to(os.path.abspath(folder)):
                raise BadImage(f"its image {cell['path']} lies outside of {folder}")
            return place

        key = [["hugging face", source._fingerprint], keep.tolist()]
        return Pictures([ids[row] for row in keep], load, key)

    return from_pictures(
        ids,
        make,
        None if label is None else table[label].tolist(),
        wanted,
        reading,
        table=table if len(table.columns) else None,
        meant={"label": label, "id": id, "image": pictures[0]},
    )


def from_torch(source: Any, wanted: Wanted, reading: Reading) -> Rows:
    """A map-style dataset of (x, y); x is features, a picture, or an array of pixels."""
    length = len(source)
    if length == 0:
        raise ValueError(f"{reading.where} has no examples")
    first = source[0]
    paired = isinstance(first, tuple | list) and len(first) >= 2
    if not paired and wanted.training:
        raise ValueError(
            f"{reading.where} must give pairs (x, y), but item 0 is {type(first).__name__}; labels "
            "are needed to learn from"
        )
    ids = [str(row) for row in range(length)]
    labels = _torch_labels(source, length, reading) if paired else None

    def inputs_of(row: int) -> Any:
        try:
            item = source[row]
        except Exception as error:  # whatever another's code raises is said of this example
            raise BadImage(f"reading it failed with {type(error).__name__}: {error}") from error
        return item[0] if paired else item

    if _picture(first[0] if paired else first) is None:
        return _from_feature_items(inputs_of, ids, labels, wanted, reading)

    def make(keep: NDArray[np.int64]) -> Pictures:
        def load(position: int) -> ImageLike:
            found = _picture(inputs_of(int(keep[position])))
            if found is None:
                raise BadImage("it is no image, though the first example is one")
            return found

        return Pictures([ids[row] for row in keep], load, key=None, headers=False)

    return from_pictures(ids, make, labels, wanted, reading)


def _from_feature_items(
    inputs_of: Any, ids: list[str], labels: Sequence[Any] | None, wanted: Wanted, reading: Reading
) -> Rows:
    rows: list[NDArray[Any]] = []
    shape: tuple[int, ...] | None = None
    bad: dict[int, str] = {}
    for row in range(len(ids)):
        try:
            values = as_array(inputs_of(row))
            if values.dtype.kind not in "biuf":
                raise BadImage(f"its inputs must be numbers, got {values.dtype}")
            shape = values.shape if shape is None else shape
            if values.shape != shape:
                raise BadImage(f"its inputs must have shape {shape}, got {values.shape}")
            rows.append(values.reshape(-1))
        except BadImage as error:
            bad[row] = str(error)
        reading.show(row + 1, len(ids), "reading examples")
    reading.bad([Skipped(ids[row], why) for row, why in bad.items()])
    kept = [row for row in range(len(ids)) if row not in bad]
    if not kept:
        raise ValueError(f"not one example of {reading.where} can be read")
    return from_arrays(
        np.stack(rows),
        None if labels is None else [labels[row] for row in kept],
        wanted,
        reading,
        ids=[ids[row] for row in kept],
    )


def _torch_labels(source: Any, length: int, reading: Reading) -> list[Any]:
    """Labels by name where the dataset has names for its numbers."""
    targets = getattr(source, "targets", None)
    if targets is None or len(targets) != length or getattr(source, "target_transform", None):
        labels = []
        for row in range(length):
            try:
                labels.append(source[row][1])
            except Exception:  # said of this example when its inputs are read
                labels.append(None)
            reading.show(row + 1, length, "reading labels")
    else:
        labels = list(targets)
    numbers: list[Any] = [
        label.item() if isinstance(label, Tensor | np.generic) and np.ndim(label) == 0 else label
        for label in labels
    ]
    names = getattr(source, "classes", None)
    if isinstance(names, list | tuple) and all(
        label is None or (isinstance(label, int) and 0 <= label < len(names)) for label in numbers
    ):
        return [None if label is None else names[label] for label in numbers]
    return numbers


def _picture(x: Any) -> ImageLike | None:  # noqa: PLR0911
    """The inputs of an example as an image, if they are one."""
    if isinstance(x, Image.Image):
        return x
    if not isinstance(x, Tensor | np.ndarray):
        return None
    values = as_array(x)
    if values.ndim != 3 and not (values.ndim == 2 and values.dtype == np.uint8):
        return None
    if values.ndim == 3 and values.shape[0] in (1, 3, 4) and values.shape[2] not in (1, 3, 4):
        values = values.transpose(1, 2, 0)
    if values.ndim == 3 and values.shape[2] not in (1, 3, 4):
        return None
    if values.dtype == np.uint8:
        return values
    small = min(values.shape[:2]) < SMALLEST_IMAGE
    if values.dtype.kind != "f" or small or not (values.min() >= 0 and values.max() <= 1):
        return None
    pixels: NDArray[np.uint8] = np.round(values * 255).astype(np.uint8)
    return pixels


def _library(what: str) -> Any:
    try:
        return importlib.import_module("datasets")
    except (ImportError, RuntimeError, OSError) as error:
        raise ValueError(
            f"{what}, and Hugging Face's datasets cannot be imported ({error}); install it with: "
            "pip install 'covlearn[hf]'"
        ) from error
