"""What the benchmark scripts share: timing by turns, peak memory, and where it was measured."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covlearn.evaluation import commit

RESULTS = Path(__file__).resolve().parents[1] / "results" / "speed"


def seconds_by_turns(
    calls: dict[str, Callable[[], object]], *, rounds: int = 60, seconds_a_turn: float = 0.01
) -> dict[str, list[float]]:
    """Seconds a call, in ``rounds`` rounds in which every call has its turn.

    Load from outside then falls on all of them alike; compare within a round, not across.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(seconds_a_turn / (time.perf_counter() - start)))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            seconds[name].append((time.perf_counter() - start) / repeats[name])
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, base: str) -> float:
    """Median over the rounds of the ratio within a round."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[base], strict=True))


def peak_mebibytes(*, reset: bool = False) -> float:
    """The most memory this process has held so far, or since the last ``reset`` (Linux).

    Read from /proc: getrusage's figure is inherited from the process that started this one.
    """
    if reset:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError("this system does not tell a process's peak memory in /proc/self/status")


def environment() -> dict[str, Any]:
    """Hardware and versions, for the record beside every figure."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "commit": commit(),
    }


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def write(name: str, record: dict[str, Any]) -> None:
    """Writes results/speed/NAME.json with the environment added."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"environment": environment(), **record}, indent=2) + "\n")
    print(f"written: {path.relative_to(RESULTS.parents[1])}")
