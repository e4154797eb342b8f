"""Label noise as plain float64 loops, one example at a time, from the papers' algorithms."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import NDArray
from scipy.stats import truncnorm

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def draw_from_table(table: Floats, rows: Ints, seed: int) -> Ints:
    """One class an example: walk along its row until the uniform number is used up."""
    rng = np.random.default_rng(seed)
    labels = []
    for row in rows:
        u = rng.random()
        reached = 0.0
        for j in range(len(table[row])):
            reached += table[row][j]
            if u < reached:
                break
        labels.append(j)
    return np.array(labels)


def rejection(
    rng: RandomState, count: int, rate: float, std: float, low: float, high: float
) -> list[float]:
    kept = []
    for q in rng.normal(loc=rate, scale=std, size=1_000_000):
        if low < q < high:
            kept.append(q)
        if len(kept) == count:
            break
    return kept


def truncated(
    rng: RandomState | Generator, count: int, rate: float, std: float, high: float
) -> list[float]:
    low_end, high_end = (0 - rate) / std, (high - rate) / std
    draws = truncnorm.rvs(low_end, high_end, loc=rate, scale=std, size=count, random_state=rng)
    return [float(q) for q in draws]


def softmax_without(scores: Floats, y: int) -> list[float]:
    """Softmax over all classes but y."""
    top = max(s for j, s in enumerate(scores) if j != y)
    weight = [0.0 if j == y else math.exp(s - top) for j, s in enumerate(scores)]
    return [w / sum(weight) for w in weight]


def capped(
    wrong: list[float], scores: Floats, y: int, q: float, above: float
) -> tuple[list[float], float]:
    """Hand out q again, at most 0.9·T_ii a class, where an entry exceeds above·T_ii."""
    if max(wrong) <= above * (1 - q):
        return list(wrong), q
    num_classes = len(wrong)
    while q > 0.9 * (1 - q) * (num_classes - 1) + 1e-12:  # no room: lower q to the boundary
        q = 0.9 * (num_classes - 1) / (1 + 0.9 * (num_classes - 1))
    left, result = q, [0.0] * num_classes
    for j in sorted(range(num_classes), key=lambda j: -scores[j]):
        if j != y:
            result[j] = min(left, 0.9 * (1 - q))
            left -= result[j]
    return result, q


def published(
    x: NDArray[Any],
    y: Ints,
    *,
    rate: float,
    num_classes: int,
    variant: str,
    std: float = 0.1,
    seed: int = 0,
    above: float | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> tuple[Ints, Floats]:
    """Algorithm 2 and its relatives with RandomState.choice, as they were published."""
    rng = RandomState(seed)
    count = len(y)
    if variant in ("cal", "simifeat"):
        q = rejection(rng, count, rate, std, *bounds)
    else:
        q = truncated(rng, count, rate, std, high=0.6 if variant == "bltm" else 1.0)
    size = x[0].size
    if variant == "cal":
        weight = np.array([rng.normal(loc=0, scale=1, size=(size, num_classes))] * num_classes)
    else:
        weight = rng.randn(num_classes, size, num_classes)
    labels, rates = [], []
    for n in range(count):
        scores = np.matmul(x[n].flatten().astype(np.float64), weight[y[n]])
        p = [q[n] * share for share in softmax_without(scores, y[n])]
        rate_n = q[n]
        if above is not None:
            p, rate_n = capped(p, scores, y[n], rate_n, above)
        p[y[n]] = 1 - rate_n
        labels.append(rng.choice(num_classes, p=np.array(p) / sum(p)))
        rates.append(rate_n)
    return np.array(labels), np.array(rates)


def calibrated(
    x: NDArray[Any],
    y: Ints,
    *,
    rate: float,
    num_classes: int,
    temperature: float,
    std: float = 0.1,
    seed: int = 0,
) -> tuple[Ints, Floats, Floats]:
    """Labels, flip rates and expected counts (clean i, noisy j) at a given temperature."""
    rng = np.random.default_rng(seed)
    q = truncated(rng, len(y), rate, std, high=1 - 1 / num_classes)
    scores = np.array([row.flatten() for row in x], dtype=np.float64) @ rng.normal(
        size=(x[0].size, num_classes)
    )
    for k in range(num_classes):
        scores[:, k] = (scores[:, k] - np.mean(scores[:, k])) / np.std(scores[:, k])
    expected = np.zeros((num_classes, num_classes))
    table = []
    for n in range(len(y)):
        p = [q[n] * share for share in softmax_without(scores[n] / temperature, y[n])]
        p[y[n]] = 1 - q[n]
        table.append(p)
        for j in range(num_classes):
            expected[y[n], j] += p[j]
    labels = []
    for p in table:
        u, reached = rng.random(), 0.0
        for j in range(num_classes):
            reached += p[j]
            if u < reached:
                break
        labels.append(j)
    return np.array(labels), np.array(q), expected


def is_harmless(expected: Floats) -> bool:
    """The calibration's two conditions on expected counts."""
    num_classes = len(expected)
    for i in range(num_classes):
        wrong = sum(expected[i][j] for j in range(num_classes) if j != i)
        for j in range(num_classes):
            if j != i and expected[i][j] > (expected[i][i] + wrong / (num_classes - 1)) / 2:
                return False
    for j in range(num_classes):
        received, even = 0.0, 0.0
        for i in range(num_classes):
            if i != j:
                received += expected[i][j]
                even += sum(expected[i][k] for k in range(num_classes) if k != i)
        if received > 1.5 * even / (num_classes - 1):
            return False
    return True


def card(clean: Sequence[int], noisy: Sequence[int], num_classes: int) -> dict[str, Any]:
    """The counted numbers of a noise card."""
    count = [[0] * num_classes for _ in range(num_classes)]
    for i, j in zip(clean, noisy, strict=True):
        count[i][j] += 1
    transition: list[list[float] | None] = []
    margins = []
    for i in range(num_classes):
        total = sum(count[i])
        if total == 0:
            transition.append(None)
            continue
        row = [c / total for c in count[i]]
        transition.append(row)
        margins.append(row[i] - max(row[j] for j in range(num_classes) if j != i))
    after = [sum(count[i][j] for i in range(num_classes)) for j in range(num_classes)]
    sinks = []
    for j in range(num_classes):
        received = after[j] - count[j][j]
        even = 0.0
        for i in range(num_classes):
            if i != j:
                even += (sum(count[i]) - count[i][i]) / (num_classes - 1)
        if after[j] > 2 * sum(count[j]) and received > 2 * even:
            sinks.append(j)
    return {
        "transition": transition,
        "actual_rate": sum(int(i != j) for i, j in zip(clean, noisy, strict=True)) / len(clean),
        "dominance": min(margins),
        "num_dominant": sum(m > 0 for m in margins),
        "largest_share": max(after) / len(clean),
        "largest_class": after.index(max(after)),
        "sinks": sinks,
    }
