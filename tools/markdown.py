"""Tables of Markdown."""

from collections.abc import Iterable


def table(columns: list[str], rows: Iterable[list[str]]) -> str:
    """A table of Markdown; a bar inside of a cell is escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
    )
