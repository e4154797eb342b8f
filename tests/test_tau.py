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


MIXED = (
    "clean labels for all",
    "clean labels for half",
    "the sieve's own",
    "any class for a quarter",
    "any class for half",
    "any class for three quarters",
)


def record_of(name: str) -> dict[str, Any]:
    cells: dict[str, Any] = json.loads((ROOT / "results" / name).read_text("utf-8"))["cells"]
    return cells


def mean_and_error(values: list[float]) -> str:
    mean = f"{100 * statistics.fmean(values):+.1f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {100 * statistics.stdev(values) / len(values) ** 0.5:.1f}"


def entry(cells: list[Any], share: float) -> str:
    """What the page says of one share of replaced labels; empty where it was not run."""
    rows = [(row, cell["without covariance"])
            for cell in cells for row in cell["mixed"] if row["share"] == share]  # fmt: skip
    if not rows:
        return ""
    assert len(rows) == len(cells)
    tau_mean = statistics.fmean(row["tau"] for row, _ in rows)
    added = mean_and_error([row["cal"] - without for row, without in rows])
    over = mean_and_error([row["cal"] - row["ce"] for row, _ in rows])
    return f"| {tau_mean:.2f} | {added} | {over} |"


def test_the_page_has_the_records() -> None:
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    digits, cifar10 = record_of("tau_digits.json"), record_of("tau_cifar10.json")
    kinds = ("cal", "ptd", "calibrated")
    columns = {
        f"digits, `{kind}` 0.4": [
            cell for name, cell in digits.items() if name.split("/")[1].startswith(f"{kind}:")
        ]
        for kind in kinds
    }
    columns["CIFAR-10, published 0.4"] = list(cifar10.values())
    assert [len(column) for column in columns.values()] == [5, 5, 5, 1]
    told = 0
    for noise, cells in columns.items():
        for share, name in zip(tau.SHARES, MIXED, strict=True):
            if figures := entry(cells, share):
                assert f"| {noise} | {name} {figures}\n" in page
                told += 1
    rows = [
        line for line in page.splitlines() if line.startswith(tuple(f"| {n} " for n in columns))
    ]
    assert told == len(rows) == 22
