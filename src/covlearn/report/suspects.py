"""The gallery's rows: what a person should look at, the worst first, as far as a page can hold."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from covlearn.fitted import Fitted
from covlearn.inputs import Progress
from covlearn.report.embed import embedded
from covlearn.report.pictures import find_pictures, sheets

# In all below 25 MB, with what else is on a page.
ROW_BYTES, CELL_BYTES, PICTURE_BYTES = 10_000_000, 4_500_000, 8_000_000
MOST_COLUMNS = 24
LONGEST_CELL = 120
TELLING = 6  # columns that are shown first
MISSING = "missing"


def gallery(fitted: Fitted, progress: Progress | None = None) -> tuple[dict[str, Any], list[str]]:
    """The rows as columns of plain values, and what was left out, in sentences."""
    labels, number = fitted.labels, {name: n for n, name in enumerate(fitted.classes)}
    decided = fitted.people
    quality = np.array(labels["quality"], dtype=float)
    flagged = (np.array(labels["decision"]) != "keep") | (quality < 0.5)
    mine = np.array([key in decided for key in labels["id"]])
    # Decisions of people first: the next file of decisions must have them all.
    order = np.concatenate(
        [np.flatnonzero(mine), worst_first(quality, np.flatnonzero(flagged & ~mine))]
    )
    texts = [f"{labels['id'][n]}{labels['reason'][n]}" for n in order]
    shown = order[: fitting(texts, ROW_BYTES)]
    left_out = []
    if len(shown) < len(order):
        left_out.append(
            f"{len(order) - len(shown):,} of {len(order):,} suspects, those of the highest "
            "quality: labels.csv has them all."
        )
    if (lost := int(mine.sum()) - int(mine[shown].sum())) > 0:
        left_out.append(
            f"{lost:,} earlier decisions: the file that this page makes does not have them, so "
            "keep the earlier one."
        )
    # Where people decided: what they decided on, and what the source says.
    labelled = [
        decided.get(labels["id"][n], (labels["suggested"][n], labels["given"][n])) for n in shown
    ]
    rows: dict[str, Any] = {
        "id": [labels["id"][n] for n in shown],
        "given": [number[given] for _, given in labelled],
        "suggested": [number[suggested] for suggested, _ in labelled],
        "decision": ["decided" if mine[n] else labels["decision"][n] for n in shown],
        "quality": [float(labels["quality"][n]) for n in shown],
        "confidence": [float(labels["confidence"][n]) for n in shown],
        "reason": [labels["reason"][n] for n in shown],
    }
    table, omitted = table_rows(fitted, shown)
    pictures, missing = picture_rows(fitted, shown, progress)
    whole = {"total": len(order), "rows": rows, "table": table, "pictures": pictures}
    return whole, [*left_out, *omitted, *missing]


def table_rows(fitted: Fitted, shown: NDArray[np.int64]) -> tuple[dict[str, Any] | None, list[str]]:
    """The source's own cells of the rows, without the label."""
    table = fitted.table
    if table is None:
        return None, []
    aside = {fitted.recipe.get("label"), fitted.recipe.get("id")}
    table = table[[name for name in table if name not in aside]]
    x, means = against_means(table, fitted.labels)
    left_out, width = [], table.shape[1]
    if width > MOST_COLUMNS:
        differs = means.var().fillna(-1).to_numpy()
        kept = np.sort(np.argsort(-differs, kind="stable")[:MOST_COLUMNS])
        table, x, means = (each.iloc[:, kept] for each in (table, x, means))
        left_out.append(
            f"{width - MOST_COLUMNS:,} of {width:,} columns: the page has the {MOST_COLUMNS} in "
            "which the classes differ most."
        )
    part = table.iloc[shown]
    values = [
        [MISSING if gap else as_text(value) for value, gap in zip(row, gaps, strict=True)]
        for row, gaps in zip(
            part.itertuples(index=False, name=None), part.isna().to_numpy(), strict=True
        )
    ]
    count = fitting(["".join(row) for row in values], CELL_BYTES, each=4 * table.shape[1])
    if count < len(values):
        left_out.append(f"The columns of {len(values) - count:,} of {len(values):,} suspects.")
    return {
        "columns": [str(name) for name in table],
        "cells": values[:count],
        "telling": telling(x, means, fitted.labels, shown[:count], table.isna().to_numpy()),
    }, left_out


def against_means(
    table: pd.DataFrame, labels: dict[str, list[str]]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The columns in units of their deviation, and their mean in each class after repairs.

    A column that is no numbers is NaN.
    """
    numbers = table.select_dtypes("number", exclude="timedelta")
    x = numbers.astype(float).reindex(columns=table.columns)
    x = x.replace([np.inf, -np.inf], np.nan)
    with np.errstate(all="ignore"):  # columns of absurd size say nothing
        x = (x - x.mean()) / x.std().replace(0, np.nan)
    relabel = np.array(labels["decision"]) == "relabel"
    return x, x.groupby(np.where(relabel, labels["suggested"], labels["given"])).mean()


def telling(
    x: pd.DataFrame,
    means: pd.DataFrame,
    labels: dict[str, list[str]],
    shown: NDArray[np.int64],
    missing: NDArray[np.bool_],
) -> list[list[int]]:
    """The columns of each row that speak most for the suggested label and against the given one.

    By |x − μ_given| − |x − μ_suggested|. Columns that are no numbers say nothing, and a missing
    cell is none of them; ties stay in order.
    """
    part = x.to_numpy()[shown]
    away, near = (
        np.abs(part - means.reindex(np.array(labels[name])[shown]).to_numpy())
        for name in ("given", "suggested")
    )
    order = np.argsort(-np.nan_to_num(away - near), axis=1, kind="stable")
    return [
        [column for column in columns if not gaps[column]][:TELLING]
        for columns, gaps in zip(order.tolist(), missing[shown], strict=True)
    ]


def picture_rows(
    fitted: Fitted, shown: NDArray[np.int64], progress: Progress | None
) -> tuple[dict[str, Any] | None, list[str]]:
    """Thumbnails of the rows."""
    try:
        find = find_pictures(fitted)
    except ValueError as error:
        return None, [f"{str(error)[0].upper()}{str(error)[1:]}."]
    if find is None or not len(shown):
        return None, []
    made = sheets(find, shown.tolist(), most_bytes=PICTURE_BYTES, progress=progress)
    unreadable, there = made.pop("unreadable"), sum(place >= 0 for place in made["where"])
    left_out = []
    if unreadable:
        left_out.append(f"{unreadable:,} pictures that cannot be read any more.")
    if there + unreadable < len(shown):
        left_out.append(
            f"The pictures of {len(shown) - there - unreadable:,} of {len(shown):,} suspects: the "
            f"worst {there:,} have one."
        )
    return made, left_out


def worst_first(quality: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows from the lowest quality up; equal ones stay in order."""
    return rows[np.argsort(quality[rows], kind="stable")]


def fitting(texts: Sequence[str], most: int, *, each: int = 60) -> int:
    """How many of the texts fit into so many bytes, with ``each`` more for what is around one."""
    sizes = np.cumsum([len(embedded(text).encode()) + each for text in texts])
    return int(np.searchsorted(sizes, most, side="right"))


def as_text(value: Any) -> str:
    """A cell for people: numbers with four digits that count, long text cut short."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"
