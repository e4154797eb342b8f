"""Dates in text: which of a column's numbers is the day, and days since 1970."""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MICROSECONDS_A_DAY = 86_400e6
TIME = r"([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
YEAR_FIRST = re.compile(rf"\d{{4}}-\d{{2}}-\d{{2}}{TIME}")
YEAR_LAST = re.compile(rf"(?P<one>\d{{1,2}})(?P<mark>[./-])(?P<two>\d{{1,2}})(?P=mark)"
                       rf"(?P<year>\d{{4}})(?P<time>{TIME})")  # fmt: skip
EXAMPLES = {"year first": "2024-05-31", "day first": "31.5.2024", "month first": "5/31/2024"}
ORDERS = tuple(EXAMPLES)
EITHER = "day or month first"


def date_order(present: Any) -> str | None:
    """How all cells of a text column write dates; None if they do not, or ``EITHER``.

    With dots the day is first. Otherwise a number above twelve tells which one it is.

    >>> date_order(pd.Series(["31.12.2024", "1.2.2024"]))
    'day first'
    >>> date_order(pd.Series(["12/31/2024", "1/2/2024"]))
    'month first'
    >>> date_order(pd.Series(["1/2/2024", "3/4/2024"]))
    'day or month first'
    """
    first = str(present.iloc[0]).strip()
    if not (YEAR_FIRST.fullmatch(first) or YEAR_LAST.fullmatch(first)):
        return None
    texts = present.astype(str).str.strip()
    if texts.str.fullmatch(YEAR_FIRST).all():
        return None if days_of(present, "year first")[1].any() else "year first"
    if not texts.str.fullmatch(YEAR_LAST).all():
        return None
    possible = [order for order in ORDERS[1:] if not days_of(present, order)[1].any()]
    if "day first" in possible and texts.str.contains(".", regex=False).any():
        return "day first"
    return EITHER if len(possible) == 2 else possible[0] if possible else None


def days_of(present: Any, order: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Days since 1970, UTC where no zone is said, and which cells are no dates."""
    is_text = present.dtype.kind != "M"
    if is_text:
        present = present.astype(str).str.strip()
        if order != "year first":
            present = present.map(lambda text: _year_first(text, order))
        present = present.where(present.str.fullmatch(YEAR_FIRST))
    how = {"errors": "coerce", "format": "ISO8601"} if is_text else {}
    times = pd.to_datetime(present, utc=True, **how)
    bad = times.isna().to_numpy(copy=True)
    # Microseconds, whatever the unit was: nanoseconds would end in 2262 and begin in 1677.
    micro = times.dt.tz_localize(None).to_numpy(dtype="datetime64[us]").astype(np.int64)
    if is_text and bad.any():  # pandas 2 reads text into nanoseconds only
        far = bad & present.notna() & ~present.str[:4].between("1678", "2261")
        for place in np.flatnonzero(far):
            with suppress(ValueError):
                micro[place] = _microseconds(present.iloc[place])
                bad[place] = False
    return micro / MICROSECONDS_A_DAY, bad


def _year_first(text: str, order: str) -> str:
    found = YEAR_LAST.fullmatch(text)
    if found is None:
        return ""
    day, month = found["one"], found["two"]
    if order == "month first":
        day, month = month, day
    return f"{found['year']}-{month:0>2}-{day:0>2}{found['time']}"


def _microseconds(text: str) -> int:
    """Since 1970, of a date in any year that has four digits."""
    time = datetime.fromisoformat(text)
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
