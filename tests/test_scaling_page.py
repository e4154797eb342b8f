"""Figures of docs/scaling.md, and of the loader in docs/reproduce.md, are those of the results."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


def results(name: str) -> Any:
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


BIG, LOADER = results("scale/big.json"), results("scale/loader.json")
CLASSES = (10, 100, 1_000, 10_000)


def seconds(value: float) -> str:
    """As the page has them: two places below ten, none above."""
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


@pytest.mark.parametrize("batch", [128, 1_024])
@pytest.mark.parametrize(
    ("title", "entry"),
    [
        ("sieve (CORES²)", "sieve / ce"),
        ("CAL", "cal / ce"),
        ("CAL, loss and gradient alone", "cal / ce, loss alone"),
    ],
)
def test_steps(title: str, entry: str, batch: int) -> None:
    ratios = [BIG["steps"][f"K = {classes}, B = {batch}"][entry] for classes in CLASSES]
    row = " | ".join([f"{title}, B = {batch:,}", *(f"{ratio:.2f}" for ratio in ratios)])
    assert f"| {row} |" in PAGE


@pytest.mark.parametrize("examples", [50_000, 1_000_000, 10_000_000])
def test_epochs(examples: int) -> None:
    cells = []
    for classes in CLASSES:
        found = BIG["epochs"][f"N = {examples}, K = {classes}"]
        cell = f"{seconds(found['ce, CPU s'])} → {seconds(found['cal, CPU s'])}"
        cells.append(f"({cell})" if found["extrapolated"] else cell)
    assert "| " + " | ".join([f"N = {examples:,}", *cells]) + " |" in PAGE


def test_memory_and_promises() -> None:
    memory = BIG["memory"]
    for words, entry in (
        (r"(\d+) bytes an example \(ledger", "kept, bytes an example"),
        (r"there are (\d+) bytes an example", "made, bytes an example"),
        (r"and (\d+) a pair of classes \(T̂\)", "kept, bytes a pair of classes"),
        (r"and (\d+) a pair of classes more", "statistics, bytes a pair of classes"),
    ):
        match = re.search(words, PAGE.replace("\n", " "))
        assert match is not None, words
        assert int(match[1]) == round(memory[entry])
    whole = [row for title, row in BIG["steps"].items() if "10000" not in title]
    assert max(max(row["sieve / ce"], row["cal / ce"]) for row in whole) < 2
    alone = max(row["cal / ce, loss alone"] for row in BIG["steps"].values())
    assert f"up to {alone:.1f} times CE's" in PAGE


def test_graphs() -> None:
    figures = results("speed/epoch_cost.json")["figures"]
    ratio = figures["eager ce, K = 10"]["epoch, s"] / figures["ce, K = 10"]["epoch, s"]
    assert f"{ratio:.1f} times as long on one H200" in PAGE.replace("\n  ", " ")


def test_loader() -> None:
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    small, large = (LOADER[size] for size in ("small", "large"))
    rates = [f"{part['images_a_cpu_second']['bare']:,.0f}" for part in (small, large)]
    assert f"CPU time | {rates[0]} | {rates[1]} |" in page
    for title, entry in (
        ("a worker of the loader, to the bare loop", "workers of the loader"),
        ("worker and augmentation on the CPU, to the bare loop", "loader"),
    ):
        cells = [f"{part['times_the_bare_loop'][entry]:.2f}" for part in (small, large)]
        assert f"| {title} | {cells[0]} | {cells[1]} |" in page
    assert small["memory"]["growth_mib"] <= 0  # "did not grow"


def test_reading_beside_a_gpu() -> None:
    training = results("scale/loader_gpu.json")["small"]["training"]
    page = " ".join(PAGE.split())
    with_loader, at_hand = (
        training[f"ms_a_step_{name}"] for name in ("with_the_loader", "of_a_batch_at_hand")
    )
    assert f"takes {with_loader / at_hand:.3f} times as long" in page
    assert f"the step takes {at_hand:.0f} (small files" in page
    assert f"a batch in {training['ms_a_batch_of_the_loader_alone']:.1f} ms" in page
