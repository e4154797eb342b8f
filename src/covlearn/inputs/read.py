"""``read_examples``: a source of any kind as examples."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from covlearn.config import plain
from covlearn.inputs import datasets, labels, sources, table_files
from covlearn.inputs.examples import Examples, OnBad, Progress, Reading, Skipped
from covlearn.inputs.manifests import repeated_ids
from covlearn.inputs.recipes import check_recipe
from covlearn.inputs.sources import Rows, Wanted
from covlearn.kinds import checked


@checked
def read_examples(
    source: Any,
    *,
    label: str | None = None,
    id: str | None = None,
    image: str | None = None,
    ignore: Sequence[str] = (),
    on_bad: OnBad = "refuse",
    features: str = "auto",
    recipe: dict[str, Any] | None = None,
    cache: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    look: bool = False,
) -> Examples:
    """Examples, with labels and a recipe for more of the kind.

    ``source`` is a path: a folder of class folders of images, a CSV or Parquet file of image paths
    or of columns, an .npz or .npy file, a saved Hugging Face dataset. Or it is an object: a
    DataFrame, a pair (x, y), a dict of arrays, a Hugging Face or PyTorch map-style dataset.
    ``label``, ``id`` and ``image`` name columns, ``ignore`` those of a table that are not to be
    learned from. Images become ``features`` of a frozen network:
    ``"efficientnet_lite0"``, ``"torchvision:NAME"``, ``"timm:NAME"``, ``"none"`` for the pixels, or
    ``"auto"``, the best that is installed. What is bad is refused, or left out and listed in
    ``skipped``. What took time is kept in the folder ``cache``.

    With the ``recipe`` of other examples inputs are made as they were there, and labels may be
    missing.

    With ``look`` ids and labels are read and inputs are not: ``x`` is zeros of the shape that
    headers, a sample of the images and the first rows of a table tell, and the recipe lacks them.

    >>> rows = pd.DataFrame({"size": [1, 2, 3, 4], "label": ["a", "b", "a", "b"]})
    >>> examples = read_examples(rows)
    >>> examples.classes, examples.y.tolist(), examples.x.shape
    (['a', 'b'], [0, 1, 0, 1], torch.Size([4, 1]))
    """
    if recipe is not None:
        check_recipe(recipe)
    place = None if cache is None else Path(cache)
    if isinstance(ignore, str):
        raise ValueError(f"ignore must be a list of columns, got {ignore!r}; write [{ignore!r}]")
    wanted = Wanted(label, id, image, features, recipe, place, look, tuple(ignore))
    reading = Reading(_name(source), on_bad, progress)
    rows = _rows(source, wanted, reading)
    if ignore:
        _check_ignore(rows, wanted, reading)
    return _examples(rows, wanted, reading)


def _check_ignore(rows: Rows, wanted: Wanted, reading: Reading) -> None:
    """Only of a table that is learned from columns can be left out."""
    if wanted.recipe is not None:
        raise ValueError("a recipe says which columns are used; leave ignore= out")
    if rows.table is None:
        raise ValueError(f"{reading.where} has no columns to ignore; leave out ignore= (--ignore)")
    if (image := rows.meant.get("image")) is not None:
        raise ValueError(
            f"{reading.where} is learned from the images of its column {image!r} alone; leave out "
            "ignore= (--ignore), or ignore that column, too"
        )


def _rows(source: Any, wanted: Wanted, reading: Reading) -> Rows:  # noqa: PLR0911
    if isinstance(source, str | PathLike):
        rows = sources.from_path(Path(source), wanted, reading)
        if rows.table is None or wanted.look or not wanted.training:
            return rows
        return replace(rows, table=table_files.as_written(rows.table, Path(source)))
    if isinstance(source, pd.DataFrame):
        return sources.from_table(source, wanted, reading)
    if datasets.is_hugging_face(source):
        return datasets.from_hugging_face(source, wanted, reading)
    if isinstance(source, Mapping):
        return sources.from_mapping(source, wanted, reading)
    if isinstance(source, tuple) and len(source) == 2:
        return sources.from_arrays(*source, wanted, reading)
    if isinstance(source, np.ndarray | Tensor):
        return sources.from_arrays(source, None, wanted, reading)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return datasets.from_torch(source, wanted, reading)
    raise ValueError(
        f"a source must be {sources.KINDS}, a DataFrame, a pair (x, y), a dict of arrays, or a "
        f"map-style dataset, got {type(source).__name__}"
    )


def _examples(rows: Rows, wanted: Wanted, reading: Reading) -> Examples:
    """Ids and labels are looked at first: they cost nothing, and inputs may take hours."""
    texts = None if rows.labels is None else labels.label_texts(rows.labels, reading)
    good = _good_rows(rows, texts, wanted, reading)
    if texts is not None and wanted.training:
        good = _without_rare(good, rows, texts, reading)
    if not len(good):
        raise ValueError(f"{reading.where} has no example that can be used")
    inputs = rows.read(good)
    x, kept = inputs.x, good[inputs.kept]
    if texts is not None and wanted.training:
        enough = _without_rare(kept, rows, texts, reading)
        if len(enough) < len(kept):
            x = x[torch.from_numpy(np.isin(kept, enough))]
            kept = enough
    given = None if texts is None else [texts[row] for row in kept]
    classes = labels.class_names(given or ()) if wanted.training else wanted.recipe["classes"]  # type: ignore[index]
    if given is not None and not any(given):  # a column of labels that are still to be found
        given = None
    return Examples(
        ids=[rows.ids[row] for row in kept],
        x=x,
        given=given,
        classes=list(classes),
        y=None if given is None else labels.positions(given, classes),
        paths=None if rows.paths is None else [rows.paths[row] for row in kept],
        table=None if rows.table is None else rows.table.iloc[kept].reset_index(drop=True),
        skipped=reading.skipped,
        recipe=wanted.recipe or plain({**inputs.recipe, **rows.meant, "classes": classes}),
        notes=reading.notes,
    )


def _good_rows(
    rows: Rows, texts: list[str] | None, wanted: Wanted, reading: Reading
) -> NDArray[np.int64]:
    """The rows that have a path, an id of their own and, where it is needed, a label."""
    bad = {row: Skipped(rows.ids[row], reason) for row, reason in rows.bad.items()}
    others = [row for row in range(len(rows.ids)) if row not in bad]
    again = repeated_ids(
        [rows.ids[row] for row in others],
        lambda position: rows.place(others[position]),
        None if texts is None else [texts[row] for row in others],
    )
    bad |= {others[position]: skipped for position, skipped in again}
    if texts is not None and wanted.training:
        for row, text in enumerate(texts):
            if not text and row not in bad:
                bad[row] = Skipped(rows.ids[row], "it has no label")
    reading.bad([bad[row] for row in sorted(bad)])
    return np.array([row for row in range(len(rows.ids)) if row not in bad], dtype=np.int64)


def _without_rare(
    kept: NDArray[np.int64], rows: Rows, texts: list[str], reading: Reading
) -> NDArray[np.int64]:
    """The rows whose class has two examples at least."""
    rare = labels.too_rare([rows.ids[row] for row in kept], [texts[row] for row in kept], reading)
    reading.bad(rare)
    lost = {item.id for item in rare}
    return np.array([row for row in kept if rows.ids[row] not in lost], dtype=np.int64)


def _name(source: Any) -> str:
    """How messages call the source."""
    if isinstance(source, str | PathLike):
        return str(source)
    if isinstance(source, pd.DataFrame):
        return "the table"
    if isinstance(source, tuple | np.ndarray | Tensor):
        return "the data"
    return f"the {type(source).__name__}"
