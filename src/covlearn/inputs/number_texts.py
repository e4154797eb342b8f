"""Which texts of a table are numbers, and which say nothing."""

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOTHING = ["", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "#N/A"]
TRUTH = {"true": 1.0, "false": 0.0}
NEARLY_ALL = 0.95  # of the cells of a column
MANY_DIFFERENT = 20  # numbers in a column, too many for the names of kinds
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
LIKE_A_NUMBER = re.compile(r"[$€£]?[+-]?\d+(,\d{3})*([.,]\d+)?([eE][+-]?\d+)?%?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")


def without_nothing(column: Any) -> Any:
    """The column of a table, with the texts that say nothing as missing cells."""
    if column.dtype.kind != "O":
        return column
    nothing = np.array([isinstance(cell, str) and cell.strip() in NOTHING for cell in column])
    if nothing.any():
        column = column.copy()
        column[nothing] = None
    return column


def as_numbers(present: Any, *, comma: bool = False) -> NDArray[np.float64]:
    """The cells of a column, none missing, as numbers; NaN where one is none.

    With ``comma`` texts may have a decimal comma; if one has, a point is in none: it may be there
    for thousands.
    """
    if present.dtype.kind in "biuf":
        values: NDArray[np.float64] = present.to_numpy(dtype=np.float64)
        return values
    texts = present.astype(str).str.strip()
    if comma and texts.str.contains(",").any():
        texts = texts.where(texts.str.fullmatch(DECIMAL_COMMA), "").str.replace(",", ".")
    return np.array([_number(text) for text in texts], dtype=np.float64)


def has_decimal_commas(column: Any) -> bool:
    """Whether nearly all texts are numbers with a comma that are not all whole thousands."""
    if column.dtype.kind != "O":
        return False
    texts = without_nothing(column).dropna().astype(str).str.strip()
    fits = texts.str.fullmatch(DECIMAL_COMMA)
    clear = fits & texts.str.contains(",") & ~texts.str.fullmatch(THOUSANDS)
    return bool(clear.any() and fits.mean() >= NEARLY_ALL)


def are_numbers(present: Any, *, comma: bool) -> bool:
    """Whether texts are numbers: all with decimal commas, or nearly all and many different ones."""
    values = as_numbers(present, comma=comma)
    finite = values[np.isfinite(values)]
    if comma and len(finite) == len(present):
        return True
    return len(finite) >= NEARLY_ALL * len(present) and len(set(finite)) >= MANY_DIFFERENT


def without_odd(column: Any, *, comma: bool) -> tuple[Any, list[str]]:
    """A column of numbers with the cells that are none missing, and what these said.

    If most cells are numbers written in another way, they stay as they are: those are not missing.
    """
    odd = column.notna().to_numpy(copy=True)
    present = int(odd.sum())
    odd[odd] = np.isnan(as_numbers(column[odd], comma=comma))
    texts = [str(cell).strip() for cell in column[odd]]
    if not texts or sum(map(bool, map(LIKE_A_NUMBER.fullmatch, texts))) * 2 > present:
        return column, []
    column = column.copy()
    column[odd] = None
    return column, texts


def _number(text: str) -> float:
    known = TRUTH.get(text.lower())
    try:
        return known if known is not None else math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan
