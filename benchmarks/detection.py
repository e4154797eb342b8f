"""Finding wrong labels, and learning in spite of them, on scikit-learn's bundled data.

    python -m benchmarks.detection [--seeds 5] [--out results/detection.json]

Each seed has its own split (30 % to test, with clean labels) and its own noise. Compared are, as
scores of a wrong label, by average precision: ``quality`` as the estimator has it, and simpler ones
from the same cross-fitted probabilities; and the accuracy of the estimator, of CE with the settings
for small data, and of CAL with those settings (an in-sample sieve, the covariance term).
``reliability`` has how far quality and confidence are from how often labels are wrong and
suggestions right, calibrated and as the softmax of the same networks.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from benchmarks.probe_features import write_folder
from covlearn.data import Split
from covlearn.engine import Machine
from covlearn.evaluation import environment
from covlearn.fitting import fit_split, set_up
from covlearn.inputs import read_examples
from covlearn.inputs.extractors import LITE0
from covlearn.methods.base import view_of
from covlearn.methods.presets import preset
from covlearn.noise import confused, instance_dependent, symmetric
from covlearn.preparation import Standardizer
from covlearn.run import LocalRun
from covlearn.sieve import adjusted_loss
from covlearn.verdicts import Verdicts, judge

NOISES = (
    "none", "symmetric:0.2", "symmetric:0.4", "ptd:0.2", "ptd:0.4", "cal:0.4", "calibrated:0.3",
)  # fmt: skip
CIFAR = Path(__file__).resolve().parents[2] / "shared" / "data"


@cache
def cifar_lite0(*, return_X_y: bool) -> tuple[Any, Any]:
    """571 of CIFAR-10's test images (400 to train on) as ImageNet-pretrained features."""
    assert return_X_y
    with tempfile.TemporaryDirectory() as name:
        write_folder(CIFAR, Path(name) / "images", 571)
        examples = read_examples(Path(name) / "images", features=LITE0, cache=Path(name) / "cache")
    assert examples.y is not None
    return examples.x.numpy(), examples.y.numpy()


LOADERS: dict[str, Any] = {
    "digits": load_digits,
    "breast_cancer": load_breast_cancer,
    "wine": load_wine,
    "iris": load_iris,
    "cifar_lite0": cifar_lite0,
}


def many_classes() -> tuple[Any, Any]:
    """A hundred clouds of fifty points in 32 dimensions, which overlap."""
    rng = np.random.default_rng(0)
    y = np.arange(5000) % 100
    return rng.normal(size=(100, 32))[y] + 1.3 * rng.normal(size=(5000, 32)), y


def load(name: str, seed: int) -> tuple[Split, Tensor, Tensor]:
    x, y = many_classes() if name == "clouds_100" else LOADERS[name](return_X_y=True)
    return split_of(x, y, seed)


def split_of(x: Any, y: Any, seed: int) -> tuple[Split, Tensor, Tensor]:
    """The training split with right labels, and the test inputs and labels; 7 to 3."""
    train_x, test_x, train_y, test_y = train_test_split(
        x, y, test_size=0.3, random_state=seed, stratify=y
    )
    scaled = Standardizer.of(train_x)
    train_x, test_x = (torch.from_numpy(scaled(part)).float() for part in (train_x, test_x))
    split = Split(train_x, torch.from_numpy(train_y).long(), int(y.max()) + 1)
    return split, test_x, torch.from_numpy(test_y).long()


def noisy_labels(split: Split, spec: str, seed: int) -> Tensor:
    if spec == "none":
        return split.y
    kind, rate = spec.split(":")
    options: Any = {"rate": float(rate), "num_classes": split.num_classes, "seed": seed}
    if kind == "symmetric":
        return torch.from_numpy(symmetric(split.y, **options).label)
    if kind == "confused":
        probs = labeller_probs(split.x.numpy(), split.y.numpy())
        return torch.from_numpy(confused(split.y, probs=probs, rate=float(rate), seed=seed).label)
    return torch.from_numpy(instance_dependent(split.x, split.y, variant=kind, **options).label)


def labeller_probs(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Out-of-fold probabilities of one who sees less than a network does: a few components."""
    labeller = make_pipeline(
        StandardScaler(),
        PCA(min(8, len(np.unique(y)) + 1), random_state=0),
        LogisticRegression(max_iter=500),
    )
    probs: NDArray[Any] = cross_val_predict(
        labeller, x.reshape(len(x), -1), y, cv=5, method="predict_proba"
    )
    return probs


def detection(
    given: NDArray[Any],
    clean: NDArray[Any],
    flagged: NDArray[Any],
    wrongness: NDArray[Any],
    refined: NDArray[Any],
) -> dict[str, Any]:
    """How well wrong labels are found, ranked and repaired; None where none is wrong."""
    wrong = given != clean
    hits, found = int((flagged & wrong).sum()), int(flagged.sum())
    row: dict[str, Any] = {
        "wrong": float(wrong.mean()),
        "flagged": float(flagged.mean()),
        "refined_right": float((refined == clean).mean()),
    }
    if not wrong.any():
        return row
    precision, recall = hits / found if found else 0.0, hits / int(wrong.sum())
    return row | {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if hits else 0.0,
        "average_precision": float(average_precision_score(wrong, wrongness)),
        "repaired": float((refined == clean)[wrong].mean()),
    }


def reliability(
    probability: NDArray[Any], happened: NDArray[Any], bins: int = 10
) -> dict[str, Any]:
    """Of each bin its count, mean probability and observed share; ``error`` is the ECE."""
    number = np.minimum((probability * bins).astype(int), bins - 1)
    table = [
        [int(of.sum()), float(probability[of].mean()), float(happened[of].mean())]
        for of in (number == each for each in range(bins))
        if of.any()
    ]
    error = sum(count * abs(said - seen) for count, said, seen in table) / len(probability)
    return {"error": error, "bins": table}


def scores(given: Tensor, logits: Tensor) -> dict[str, Tensor]:
    """Simple scores of a wrong label, higher for one that is likelier wrong."""
    probs = logits.double().softmax(dim=1)
    own = probs.gather(1, given[:, None]).flatten()
    best_other = probs.scatter(1, given[:, None], -1.0).max(dim=1).values
    size = torch.bincount(given, minlength=probs.shape[1]).clamp(min=1)
    threshold = torch.bincount(given, own, minlength=probs.shape[1]) / size
    return {
        "1 − p_given": 1 - own,
        "sieve score": adjusted_loss(probs, given),
        "margin": best_other - own,
        "class threshold − p_given": threshold[given] - own,
        "p_rival / (p_given + p_rival)": best_other / (own + best_other),
    }


def meaning(verdicts: Verdicts, clean: NDArray[Any]) -> dict[str, Any]:
    """How well quality and confidence say how often labels are wrong and suggestions right."""
    return {
        "wrong": reliability(1 - verdicts.quality, verdicts.given != clean),
        "confidence": reliability(verdicts.confidence, verdicts.suggested == clean),
    }


def cell(task: tuple[str, str, int]) -> dict[str, Any]:
    """One data set, noise and seed."""
    torch.set_num_threads(1)
    name, spec, seed = task
    clean, test_x, test_y = load(name, seed)
    split = Split(clean.x, noisy_labels(clean, spec, seed), clean.num_classes)
    given, right = split.y.numpy(), clean.y.numpy()

    def accuracy(model: torch.nn.Module) -> float:
        with torch.no_grad():
            return float((model(test_x).argmax(dim=1) == test_y).float().mean())

    started = time.process_time()
    fit = fit_split(split, set_up("cal", split=split, device="cpu"), seed=seed)
    seconds = time.process_time() - started
    verdicts, evidence = fit.verdicts, fit.evidence
    row: dict[str, Any] = {"data": name, "noise": spec, "seed": seed, "seconds": seconds}
    row["accuracy"] = {"estimator": accuracy(fit.model)}
    for method in ("ce", "cal"):
        run = LocalRun(split, seed=seed)
        row["accuracy"][f"{method}, small data"] = accuracy(
            preset("recommended", method, "small").fit(view_of(run))
        )
    row |= {
        "evidence": evidence.found,
        "surest": evidence.surest,
        "surest_contradicted": evidence.contradicted,
        "estimated_rate": fit.noise_rate,
    }
    flagged = verdicts.decision != "keep"
    row |= detection(given, right, flagged, 1 - verdicts.quality, verdicts.refined)
    # The same networks without calibration: the softmax of what the verdicts rest on.
    said = fit.own_logits if evidence.contradictory else fit.crossed
    softmax = judge(split.y, said, evidence=evidence.found)
    row["reliability"] = {
        "calibrated": meaning(verdicts, right),
        "softmax": meaning(softmax, right),
    }
    wrong = given != right
    if wrong.any():
        row["average_precision"] = {"estimator's quality": row["average_precision"]} | {
            f"{source}: {score}": float(average_precision_score(wrong, values.numpy()))
            for source, logits in (("cross-fitted", fit.crossed), ("relearned", fit.own_logits))
            for score, values in scores(split.y, logits).items()
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--data", nargs="+", default=[*LOADERS, "clouds_100"])
    parser.add_argument("--noise", nargs="+", default=list(NOISES))
    parser.add_argument("--out", type=Path, default=Path("results/detection.json"))
    parser.add_argument("--resume", action="store_true", help="keep the cells that the file has")
    options = parser.parse_args()
    if "cifar_lite0" in options.data and not (CIFAR / "labels.npz").exists():
        print(f"SKIPPED: cifar_lite0, for {CIFAR} has no labels.npz")
        options.data.remove("cifar_lite0")
    os.environ["OMP_NUM_THREADS"] = "1"
    tasks = [
        (name, spec, seed)
        for seed in range(options.seeds)
        for name in options.data
        for spec in options.noise
    ]
    rows = json.loads(options.out.read_text())["cells"] if options.resume else []
    done = {(row["data"], row["noise"], row["seed"]) for row in rows}
    tasks = [task for task in tasks if task not in done]
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
        means["precision"], means["recall"] = (
            round(statistics.mean(row[name] for row in noisy), 4)
            for name in ("precision", "recall")
        )
        means["distance of probabilities from shares"] = {
            f"{what}, {how}": round(
                statistics.mean(row["reliability"][how][what]["error"] for row in noisy), 4
            )
            for what in ("wrong", "confidence")
            for how in ("softmax", "calibrated")
        }
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
