"""The cells of a table that failed: they leave no record, and table.json alone knows of them."""

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from covlearn import records
from covlearn.bench.table import Cell, Table
from covlearn.config import typed
from covlearn.plain_files import read_json

TABLE_JSON = "table.json"
MOST_NAMED = 10


@dataclass(frozen=True)
class Failure:
    """A cell that failed, and what went wrong in one sentence."""

    row: str
    column: str
    trial: int
    reason: str


def failure_of(cell: Cell, reason: str) -> Failure:
    """A cell's failure; of rows that share their runs, that of the row whose runs they are."""
    row = cell.row.same_runs_as or cell.row.name
    return Failure(row, cell.column.name, cell.trial, " ".join(reason.split()))


def still_failed(table: Table, folder: Path, ended: Collection[str]) -> list[Failure]:
    """What commands noted of cells that are not done, nor have ended in this one, by path."""
    found: tuple[Failure, ...] = ()
    with contextlib.suppress(ValueError):  # no such file, or a damaged one: it is written anew
        found = typed(tuple[Failure, ...], read_json(folder / TABLE_JSON).get("failed", []))
    rows = {row.name: row for row in table.rows}
    columns = {column.name: column for column in table.columns}
    return [
        each
        for each in found
        if each.row in rows and each.column in columns and each.trial >= 0
        if (path := Cell(rows[each.row], columns[each.column], each.trial).path) not in ended
        if not (folder / path / records.RESULT).exists()
    ]


def failed_lines(failed: Sequence[Failure]) -> list[str]:
    """What the table's Markdown says of them."""
    if not failed:
        return []
    lines = ["", "## Failed", "", "Cells without a result, and why:", ""]
    return lines + [
        f"- row {each.row}, column {each.column}, trial {each.trial}: {each.reason}"
        for each in failed
    ]


def failed_sentence(failed: Sequence[Cell], total: int, folder: Path) -> str:
    """What the command ends with."""
    named = ", ".join(cell.path for cell in failed[:MOST_NAMED])
    more = f" and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
    return f"{len(failed)} of {total} cells failed: {named}{more}; why is in {folder / 'table.md'}"
