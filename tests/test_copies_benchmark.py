"""The record of copies, and the script that makes it."""

import json
import statistics
from pathlib import Path

import pytest

from benchmarks import copies

ROOT = Path(__file__).resolve().parents[1]


def test_a_cell_has_its_figures(tmp_path: Path) -> None:
    out = tmp_path / "made.json"
    copies.main(["--data", "wine", "--noise", "symmetric:0.2", "--seeds", "1", "--out", str(out)])
    cells = json.loads(out.read_text(encoding="utf-8"))["cells"]
    assert list(cells) == ["wine/symmetric:0.2/0/1", "wine/symmetric:0.2/0/3"]
    for cell in cells.values():
        assert cell["evidence"]
        assert cell["f1"] > 0.7
        assert 0.1 < cell["flagged"] < 0.4


@pytest.mark.parametrize("noise", copies.NOISES)
def test_the_page_has_the_records(noise: str) -> None:
    page = (ROOT / "docs" / "fit_measured.md").read_text(encoding="utf-8")
    texts = []
    for file, times in (("copies", "1"), ("copies_before", "3"), ("copies", "3")):
        record = json.loads((ROOT / "results" / f"{file}.json").read_text(encoding="utf-8"))
        rows = [
            cell
            for name, cell in record["cells"].items()
            if name.split("/")[1] == noise and name.split("/")[3] == times
        ]
        text = f"{100 * statistics.fmean(row['accuracy'] for row in rows):.1f}"
        if noise != "none":
            text += f", {100 * statistics.fmean(row['f1'] for row in rows):.1f}"
        texts.append(text)
    assert f"| `{noise}` | {' | '.join(texts)} |" in page
