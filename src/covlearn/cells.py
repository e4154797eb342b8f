"""Cells of CSV files that people open in spreadsheets, and names of files made of labels.

A cell that begins with =, +, -, @ or a control character is taken for a formula. It is written with
an apostrophe before it, which spreadsheets do not show; :func:`restored` takes it away again.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from covlearn.atomic import write_bytes
from covlearn.kinds import checked
from covlearn.plain_files import read_columns

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
RESERVED = {"con", "prn", "aux", "nul", *(f"{n}{d}" for n in ("com", "lpt") for d in range(10))}
LONGEST_NAME = 100


@checked
def defused(text: str) -> str:
    """The text as a cell that no spreadsheet runs; numbers stay as they are.

    >>> [defused(text) for text in ("=1+1", "-3.5", "oak", "'=1")]
    ["'=1+1", '-3.5', 'oak', "''=1"]
    """
    bare = text.lstrip("'")
    dangerous = bare.startswith(FORMULA) and not NUMBER.fullmatch(text)
    return f"'{text}" if dangerous else text


@checked
def restored(cell: str) -> str:
    """The inverse of :func:`defused`."""
    text = cell[1:]
    return text if cell.startswith("'") and defused(text) == cell else cell


@checked
def write_cells(path: Path, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A CSV file, quoted where needed and defused, written as a whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([defused(name) for name in names])
    writer.writerows([defused(str(cell)) for cell in row] for row in rows)
    write_bytes(path, text.getvalue().encode())


@checked
def read_cells(path: Path) -> dict[str, list[str]]:
    """The columns of a file of :func:`write_cells`."""
    return {
        restored(name): [restored(cell) for cell in column]
        for name, column in read_columns(path).items()
    }


@checked
def safe_name(text: str) -> str:
    """A name for a file or folder on any system: no separators, dots in front or reserved words.

    >>> [safe_name(text) for text in ("../etc", "a/b:c", "CON", "", "fire truck ")]
    ['_etc', 'a_b_c', '_CON', '_', 'fire truck']
    """
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Cs", "Co", "Cn"))
    text = re.sub(r'[\\/:*?"<>|\x00-\x1f\x7f]+|[^\S ]+', "_", unicodedata.normalize("NFC", text))
    text = text.lstrip(". ")
    while len(text.encode()) > LONGEST_NAME:
        text = text[:-1]
    text = text.rstrip(". ")
    if not text or text.split(".")[0].rstrip().lower() in RESERVED:  # Windows: "con .x" is "con"
        text = f"_{text}"
    return text
