"""The categories of a column of texts: how they are written, and which training did not have."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from covlearn.inputs.examples import counted, some
from covlearn.inputs.number_texts import LIKE_A_NUMBER


def category_texts(present: Any) -> Any:
    """Cells as text; 1 and 1.0 are the same, as a missing cell makes the one of the other."""
    return present.astype(object).map(_category_text)  # no category that no cell has


def doubt(name: str, present: Any) -> list[str]:
    """What to say of a text column if most of its cells look like numbers."""
    texts = present.astype(str).str.strip()
    like = texts.str.fullmatch(LIKE_A_NUMBER)
    if isinstance(present.dtype, pd.CategoricalDtype) or like.mean() <= 0.5:
        return []
    shown = f"not {some(texts[~like].unique())}" if not like.all() else some(texts.unique())
    return [f"{name} ({like.sum():,} of {len(texts):,} cells; {shown})"]


def new_categories(cells: Any, column: Mapping[str, Any]) -> list[str]:
    """What to say of cells whose category training did not have and no other stands for."""
    if column["kind"] != "category" or column["other"]:
        return []
    texts = category_texts(cells.dropna())
    new = texts[~texts.isin(column["categories"])]
    if not len(new):
        return []
    return [f"{column['name']} ({counted(len(new), 'cell')}: {some(list(new.unique()))})"]


def _category_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()
