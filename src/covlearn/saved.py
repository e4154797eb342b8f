"""What the folder of a fit says, checked as it is read: someone else may have made or changed it.

Names of files are in :mod:`covlearn.fitted`, which writes them.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from covlearn import cells, npz, records
from covlearn.config import typed
from covlearn.data.augment import Augmentation
from covlearn.inputs.table_files import read_parquet
from covlearn.plain_files import read_json
from covlearn.preparation import Standardizer
from covlearn.verdicts import DECISIONS

RECIPE, EXAMPLES, TABLE, REFINEMENT = (
    "recipe.json",
    "examples.parquet",
    "table.parquet",
    "refinement.npz",
)
TRUSTED = "trusted.csv"
COLUMNS = ("id", "given", "suggested", "decision", "quality", "confidence", "reason")
SOURCE = ("path", "label", "id", "image", "features", "on_bad")


@dataclass(frozen=True)
class Recipe:
    """recipe.json: how inputs are made of a source, and what the classes are called."""

    recipe: dict[str, Any]
    classes: list[str]
    mean: list[float] | None
    scale: list[float] | None
    augmentation: Augmentation | None

    @property
    def standardizer(self) -> Standardizer | None:
        """None for images."""
        if self.mean is None or self.scale is None:
            return None
        return Standardizer(np.array(self.mean), np.array(self.scale))


def read_recipe(folder: Path) -> Recipe:
    """The recipe of a fit."""
    path = folder / RECIPE
    try:
        made = typed(Recipe, read_json(path))
        if len(made.mean or ()) != len(made.scale or ()):
            raise ValueError("mean and scale must have one length")
        if not all(map(math.isfinite, [*(made.mean or ()), *(made.scale or ())])) or (
            0.0 in (made.scale or ())
        ):
            raise ValueError("mean and scale must be finite, and scale not zero")
        for name in ("label", "id", "image"):
            if not isinstance(made.recipe.get(name), str | None):
                raise ValueError(f"{name} must be the name of a column")
        if len(set(made.classes)) != len(made.classes) or not all(made.classes):
            raise ValueError("classes must be different names")
    except ValueError as error:
        raise ValueError(f"{path} must hold the recipe of a fit: {error}") from error
    return made


def check_source(config: dict[str, Any], path: Path) -> None:
    """Where a fit's examples are from, in words."""
    source = config.get("source")
    if not isinstance(source, dict) or not all(
        source.get(name) is None or isinstance(source[name], str) for name in SOURCE
    ):
        raise ValueError(f"{path} must say what the source of the fit was; it is damaged")


def is_evidence(found: dict[str, Any]) -> bool:
    """Whether result.json has what is said of a fit's evidence; older ones have less."""
    counts = (found.get(name, 0) for name in ("surest", "contradicted"))
    return (
        {"found", "sentence"} <= set(found)
        and all(isinstance(count, int) for count in counts)
        and isinstance(found.get("learned", True), bool)
    )


def read_labels(folder: Path, classes: list[str]) -> dict[str, list[str]]:
    """The columns of labels.csv as text, with known classes, decisions and probabilities."""
    path = folder / records.LABELS
    labels = cells.read_cells(path)
    missing = [name for name in COLUMNS if name not in labels]
    if missing or not labels["id"]:
        raise ValueError(f"{path} must have the columns {', '.join(COLUMNS)}, and rows")
    allowed = {"given": set(classes), "suggested": set(classes), "decision": set(DECISIONS)}
    for name, known in allowed.items():
        for row, text in enumerate(labels[name]):
            if text not in known:
                raise ValueError(f"{path}, row {row}, has {name} {text!r}, which is not known")
    for name in ("quality", "confidence"):
        for row, text in enumerate(labels[name]):
            if not _is_share(text):
                raise ValueError(f"{path}, row {row}, must have a {name} of 0…1, got {text!r}")
    return labels


def read_paths(folder: Path, ids: list[str]) -> list[Path | None]:
    """The image file of each example, None where it is none of its own."""
    path = folder / EXAMPLES
    table = read_parquet(path)
    if not {"id", "path"} <= set(table.columns) or table["id"].tolist() != ids:
        raise ValueError(
            f"{folder / records.LABELS} must have the {len(table)} examples of {EXAMPLES} in their "
            "order, got others; it was changed after the run"
        )
    places = [None if pd.isna(place) else place for place in table["path"]]
    if not all(place is None or (isinstance(place, str) and "\0" not in place) for place in places):
        raise ValueError(f"{path} must hold paths as text; it is damaged")
    return [None if place is None else Path(place) for place in places]


def read_own_table(folder: Path, count: int) -> Any:
    """The source's own columns as a DataFrame; None where it was no table."""
    path = folder / TABLE
    if not path.exists():
        return None
    table = read_parquet(path)
    if len(table) != count:
        raise ValueError(f"{path} must have the {count} rows of the run, got {len(table)}")
    return table


def read_statistics(folder: Path, num_classes: int) -> dict[str, NDArray[Any]]:
    """T̂ and the covariances, (K, K) each."""
    square = (num_classes, num_classes)
    return read_numbers(folder / REFINEMENT, {"transition": square, "covariance": square})


def read_numbers(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file of a run, of the names and shapes that they must have."""
    try:
        arrays = npz.read_arrays(path)
    except FileNotFoundError as error:
        raise ValueError(f"{path} is missing: this is not the whole folder of a run") from error
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    for name, shape in shapes.items():
        found = arrays.get(name)
        if found is None or found.dtype.kind != "f" or found.shape != shape:
            raise ValueError(f"{path} must hold {name} as numbers of shape {shape}; it is damaged")
    return arrays


def read_people(folder: Path, classes: list[str]) -> dict[str, tuple[str, str]]:
    """By id, the label that a person decided on and the one that it replaces."""
    path = folder / TRUSTED
    if not path.exists():
        return {}
    columns = cells.read_cells(path)
    names = ("id", "label", "before")
    known = set(classes)
    if not set(names) <= set(columns) or not known >= {*columns["label"], *columns["before"]}:
        raise ValueError(f"{path} must have the columns {', '.join(names)}, with known classes")
    rows = zip(*(columns[name] for name in names), strict=True)
    return {key: (label, before) for key, label, before in rows}


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1 and math.isfinite(float(text))
    except ValueError:
        return False
