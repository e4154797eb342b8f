"""Small-loss selection of two networks again, one example at a time, from the papers' texts."""

from fractions import Fraction
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from tests.reference.losses import cross_entropy, softmax

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def forget_rate(epoch: int, rate: Fraction, forget_epochs: int) -> Fraction:
    """Han et al. 2018: R = min(T / T_k · τ, τ)."""
    if forget_epochs == 0:
        return rate
    return min(Fraction(epoch, forget_epochs) * rate, rate)


def smallest(loss: Floats, share: Fraction, candidates: list[int]) -> set[int]:
    """Takes the candidate with the least loss, the first of equals, as often as is allowed."""
    left = list(candidates)
    chosen: set[int] = set()
    for _ in range(ceil(share * len(candidates))):
        best = left[0]
        for n in left:
            if loss[n] < loss[best]:
                best = n
        left.remove(best)
        chosen.add(best)
    return chosen


def coteaching(
    logits: Floats, y: Ints, share: Fraction, *, disagreeing: bool = False
) -> tuple[list[set[int]], float]:
    """The examples each of the two networks learns from, and the sum of the two mean losses."""
    losses = [cross_entropy(logits[m], y) for m in range(2)]
    candidates = list(range(len(y)))
    if disagreeing:
        differ = [n for n in candidates if np.argmax(logits[0, n]) != np.argmax(logits[1, n])]
        if len(differ) > 0:
            candidates = differ
    picked_by_first = smallest(losses[0], share, candidates)
    picked_by_second = smallest(losses[1], share, candidates)
    first = sum(losses[0][n] for n in picked_by_second) / len(picked_by_second)
    second = sum(losses[1][n] for n in picked_by_first) / len(picked_by_first)
    return [picked_by_second, picked_by_first], float(first + second)


def jocor(logits: Floats, y: Ints, share: Fraction, agreement: float) -> tuple[set[int], float]:
    """The examples both networks learn from, and the mean joint loss over them."""
    supervised = [cross_entropy(logits[m], y) for m in range(2)]
    p, q = softmax(logits[0]), softmax(logits[1])
    loss = np.zeros(len(y))
    for n in range(len(y)):
        divergence = 0.0
        for k in range(p.shape[1]):
            divergence += p[n, k] * log(p[n, k] / q[n, k]) + q[n, k] * log(q[n, k] / p[n, k])
        loss[n] = (1 - agreement) * (supervised[0][n] + supervised[1][n]) + agreement * divergence
    picked = smallest(loss, share, list(range(len(y))))
    return picked, float(sum(loss[n] for n in picked) / len(picked))
