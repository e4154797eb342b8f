"""docs/beyond.md: its table is that of the records."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "beyond.md").read_text(encoding="utf-8")
CELLS = {
    (cell["row"], cell["column"]): cell
    for cell in json.loads(
        (ROOT / "results" / "beyond" / "beyond" / "table.json").read_text(encoding="utf-8")
    )["cells"]
}


def share_right(row: str, column: str) -> float:
    """Of the labels that the first trial of a row has in the end."""
    place = ROOT / "results" / "beyond" / "beyond" / column / row / "0" / "result.json"
    share: float = json.loads(place.read_text(encoding="utf-8"))["labels"]["quality"]["share_right"]
    return share


@pytest.mark.parametrize(
    ("title", "column"),
    [
        ("CIFAR-10, 0.2", "cifar10/0.2"),
        ("CIFAR-10, 0.4", "cifar10/0.4"),
        ("CIFAR-100, 0.4", "cifar100/0.4"),
    ],
)
def test_a_row_of_the_page_is_that_of_the_records(title: str, column: str) -> None:
    last = [CELLS[row, column]["last mean"] for row in ("ce", "published", "recommended")]
    texts = ["—" if value is None else f"{value:.2f}" for value in last]
    right = [100 * share_right(row, column) for row in ("published", "recommended")]
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {title} |"))
    assert line.startswith(f"| {title} | {' | '.join(texts)} |")
    assert line.endswith(f", {right[0]:.1f}, {right[1]:.1f} % |")


@pytest.mark.parametrize(
    ("column", "row"),
    [
        ("cifar10/0.6", "with the cut"),
        ("cifar10/0.6", "published"),
        ("cifar10/ptd 0.4", "with the cut"),
        ("cifar10/ptd 0.4", "published"),
    ],
)
def test_what_was_run_with_the_cut(column: str, row: str) -> None:
    assert f"{CELLS[row, column]['last mean']:.2f}" in PAGE
