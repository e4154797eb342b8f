"""What kernel mean matching costs at 50,000 × 512 features, and beside a dense form at 2,000.

    python -m benchmarks.kmm_speed

Every figure comes from a process of its own. Features have ten clusters and 32 directions of spread
in noise, passed through a ReLU as a network's penultimate layer is; examples are kept with a known
probability of x, so that the true density ratio is at hand. The dense form holds the N×N kernel and
takes accelerated projected gradient steps; at that size all are judged by the exact objective.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.measure import peak_mebibytes, write
from covlearn.reweight import MeanMatching, kernel_mean_matching, median_bandwidth

LARGE, SMALL, DIMENSIONS = 50_000, 2_000, 512
RIDGE, LOWER, UPPER, TOL = 1.0, 1e-3, 10.0, 1e-3  # as kernel_mean_matching has them
FORMS = {"dense": "dense", "exact": "exact in tiles of 1,024²", "landmarks": "512 landmarks"}
Floats = NDArray[np.float64]


def problem(num_examples: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features, which are kept, and the density ratio of the kept with mean one."""
    generator = torch.Generator().manual_seed(0)
    cluster = torch.randint(0, 10, (num_examples,), generator=generator)
    centre = torch.randn(10, DIMENSIONS, generator=generator)[cluster]
    spread = torch.randn(num_examples, 32, generator=generator)
    direction = torch.randn(32, DIMENSIONS, generator=generator) / math.sqrt(32)
    noise = 0.3 * torch.randn(num_examples, DIMENSIONS, generator=generator)
    features = torch.relu(centre + spread @ direction + noise)
    score = features[:, 0] + 0.3 * cluster
    keep_rate = torch.sigmoid(1 + (score - score.mean()) / score.std()).double()
    kept = torch.rand(num_examples, generator=generator, dtype=torch.float64) < keep_rate
    ratio = 1 / keep_rate[kept]
    return features, kept, ratio / ratio.mean()


def project(values: Floats) -> Floats:
    low, high = values.min() - UPPER, values.max() - LOWER
    for _ in range(60):
        middle = (low + high) / 2
        above = np.clip(values - middle, LOWER, UPPER).mean() > 1
        low, high = (middle, high) if above else (low, middle)
    projected: Floats = np.clip(values - high, LOWER, UPPER)
    return projected


def dense_kernel(features: Tensor, bandwidth: float) -> Floats:
    x = features.double().numpy()
    norm = (x**2).sum(axis=1)
    matrix: Floats = np.exp((2 * x @ x.T - norm[:, None] - norm) / (2 * bandwidth**2))
    return matrix


def dense_objective(matrix: Floats, kept: NDArray[np.bool_], gamma: Floats) -> float:
    weight = 1 / len(kept) - gamma / kept.sum()
    penalty = RIDGE * ((gamma[kept] - 1) ** 2).sum() / kept.sum() ** 2
    return float(weight @ matrix @ weight + penalty)


def dense_matching(matrix: Floats, kept: NDArray[np.bool_]) -> tuple[Floats, int]:
    """Accelerated projected gradient with restarts, to the same certificate."""
    among = matrix[kept][:, kept] + RIDGE * np.eye(kept.sum())
    target = matrix[kept].mean(axis=1) + RIDGE / kept.sum()
    step = kept.sum() / np.linalg.eigvalsh(among)[-1]
    wanted = TOL * dense_objective(matrix, kept, kept.astype(np.float64))
    gamma = ahead = np.ones(kept.sum())
    momentum, iterations = 1.0, 0
    while True:
        gradient = among @ gamma / kept.sum() - target
        room = (UPPER - LOWER) * np.arange(len(gamma))
        corner = LOWER + np.clip(len(gamma) * (1 - LOWER) - room, 0, UPPER - LOWER)
        if 2 * (gradient @ gamma - np.sort(gradient) @ corner) / len(gamma) <= wanted:
            break
        new = project(ahead - step * (among @ ahead / kept.sum() - target))
        if (ahead - new) @ (new - gamma) > 0:
            momentum = 1.0
        faster = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / faster * (new - gamma)
        gamma, momentum, iterations = new, faster, iterations + 1
    weights = np.zeros(len(kept))
    weights[kept] = gamma
    return weights, iterations


class Cost:
    """Time and memory of what runs inside a ``with`` block."""

    def __enter__(self) -> "Cost":
        self.before = peak_mebibytes(reset=True)
        self.start, self.used = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.figures = {
            "seconds": time.perf_counter() - self.start,
            "processor seconds": time.process_time() - self.used,  # of all cores
            "peak MiB above the inputs": peak_mebibytes() - self.before,
        }


def summary(found: MeanMatching, kept: Tensor, ratio: Tensor) -> dict[str, Any]:
    return {
        "iterations": found.iterations,
        "converged": found.converged,
        "objective": found.objective,
        "gap": found.gap,
        "objective of γ = 1": found.unweighted,
        "unexplained by the landmarks": found.unexplained,
        "RMSE of γ to the density ratio": rmse(found.gamma[kept], ratio),
        "RMSE of γ = 1": rmse(torch.ones_like(ratio), ratio),
    }


def rmse(gamma: Tensor, ratio: Tensor) -> float:
    return float((gamma - ratio).square().mean().sqrt())


def measure(form: str, num_examples: int) -> dict[str, Any]:
    features, kept, ratio = problem(num_examples)
    if form == "dense":
        bandwidth = median_bandwidth(features)
        with Cost() as cost:
            matrix = dense_kernel(features, bandwidth)
            gamma, iterations = dense_matching(matrix, kept.numpy())
        figures: dict[str, Any] = cost.figures | {"iterations": iterations}
        figures["RMSE of γ to the density ratio"] = rmse(torch.from_numpy(gamma)[kept], ratio)
    else:
        landmarks = 512 if form == "landmarks" else None
        with Cost() as cost:
            found = kernel_mean_matching(features, kept, landmarks=landmarks, block_size=1024)
        figures = cost.figures | summary(found, kept, ratio)
        gamma, bandwidth = found.gamma.numpy(), found.bandwidth or math.nan
    if num_examples == SMALL:
        matrix = dense_kernel(features, bandwidth)
        figures["exact objective"] = dense_objective(matrix, kept.numpy(), gamma)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--one", nargs=2, metavar=("FORM", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return
    load = os.getloadavg()[0]  # of others: seconds on a busy machine are not the method's
    figures = {}
    for form, num_examples in [*((form, SMALL) for form in FORMS), ("landmarks", LARGE)]:
        command = [sys.executable, "-m", "benchmarks.kmm_speed", "--one", form, str(num_examples)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        title = f"{num_examples:,} × {DIMENSIONS}, {FORMS[form]}"
        figures[title] = json.loads(done.stdout)
        print(title, json.dumps(figures[title], indent=2, ensure_ascii=False))
    write("kmm", {"load before": load, "ridge": RIDGE, "tol": TOL, "figures": figures})


if __name__ == "__main__":
    main()
