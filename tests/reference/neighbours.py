"""Means over nearest neighbours by angle, one example and one neighbour at a time."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def over_neighbours(probs: Floats, features: Floats, count: int) -> Floats:
    mean = np.empty_like(probs)
    for n in range(len(probs)):
        alike = []
        for m in range(len(probs)):
            if m != n:
                lengths = np.linalg.norm(features[n]) * np.linalg.norm(features[m])
                alike.append((features[n] @ features[m] / lengths, m))
        nearest = [m for _, m in sorted(alike, reverse=True)[:count]]
        total = probs[n].copy()
        for m in nearest:
            total += probs[m]
        mean[n] = total / (count + 1)
    return mean
