"""Finding wrong labels, and learning in spite of them, on scikit-learn's bundled data.

    python -m benchmarks.detection [--seeds 5] [--out results/detection.json]

Each seed has its own split (30 % to test, with clean labels) and its own noise. Compared are, as
scores of a wrong label, by average precision: ``quality`` as the estimator has it, and simpler ones
from the same cross-fitted probabilities; and the accuracy of the estimator, of CE with the settings
for small data, and of CAL with those settings (an in-sample sieve, the covariance term).
"""

import argparse
import json
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import average_precision_score
from sklearn.model_selection import train_test_split
from torch import Tensor

from covlearn.data import Split
from covlearn.engine import Machine
from covlearn.evaluation import environment
from covlearn.fitting import fit_split, set_up
from covlearn.methods.base import view_of
from covlearn.methods.presets import preset
from covlearn.noise import instance_dependent, symmetric
from covlearn.preparation import Standardizer
from covlearn.run import LocalRun
from covlearn.sieve import adjusted_loss
from covlearn.verdicts import label_quality

NOISES = (
    "none", "symmetric:0.2", "symmetric:0.4", "ptd:0.2", "ptd:0.4", "cal:0.4", "calibrated:0.3",
)  # fmt: skip
LOADERS = {
    "digits": load_digits,
    "breast_cancer": load_breast_cancer,
    "wine": load_wine,
    "iris": load_iris,
}


def many_classes() -> tuple[Any, Any]:
    """A hundred clouds of fifty points in 32 dimensions, which overlap."""
    rng = np.random.default_rng(0)
    y = np.arange(5000) % 100
    return rng.normal(size=(100, 32))[y] + 1.3 * rng.normal(size=(5000, 32)), y


def load(name: str, seed: int) -> tuple[Split, Tensor, Tensor, int]:
    x, y = many_classes() if name == "clouds_100" else LOADERS[name](return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        x, y, test_size=0.3, random_state=seed, stratify=y
    )
    scaled = Standardizer.of(train_x)
    num_classes = int(y.max()) + 1
    train_x, test_x = (torch.from_numpy(scaled(part)).float() for part in (train_x, test_x))
    split = Split(train_x, torch.from_numpy(train_y).long(), num_classes)
    return split, test_x, torch.from_numpy(test_y).long(), num_classes


def noisy_labels(split: Split, spec: str, seed: int) -> Tensor:
    if spec == "none":
        return split.y
    kind, rate = spec.split(":")
    options: Any = {"rate": float(rate), "num_classes": split.num_classes, "seed": seed}
    if kind == "symmetric":
        return torch.from_numpy(symmetric(split.y, **options).label)
    return torch.from_numpy(instance_dependent(split.x, split.y, variant=kind, **options).label)


def scores(given: Tensor, logits: Tensor) -> dict[str, Tensor]:
    """Simple scores of a wrong label, higher for one that is likelier wrong."""
    log_NK = logits.double().log_softmax(dim=1)
    probs = log_NK.exp()
    own = probs.gather(1, given[:, None]).flatten()
    best_other = probs.scatter(1, given[:, None], -1.0).max(dim=1).values
    size = torch.bincount(given, minlength=probs.shape[1]).clamp(min=1)
    threshold = torch.bincount(given, own, minlength=probs.shape[1]) / size
    return {
        "1 − p_given": 1 - own,
        "sieve score": adjusted_loss(probs, given),
        "margin": best_other - own,
        "class threshold − p_given": threshold[given] - own,
        "1 − quality": 1 - label_quality(given, log_NK)[0],
    }


def cell(task: tuple[str, str, int]) -> dict[str, Any]:
    """One data set, noise and seed."""
    torch.set_num_threads(1)
    name, spec, seed = task
    clean, test_x, test_y, _ = load(name, seed)
    split = Split(clean.x, noisy_labels(clean, spec, seed), clean.num_classes)
    wrong = (split.y != clean.y).numpy()

    def accuracy(model: torch.nn.Module) -> float:
        with torch.no_grad():
            return float((model(test_x).argmax(dim=1) == test_y).float().mean())

    started = time.perf_counter()
    fit = fit_split(split, set_up("cal", split=split, device="cpu"), seed=seed)
    seconds = time.perf_counter() - started
    row: dict[str, Any] = {"data": name, "noise": spec, "seed": seed, "seconds": seconds}
    row["accuracy"] = {"estimator": accuracy(fit.model)}
    for method in ("ce", "cal"):
        run = LocalRun(split, seed=seed)
        row["accuracy"][f"{method}, small data"] = accuracy(
            preset("recommended", method, "small").fit(view_of(run))
        )
    flagged = fit.verdicts.decision != "keep"
    hits = int((flagged & wrong).sum())
    row |= {
        "wrong": float(wrong.mean()),
        "evidence": fit.evidence.found,
        "surest": fit.evidence.surest,
        "surest_contradicted": fit.evidence.contradicted,
        "flagged": float(flagged.mean()),
        "precision": hits / int(flagged.sum()) if flagged.any() else None,
        "recall": hits / int(wrong.sum()) if wrong.any() else None,
        "refined_right": float((fit.verdicts.refined == clean.y.numpy()).mean()),
    }
    if wrong.any():
        row["average_precision"] = {"estimator's quality": _ap(wrong, -fit.verdicts.quality)} | {
            f"{source}: {score}": _ap(wrong, values.numpy())
            for source, logits in (("cross-fitted", fit.crossed), ("relearned", fit.own_logits))
            for score, values in scores(split.y, logits).items()
        }
    return row


def _ap(wrong: Any, score: Any) -> float:
    return float(average_precision_score(wrong, score))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--data", nargs="+", default=[*LOADERS, "clouds_100"])
    parser.add_argument("--noise", nargs="+", default=list(NOISES))
    parser.add_argument("--out", type=Path, default=Path("results/detection.json"))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    tasks = [
        (name, spec, seed)
        for seed in range(options.seeds)
        for name in options.data
        for spec in options.noise
    ]
    rows = []
    with ProcessPoolExecutor(options.processes) as pool:
        for row in pool.map(cell, tasks):
            rows.append(row)
            # After each cell: a run that is cut off leaves what it has.
            content = {
                "settings": "covlearn.methods.scaled.recommended",
                "environment": environment(Machine()),
                "means": summary(rows),
                "cells": rows,
            }
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(summary(rows), indent=1, ensure_ascii=False))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over all cells with noise, and of the clean ones by data set."""
    noisy = [row for row in rows if "average_precision" in row]
    clean = [row for row in rows if row["noise"] == "none"]
    means: dict[str, Any] = {"cells with noise": len(noisy), "clean cells": len(clean)}
    if noisy:
        for group in ("average_precision", "accuracy"):
            means[group] = {
                name: round(statistics.mean(row[group][name] for row in noisy), 4)
                for name in noisy[0][group]
            }
        means["no evidence found in"] = sum(not row["evidence"] for row in noisy)
    means["clean"] = {
        name: {
            "flagged": round(statistics.mean(row["flagged"] for row in of), 4),
            "most flagged": max(row["flagged"] for row in of),
            "evidence in": sum(row["evidence"] for row in of),
            "accuracy": {
                method: round(statistics.mean(row["accuracy"][method] for row in of), 4)
                for method in of[0]["accuracy"]
            },
        }
        for name in dict.fromkeys(row["data"] for row in clean)
        if (of := [row for row in clean if row["data"] == name])
    }
    return means


if __name__ == "__main__":
    main()
