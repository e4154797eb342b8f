"""`fit` on tables that are hard to learn from: what it gains with noise, and costs without.

    python -m benchmarks.hard_tables --processes 2      # all cells; ten minutes
    python -m benchmarks.hard_tables --data wine --seeds 5 --out wine.json

A network that can tell only three labels in four contradicts right ones, too, and one that is held
back too much by weight decay tells fewer. Of each cell: `fit`, beside cross-entropy on the given
labels with the same network.
"""

import argparse
import json
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
from covlearn.fitting import fit_split, set_up

OUT = Path(__file__).resolve().parents[1] / "results" / "hard_tables.json"
EMBEDDED = {"embedded 1000 x 10": (1_000, 10), "embedded 5000 x 100": (5_000, 100)}
CLASSIFICATION = {"blocks 1.0": 1.0, "blocks 1.5": 1.5, "blocks 2.0": 2.0}
CLOUDS = {"500 x 2": (500, 2), "2000 x 20": (2_000, 20), "5000 x 10": (5_000, 10),
          "5000 x 100": (5_000, 100)}  # fmt: skip
DATA = ("iris", "wine", "breast_cancer", "digits", *CLASSIFICATION, *CLOUDS, *EMBEDDED)
NOISES = (
    "none", "symmetric:0.2", "symmetric:0.4", "ptd:0.4", "confused:0.2", "confused:0.4",
)  # fmt: skip


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
    fit = fit_split(split, set_up("cal", split=split, device="cpu"), seed=seed)
    said = fit.verdicts
    return {
        "ce": accuracy(train_ce(split, seed), *test),
        "accuracy": accuracy(fit.model.eval(), *test),
        "sieves_right": float((fit.crossed.argmax(dim=1) == clean.y).float().mean()),
        "weight_decay": fit.facts["weight_decay_of_sieves"],
        "weight_decay_of_network": fit.facts.get("weight_decay_of_network"),
        "held_back": fit.facts.get("held_back"),
        "evidence": fit.evidence.found,
        "learned": fit.evidence.learned,
        "surest": fit.evidence.surest,
        "contradicted": fit.evidence.contradicted,
    } | detection(
        split.y.numpy(),
        clean.y.numpy(),
        said.decision != "keep",
        1 - said.quality,
        said.refined,
    )


def gains(cells: dict[str, Any]) -> dict[str, Any]:
    """Points of accuracy over cross-entropy, by what is wrong; F1 and share of what is flagged.

    Where there is no evidence of wrong labels that is what is shown for review, 2 % at most.
    """
    by_noise: dict[str, list[dict[str, Any]]] = {}
    for name, row in cells.items():
        by_noise.setdefault(name.split("/")[1].partition(":")[0], []).append(row)
    summary = {}
    for kind, rows in by_noise.items():
        points = [100 * (row["accuracy"] - row["ce"]) for row in rows]
        found = [row["f1"] for row in rows if "f1" in row]  # there is none of clean labels
        summary[kind] = {
            "cells": len(rows),
            "gain": statistics.fmean(points),
            "worst": min(points),
            "with evidence": statistics.fmean(row["evidence"] for row in rows),
            "f1": statistics.fmean(found) if found else None,
            "flagged": statistics.fmean(row["flagged"] for row in rows),
        }
    return summary


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
    summary = gains(cells)
    record = {"environment": environment(Machine()), "summary": summary, "cells": cells}
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(*(f"{kind} {row['gain']:+.1f}" for kind, row in summary.items()), sep=" | ")


if __name__ == "__main__":
    main()
