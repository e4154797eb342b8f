"""Columns of a table as numbers, and a recipe by which other rows become the same numbers.

======== ============================================================= ============================
column   how it is told                                                what it becomes
======== ============================================================= ============================
number   numbers, or true and false                                    (value − mean) / std, or
                                                                       its rank, see below
date     dates and times, or text as 2024-05-31 or 2024-05-31 12:30:00 days since 1970, as a number
         or 31.5.2024
category other text, and what pandas calls a category                  one column a category, 0 or 1
vector   lists of numbers of one length (embeddings)                   each entry as a number
======== ============================================================= ============================

- Text is a number column if nearly all its cells read as numbers, many different ones; the others
  are missing, with a word. Numbers may have a decimal comma in a file with another delimiter than
  the comma. Texts such as NA and null are missing cells, whatever the source.
- Where a few far values make the deviation of a column of numbers or dates, its values become the
  normal quantiles of their ranks, with a word (:mod:`covlearn.inputs.numbers`).
- A missing number or date is the mean, which is 0; if any is missing in training, one more column
  says so with 0 or 1. A missing category is a category if any is missing in training.
- Of a category column the 50 most frequent categories count, and all others are one more. A
  category that training did not have is that one, or if there is none, 0 everywhere.
- Left out, with a word: columns with one value, columns without any, ids (all different and called
  so, or counting up the rows), text of more than 50 values most of which come once, and from 50
  rows on a column that says the same as the label, one value a class: it was made from the labels,
  and who learns from it learns their errors. So does who learns from one called after labellers.
  One of few values that tells nine labels in ten, and each class, stays, with a word; so does one
  of numbers if ranges of it tell nearly all of them.
- Infinite numbers, vectors with a missing entry, and with a recipe text where training had numbers,
  make a row bad. A column that is missing altogether is an error; more columns are not looked at.
"""

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from covlearn.inputs import telling
from covlearn.inputs.categories import category_texts, doubt, new_categories
from covlearn.inputs.dates import EITHER, EXAMPLES, ORDERS, date_order, days_of
from covlearn.inputs.examples import FORMAT, Reading, Skipped, counted, some
from covlearn.inputs.number_texts import (
    are_numbers,
    as_numbers,
    has_decimal_commas,
    without_nothing,
    without_odd,
)
from covlearn.inputs.numbers import by_rank, far_knots, standard, standardised

MOST_CATEGORIES = 50
ID_NAME = re.compile(r"(?i)(.*[_\s-])?(p?id|[ug]uid|key|index|n[or]|number|serial)|unnamed: ?\d+")
WHO_LABELLED = re.compile(
    r"(?i)(.*[\s_.-])?(annotator|labell?er|rater|(annotated|labell?ed|rated)[\s_.-]?by)"
    r"([\s_.-]?(id|name|no|key))?"
)
FEWEST_COUNTED, FEWEST_RISING = 10, 50  # rows that are ids if they count up by one, by any steps
NUMBER_TYPES = (bool, int, float, np.number, np.bool_, Decimal)


class Unfit(ValueError):
    """Why a column is left out."""


def make_recipe(
    table: Any, names: Sequence[str], reading: Reading, *, labels: Sequence[Any] | None = None
) -> dict[str, Any]:
    """How the named columns of a table become numbers."""
    columns, left_out, doubts, either, told = [], {}, [], [], []
    classes = None if labels is None else telling.classes_of(labels)
    # Where a comma is between cells, one within a cell is anything but that before decimals.
    commas = table.attrs.get("delimiter", ",") != ","
    commas = commas and any(has_decimal_commas(table[name]) for name in names)
    for done, name in enumerate(names):
        cells = without_nothing(table[name])
        try:
            if classes is not None and telling.repeats_labels(cells, classes):
                raise Unfit("it says the same as the label")
            if WHO_LABELLED.fullmatch(name.strip()):
                raise Unfit("it seems to say who labelled; under another name it is learned from")
            kind = _kind(cells.dropna(), commas)
            if kind == "category":
                doubts += doubt(name, cells.dropna())
                either += [name] if date_order(cells.dropna()) == EITHER else []
            columns.append({"name": name, **_column_recipe(name, cells, kind, commas)})
            if classes is not None and (share := _told(cells, kind, commas, classes)):
                told.append(f"{name} ({share:.1%} of them)".replace("%", " %"))
        except Unfit as error:
            left_out[name] = str(error)
        reading.show(done + 1, len(names), "looking at columns")
    if commas:
        numbers = [column["name"] for column in columns if column["kind"] == "number"]
        written = [name for name in numbers if table[name].astype(str).str.contains(",").any()]
        listed = some(written, listed=8) or "none that is used"
        reading.note(f"columns of numbers that were read with a decimal comma: {listed}")
    if ranked := [column["name"] for column in columns if column.get("knots")]:
        listed = some(ranked, listed=8)
        reading.note(f"columns in which few values lie far off, so that ranks count: {listed}")
    _note_dates(columns, either, reading)
    if doubts:
        reading.note(
            f"columns that look like numbers but were read as text: {some(doubts, listed=8)}"
        )
    if told:
        reading.note(
            f"columns that tell nearly all labels by themselves: {some(told, listed=8)}; leave "
            "them out with ignore= (--ignore) if they were made from the labels"
        )
    if left_out:
        listed = some([f"{name} ({why})" for name, why in left_out.items()], listed=8)
        reading.note(f"columns that were left out: {listed}")
    if not columns:
        raise ValueError(
            f"{reading.where} must have a column to learn from besides the label, but none is "
            f"usable: {some([f'{name} ({why})' for name, why in left_out.items()]) or 'no other'}; "
            "turn texts into embeddings first, or name an image column with image= (--image)"
        )
    return {
        "format": FORMAT,
        "kind": "table",
        "columns": columns,
        "left_out": left_out,
        "decimal_comma": commas,
    }


def _note_dates(
    columns: Sequence[Mapping[str, Any]], either: Sequence[str], reading: Reading
) -> None:
    """Which column's dates were read in which order, and where that could not be told."""
    for order in ORDERS[1:]:
        if names := [column["name"] for column in columns if column.get("order") == order]:
            reading.note(f"columns of dates that were read with the {order}: {some(names)}")
    if either:
        reading.note(
            f"columns of dates in which day and month could be either, read as text: "
            f"{some(either)}; write them as 2024-05-31"
        )


def apply_recipe(
    table: Any, recipe: Mapping[str, Any], ids: Sequence[str], reading: Reading
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The rows as numbers, and which of them are good; the others are told of."""
    missing = [
        column["name"] for column in recipe["columns"] if column["name"] not in table.columns
    ]
    if missing:
        raise ValueError(
            f"{reading.where} must have the columns of training, but {some(missing, listed=8)} "
            f"{'is' if len(missing) == 1 else 'are'} missing; it has "
            f"{some(list(table.columns), listed=20)}"
        )
    good = np.ones(len(table), dtype=bool)
    reasons: dict[int, str] = {}
    blocks, odd_cells, new = [], [], []
    commas = recipe.get("decimal_comma", False)
    for done, column in enumerate(recipe["columns"]):
        reading.show(done + 1, len(recipe["columns"]), "reading columns")
        cells = without_nothing(table[column["name"]])
        if column.get("odd_is_missing"):
            cells, odd = without_odd(cells, comma=commas)
            if len(odd):
                shown = some(list(dict.fromkeys(odd)))
                odd_cells.append(f"{column['name']} ({counted(len(odd), 'cell')}: {shown})")
        new += new_categories(cells, column)
        block, bad = _column_values(cells, column, commas)
        with np.errstate(over="ignore"):
            block = block.astype(np.float32)
        far = ~np.isfinite(block).all(axis=1)
        for row in np.flatnonzero(bad | far):
            reasons.setdefault(int(row), _why(table[column["name"]].iloc[row], column))
        good &= ~(bad | far)
        blocks.append(block)
    if odd_cells:
        listed = some(odd_cells, listed=8)
        reading.note(f"cells in columns of numbers that are none and count as missing: {listed}")
    if new:
        reading.note(
            f"cells of categories that training did not have, which count as none: "
            f"{some(new, listed=8)}"
        )
    reading.bad([Skipped(ids[row], reasons[row]) for row in sorted(reasons)])
    return np.concatenate(blocks, axis=1), good


def feature_names(recipe: Mapping[str, Any]) -> list[str]:
    """The name of each column of ``x``."""
    names: list[str] = []
    for column in recipe["columns"]:
        name = column["name"]
        if column["kind"] == "category":
            names += [f"{name}={value}" for value in column["categories"]]
            names += [f"{name}: other"] * column["other"]
        elif column["kind"] == "vector":
            names += [f"{name}[{place}]" for place in range(len(column["mean"]))]
        else:
            names.append(name)
        names += [f"{name}: missing"] * column["missing"]
    return names


def _column_recipe(name: str, column: Any, kind: str, commas: bool) -> dict[str, Any]:
    present = column.dropna()
    missing = len(present) < len(column)
    if kind == "vector":
        return _vector_recipe(present, missing=missing)
    if kind == "category":
        return _category_recipe(name, present, missing=missing)
    order = _order(present) if kind == "date" else None
    values = _numbers(present, order, commas)
    odd = np.isnan(values)
    missing = missing or bool(odd.any())
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        raise Unfit("it has no finite number")
    if kind == "number" and _is_id(name, present[~odd], finite):
        raise Unfit("it looks like an id")
    mean, std = standard(finite)
    if std == 0 or not np.ptp(finite / 2):
        if not missing:
            raise Unfit("it has one value only")
        std = 1.0
    found = {"kind": kind, "mean": mean, "std": std, "missing": missing}
    if order is not None:
        found["order"] = order
    return {**found, "odd_is_missing": bool(odd.any()), "knots": far_knots(finite, std)}


def _kind(present: Any, commas: bool) -> str:  # noqa: PLR0911
    if len(present) == 0:
        raise Unfit("it is empty")
    if isinstance(present.dtype, pd.CategoricalDtype):
        return "category"
    kind = present.dtype.kind
    if kind in "biuf":
        return "number"
    if kind == "M":
        return "date"
    if kind in "mc":
        raise Unfit("lengths of time and complex numbers are not read; write them as numbers")
    first = present.iloc[0]
    if isinstance(first, np.ndarray | list | tuple):
        return "vector"
    if isinstance(first, dict | set | bytes):
        raise Unfit(f"cells of type {type(first).__name__} are not read")
    if kind == "O" and all(isinstance(cell, NUMBER_TYPES) for cell in present):
        return "number"
    if date_order(present) in ORDERS:
        return "date"
    return "number" if are_numbers(present, comma=commas) else "category"


def _told(cells: Any, kind: str, commas: bool, classes: NDArray[np.int64]) -> float:
    """The share of the labels that a column tells, if that is worth a word, or 0."""
    share = telling.share_told(cells, classes)
    if share >= telling.TELLING or kind != "number":
        return share if share >= telling.TELLING else 0.0
    share = telling.share_split(_numbers(cells.dropna(), None, commas), cells, classes)
    return share if share >= telling.CERTAIN else 0.0


def _is_id(name: str, present: Any, values: NDArray[np.float64]) -> bool:
    if not present.is_unique or (values != np.floor(values)).any():
        return False
    with np.errstate(over="ignore"):
        steps = np.diff(values)
    counted = len(values) >= FEWEST_COUNTED and bool((steps == 1).all())
    if len(values) >= FEWEST_RISING and (steps > 0).all():  # of rows sorted by label it would tell
        counted |= bool(np.corrcoef(values, np.arange(len(values)))[0, 1] > 0.99)
    return counted or bool(ID_NAME.fullmatch(name.strip()))


def _category_recipe(name: str, present: Any, *, missing: bool) -> dict[str, Any]:
    counts = category_texts(present).value_counts()
    if len(counts) == len(present) and (len(present) > 2 or ID_NAME.fullmatch(name)):
        raise Unfit("every row has another text")
    if len(counts) > MOST_CATEGORIES and int((counts == 1).sum()) * 2 > len(counts):
        raise Unfit(f"most of its {len(counts):,} different texts come once only")
    if len(counts) == 1 and not missing:
        raise Unfit("it has one value only")
    # The most frequent; among equals the order of the alphabet decides, not that of the rows.
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    kept = sorted(text for text, _ in ranked[:MOST_CATEGORIES])
    other = len(counts) > MOST_CATEGORIES
    return {"kind": "category", "categories": kept, "other": other, "missing": missing}


def _vector_recipe(present: Any, *, missing: bool) -> dict[str, Any]:
    if missing:
        raise Unfit("some of its lists are missing")
    rows, bad = _vectors(present, None)
    if bad.all():
        raise Unfit("its lists are not of numbers, or not of one length")
    finite = rows[~bad & np.isfinite(rows).all(axis=1)]
    if not len(finite):
        raise Unfit("its lists have no finite numbers")
    pairs = [standard(finite[:, place]) for place in range(finite.shape[1])]
    return {
        "kind": "vector",
        "mean": [mean for mean, _ in pairs],
        "std": [std or 1.0 for _, std in pairs],
        "missing": False,
    }


def _column_values(
    column: Any, recipe: Mapping[str, Any], commas: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers of a column, and the rows in which they cannot be had."""
    absent = column.isna().to_numpy()
    kind = recipe["kind"]
    bad = np.zeros(len(column), dtype=bool)
    if kind == "vector":
        rows, bad = _vectors(column, len(recipe["mean"]))
        return standardised(rows, recipe["mean"], recipe["std"]), bad | ~np.isfinite(rows).all(
            axis=1
        )
    if kind == "category":
        place = {text: position for position, text in enumerate(recipe["categories"])}
        unknown = len(place) if recipe["other"] else -1
        texts = category_texts(column[~absent])
        where = np.full(len(column), -1)
        where[~absent] = [place.get(text, unknown) for text in texts]
        block = np.zeros((len(column), len(place) + recipe["other"]))
        block[where >= 0, where[where >= 0]] = 1
    else:
        values = np.full(len(column), recipe["mean"], dtype=np.float64)
        order = recipe.get("order", ORDERS[0]) if kind == "date" else None
        read = _numbers(column[~absent], order, commas)
        bad[~absent] = ~np.isfinite(read)
        values[~absent] = np.where(np.isfinite(read), read, recipe["mean"])
        if (knots := recipe.get("knots")) is None:
            block = standardised(values, recipe["mean"], recipe["std"])[:, None]
        else:
            block = np.where(absent, 0.0, by_rank(values, knots))[:, None]
    if recipe["missing"]:
        block = np.concatenate([block, absent[:, None].astype(np.float64)], axis=1)
    return block, bad


def _order(present: Any) -> str:
    """How a column writes its dates; one of times themselves as text would be."""
    found = ORDERS[0] if present.dtype.kind == "M" else date_order(present)
    assert found is not None
    return found


def _numbers(present: Any, order: str | None, commas: bool) -> NDArray[np.float64]:
    """Cells as numbers, of dates in an order as days; NaN where one is not."""
    if order is None:
        return as_numbers(present, comma=commas)
    days, bad = days_of(present, order)
    days[bad] = math.nan
    return days


def _vectors(column: Any, dim: int | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Lists as rows; bad where one is no list of numbers of the common length."""
    rows: list[NDArray[np.float64] | None] = []
    for cell in column:
        try:
            row = np.asarray(cell, dtype=np.float64)
        except (TypeError, ValueError):
            row = np.empty((0, 0))
        rows.append(row if row.ndim == 1 and len(row) else None)
    if dim is None:
        lengths = [len(row) for row in rows if row is not None]
        dim = max(set(lengths), key=lengths.count) if lengths else 1
    result = np.zeros((len(rows), dim))
    bad = np.zeros(len(rows), dtype=bool)
    for place, found in enumerate(rows):
        if found is None or len(found) != dim:
            bad[place] = True
        else:
            result[place] = found
    return result, bad


def _why(cell: Any, column: Mapping[str, Any]) -> str:
    wanted = {
        "number": "a finite number of ordinary size",
        "date": f"a date as {EXAMPLES[column.get('order', ORDERS[0])]}",
        "vector": f"a list of {len(column.get('mean', ())) if column['kind'] == 'vector' else 0} "
        "finite numbers",
    }[column["kind"]]
    shown = str(cell)
    shown = shown if len(shown) <= 40 else f"{shown[:37]}…"
    return f"column {column['name']!r} must hold {wanted}, got {shown}"
