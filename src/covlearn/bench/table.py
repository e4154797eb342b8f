"""What a table consists of, as its TOML file says it. Nothing here imports torch."""

import math
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from covlearn.config import check_allowed, typed
from covlearn.kinds import nearest

FIGURES = ("best", "last", "mean_of_last_ten", "selected")
MOST_TRIALS = 10_000
KEYS = ("row", "method", "column", "data", "noise", "rate")


@dataclass(frozen=True)
class Row:
    """A method with settings of its own."""

    name: str
    method: str
    title: str | None = None
    preset: str | None = None
    """Where the method's settings come from, if not from the table's preset; ``defaults`` are its
    own, for a method of one's own, ``pkg.mod:Class``."""
    settings: tuple[str, ...] = ()
    figure: str | None = None
    """What is set beside the paper's number where it is not the table's: see ``Table.figure``."""
    same_runs_as: str | None = None
    """Another row whose runs this one reads, for another figure of the same training; it has the
    method of that row and no settings of its own."""
    stage: str | None = None
    """The stage of the runs whose figures are meant, as CAL's sieve; None: the last."""


@dataclass(frozen=True)
class Column:
    """Data with noise on its labels."""

    name: str
    data: str
    noise: str = "none"
    rate: float | None = None
    published: str | None = None
    """The name of the label file that the authors published: the noise of trial 0."""
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Rows × columns × trials. Trial t has its own noise, weights and order, all by seed t."""

    title: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    preset: str = "published"
    trials: int = 5
    figure: str = "best"
    """best, last, mean_of_last_ten, selected or ``epoch:N``: the rule of the paper's number."""
    net: str | None = None
    holdout: float | None = None
    """The share of the labels to select by; None: the preset's."""
    settings: tuple[str, ...] = ()
    expected: dict[str, dict[str, tuple[float, ...]]] = field(default_factory=dict)
    """By row and column, the paper's mean and, where it has one, its standard deviation."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Rows whose difference is shown trial by trial: they have the noise of a trial in common."""

    def __post_init__(self) -> None:
        rows, columns = names_of(self.rows, "row"), names_of(self.columns, "column")
        by_name = {row.name: row for row in self.rows}
        for row in self.rows:
            if row.same_runs_as is not None:
                _known("same_runs_as", row.same_runs_as, rows)
                other = by_name[row.same_runs_as]
                own = row.settings or row.preset or row.method != other.method
                if own or other.same_runs_as is not None:
                    raise ValueError(
                        f"row {row.name} reads the runs of {other.name}: it must have that row's "
                        "method, no settings and no preset, and that row runs of its own"
                    )
        for column in self.columns:
            check_rate(column)
        for figure in (self.figure, *(row.figure for row in self.rows if row.figure is not None)):
            check_figure(figure)
        for row_name, cells in self.expected.items():
            _known("expected", row_name, rows)
            for column_name, numbers in cells.items():
                _known(f"expected.{row_name}", column_name, columns)
                check_expected(f"expected.{row_name}.{column_name}", numbers)
        for pair in self.pairs:
            for name in pair:
                _known("pairs", name, rows)
            if pair[0] == pair[1]:
                raise ValueError(f"pairs must be of two different rows, got {pair[0]!r} twice")
        check_trials(self.trials, fewest=1)

    def trained(self, row: Row) -> Row:
        """The row whose runs a row reads: itself, or the one that it names."""
        return next((other for other in self.rows if other.name == row.same_runs_as), row)

    def figure_of(self, row: Row) -> str:
        """The rule behind the paper's number in a row."""
        return row.figure or self.figure


@dataclass(frozen=True)
class Cell:
    """One trial of one row in one column."""

    row: Row
    column: Column
    trial: int

    @property
    def path(self) -> str:
        """Its place below the table's folder."""
        return f"{self.column.name}/{self.row.same_runs_as or self.row.name}/{self.trial}"

    def matches(self, wanted: dict[str, str]) -> bool:
        """Whether all that is wanted is so of this cell."""
        found = {
            "row": self.row.name,
            "method": self.row.method,
            "column": self.column.name,
            "data": self.column.data,
            "noise": self.column.noise,
            "rate": "none" if (rate := rate_of(self.column)) is None else f"{rate:g}",
        }
        return all(
            found[key] == (f"{float(value):g}" if key == "rate" else value)
            for key, value in wanted.items()
        )


def job_of(table: Table, cell: Cell, settings: Sequence[str] = ()) -> dict[str, Any]:
    """What a cell is, in the words of ``covlearn.job.Job``; trial 0 has the authors' own noise."""
    row, column = table.trained(cell.row), cell.column
    noise = column.noise
    if cell.trial == 0 and column.published is not None:
        noise = f"published:{column.rate:g}"
    preset = row.preset or table.preset
    return {
        "data": column.data,
        "method": row.method,
        "noise": noise,
        "preset": None if preset == "defaults" else preset,
        "seed": cell.trial,
        "net": table.net,
        "holdout": table.holdout,
        "settings": merged(table.settings, column.settings, row.settings, settings),
    }


def merged(*layers: Sequence[str]) -> list[str]:
    """Settings of which the later go over the earlier."""
    last = {text.partition("=")[0].strip(): text for layer in layers for text in layer}
    return list(last.values())


def read_table(path: Path, *, allow: Collection[str] = ()) -> Table:
    """The table in a TOML file, all of it checked.

    A table may name methods and networks of its author's, ``pkg.mod:Class``. That is code: it is
    refused here unless ``allow`` names it, too.
    """
    try:
        # Some editors put a mark first.
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ValueError(f"there is no table {path}; check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} must be TOML: {error}") from error
    try:
        check_no_text(content)
        table = typed(Table, content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    for name in [table.net or "", *(row.method for row in table.rows)]:
        check_allowed(name, allow, where=str(path))
    return table


def check_expected(place: str, numbers: Sequence[float]) -> None:
    """A mean in percent, and perhaps a standard deviation."""
    if len(numbers) not in (1, 2):
        raise ValueError(
            f"{place} must be a mean and perhaps a standard deviation, got {len(numbers)} numbers"
        )
    mean, *deviation = numbers
    if not 0 <= mean <= 100 or not all(0 <= each < math.inf for each in deviation):
        raise ValueError(
            f"{place} must be a mean of 0…100 percent and perhaps a standard deviation from 0 on, "
            f"got {', '.join(f'{number:g}' for number in numbers)}; write both in percent"
        )


def check_no_text(content: Mapping[str, Any]) -> None:
    """TOML has numbers: in place of one no text is read, as it is where settings are written."""
    expected = content.get("expected")
    for row, cells in expected.items() if isinstance(expected, dict) else ():
        for column, numbers in cells.items() if isinstance(cells, dict) else ():
            for number in numbers if isinstance(numbers, list) else [numbers]:
                if isinstance(number, str):
                    raise ValueError(
                        f"expected.{row}.{column} must be numbers, as [80.0, 1.5], got the text "
                        f"{number!r}; leave out its quotes"
                    )


def check_trials(trials: int, *, fewest: int) -> None:
    """So many that all cells can be listed."""
    if not fewest <= trials <= MOST_TRIALS:
        raise ValueError(f"trials must be {fewest}…{MOST_TRIALS:,}, got {trials:,}")


def with_data(table: Table, data: str | None) -> Table:
    """The table with other data in every column, if any is named."""
    if data is None:
        return table
    columns = tuple(replace(column, data=data) for column in table.columns)
    return replace(table, columns=columns)


def cells_of(table: Table, *, trials: int, only: Iterable[str] = ()) -> Iterator[Cell]:
    """The cells that are asked for, all rows and columns of a trial before the next trial.

    Each of ``only`` reads ``key=value,key=value``, all of which must hold; several are
    alternatives.
    """
    wanted = [parse_only(text, table) for text in only]
    for trial in range(trials):
        for column in table.columns:
            for row in table.rows:
                cell = Cell(row, column, trial)
                if not wanted or any(cell.matches(each) for each in wanted):
                    yield cell


def parse_only(text: str, table: Table) -> dict[str, str]:
    """``method=cal,rate=0.4`` as a dict; what no cell can match is refused."""
    wanted = {}
    for part in re.split(r",(?=\s*\w+\s*=)", text):  # names may have commas of their own
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in KEYS:
            raise ValueError(
                f"--only takes key=value with {', '.join(KEYS)}, got {part!r}{nearest(key, KEYS)}"
            )
        if key == "rate":
            try:
                float(value)
            except ValueError:
                raise ValueError(f"rate must be a number, got {value!r}") from None
        if key in wanted:
            raise ValueError(
                f"--only {text} asks for two of {key}; write --only twice, and either may hold"
            )
        wanted[key] = value
    cells = [Cell(row, column, 0) for row in table.rows for column in table.columns]
    for key, value in wanted.items():
        if not any(cell.matches({key: value}) for cell in cells):
            there = {
                "row": [row.name for row in table.rows],
                "method": [row.method for row in table.rows],
                "column": [column.name for column in table.columns],
            }
            hint = nearest(value, there.get(key, []))
            raise ValueError(f"no cell of this table has {key}={value}{hint}")
    if not any(cell.matches(wanted) for cell in cells):
        raise ValueError(f"no cell of this table has all of {text}")
    return wanted


def rate_of(column: Column) -> float | None:
    """The rate of a column, as it says or as its noise does; None of clean labels or a file."""
    if column.rate is not None:
        return column.rate
    try:
        return float(column.noise.partition(":")[2])
    except ValueError:
        return None


def check_rate(column: Column) -> None:
    """The rate of a column is that of its noise."""
    if column.published is not None and column.rate is None:
        raise ValueError(f"column {column.name} has a published file and needs its rate")
    said = rate_of(replace(column, rate=None))
    if None not in (said, column.rate) and said != column.rate:
        raise ValueError(
            f"column {column.name} must have the rate of its noise, {column.noise}, got "
            f"{column.rate:g}"
        )


def names_of(parts: Iterable[Row] | Iterable[Column], what: str) -> list[str]:
    """Their names, each once and fit for a folder."""
    names: list[str] = []
    for part in parts:
        if part.name in names:
            raise ValueError(f"each {what} needs a name of its own, {part.name!r} came twice")
        # A column may be a folder in a folder, but then no row's folder may lie where it has them.
        pieces = part.name.split("/") if what == "column" else [part.name]
        if not all(piece and piece.isprintable() and piece[0] != "." for piece in pieces) or (
            what == "row" and "/" in part.name
        ):
            raise ValueError(
                f"the name of a {what} must serve as a folder's, without a leading dot"
                f"{' or a slash' if what == 'row' else ''}, got {part.name!r}"
            )
        # On macOS and Windows a name in other letters, large or small, is the same folder.
        ours = f"{part.name}/".casefold()
        inside = [
            name
            for name in names
            if ours.startswith(theirs := f"{name}/".casefold()) or theirs.startswith(ours)
        ]
        if inside:
            raise ValueError(
                f"{what} {part.name!r} and {inside[0]!r} would share a folder, case aside; rename "
                "one"
            )
        names.append(part.name)
    if not names:
        raise ValueError(f"a table needs a {what}")
    return names


def check_figure(figure: str) -> None:
    """One of the accuracies of a result, or ``epoch:N``."""
    kind, _, number = figure.partition(":")
    counted = kind == "epoch" and number.isdecimal() and int(number) >= 1
    if figure not in FIGURES and not counted:
        raise ValueError(
            f"figure must be one of {', '.join(FIGURES)} or epoch:N from 1 on, got {figure!r}"
            f"{nearest(figure, FIGURES)}"
        )


def _known(what: str, name: str, names: list[str]) -> None:
    if name not in names:
        raise ValueError(f"{what}: there is no {name!r} in this table{nearest(name, names)}")
