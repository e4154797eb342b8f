"""The benchmark on tables that are hard to learn from: what it counts, and that it runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import hard_tables


def row(accuracy: float, flagged: float, *, ce: float = 0.6, **more: float) -> dict[str, Any]:
    return {"ce": ce, "accuracy": accuracy, "evidence": flagged > 0.01, "flagged": flagged, **more}


def test_gains_are_points_over_cross_entropy() -> None:
    cells = {
        "a/none/0": row(0.8, 0.005, ce=0.9),
        "a/symmetric:0.1/0": row(0.8, 0.2, f1=0.5),
        "a/symmetric:0.2/1": row(0.7, 0.01, f1=0.1),
    }
    found = hard_tables.gains(cells)
    assert found["none"]["gain"] == pytest.approx(-10)
    assert found["none"]["f1"] is None
    assert found["symmetric"] == {
        "cells": 2,
        "gain": pytest.approx(15),
        "worst": pytest.approx(10),
        "with evidence": 0.5,
        "f1": pytest.approx(0.3),
        "flagged": pytest.approx(0.105),
    }


def test_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    hard_tables.main(
        ["--data", "iris", "--noise", "none", "symmetric:0.4", "--seeds", "1", "--out", str(out)]
    )
    record = json.loads(out.read_text())
    assert list(record["cells"]) == ["iris/none/0", "iris/symmetric:0.4/0"]
    clean, noisy = record["cells"].values()
    assert clean["held_back"] in (True, False)
    assert noisy["contradicted"] > 0
    assert 0.009 <= noisy["weight_decay"] <= 0.3
    assert capsys.readouterr().out.splitlines()[-1].startswith("none ")
