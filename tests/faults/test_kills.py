"""The harness of benchmarks/faults.py in small: kills, and runs in one process.

``python -m benchmarks.faults`` is the long one; results/faults.json has what it found.
"""

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import differences, soak
from tests.runs import fit

ROOT = Path(__file__).resolve().parents[2]
KILLS, RUNS = 16, 15


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("faults") / "faults.json"
    command = [sys.executable, "-m", "benchmarks.faults", "--kills", str(KILLS)]
    command += ["--runs", str(RUNS), "--cases", "ce", "cal", "fit", "bench", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert out.exists(), done.stderr
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_killed_runs_end_with_the_same_bits(record: dict[str, Any]) -> None:
    found = record["sigkill"]
    assert found["kills"] == sum(found["by_moment"].values()) == KILLS
    assert found["runs"] >= 3
    assert found["mismatches"] == 0, found["cases"]


def test_runs_in_one_process_leave_nothing_behind(record: dict[str, Any]) -> None:
    found = record["soak"]
    least, most = found["handles"]
    assert least == most
    assert found["kib_a_run"] < 256  # so few runs say no more; a network alone has 1.5


def test_the_soak_sees_what_is_left_behind(tmp_path: Path) -> None:
    kept: list[Any] = []
    handles: list[int] = []

    def leaking(what: str, done: int, total: int) -> None:
        pages = mmap.mmap(-1, 1 << 20)  # not of the heap, which may have a mebibyte to spare
        pages.write(b"1" * (1 << 20))
        kept.extend([pages, *([] for _ in range(9))])
        handles.append(os.open(tmp_path / "a", os.O_CREAT | os.O_WRONLY))

    try:
        found = soak(9, leaking)
    finally:
        for handle in handles:
            os.close(handle)
    assert found["kib_a_run"] > 800
    assert found["handles"][1] == found["handles"][0] + 5
    assert found["objects_a_run"] >= 9


def test_the_comparison_sees_what_differs(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    fit(one)
    fit(other)
    assert differences(one, other) == []
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    lines = (other / "metrics.jsonl").read_text().splitlines(keepends=True)
    (other / "metrics.jsonl").write_text("".join(lines[:-1]))
    (other / "left.partial").touch()
    assert differences(one, other) == [
        "left.partial is in one only",
        "metrics.jsonl differs",
        "model.safetensors differs",
    ]


def test_the_long_run_is_on_record() -> None:
    found = json.loads((ROOT / "results" / "faults.json").read_text(encoding="utf-8"))
    kills, soak = found["sigkill"], found["soak"]
    assert kills["kills"] >= 200
    assert kills["mismatches"] == 0
    assert kills["stages_never_hit"] == []
    assert sum(kills["by_moment"].values()) == kills["kills"]
    assert kills["by_moment"]["writing"] >= 50
    assert kills["by_moment"]["training"] >= 50
    assert soak["runs"] >= 200
    assert soak["handles"][0] == soak["handles"][1]
    assert abs(soak["kib_a_run"]) < 4
