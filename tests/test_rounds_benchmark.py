"""The benchmark of rounds, on digits with few epochs."""

import json
from pathlib import Path

import pytest

from benchmarks import rounds


def test_each_round_has_its_labels_and_its_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ("sieve_plan.epochs=4", "plan.epochs=3", "plan.lr_milestones=()")
    monkeypatch.setattr(rounds, "SETTINGS", (*rounds.SETTINGS, *short))
    monkeypatch.setattr(rounds, "ROUNDS", 2)
    out = tmp_path / "made.json"
    asked = ["--data", "digits", "--noise", "symmetric:0.4", "--seeds", "1", "--out", str(out)]
    rounds.main(asked)
    (cell,) = json.loads(out.read_text(encoding="utf-8"))["cells"].values()
    assert cell["given"] == pytest.approx(0.6, abs=0.05)
    for way in ("new", "last"):
        first, second = cell[way]["refined right"]
        assert first > cell["given"] + 0.1
        # What changed bounds how far the share of right labels can have moved.
        (changed,) = cell[way]["changed"]
        assert changed > 0
        assert abs(second - first) <= changed + 1e-9
        assert len(cell[way]["accuracy"]) == 2
    # The first round is the same; then one goes on from its weights.
    assert cell["new"]["accuracy"][0] == cell["last"]["accuracy"][0]
    assert cell["new"]["refined right"] == cell["last"]["refined right"]
    assert len(cell["longer"]["accuracy"]) == len(cell["longer"]["refined right"]) == 1
    written = out.stat().st_mtime_ns
    rounds.main(asked)
    assert out.stat().st_mtime_ns == written
