"""The tables of benchmarks/peers.py: what is paired, intervals, and what detection measures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from benchmarks.detection import detection, reliability
from benchmarks.peers_page import interval, paired, summary, write_page

OURS, THEIRS = [0.9, 0.8, 0.85, 0.95], [0.7, 0.65, 0.66, 0.78]


def rows(ours: list[float], theirs: list[float], data: str = "digits") -> list[dict[str, Any]]:
    return [
        {"data": data, "noise": "none", "seed": seed, "method": method, "accuracy": value}
        for method, values in (("ours", ours), ("ce", theirs))
        for seed, value in enumerate(values)
    ]


def test_the_interval_is_that_of_a_paired_t_test() -> None:
    found = interval(paired(rows(OURS, THEIRS), "accuracy", "ce", "digits", "none"))
    expected = ttest_rel(OURS, THEIRS).confidence_interval(0.95)
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high))
    assert found["mean"] == pytest.approx(np.mean(OURS) - np.mean(THEIRS))


def test_only_seeds_that_both_have_are_paired() -> None:
    assert len(paired(rows(OURS, THEIRS[:3]), "accuracy", "ce")) == 3
    assert paired(rows(OURS, []), "accuracy", "ce") == []
    # Of two data sets, the seeds that have both.
    both = rows(OURS, THEIRS) + rows(OURS[:2], THEIRS[:2], data="wine")
    assert len(paired(both, "accuracy", "ce")) == 2
    assert interval([0.5])["low"] is None


def test_a_row_that_is_worse_is_named(tmp_path: Path) -> None:
    made = rows(OURS, THEIRS) + rows(THEIRS, OURS, data="wine")
    found = summary(made)["accuracy"]["ce"]
    assert found["significantly worse"] == ["wine, none"]
    assert (found["significantly better"], found["rows"]) == (1, 2)
    write_page(made, {}, tmp_path / "peers.json")
    assert json.loads((tmp_path / "peers.json").read_text())["cells"] == made
    page = (tmp_path / "peers.md").read_text()
    assert "| accuracy | ce | +0.0" in page
    assert "wine, none |" in page


def test_detection_counts() -> None:
    clean = np.array([0, 0, 0, 1, 1, 1])
    given = np.array([1, 1, 0, 1, 1, 0])
    flagged = np.array([True, False, True, False, False, True])
    found = detection(given, clean, flagged, flagged.astype(float), np.where(flagged, clean, given))
    assert found["precision"] == pytest.approx(2 / 3)
    assert found["recall"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx(2 / 3)
    assert found["repaired"] == pytest.approx(2 / 3)
    assert found["refined_right"] == pytest.approx(5 / 6)
    assert "recall" not in detection(clean, clean, flagged, flagged.astype(float), clean)


def test_reliability_is_the_distance_of_probabilities_from_shares() -> None:
    probability = np.array([0.05, 0.05, 0.95, 0.95, 1.0])
    happened = np.array([False, True, True, True, True])
    found = reliability(probability, happened)
    assert [count for count, _, _ in found["bins"]] == [2, 3]
    assert found["error"] == pytest.approx((2 * 0.45 + 3 * (1 - 2.9 / 3)) / 5)
