"""`fit` on tables in which each row comes three times with its label, beside the rows once.

    python -m benchmarks.copies --processes 2      # five minutes

A copy of a wrong label vouches for it, if the network that judges the one has seen the other.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

from benchmarks.detection import detection, noisy_labels
from benchmarks.hard_tables import load
from benchmarks.peers import accuracy
from covlearn.engine import Machine
from covlearn.evaluation import environment
from covlearn.fitting import fit_split, set_up

OUT = Path(__file__).resolve().parents[1] / "results" / "copies.json"
DATA = ("wine", "breast_cancer", "digits")
NOISES = ("none", "symmetric:0.2", "ptd:0.4")
TIMES = (1, 3)


def cell(task: tuple[str, str, int, int]) -> dict[str, Any]:
    """One data set, noise and seed, each row so many times."""
    torch.set_num_threads(1)
    name, noise, seed, times = task
    clean, *test = load(name, seed)
    noisy = noisy_labels(clean, noise, seed)
    split = replace(clean, x=clean.x.repeat(times, 1), y=noisy.repeat(times))
    fit = fit_split(split, set_up("cal", split=split, device="cpu"), seed=seed)
    said = fit.verdicts
    found = detection(
        split.y.numpy(),
        clean.y.repeat(times).numpy(),
        said.decision != "keep",
        1 - said.quality,
        said.refined,
    )
    return {
        "accuracy": accuracy(fit.model.eval(), *test),
        "evidence": fit.evidence.found,
        "flagged": found["flagged"],
        "f1": found.get("f1"),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--noise", nargs="+", default=NOISES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    tasks = list(product(options.data, options.noise, range(options.seeds), TIMES))
    with ProcessPoolExecutor(options.processes) as pool:
        rows = track(pool.map(cell, tasks), total=len(tasks), description="cells")
        cells = {"/".join(map(str, task)): row for task, row in zip(tasks, rows, strict=True)}
    record = {"environment": environment(Machine()), "cells": cells}
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
