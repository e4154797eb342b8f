"""Figures of docs/diagnose.md are those of results/diagnose.json."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = " ".join((ROOT / "docs" / "diagnose.md").read_text(encoding="utf-8").split())
RECORD = json.loads((ROOT / "results" / "diagnose.json").read_text(encoding="utf-8"))
SUMMARY = RECORD["summary"]
ALARMS = SUMMARY["false alarms"]
POWER = SUMMARY["power"]
GENERATORS = ("cal", "ptd", "simifeat", "bltm", "calibrated", "part_dependent")


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def test_false_alarms() -> None:
    whole = ALARMS["all"]
    assert f"{percent(whole['share'])} % of {whole['draws']:,} draws" in PAGE
    assert f"interval of {percent(whole['low'])} to {percent(whole['high'])}." in PAGE
    data = [
        f"{percent(ALARMS[f'data: {name}']['share'])} % ({ALARMS[f'data: {name}']['draws']})"
        for name in ("wine", "breast_cancer", "digits", "clouds", "overlapping")
    ]
    noise = [
        f"{percent(ALARMS[f'noise: {name}']['share'])} %"
        for name in ("symmetric", "pair", "random T")
    ]
    assert f"| {' | '.join(data + noise)} |" in PAGE


def test_the_worst_cell() -> None:
    def said(cell: Any) -> str:
        bounds = f"({percent(cell['low'])} to {percent(cell['high'])})"
        return f"{percent(cell['share'])} % of {cell['draws']}{{}} {bounds}"

    worst, again = SUMMARY["worst cell"], RECORD["worst cell again"]
    assert (worst["data"], worst["noise"], worst["rate"]) == ("wine", "pair", 0.2)
    assert f"is wine with pair noise at 0.2: {said(worst).format(' draws')}" in PAGE
    assert f"with new draws, {said(again).format('')}" in PAGE


@pytest.mark.parametrize(
    ("title", "data"),
    [("digits, 1,797 examples", "digits"), ("clouds, 800", "clouds"), ("wine, 178", "wine")],
)
def test_power(title: str, data: str) -> None:
    found = [
        ", ".join(f"{POWER[f'{data}, {generator}:{rate}']:.2f}" for rate in (0.2, 0.4))
        for generator in GENERATORS
    ]
    assert f"| {title} | {' | '.join(found)} |" in PAGE


def test_power_with_two_classes() -> None:
    parts, own = (
        [POWER[f"breast_cancer, {name}:{rate}"] for rate in (0.2, 0.4)]
        for name in ("part_dependent", "instance_dependent_binary")
    )
    assert f"it is found in {parts[0]:.2f} and {parts[1]:.2f} of 20 draws" in PAGE
    assert f"(`instance_dependent_binary`) in {own[0]:.2f} and {own[1]:.2f}." in PAGE
