"""The benchmark on tables that are hard to learn from: what it counts, and that it runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import hard_tables


def row(
    contradicted: int, accuracy: float, *, ce: float = 0.6, learned: bool = True
) -> dict[str, Any]:
    return {
        "ce": ce,
        "surest": 400,
        "contradicted": contradicted,
        "learned": learned,
        "accuracy": accuracy,
        "f1": 0.5,
        "flagged": 0.2,
    }


@pytest.mark.parametrize(
    ("contradicted", "expected"),
    [(0, [False] * 4), (1, [True, False, False, False]), (20, [True] * 4), (390, [False] * 4)],
)
def test_what_is_evidence_depends_on_what_is_tolerated(
    contradicted: int, expected: list[bool]
) -> None:
    found = [
        hard_tables.found(row(contradicted, 0.0), tolerated) for tolerated in hard_tables.TOLERANCES
    ]
    assert found == expected


def test_without_evidence_it_is_cross_entropy() -> None:
    cells = {
        "a/none/0": {"now": row(1, 0.8, ce=0.9)},
        "a/symmetric:0.1/0": {"now": row(40, 0.8)},
        "a/symmetric:0.1/1": {"now": row(40, 0.7, learned=False)},
    }
    strict, lenient = (hard_tables.gains(cells, "now", each) for each in (0.0, 0.02))
    assert strict["none"]["gain"] == pytest.approx(-10)
    assert (lenient["none"]["gain"], lenient["none"]["flagged"]) == (0, 0)
    assert lenient["symmetric"]["gain"] == pytest.approx(15)
    assert lenient["symmetric"]["worst"] == pytest.approx(10)
    assert lenient["symmetric"]["f1"] == pytest.approx(0.25)  # no label is called wrong of one


def test_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    hard_tables.main(
        ["--data", "iris", "--noise", "none", "symmetric:0.4", "--seeds", "1", "--out", str(out)]
    )
    record = json.loads(out.read_text())
    assert list(record["cells"]) == ["iris/none/0", "iris/symmetric:0.4/0"]
    noisy = record["cells"]["iris/symmetric:0.4/0"]
    assert noisy["once"]["weight_decay"] == pytest.approx(1)
    assert noisy["now"]["contradicted"] > 0
    assert noisy["now"]["ce"] != noisy["once"]["ce"]
    assert "now, 0.5% tolerated | none" in capsys.readouterr().out
