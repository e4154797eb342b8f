"""``recommended`` from 500 to 100,000 examples and 2 to 1,000 classes, on synthetic embeddings.

    python -m benchmarks.sizes --seeds 2 --device auto
    python -m benchmarks.sizes --only 500x2 2000x20

Classes are normal clouds of equal size and width in 64 dimensions around normal means, as wide as
makes the best classifier err for one example in ten. Labels are right, or wrong at a rate with all
other classes alike. Recorded: test accuracy of ours and of cross-entropy with the same network, the
share of labels that are flagged, detection's F1, the estimated rate, and how far the probability
of a wrong label is from how often it is one (ECE). Cells that the file has are not run again.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from benchmarks.detection import detection, reliability
from covlearn.data import Resident, Split
from covlearn.engine import Machine, predict
from covlearn.evaluation import EVALUATION_BATCH, commit, environment
from covlearn.fitting import fit_split, set_up
from covlearn.job import resolve_device
from covlearn.methods.base import view_of
from covlearn.methods.scaled import recommended
from covlearn.noise import symmetric
from covlearn.run import LocalRun

SIZES = ((500, 2), (2_000, 20), (20_000, 100), (20_000, 400), (50_000, 1_000), (100_000, 10))
RATES = (0.0, 0.2, 0.4, 0.5)
DIMENSIONS, ERROR, TESTS = 64, 0.1, 5_000


def clouds(count: int, num_classes: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Training and test examples with right labels, and the best classifier's test accuracy."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(num_classes, DIMENSIONS))
    y = rng.permutation(np.arange(count + TESTS) % num_classes)
    noise = rng.normal(size=(count + TESTS, DIMENSIONS))

    def error(width: float) -> float:
        x = means[y[:TESTS]] + width * noise[:TESTS]
        distance = (means**2).sum(axis=1) - 2 * x @ means.T
        return float((distance.argmin(axis=1) != y[:TESTS]).mean())

    low, high = 0.1, 20.0
    for _ in range(20):
        width = (low + high) / 2
        low, high = (low, width) if error(width) > ERROR else (width, high)
    x = torch.from_numpy(means[y] + width * noise).float()
    x = x / x.std()
    labels = torch.from_numpy(y)
    return x[TESTS:], labels[TESTS:], x[:TESTS], labels[:TESTS], 1 - error(width)


def cell(count: int, num_classes: int, rate: float, seed: int, device: str) -> dict[str, Any]:
    """One size, rate and seed."""
    x, clean, test_x, test_y, best = clouds(count, num_classes, seed)
    noisy = clean
    if rate:
        drawn = symmetric(clean, rate=rate, num_classes=num_classes, seed=seed).label
        noisy = torch.from_numpy(drawn)
    split = Split(x, noisy, num_classes)
    setup = set_up("cal", split=split, device=device)
    machine = setup.machine

    def accuracy(model: torch.nn.Module) -> float:
        test = Split(test_x, test_y, num_classes)
        data = Resident(test, batch_size=EVALUATION_BATCH, shuffle=False, device=device)
        logits, _ = predict(model.to(device), data, machine)
        return float((logits.argmax(dim=1).cpu() == test_y).float().mean())

    started = time.process_time()
    fit = fit_split(split, setup, seed=seed)
    seconds = time.process_time() - started
    choice = recommended("ce", num_examples=count, num_classes=num_classes, shape=(DIMENSIONS,))
    run = LocalRun(
        split, net_name=choice.net, net_options=choice.net_options, machine=machine, seed=seed
    )
    plain = choice.method.fit(view_of(run))
    verdicts, given, right = fit.verdicts, noisy.numpy(), clean.numpy()
    flagged, wrongness = verdicts.decision != "keep", 1 - verdicts.quality
    return {
        "examples": count,
        "classes": num_classes,
        "rate": rate,
        "seed": seed,
        "processor_seconds": seconds,
        "accuracy": {"best": best, "ours": accuracy(fit.model), "ce": accuracy(plain)},
        "evidence": fit.evidence.found,
        "estimated_rate": fit.noise_rate,
        "wrongness_error": reliability(wrongness, given != right)["error"],
        **detection(given, right, flagged, wrongness, verdicts.refined),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2, help="seeds 0 … N−1")
    parser.add_argument("--only", nargs="+", default=[], help="sizes, such as 500x2")
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, default=Path("results/sizes.json"))
    options = parser.parse_args()
    device = resolve_device(options.device)
    sizes = [size for size in SIZES if not options.only or f"{size[0]}x{size[1]}" in options.only]
    tasks = [
        (*size, rate, seed)
        for size in sizes
        for seed in range(options.seeds)
        for rate in options.rates
        if rate < 1 - 1 / size[1]  # at one half two classes have no label left that says anything
    ]
    cells = json.loads(options.out.read_text())["cells"] if options.out.exists() else []
    done = {(made["examples"], made["classes"], made["rate"], made["seed"]) for made in cells}
    for task in track([task for task in tasks if task not in done], description="cells"):
        where = environment(Machine(device=device))
        cells.append({**cell(*task, device), "gpu": where["gpu"], "commit": commit()})
        content = {"environment": where, "cells": cells}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
