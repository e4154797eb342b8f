"""`fit` on tables that are hard to learn from: what it gains with noise, and costs without.

    python -m benchmarks.hard_tables --processes 2      # all cells; ten minutes
    python -m benchmarks.hard_tables --data wine --seeds 5 --out wine.json

A network that can tell only three labels in four contradicts right ones, too, and one that is held
back too much by weight decay tells fewer. Of each cell: `fit` as if evidence of wrong labels had
been found, as it was once (an MLP with one weight decay) and as it is (with a shortcut, and the
weight decay that it chooses); cross-entropy on the given labels with each of the two networks; and
the counts that the evidence is a matter of. So what any tolerance would have brought can be read
off: ours where there is evidence, cross-entropy where there is none.
"""

import argparse
import json
import math
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from sklearn.datasets import load_iris, make_classification
from torch import Tensor

from benchmarks import peers
from benchmarks.detection import detection, noisy_labels, split_of
from benchmarks.peers import accuracy, train_ce
from benchmarks.sizes import clouds
from covlearn.data import Split
from covlearn.engine import Machine
from covlearn.evaluation import environment
from covlearn.evidence import beyond_chance
from covlearn.fitting import Setup, fit_split, set_up
from covlearn.methods.crossfit import CrossFittedCAL

OUT = Path(__file__).resolve().parents[1] / "results" / "hard_tables.json"
EMBEDDED = {"embedded 1000 x 10": (1_000, 10), "embedded 5000 x 100": (5_000, 100)}
CLASSIFICATION = {"blocks 1.0": 1.0, "blocks 1.5": 1.5, "blocks 2.0": 2.0}
CLOUDS = {"500 x 2": (500, 2), "2000 x 20": (2_000, 20), "5000 x 10": (5_000, 10),
          "5000 x 100": (5_000, 100)}  # fmt: skip
DATA = ("iris", "wine", "breast_cancer", "digits", *CLASSIFICATION, *CLOUDS, *EMBEDDED)
NOISES = (
    "none", "symmetric:0.2", "symmetric:0.4", "ptd:0.4", "confused:0.2", "confused:0.4",
)  # fmt: skip
TOLERANCES = (0.0, 0.005, 0.01, 0.02)
ANYTHING_IS_EVIDENCE = ["tolerated=0.000001", "significance=1.0"]


def load(name: str, seed: int) -> tuple[Split, Tensor, Tensor]:
    """The training split with right labels, and the test inputs and labels; 7 to 3."""
    if name in CLOUDS:
        x, y, *_ = clouds(*CLOUDS[name], seed)
        return split_of(x.numpy(), y.numpy(), seed)
    if name in EMBEDDED:
        # What a network makes of few dimensions: many of them, none negative.
        x, y, *_ = clouds(*EMBEDDED[name], seed)
        rng = np.random.default_rng(seed)
        seen = np.maximum(x.numpy() @ rng.normal(size=(x.shape[1], 768)), 0)
        return split_of(seen + 0.4 * rng.normal(size=seen.shape), y.numpy(), seed)
    if name in CLASSIFICATION:
        made = make_classification(
            3_000, 20, n_informative=6, n_classes=4, n_clusters_per_class=2, flip_y=0,
            class_sep=CLASSIFICATION[name], random_state=seed,
        )  # fmt: skip
        return split_of(made[0], made[1], seed)
    if name == "iris":
        x, y = load_iris(return_X_y=True)
        return split_of(x, y, seed)
    return peers.load(name, seed)


def cell(task: tuple[str, str, int]) -> dict[str, Any]:
    """One data set, noise and seed."""
    torch.set_num_threads(1)
    name, noise, seed = task
    clean, *test = load(name, seed)
    split = replace(clean, y=noisy_labels(clean, noise, seed))
    row: dict[str, Any] = {}
    new = set_up("cal", split=split, device="cpu", settings=ANYTHING_IS_EVIDENCE)
    assert isinstance(new.choice.method, CrossFittedCAL)
    middle, once_it_was = new.choice.method.plan.weight_decay, min(0.03, len(split) ** -0.5)
    once = [
        "decays=()",
        "net.shortcut=false",
        f"plan.weight_decay={once_it_was}",
        f"sieve_plan.weight_decay={once_it_was}",
    ]
    old = set_up("cal", split=split, device="cpu", settings=[*ANYTHING_IS_EVIDENCE, *once])
    versions: dict[str, tuple[Setup, dict[str, Any]]] = {
        "once": (old, {"shortcut": False}),
        "now": (new, {}),
    }
    for version, (setup, net) in versions.items():
        fit = fit_split(split, setup, seed=seed)
        said = fit.verdicts
        row[version] = {
            "ce": accuracy(train_ce(split, seed, **net), *test),
            "accuracy": accuracy(fit.model.eval(), *test),
            "sieves_right": float((fit.crossed.argmax(dim=1) == clean.y).float().mean()),
            "weight_decay": fit.facts.get("weight_decay_of_sieves", once_it_was) / middle,
            "surest": fit.evidence.surest,
            "contradicted": fit.evidence.contradicted,
            "learned": fit.evidence.learned,
        } | detection(
            split.y.numpy(),
            clean.y.numpy(),
            said.decision != "keep",
            1 - said.quality,
            said.refined,
        )
    return row


def found(row: dict[str, Any], tolerated: float) -> bool:
    """Whether so many contradictions would be evidence."""
    return beyond_chance(row["contradicted"], row["surest"], tolerated)[1]


def gains(cells: dict[str, Any], version: str, tolerated: float) -> dict[str, Any]:
    """Points of accuracy over cross-entropy, by what is wrong; F1 and flags as they would be."""
    by_noise: dict[str, list[tuple[float, float, float]]] = {}
    for name, row in cells.items():
        kind = name.split("/")[1].partition(":")[0]
        ours, evident = row[version], found(row[version], tolerated)
        acts = evident and ours["learned"]
        by_noise.setdefault(kind, []).append(
            (
                100 * (ours["accuracy"] - ours["ce"]) if evident else 0.0,
                ours.get("f1", math.nan) if acts else 0.0,
                ours["flagged"] if acts else 0.0,
            )
        )
    return {
        kind: {
            "cells": len(rows),
            "gain": statistics.fmean(row[0] for row in rows),
            "worst": min(row[0] for row in rows),
            "f1": None if kind == "none" else statistics.fmean(row[1] for row in rows),
            "flagged": statistics.fmean(row[2] for row in rows),
        }
        for kind, rows in by_noise.items()
    }


def summary(cells: dict[str, Any]) -> dict[str, Any]:
    """Of both versions and each tolerance."""
    return {
        f"{version}, {tolerated:.1%} tolerated": gains(cells, version, tolerated)
        for version, tolerated in product(("once", "now"), TOLERANCES)
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", nargs="+", default=DATA, choices=DATA)
    parser.add_argument("--noise", nargs="+", default=NOISES)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    tasks = list(product(options.data, options.noise, range(options.seeds)))
    with ProcessPoolExecutor(options.processes) as pool:
        rows = track(pool.map(cell, tasks), total=len(tasks), description="cells")
        cells = {"/".join(map(str, task)): row for task, row in zip(tasks, rows, strict=True)}
    record = {"environment": environment(Machine()), "summary": summary(cells), "cells": cells}
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for title, by_noise in record["summary"].items():
        print(title, *(f"{kind} {row['gain']:+.1f}" for kind, row in by_noise.items()), sep=" | ")


if __name__ == "__main__":
    main()
