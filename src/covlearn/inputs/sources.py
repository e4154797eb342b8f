"""Every kind of source as rows: ids, labels as they came, and a way to read the inputs."""

import hashlib
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from covlearn.inputs import arrays, table_files, tables
from covlearn.inputs.examples import Reading, some
from covlearn.inputs.folders import list_folder
from covlearn.inputs.images import is_image_name
from covlearn.inputs.manifests import image_paths
from covlearn.inputs.pictures import Pictures, files_as_pictures, look_at_pictures, read_pictures

LOOKED_AT = 1000  # rows of a table that is only looked at
KINDS = (
    "a folder of class folders of images, a .csv or .parquet file, an .npz or .npy file, a saved "
    "Hugging Face dataset"
)
KIND_NAMES = {
    "table": ("a table", "a .csv or .parquet file with the same columns"),
    "features": ("features", "an .npz or .npy file"),
    "images": ("images", "a folder or a table of images"),
}


@dataclass(frozen=True)
class Wanted:
    """What ``read_examples`` was told."""

    label: str | None
    id: str | None
    image: str | None
    features: str
    recipe: dict[str, Any] | None
    cache: Path | None
    look: bool = False
    """Whether inputs are only looked at, for their shape."""
    ignore: tuple[str, ...] = ()
    """Columns of a table that are not to be learned from."""

    @property
    def training(self) -> bool:
        """Whether labels are needed, and a recipe is to be made."""
        return self.recipe is None

    def name(self, option: str, there: Collection[str]) -> str | None:
        """The name given for label, id or image, else that of training if it is there."""
        given: str | None = getattr(self, option)
        before = (self.recipe or {}).get(option)
        return before if given is None and before in there else given

    def check_kind(self, kind: str, where: str) -> None:
        """A recipe is for one kind of inputs."""
        if self.recipe is not None and self.recipe["kind"] != kind:
            (found, _), (known, files) = KIND_NAMES[kind], KIND_NAMES[self.recipe["kind"]]
            raise ValueError(
                f"{where} holds {found}, but the model was fitted to {known}; name {files}, or a "
                f"model that was fitted to {found}"
            )


@dataclass(frozen=True)
class Inputs:
    """Inputs of some rows: which positions of those asked for could be read, and how."""

    x: Tensor
    kept: NDArray[np.int64]
    recipe: dict[str, Any]

    @classmethod
    def of_shape(cls, shape: Sequence[int], dtype: torch.dtype, kept: Sequence[int]) -> Self:
        """Zeros, which take no memory, for inputs that were only looked at."""
        x = torch.zeros((), dtype=dtype).expand(len(kept), *shape)
        return cls(x, np.array(kept, dtype=np.int64), {})


@dataclass(frozen=True)
class Rows:
    """A source before its inputs are read.

    ``read(keep)`` reads those of the rows at the positions ``keep``. ``bad`` says why some rows
    cannot be used whatever their inputs are.
    """

    ids: list[str]
    labels: Sequence[Any] | None
    read: Callable[[NDArray[np.int64]], Inputs]
    bad: dict[int, str] = field(default_factory=dict)
    paths: list[Path] | None = None
    table: Any = None
    meant: dict[str, Any] = field(default_factory=dict)
    """For the recipe: which columns were label, id and image."""
    place: Callable[[int], str] = "row {}".format
    """Where the owner of the source finds a row."""


def from_path(path: Path, wanted: Wanted, reading: Reading) -> Rows:
    """A file or a folder, told by its name."""
    if not path.exists():
        raise ValueError(f"{path} does not exist; name {KINDS}")
    suffix = path.suffix.lower()
    if path.is_dir():
        if any((path / name).is_file() for name in ("state.json", "dataset_dict.json")):
            from covlearn.inputs.datasets import from_saved  # noqa: PLC0415  an extra

            return from_saved(path, wanted, reading)
        return from_folder(path, wanted, reading)
    if suffix in (*table_files.TEXT_SUFFIXES, *table_files.PARQUET_SUFFIXES):
        known = wanted.recipe or {}
        text = [c["name"] for c in known.get("columns", ()) if c["kind"] == "category"]
        named = [by.get(k) for by in (vars(wanted), known) for k in ("label", "id", "image")]
        reading.show(0, 0, f"reading {path.name}")
        head = LOOKED_AT if wanted.look else None
        table = table_files.read_table(path, verbatim=named, text=text, head=head)
        csv = suffix in table_files.TEXT_SUFFIXES
        return from_table(table, wanted, reading, folder=path.parent, csv=path if csv else None)
    if suffix == ".npz":
        reading.show(0, 0, f"reading {path.name}")
        return from_mapping(arrays.read_npz(path, look=wanted.look), wanted, reading)
    if suffix == ".npy":
        return _from_npy(path, wanted, reading)
    if is_image_name(path.name) and not wanted.training:
        return from_images([path.name], [path], None, wanted, reading)
    if suffix == ".zip":
        raise ValueError(f"{path} {_archive(path)}; unpack it and name the folder")
    raise ValueError(f"{path} is of no kind that is read; name {KINDS}")


def from_folder(folder: Path, wanted: Wanted, reading: Reading) -> Rows:
    """Class folders of images."""
    classes = None if wanted.recipe is None else wanted.recipe["classes"]
    listed = list_folder(folder, reading, classes=classes)
    return from_images(listed.ids, listed.paths, listed.labels, wanted, reading)


def from_images(
    ids: list[str],
    paths: list[Path],
    labels: Sequence[Any] | None,
    wanted: Wanted,
    reading: Reading,
    **more: Any,
) -> Rows:
    """Image files."""

    def make(keep: NDArray[np.int64]) -> Pictures:
        return files_as_pictures([ids[row] for row in keep], [paths[row] for row in keep])

    return from_pictures(ids, make, labels, wanted, reading, paths=paths, **more)


def from_pictures(
    ids: list[str],
    make: Callable[[NDArray[np.int64]], Pictures],
    labels: Sequence[Any] | None,
    wanted: Wanted,
    reading: Reading,
    **more: Any,
) -> Rows:
    """Images from wherever; ``make(keep)`` are those at some positions."""
    wanted.check_kind("images", reading.where)
    meant, names = more.get("meant", {}).values(), more.get("table", {})  # a table gives its names
    if wanted.training and (others := [name for name in names if name not in meant]):
        reading.note(f"images alone are learned from, not the columns {some(others, listed=8)}")

    def read(keep: NDArray[np.int64]) -> Inputs:
        if wanted.look:
            shape, dtype, left = look_at_pictures(
                make(keep), reading, features=wanted.features, recipe=wanted.recipe
            )
            return Inputs.of_shape(shape, dtype, left)
        found = read_pictures(
            make(keep), reading, features=wanted.features, recipe=wanted.recipe, cache=wanted.cache
        )
        return Inputs(found.x, np.array(found.kept, dtype=np.int64), found.recipe)

    return Rows(ids, labels, read, **more)


def from_table(
    table: Any,
    wanted: Wanted,
    reading: Reading,
    *,
    folder: Path | None = None,
    labels: Sequence[Any] | None = None,
    csv: Path | None = None,
) -> Rows:
    """Rows of columns, or of image paths if a column holds such.

    ``folder`` is where paths start, None for a table in memory; ``labels`` are given where they are
    no column; ``csv`` is the file whose lines the rows are.
    """
    table = table_files.checked_table(table, reading.where)
    known = wanted.recipe or {}
    names = list(table.columns)
    columns = table_files.find_columns(
        table,
        reading.where,
        label=wanted.name("label", names),
        id=wanted.name("id", names),
        image=wanted.name("image", names),
        ignore=wanted.ignore or [name for name in known.get("ignore", ()) if name in names],
        needs_label=wanted.training and labels is None,
    )
    if labels is None and columns.label is not None:
        labels = table[columns.label].tolist()
    meant: dict[str, Any] = {"label": columns.label, "id": columns.id, "image": columns.image}
    meant |= {"ignore": list(columns.ignored)} if columns.ignored else {}
    ids = [str(row) for row in range(len(table))]
    place: Callable[[int], str] = "row {}".format if csv is None else table_files.Lines(csv)
    bad: dict[int, str] = {}
    if columns.image is not None and known.get("kind") != "table":
        paths, ids, bad = image_paths(table[columns.image], folder)
    if columns.id is not None:
        ids = ["" if pd.isna(key) else _id_text(key) for key in table[columns.id]]
        bad = {row: "it has no id" for row, key in enumerate(ids) if not key} | bad
    ids = [key or place(row) for row, key in enumerate(ids)]
    more = {"bad": bad, "table": table, "meant": meant, "place": place}
    if columns.image is not None and known.get("kind") != "table":
        return from_images(ids, paths, labels, wanted, reading, **more)
    if csv is not None and columns.id is None:  # its ids count rows, and editors count lines
        reading.place = lambda key: place(int(key))
    return _from_columns(table, ids, labels, columns.named(), wanted, reading, more)


def _from_columns(
    table: Any,
    ids: list[str],
    labels: Sequence[Any] | None,
    named: list[str],
    wanted: Wanted,
    reading: Reading,
    more: dict[str, Any],
) -> Rows:
    wanted.check_kind("table", reading.where)

    def read(keep: NDArray[np.int64]) -> Inputs:
        looked = keep[keep < LOOKED_AT] if wanted.look else keep
        part = table.iloc[looked]
        names = [name for name in table.columns if name not in named]
        given = None if labels is None else [str(labels[row]).strip() for row in looked]
        recipe = wanted.recipe or tables.make_recipe(part, names, reading, labels=given)
        x, good = tables.apply_recipe(part, recipe, [ids[row] for row in looked], reading)
        if wanted.look:
            return Inputs.of_shape(x.shape[1:], torch.float32, range(len(keep)))
        return Inputs(torch.from_numpy(x[good]), np.flatnonzero(good), dict(recipe))

    return Rows(ids, labels, read, **more)


def from_mapping(source: Mapping[str, Any], wanted: Wanted, reading: Reading) -> Rows:
    """Arrays by name, as an .npz file has them."""
    where = reading.where
    x = arrays.pick(source, arrays.X_NAMES, wanted.name("image", source), where, "image")
    if x is None:
        raise ValueError(
            f"{where} must hold the inputs as {', '.join(arrays.X_NAMES[:4])}, but it holds "
            f"{some(list(source), listed=20)}"
        )
    y = arrays.pick(source, arrays.Y_NAMES, wanted.name("label", source), where, "label")
    if y is None and wanted.training:
        raise ValueError(
            f"{where} must hold the labels as {', '.join(arrays.Y_NAMES[:4])}, but it holds "
            f"{some(list(source), listed=20)}; name the array with label= (--label)"
        )
    ids = arrays.pick(source, arrays.ID_NAMES, wanted.name("id", source), where, "id")
    others = [name for name in source if name not in (x, y, ids)]
    if others:
        reading.note(f"of {where} these arrays were not looked at: {some(others, listed=8)}")
    return from_arrays(
        source[x],
        None if y is None else source[y],
        wanted,
        reading,
        ids=None if ids is None else source[ids],
        meant={"label": y, "id": ids, "image": x},
    )


def from_arrays(
    x: Any,
    y: Any,
    wanted: Wanted,
    reading: Reading,
    *,
    ids: Any = None,
    meant: dict[str, Any] | None = None,
) -> Rows:
    """Inputs with labels; a DataFrame as inputs is a table."""
    if y is None and wanted.training:
        raise ValueError(
            f"{reading.where} must have labels to learn from; pass the pair (x, y), or a table "
            "with label="
        )
    labels = None if y is None else _labels(y)
    if isinstance(x, pd.DataFrame):
        _check_lengths(len(x), labels, reading)
        return from_table(x, wanted, reading, labels=labels)
    inputs = arrays.as_array(x)
    if inputs.ndim == 0:
        raise ValueError(f"the inputs of {reading.where} must be an array, got {type(x).__name__}")
    _check_lengths(len(inputs), labels, reading)
    if ids is None:
        names = [str(row) for row in range(len(inputs))]
    else:
        names = [_id_text(key) for key in _labels(ids)]
        if len(names) != len(inputs):
            raise ValueError(f"{reading.where} has {len(inputs):,} inputs and {len(names):,} ids")
    images = arrays.as_images(inputs)
    if images is not None:
        return _from_image_array(images, names, labels, wanted, reading, meant or {})
    wanted.check_kind("features", reading.where)

    def read(keep: NDArray[np.int64]) -> Inputs:
        if wanted.look:
            shape = arrays.check_features(inputs, reading, wanted.recipe).shape[1:]
            return Inputs.of_shape(shape, torch.float32, range(len(keep)))
        part = inputs if len(keep) == len(inputs) else inputs[keep]
        made, good, recipe = arrays.read_features(
            part, [names[row] for row in keep], reading, wanted.recipe
        )
        made = made if good.all() else made[torch.from_numpy(good)]
        return Inputs(made, np.flatnonzero(good), recipe)

    return Rows(names, labels, read, meant=meant or {})


def _from_image_array(
    images: NDArray[np.uint8],
    ids: list[str],
    labels: Sequence[Any] | None,
    wanted: Wanted,
    reading: Reading,
    meant: dict[str, Any],
) -> Rows:
    def make(keep: NDArray[np.int64]) -> Pictures:
        key: list[Any] | None = None
        if wanted.cache is not None:
            digest = hashlib.sha256(repr(images.shape).encode())
            for start in range(0, len(images), arrays.BLOCK):
                digest.update(np.ascontiguousarray(images[start : start + arrays.BLOCK]).data)
            key = ["array", digest.hexdigest(), keep.tolist()]
        names = [ids[row] for row in keep]
        return Pictures(names, lambda position: images[int(keep[position])], key)

    return from_pictures(ids, make, labels, wanted, reading, meant=meant)


def _from_npy(path: Path, wanted: Wanted, reading: Reading) -> Rows:
    labels = arrays.partner(path) if wanted.label is None else path.parent / wanted.label
    if labels is None and wanted.training:
        expected = f"{arrays.PARTNERS.get(path.stem.lower(), 'labels')}.npy"
        raise ValueError(
            f"{path} has no labels; put them beside it as {expected}, or name their file with "
            "label= (--label)"
        )
    y = None if labels is None else arrays.read_npy(labels)
    return from_arrays(arrays.read_npy(path), y, wanted, reading)


def _check_lengths(length: int, labels: Sequence[Any] | None, reading: Reading) -> None:
    if labels is not None and len(labels) != length:
        raise ValueError(
            f"{reading.where} must have one label an example, but it has {length:,} examples and "
            f"{len(labels):,} labels"
        )


def _labels(y: Any) -> list[Any]:
    if isinstance(y, Tensor | np.ndarray):
        y = arrays.as_array(y)
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    return list(y)


def _id_text(key: Any) -> str:
    """A number that a missing cell made a float is an integer again."""
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    return str(key).strip()


def _archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            count = len(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return "is no archive that can be read"
    return f"is an archive of {count:,} files" if count else "is an archive of nothing"
