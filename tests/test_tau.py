"""Accuracy against the share of D̂ that is right: the script, and the page of its record."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import tau

ROOT = Path(__file__).resolve().parents[1]


def test_labels_are_mixed_by_a_share() -> None:
    refined, clean = torch.zeros(4000, dtype=torch.int64), torch.ones(4000, dtype=torch.int64)
    options: Any = {"num_classes": 4, "seed": 0}
    assert torch.equal(tau.mixed(refined, clean, 0.0, **options), refined)
    assert torch.equal(tau.mixed(refined, clean, 1.0, **options), clean)
    half = tau.mixed(refined, clean, 0.5, **options)
    assert float(half.float().mean()) == pytest.approx(0.5, abs=0.03)
    drawn = torch.bincount(tau.mixed(refined, clean, -0.5, **options), minlength=4) / 4000
    assert drawn.tolist() == pytest.approx([0.625, 0.125, 0.125, 0.125], abs=0.03)


def test_a_cell_has_its_figures(tmp_path: Path) -> None:
    out = tmp_path / "made.json"
    asked = ["--noise", "calibrated:0.4", "--seeds", "1", "--shares", "1", "0"]
    tau.main([*asked, "--out", str(out)])
    (cell,) = json.loads(out.read_text(encoding="utf-8"))["cells"].values()
    right, sieve = cell["mixed"]
    assert right["tau"] == 1.0
    assert cell["given right"] < sieve["tau"] < 1.0
    assert right["cal"] > sieve["cal"] > 0.5
    assert right["ce"] > 0.95


def test_the_page_has_the_record() -> None:
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    record = json.loads((ROOT / "results" / "tau_digits.json").read_text(encoding="utf-8"))

    def points(values: list[float]) -> str:
        error = statistics.stdev(values) / len(values) ** 0.5
        return f"{100 * statistics.fmean(values):+.1f} ± {100 * error:.1f}"

    for number in range(len(tau.SHARES)):
        texts = []
        for noise in tau.NOISES:
            cells = [cell for name, cell in record["cells"].items() if name.split("/")[1] == noise]
            assert len(cells) == 5
            mixed = [cell["mixed"][number] for cell in cells]
            added = [row["cal"] - cell["without covariance"]
                     for row, cell in zip(mixed, cells, strict=True)]  # fmt: skip
            over = [row["cal"] - row["ce"] for row in mixed]
            share = statistics.fmean(row["tau"] for row in mixed)
            texts.append(f"{share:.2f}: {points(added)}, {points(over)}")
        assert f"| {' | '.join(texts)} |" in page
