"""CSV and Parquet files as pandas tables, with the columns that matter named.

A CSV file is UTF-8 (with or without a mark at its start), or UTF-16 with a mark; its delimiter is
found among comma, semicolon, tab and vertical bar, or it is what a first line ``sep=;`` says, as
Excel reads it. Labels, ids and paths are kept as they are
written: 007 stays 007, and a class may be called NA. In other columns the usual words for nothing
(empty, NA, N/A, NaN, null, None) are missing values. The delimiter is kept in ``attrs`` of a table:
where it is no comma, a comma in a number may be that before decimals. What texts say, nothing or a
number, is decided here alone, so that it is the same whatever source they come from.
"""

import codecs
import contextlib
import csv
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pandas as pd

from covlearn.inputs.examples import some
from covlearn.inputs.images import is_image_name
from covlearn.inputs.number_texts import NOTHING
from covlearn.kinds import nearest

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".tab")
PARQUET_SUFFIXES = (".parquet", ".pq")
LABEL_NAMES = ("label", "target", "class", "y")
ID_NAMES = ("id",)
IMAGE_NAMES = (
    *("image", "image_path", "path", "file", "filename", "file_name", "filepath", "file_path"),
    *("img", "img_path", "image_file"),
)
DELIMITERS = ",;\t|"
SAYS_DELIMITER = re.compile(r"(?i)sep=([,;\t|:^~])\s*")
ROWS_AT_ONCE = 100_000  # of a CSV file that is only looked at
LISTED = 20  # columns that a message names
MOST_LIKELY = 50  # classes of a column that is named first where the label is not known
SAMPLED = 100  # cells that tell whether a column holds paths of images
MOST_CELLS, MOST_TIMES = 2**27, 1000  # of a Parquet file: a gibibyte of numbers, or so many a byte
PADDED, LONG = r"^[+-]?0\d", r"^[+-]?\d{16}"  # digits that a number, or a float, would lose
UNREADABLE = (pd.errors.ParserError, pd.errors.EmptyDataError, pd.errors.ParserWarning)
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


@dataclass(frozen=True)
class Columns:
    """The columns with a meaning of their own, None where there is none; those to ignore."""

    label: str | None
    id: str | None
    image: str | None
    ignored: Sequence[str] = ()

    def named(self) -> list[str]:
        """Those that there are, from which nothing is learned."""
        return [
            name for name in (self.label, self.id, self.image, *self.ignored) if name is not None
        ]


def read_table(
    path: Path,
    *,
    verbatim: Sequence[str | None],
    text: Sequence[str] = (),
    head: int | None = None,
) -> Any:
    """A file as a DataFrame whose column names are text.

    Of a CSV file the columns ``verbatim`` are kept as they are written, as are those with the usual
    names of labels, ids and paths. The columns ``text`` are not turned into numbers. With ``head``
    all columns but the former are read for so many rows only, and are missing below.
    """
    try:
        if path.stat().st_size == 0:
            raise ValueError(f"{path} is empty; a line of column names and rows were expected")
        if path.suffix.lower() in PARQUET_SUFFIXES:
            table = read_parquet(path) if head is None else _look(path, verbatim, head)
        else:
            table = _read_csv(path, verbatim, text, head)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    return checked_table(table, str(path))


def checked_table(table: Any, where: str) -> Any:
    """The table with column names as text, all different, and a row at least."""
    # An index with a name is a column that was moved aside.
    table = table.copy(deep=False) if table.index.name is None else table.reset_index()
    table.columns = [str(name).strip() for name in table.columns]
    twice = sorted(name for name, count in Counter(table.columns).items() if count > 1)
    if twice:
        raise ValueError(
            f"{where} must have columns of different names, but {some(twice)} is twice"
        )
    if len(table) == 0:
        names = (
            f"the columns {some(list(table.columns), listed=8)}" if len(table.columns) else "none"
        )
        raise ValueError(f"{where} has no rows ({names}); at least one row was expected")
    return table.reset_index(drop=True)


def find_columns(
    table: Any,
    where: str,
    *,
    label: str | None,
    id: str | None,
    image: str | None,
    needs_label: bool,
    ignore: Sequence[str] = (),
) -> Columns:
    """The columns by the names given, else by their usual names, whatever their case."""
    names = list(table.columns)
    meant = [("label", label), ("id", id), ("image", image)]
    for option, given in (*meant, *(("ignore", name) for name in ignore)):
        if given is not None and given not in names:
            raise ValueError(
                f"{where} has no column {given!r}, which {option} names{nearest(given, names)}; "
                f"it has {some(names, listed=LISTED)}"
            )
    for option, given in meant:
        if given is not None and given in ignore:
            raise ValueError(
                f"column {given!r} of {where} cannot be both {option} and ignored; name it once"
            )
    names = [name for name in names if name not in ignore]
    if label is None:
        label = _called(LABEL_NAMES, names)
    if label is None and needs_label:
        hint = ""
        if len(names) == 1 and any(mark in names[0] for mark in DELIMITERS):
            hint = " (one column only: is the delimiter another than , ; tab or |?)"
        left = " that is not ignored" if ignore else ""
        if len(names) > LISTED:  # the last ones are not named, and the label is often the last
            names.sort(key=lambda name: not _like_labels(table[name]))
        raise ValueError(
            f"which column of {where} is the label? None{left} is called {', '.join(LABEL_NAMES)}; "
            f"name one of {some(names, listed=LISTED)}{hint} with label= (--label)"
        )
    rest = [name for name in names if name != label]
    if id is None:
        found = _called(ID_NAMES, [name for name in rest if name != image])
        # One that repeats all over names groups; one that does so here and there has errors.
        if found is not None and table[found].nunique() * 2 > len(table):
            id = found
    if image is None:
        found = _called(IMAGE_NAMES, [name for name in rest if name != id])
        if found is not None and _holds_paths(table[found]):
            image = found
    return Columns(label, id, image, ignore)


def _called(usual: Sequence[str], names: Sequence[str]) -> str | None:
    """The first name of the usual ones that is there."""
    lower = {name.lower(): name for name in reversed(names)}
    return next((lower[name] for name in usual if name in lower), None)


def _like_labels(column: Any) -> bool:
    """Whether a column has so few values that it may be one of labels."""
    try:
        return bool(2 <= column.nunique() <= min(MOST_LIKELY, len(column) // 2))
    except TypeError:  # lists
        return False


def _holds_paths(column: Any) -> bool:
    cells = [str(cell).strip() for cell in column.dropna().head(SAMPLED)]
    return bool(cells) and sum(map(is_image_name, cells)) * 2 > len(cells)


def _with_meaning(names: Sequence[str], verbatim: Sequence[str | None]) -> list[str]:
    """The names that are labels, ids or paths, as they were given or as they usually are."""
    usual = (*LABEL_NAMES, *ID_NAMES, *IMAGE_NAMES)
    return [name for name in names if name.strip() in verbatim or name.strip().lower() in usual]


def _joined(names: Sequence[str], kept: Sequence[str], head: int, read: Callable[..., Any]) -> Any:
    """All rows of the columns ``kept``, and of the others as many as ``head`` says."""
    whole = kept or names[:1]  # one column tells how many rows there are
    others = [name for name in names if name not in whole]
    table = read(whole, None)
    return table.join(read(others, head))[list(names)] if others else table


def _read_csv(
    path: Path, verbatim: Sequence[str | None], text: Sequence[str], head: int | None
) -> Any:
    try:
        how, names = _head(path)
        kept = _with_meaning(names, verbatim)
        with warnings.catch_warnings():
            # Lines with more cells than names would lose some.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                path,
                **how,
                dtype={name: str for name in names if name in kept or name.strip() in text},
                keep_default_na=False,
                na_values={name: NOTHING if name not in kept else [""] for name in names},
                index_col=False,
                low_memory=False,
                skipinitialspace=True,
                chunksize=None if head is None else ROWS_AT_ONCE,
            )
            if head is not None:
                # All cells are read and few are kept: lines of another length are found so only.
                with table as parts:
                    first = parts.get_chunk(head)
                    table = pd.concat([first, *(part[kept] for part in parts)])
            else:
                others = [name for name in names if name not in kept and name in table]
                table = _with_own_texts(table, others, path, how)
        table.attrs["delimiter"] = how["sep"]
        return table
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} must be text in UTF-8, but byte {error.start:,} is not ({error.reason}); save "
            "it as UTF-8, in a spreadsheet as 'CSV UTF-8'"
        ) from error
    except (*UNREADABLE, csv.Error) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path} cannot be read as a CSV file: {reason}; every line must have as many cells as "
            "the first, and a cell with a delimiter in it must be in quotes"
        ) from error


def _with_own_texts(table: Any, names: Sequence[str], path: Path, how: dict[str, Any]) -> Any:
    """The table with the texts that say nothing (NA, which may be a region) as they are written.

    Who learns from it takes them for missing; who writes it again must not lose them.
    """
    texts = [
        name
        for name in dict.fromkeys(names)
        if table[name].dtype.kind == "O"
        and table[name].isna().any()
        and all(isinstance(cell, str) for cell in table[name].dropna())
    ]
    if texts:
        table[texts] = _as_texts(path, texts, [""], **how)[texts]
    return table


def _as_texts(path: Path, columns: Sequence[Any], nothing: Sequence[str], **how: Any) -> Any:
    """Some columns of a CSV file as they are written, by name or by place."""
    return pd.read_csv(
        path, usecols=columns, dtype=str, keep_default_na=False, na_values=nothing,
        index_col=False, low_memory=False, skipinitialspace=True, **how,
    )  # fmt: skip


def as_written(table: Any, path: Path) -> Any:
    """The table with the whole numbers of its CSV file as the file has them, to be written again.

    A postcode 007 and a number of eighteen digits stay text, and 3 beside an empty cell is no 3.0.
    """
    places = [
        place
        for place, name in enumerate(table.columns)
        if table[name].dtype.kind in "iuf" and _are_whole(table[name])
    ]
    if path.suffix.lower() not in TEXT_SUFFIXES or not places:
        return table
    own = _as_texts(path, places, NOTHING, **_head(path)[0])
    assert len(own) == len(table)
    table = table.copy(deep=False)
    for place, (_, texts) in zip(places, own.items(), strict=True):
        column, present = table.iloc[:, place], texts.dropna().str.strip()
        lost = f"{PADDED}|{LONG}" if column.dtype.kind == "f" else PADDED
        if present.str.contains(lost).any():
            table[table.columns[place]] = texts.str.strip()
        elif column.isna().any() and present.str.fullmatch(r"[+-]?\d+").all():
            table[table.columns[place]] = column.astype("Int64")
    return table


def _are_whole(column: Any) -> bool:
    present = column.dropna()
    return len(present) > 0 and bool((present % 1 == 0).all())


class Lines:
    """Where each row of a CSV file begins, as an editor numbers its lines: ``line 2`` is the first.

    The file is read once more, when it is asked for: only bad rows need be found.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def numbers(self) -> list[int]:
        """Of the line of names and of each row; pandas leaves out lines without a cell."""
        how, _ = _head(self.path)
        numbers, end = [], 0
        with (
            self.path.open(encoding=how["encoding"], newline="") as file,
            contextlib.suppress(csv.Error),  # a cell that is too long for Python, not for pandas
        ):
            rows = csv.reader(file, delimiter=how["sep"], skipinitialspace=True)
            for row in rows:
                if len(row) > 1 or "".join(row).strip():
                    numbers.append(end + 1)
                end = rows.line_num
        return numbers[how["skiprows"] :]

    def __call__(self, row: int) -> str:
        """The line of a row, counted from zero."""
        there = row + 1 < len(self.numbers)
        return f"line {self.numbers[row + 1]:,}" if there else f"row {row}"


def _encoding(path: Path) -> str:
    with path.open("rb") as raw:
        start = raw.read(65536)
    encoding = next((name for mark, name in MARKS.items() if start.startswith(mark)), "utf-8")
    if encoding != "utf-16" and b"\0" in start:
        raise ValueError(f"{path} is no text; a CSV file in UTF-8 was expected")
    return encoding


def _head(path: Path) -> tuple[dict[str, Any], list[str]]:
    """How pandas is to read a CSV file, and the column names.

    The delimiter is the one that a first line says, else the one that the names have most of.
    """
    encoding = _encoding(path)
    with path.open(encoding=encoding, newline="") as file:
        start = next(file, "")
        said = SAYS_DELIMITER.fullmatch(start)
        lines = file if said else chain([start], file)
        first = next((line for line in lines if line.strip()), "")
    if not first:
        raise ValueError(
            f"{path} holds nothing but empty lines; column names and rows were expected"
        )
    marks = said[1] if said else DELIMITERS
    delimiter = max(marks, key=lambda mark: len(next(csv.reader([first], delimiter=mark))))
    skipped = int(said is not None)
    with path.open(encoding=encoding, newline="") as file:
        rows = csv.reader(islice(file, skipped, None), delimiter=delimiter, skipinitialspace=True)
        names = next(row for row in rows if row)
        row = next((row for row in rows if row), names)
    if len(row) > len(names):  # older pandas lets a last cell go if it is empty
        raise csv.Error(f"{len(row):,} cells in the first row, and {len(names):,} columns")
    return {"sep": delimiter, "encoding": encoding, "skiprows": skipped}, names


def read_parquet(path: Path) -> Any:
    """A Parquet file as a DataFrame, unless it is a few bytes that say the same for ever."""
    with _parquet(path) as file:
        table = file.read()
        table.validate(full=True)  # text that is none would fail later, cell by cell
        return table.to_pandas()


def _look(path: Path, verbatim: Sequence[str | None], head: int) -> Any:
    """The columns with a meaning, and the first rows of the others."""

    def read(columns: Sequence[str], rows: int | None) -> Any:
        if rows is None:
            return file.read(columns=columns).to_pandas(ignore_metadata=True)
        first = next(file.iter_batches(rows, columns=columns), None)
        return pd.DataFrame() if first is None else first.to_pandas(ignore_metadata=True)

    with _parquet(path) as file:
        names = file.schema_arrow.names
        return _joined(names, _with_meaning(names, verbatim), head, read)


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """The file, checked by its own account of itself; whatever fails is a sentence."""
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415  slow to import, and only here

    try:
        with ParquetFile(path) as file:
            cells, packed = file.metadata.num_rows * len(file.schema), path.stat().st_size
            if cells > max(MOST_CELLS, MOST_TIMES * packed):
                raise ValueError(f"its {packed:,} bytes claim to be {cells:,} cells")
            yield file
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except PermissionError:
        raise
    except Exception as error:  # a damaged file fails in every way there is
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} cannot be read as a Parquet file: {reason}") from error
