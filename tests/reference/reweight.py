"""Kernel mean matching again, as float64 loops written from the appendix's problem."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def rbf(x: Floats, z: Floats, bandwidth: float) -> float:
    squared = 0.0
    for a, b in zip(x, z, strict=True):
        squared += (a - b) ** 2
    return float(np.exp(-squared / (2 * bandwidth**2)))


def kernel_matrix(features: Floats, kernel: Callable[[Floats, Floats], float]) -> Floats:
    matrix = np.zeros((len(features), len(features)))
    for a in range(len(features)):
        for b in range(len(features)):
            matrix[a, b] = kernel(features[a], features[b])
    return matrix


def objective(matrix: Floats, kept: NDArray[Any], gamma: Floats, ridge: float) -> float:
    """‖Σ_n w_n Φ(x_n)‖² with w_n = 1/N − γ_n/m for a kept example, 1/N for a dropped one."""
    num_examples, num_kept = len(kept), int(sum(kept))
    weight = [1 / num_examples - (gamma[n] / num_kept if kept[n] else 0) for n in range(len(kept))]
    total = 0.0
    for a in range(num_examples):
        for b in range(num_examples):
            total += weight[a] * weight[b] * matrix[a, b]
    mean_diagonal = sum(matrix[n, n] for n in range(num_examples)) / num_examples
    for n in range(num_examples):
        if kept[n]:
            total += ridge * mean_diagonal * (gamma[n] - 1) ** 2 / num_kept**2
    return float(total)


def gradient(matrix: Floats, kept: NDArray[Any], gamma: Floats, ridge: float) -> Floats:
    """The derivative of the objective in each kept γ."""
    num_examples, num_kept = len(kept), int(sum(kept))
    weight = [1 / num_examples - (gamma[n] / num_kept if kept[n] else 0) for n in range(len(kept))]
    mean_diagonal = sum(matrix[n, n] for n in range(num_examples)) / num_examples
    slopes = []
    for k in range(num_examples):
        if kept[k]:
            slope = -2 / num_kept * sum(weight[n] * matrix[k, n] for n in range(num_examples))
            slopes.append(slope + 2 * ridge * mean_diagonal * (gamma[k] - 1) / num_kept**2)
    return np.array(slopes)


def project_weights(values: Floats, lower: float, upper: float) -> Floats:
    low, high = min(values) - upper, max(values) - lower
    for _ in range(200):
        middle = (low + high) / 2
        if sum(min(max(v - middle, lower), upper) for v in values) > len(values):
            low = middle
        else:
            high = middle
    return np.array([min(max(v - high, lower), upper) for v in values])


def median_distance(features: Floats) -> float:
    distances = []
    for a in range(len(features)):
        for b in range(a):
            distance = float(np.sqrt(sum((features[a] - features[b]) ** 2)))
            if distance > 0:
                distances.append(distance)
    return sorted(distances)[(len(distances) - 1) // 2]


def covariance_table(
    refined: NDArray[Any], noisy: NDArray[Any], loss: Floats, weight: Floats
) -> Floats:
    """Cov(1{ỹ = j}, ℓ_j | ŷ = i) with example weights; loss has one column a class."""
    num_classes = loss.shape[1]
    table = np.zeros((num_classes, num_classes))
    for i in range(num_classes):
        rows = [n for n in range(len(refined)) if refined[n] == i]
        mass = sum(weight[n] for n in rows)
        for j in range(num_classes):
            mean_flip = sum(weight[n] * (noisy[n] == j) for n in rows) / mass
            mean_loss = sum(weight[n] * loss[n, j] for n in rows) / mass
            for n in rows:
                flip = float(noisy[n] == j) - mean_flip
                table[i, j] += weight[n] * flip * (loss[n, j] - mean_loss) / mass
    return table
