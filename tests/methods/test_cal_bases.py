"""CAL over each of its base losses, on digits with instance-dependent noise."""

import statistics
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covlearn.data import Split
from covlearn.data.sources import Source, load_data, with_noise
from covlearn.methods.cal import CAL
from covlearn.methods.cal_loss import Base
from covlearn.methods.cal_sieve import build_refined
from covlearn.methods.presets import preset
from covlearn.run import LocalRun

SEEDS = (0, 1, 2)
WORST = 0.7
"""Of ten classes: what collapses gets a tenth, or the half of the classes that it still knows."""
MARGIN = 0.02
"""How far the mean over the seeds may lie below that of the sieves."""


class Sieved(NamedTuple):
    source: Source
    label: Tensor
    accuracy: float


def recommended() -> CAL:
    made = preset("recommended", "cal", "small")
    assert isinstance(made, CAL)
    return made


def run_on(source: Source, seed: int) -> LocalRun:
    return LocalRun(source.train, net_options={"hidden": [64]}, seed=seed)


def accuracy(model: nn.Module, test: Split) -> float:
    with torch.no_grad():
        return float((model.eval()(test.x).argmax(dim=1) == test.y).float().mean())


@cache
def sieved(seed: int) -> Sieved:
    """Stage 1, the same for every base loss."""
    source, _ = with_noise(load_data("digits"), "cal:0.4", seed=seed)
    refined, sieve, _ = build_refined(recommended(), run_on(source, seed))
    assert sieve is not None
    return Sieved(source, refined.label, accuracy(sieve, source.test))


@pytest.mark.parametrize("base", ["ce", "gce", "forward", "reweight"])
def test_every_base_loss_gets_at_least_where_its_sieve_is(base: Base, tmp_path: Path) -> None:
    found = []
    for seed in SEEDS:
        source, label, _ = sieved(seed)
        np.save(tmp_path / "labels.npy", label.numpy())
        method = replace(recommended(), base=base, labels=str(tmp_path / "labels.npy"))
        model = method.fit(run_on(source, seed))
        found.append(accuracy(model, source.test))
    assert min(found) > WORST, found
    of_sieves = statistics.mean(sieved(seed).accuracy for seed in SEEDS)
    assert statistics.mean(found) > of_sieves - MARGIN, (found, of_sieves)
