"""CAL's accuracy against τ, the share of D̂ that is right: from which τ on does the term help?

    python -m benchmarks.tau --processes 2                       # digits, a CPU
    python -m benchmarks.tau --data cifar10 --noise as_published:0.4 --shares 1 0.5 0 -0.5 \\
        --seeds 1 --out results/tau_cifar10.json                 # a GPU

D̂ is the sieve's, of CAL as published, with clean labels for a share of the examples, or for a share
below zero with classes drawn at random. Of each, the test accuracy of the last epoch: of CAL with
that D̂, of cross-entropy on it, and of the same without the covariance, which does not look at D̂.
CIFAR-10 has the network and the plans of ``benchmarks/differences_cifar10.toml``. Cells that the
file has are not run again.
"""

import argparse
import json
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from benchmarks.job_runs import run_of
from benchmarks.rounds import ROOT, Watched, cells_made, made_and_left
from covlearn.bench.table import read_table
from covlearn.data.sources import Source, load_data, with_noise
from covlearn.evaluation import environment
from covlearn.job import Job, make_machine, resolve_device, settled
from covlearn.methods import CAL
from covlearn.methods.base import view_of

OUT = ROOT / "results" / "tau_digits.json"
NOISES = ("cal:0.4", "ptd:0.4", "calibrated:0.4")
SHARES = (1.0, 0.5, 0.0, -0.25, -0.5, -0.75)


def mixed(refined: Tensor, clean: Tensor, share: float, *, num_classes: int, seed: int) -> Tensor:
    """D̂ with another label for a share of the examples: the clean one, or any if below zero."""
    draw = np.random.default_rng([seed, 1])
    chosen = torch.from_numpy(draw.random(len(clean)) < abs(share))
    drawn = torch.from_numpy(draw.integers(num_classes, size=len(clean)))
    return torch.where(chosen, clean if share > 0 else drawn, refined)


def job_for(data: str, noise: str, seed: int) -> Job:
    """CAL as published."""
    if data != "cifar10":
        return Job(data, "cal", noise, "published", seed)
    table = read_table(ROOT / "benchmarks" / "differences_cifar10.toml")
    return Job(data, "cal", noise, "published", seed, table.net, settings=tuple(table.settings))


def fitted(job: Job, source: Source, method: CAL) -> Watched:
    """A run of the method, with the test accuracy of its last epoch."""
    run = run_of(job, source, Watched, test=source.test)
    method.fit(view_of(run))
    return run


def one(task: tuple[str, str, int], shares: tuple[float, ...]) -> dict[str, Any]:
    """One data set, noise and seed."""
    torch.set_num_threads(1)
    data, noise, seed = task
    job = job_for(data, noise, seed)
    method, _ = settled(job)
    assert isinstance(method, CAL)
    source, _ = with_noise(load_data(data), noise, seed=seed)
    clean, classes = source.clean, source.train.num_classes
    assert clean is not None
    without = fitted(job, source, replace(method, covariance=False))
    sieve = fitted(job, source, method).refinements[0]
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for share in shares:
            labels = mixed(sieve, clean, share, num_classes=classes, seed=seed)
            np.save(Path(place, "labels.npy"), labels.numpy())
            given = replace(method, labels=str(Path(place, "labels.npy")))
            rows.append(
                {
                    "share": share,
                    "tau": float((labels == clean).double().mean()),
                    "cal": fitted(job, source, given).accuracy[-1],
                    "ce": fitted(job, source, replace(given, relabel=True)).accuracy[-1],
                }
            )
    return {
        "given right": float((source.train.y == clean).double().mean()),
        "without covariance": without.accuracy[-1],
        "mixed": rows,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["digits"])
    parser.add_argument("--noise", nargs="+", default=list(NOISES))
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    cells, tasks = made_and_left(options)
    make = partial(one, shares=tuple(options.shares))
    made = track(cells_made(make, list(tasks.values()), options.processes), total=len(tasks))
    machine = make_machine(resolve_device("auto"), {})
    for name, cell in zip(tasks, made, strict=True):
        cells[name] = cell
        record = {"environment": environment(machine), "cells": cells}
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
