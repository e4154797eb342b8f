"""A small problem and a method that takes a moment, for tests of whole runs."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from covlearn import records
from covlearn.config import plain
from covlearn.data import Split
from covlearn.engine import Plan
from covlearn.methods import CAL, Method
from covlearn.noise import symmetric
from covlearn.records import Result
from covlearn.run import fit_and_evaluate
from covlearn.schedules import Ramp

PLAN = Plan(epochs=4, batch_size=16, lr=0.05)
METHOD = CAL(sieve_plan=PLAN, sieve_beta=Ramp(0.5, 1, 3), plan=PLAN, beta=Ramp(0.5, 1, 3), lower=-1)
FILES = [
    "config.json",
    "environment.json",
    "labels.csv",
    "metrics.jsonl",
    "model.safetensors",
    "probs.npz",
    "refinement.json",
    "result.json",
]


def blobs(count: int, seed: int) -> Split:
    """Three clouds in five dimensions."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    return Split(torch.randn(count, 5, generator=generator) + 2 * torch.eye(5)[y], y, 3)


TEST = blobs(60, seed=1)
CLEAN = blobs(90, seed=0)
NOISE = symmetric(CLEAN.y, rate=0.4, num_classes=3, seed=0)
NOISY = replace(CLEAN, y=torch.from_numpy(NOISE.label))


def fit(folder: Path, method: Method = METHOD, **options: Any) -> Result:
    defaults: dict[str, Any] = {
        "test": TEST,
        "clean": CLEAN.y,
        "noise_card": NOISE.card,
        "net_options": {"hidden": [8]},
        "seed": 3,
        "holdout": 0.1,
        "checkpoint_seconds": 0.0,
        "split": NOISY,
    }
    return fit_and_evaluate(method, folder=folder, **(defaults | options))


def without_seconds(value: Any) -> Any:
    """Records without how long they took."""
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if not k.endswith("seconds")}
    return [without_seconds(item) for item in value] if isinstance(value, list) else value


def assert_same_run(folder: Path, other: Path) -> None:
    for name in ("model.safetensors", "labels.csv", "config.json", "environment.json"):
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name
    ours, theirs = records.read(folder), records.read(other)
    assert without_seconds(plain(ours.result)) == without_seconds(plain(theirs.result))
    assert without_seconds(ours.metrics) == without_seconds(theirs.metrics)
    assert sorted(os.listdir(folder)) == sorted(os.listdir(other))
    assert set(os.listdir(folder)) <= set(FILES)
