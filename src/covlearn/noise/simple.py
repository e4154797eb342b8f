"""Noise with given probabilities: by class, by part of the data, or by example.

Every example draws on its own with NumPy's PCG64, so that the actual rate is near the requested
one, not equal to it; the card shows both.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from covlearn.checks import Array, check_num_classes, check_rate, check_transition
from covlearn.kinds import checked, shown
from covlearn.noise.card import NoisyLabels, with_card
from covlearn.noise.inputs import (
    as_numpy,
    check_seed,
    clean_labels,
    flip_probability,
    positions_by_value,
)

VERSION = 1
SMALLEST = 1e-9  # probability of a class that a classifier calls impossible
LARGEST = 60.0  # of |ln c|: further than any rate needs with these probabilities


@checked
def symmetric(y: Array, *, rate: float, num_classes: int, seed: int) -> NoisyLabels:
    """Flip with probability ``rate``, to each other class alike: T_ij = rate / (K − 1).

    >>> noisy = symmetric(np.arange(4).repeat(250), rate=0.3, num_classes=4, seed=1)
    >>> noisy.card.requested_rate, noisy.card.actual_rate
    (0.3, 0.298)
    """
    rate, num_classes = check_rate(rate), check_num_classes(num_classes)
    transition = np.full((num_classes, num_classes), rate / (num_classes - 1))
    np.fill_diagonal(transition, 1 - rate)
    return _by_class(y, transition, seed=seed, variant="symmetric", rate=rate)


@checked
def pair(y: Array, *, rate: float, num_classes: int, seed: int) -> NoisyLabels:
    """Flip with probability ``rate`` to the next class, the last one to the first."""
    rate, num_classes = check_rate(rate), check_num_classes(num_classes)
    same = np.eye(num_classes)
    transition = (1 - rate) * same + rate * np.roll(same, 1, axis=1)
    return _by_class(y, transition, seed=seed, variant="pair", rate=rate)


@checked
def class_dependent(y: Array, *, transition: Array, seed: int) -> NoisyLabels:
    """Draw from row y of ``transition``, T_ij = P(noisy = j | clean = i).

    >>> swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> class_dependent(np.array([0, 1, 1]), transition=swap, seed=0).label
    array([1, 0, 0])
    """
    matrix = _stochastic(transition, name="transition")
    return _by_class(y, matrix, seed=seed, variant="class_dependent", rate=None)


@checked
def part_dependent(
    y: Array, part: Array, *, transitions: Array | Sequence[Array], seed: int
) -> NoisyLabels:
    """Class-dependent noise within each part: P(noisy = j | clean = i, part) = T_ij of the part.

    Paper: Sec. 3.3, "Down-weighting Effect of IDN", with its two parts D_I and D_II; here there may
    be more. ``part`` numbers the part of each example from zero, ``transitions`` holds one matrix
    a part.
    """
    listed = isinstance(transitions, Sequence) or np.ndim(transitions) > 0
    if not listed or len(transitions) < 2:
        raise ValueError(
            f"transitions must hold one matrix a part, two or more, got "
            f"{len(transitions) if listed else shown(transitions)}; "
            "with one part use class_dependent"
        )
    first = _stochastic(transitions[0], name="transitions[0]")
    num_parts, num_classes = len(transitions), len(first)
    others = [
        _stochastic(transitions[p], name=f"transitions[{p}]", num_classes=num_classes)
        for p in range(1, num_parts)
    ]
    clean = clean_labels(y, num_classes=num_classes)
    part = clean_labels(part, num_classes=num_parts, length=len(clean), name="part")
    seed = check_seed(seed)

    table = np.concatenate([first, *others])
    row = part * num_classes + clean
    noisy = _draw(table, row, seed=seed)
    size_P = np.bincount(part, minlength=num_parts)
    wrong_P = np.bincount(part, weights=noisy != clean, minlength=num_parts)
    return with_card(
        clean,
        noisy,
        1 - table[row, clean],
        num_classes=num_classes,
        variant="part_dependent",
        version=VERSION,
        seed=seed,
        requested_rate=None,
        notes=[
            f"part {p}: {size} examples" + (f", actual rate {wrong / size:.4f}" if size else "")
            for p, (size, wrong) in enumerate(zip(size_P, wrong_P, strict=True))
        ],
    )


@checked
def instance_dependent_binary(
    y: Array, *, e_plus: Array | float, e_minus: Array | float, seed: int
) -> NoisyLabels:
    """Two classes, 0 for −1 and 1 for +1, each example with its own flip rates.

    e₊(x) = P(noisy = −1 | clean = +1, x) is read where y = 1, e₋(x) = P(noisy = +1 | clean = −1, x)
    where y = 0. Paper: Sec. 2.

    >>> always = np.array([1.0, 1.0, 0.0])
    >>> instance_dependent_binary(np.array([1, 0, 1]), e_plus=always, e_minus=0.0, seed=0).label
    array([0, 0, 1])
    """
    clean = clean_labels(y, num_classes=2)
    plus = flip_probability(e_plus, length=len(clean), name="e_plus")
    minus = flip_probability(e_minus, length=len(clean), name="e_minus")
    seed = check_seed(seed)
    flip_rate = np.where(clean == 1, plus, minus)
    flipped = np.random.default_rng(seed).random(len(clean)) < flip_rate
    return with_card(
        clean,
        np.where(flipped, 1 - clean, clean),
        flip_rate,
        num_classes=2,
        variant="instance_dependent_binary",
        version=VERSION,
        seed=seed,
        requested_rate=None,
    )


@checked
def confused(y: Array, *, probs: Array, rate: float, seed: int) -> NoisyLabels:
    """Labels of someone who confuses what a classifier confuses, and errs where it is unsure.

    ``probs`` (N, K) are what a classifier says of examples that it was not trained on. The label is
    drawn from them with the odds of the right class multiplied by one number, such that a share
    ``rate`` of all labels is expected to be wrong:

        P(noisy = j | x) ∝ p_j(x) · c^[j = y]

    So wrong labels go to the classes that the example looks like, and hard examples have more.

    >>> sure_and_unsure = np.array([[0.98, 0.01, 0.01], [0.5, 0.4, 0.1]]).repeat(500, axis=0)
    >>> noisy = confused(np.zeros(1000, int), probs=sure_and_unsure, rate=0.2, seed=0)
    >>> noisy.label[:500].mean().round(2), noisy.label[500:].mean().round(2)
    (np.float64(0.03), np.float64(0.45))
    """
    rate, seed = check_rate(rate), check_seed(seed)
    prob_NK = as_numpy(probs, name="probs").astype(np.float64)
    if prob_NK.ndim != 2 or prob_NK.shape[1] < 2:
        raise ValueError(f"probs must have shape (examples, classes), got {prob_NK.shape}")
    clean = clean_labels(y, num_classes=prob_NK.shape[1], length=len(prob_NK))
    if not (prob_NK >= 0).all() or not np.allclose(prob_NK.sum(axis=1), 1, atol=1e-3):
        raise ValueError(
            "probs must hold probabilities, each row with the sum 1; call softmax on logits first"
        )
    prob_NK = prob_NK.clip(SMALLEST)  # what is impossible could not be made a share of the labels
    at = np.arange(len(clean))
    wrong_N = prob_NK.sum(axis=1) - prob_NK[at, clean]
    log_odds_N = np.log(wrong_N) - np.log(prob_NK[at, clean])

    def excess(log_c: float) -> float:
        return float(expit(log_odds_N - log_c).mean()) - rate

    log_c = brentq(excess, -LARGEST, LARGEST) if rate else LARGEST
    prob_NK[at, clean] *= np.exp(log_c)
    prob_NK /= prob_NK.sum(axis=1, keepdims=True)
    noisy = _draw(prob_NK, at, seed=seed)
    return with_card(
        clean,
        noisy,
        1 - prob_NK[at, clean],
        num_classes=prob_NK.shape[1],
        variant="confused",
        version=VERSION,
        seed=seed,
        requested_rate=rate,
    )


def _stochastic(
    transition: Array, *, name: str, num_classes: int | None = None
) -> NDArray[np.float64]:
    checked = check_transition(as_numpy(transition, name=name), name=name, num_classes=num_classes)
    given: NDArray[np.float64] = checked.double().numpy()
    matrix: NDArray[np.float64] = given / given.sum(axis=1, keepdims=True)  # off by rounding only
    return matrix


def _by_class(
    y: Array, transition: NDArray[np.float64], *, seed: int, variant: str, rate: float | None
) -> NoisyLabels:
    clean = clean_labels(y, num_classes=len(transition))
    seed = check_seed(seed)
    return with_card(
        clean,
        _draw(transition, clean, seed=seed),
        1 - transition[clean, clean],
        num_classes=len(transition),
        variant=variant,
        version=VERSION,
        seed=seed,
        requested_rate=rate,
    )


def _draw(table: NDArray[np.float64], row: NDArray[np.int64], *, seed: int) -> NDArray[np.int64]:
    """One class an example from its row of the table; O(N) memory, not O(N·K)."""
    cumulative = table.cumsum(axis=1)
    cumulative /= cumulative[:, -1:]
    uniform = np.random.default_rng(seed).random(len(row))
    label = np.empty(len(row), dtype=np.int64)
    for r, here in positions_by_value(row):
        label[here] = np.searchsorted(cumulative[r], uniform[here], side="right")
    return label
