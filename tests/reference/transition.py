"""Transition estimators again, as float64 loops written from the papers' equations."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[Any]


def count_transition(
    refined: Labels, noisy: Labels, num_classes: int, weight: Floats | None = None
) -> Floats:
    joint = np.zeros((num_classes, num_classes))
    for n in range(len(noisy)):
        if refined[n] >= 0:
            joint[refined[n], noisy[n]] += 1.0 if weight is None else weight[n]
    for i in range(num_classes):
        total = sum(joint[i])
        for j in range(num_classes):
            joint[i, j] = joint[i, j] / total
    return joint


def anchor_transition(probs: Floats, percentile: float) -> Floats:
    num_examples, num_classes = probs.shape
    transition = np.zeros((num_classes, num_classes))
    for i in range(num_classes):
        value = np.percentile(probs[:, i], percentile, method="lower")
        for n in range(num_examples):
            if probs[n, i] == value:
                transition[i] = probs[n] / sum(probs[n])
                break
    return transition


def anchor_transition_in_place(probs: Floats, percentile: float) -> Floats:
    """The trap: what lies at or above the percentile is set to zero in the array itself."""
    probs = probs.copy()
    num_classes = probs.shape[1]
    transition = np.zeros((num_classes, num_classes))
    for i in range(num_classes):
        column = probs[:, i]  # a view
        column[column >= np.percentile(column, percentile, method="higher")] = 0.0
        transition[i] = probs[np.argmax(column)]
        transition[i] /= sum(transition[i])
    return transition


def confident_joint(probs: Floats, noisy: Labels, num_classes: int) -> Floats:
    threshold = np.zeros(num_classes)
    labelled = np.zeros(num_classes)
    for j in range(num_classes):
        own = [probs[n, j] for n in range(len(noisy)) if noisy[n] == j]
        labelled[j] = len(own)
        threshold[j] = sum(own) / len(own)
    counts = np.zeros((num_classes, num_classes))
    for n in range(len(noisy)):
        best = -1
        for i in range(num_classes):
            if probs[n, i] >= threshold[i] - 1e-12 and (best < 0 or probs[n, i] > probs[n, best]):
                best = i
        if best >= 0:
            counts[best, noisy[n]] += 1
    joint = np.zeros((num_classes, num_classes))
    for j in range(num_classes):
        for i in range(num_classes):
            joint[i, j] = counts[i, j] / sum(counts[:, j]) * labelled[j]
    return joint


def dual_transition(probs: Floats, noisy: Labels, percentile: float) -> Floats:
    num_examples, num_classes = probs.shape
    intermediate = np.array([int(np.argmax(probs[n])) for n in range(num_examples)])
    counted = count_transition(intermediate, noisy, num_classes)
    anchors = anchor_transition(probs, percentile)
    transition = np.zeros((num_classes, num_classes))
    for i in range(num_classes):
        for j in range(num_classes):
            for between in range(num_classes):
                transition[i, j] += anchors[i, between] * counted[between, j]
    return transition


def project_row(row: Floats) -> Floats:
    """Bisection on θ in Σ_j max(v_j − θ, 0) = 1."""
    low, high = min(row) - 1.0, max(row)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(max(v - middle, 0.0) for v in row) > 1:
            low = middle
        else:
            high = middle
    return np.array([max(v - high, 0.0) for v in row])


def mean_absolute_error(estimated: Floats, true: Floats) -> float:
    num_classes = len(true)
    total = 0.0
    for i in range(num_classes):
        for j in range(num_classes):
            total += abs(estimated[i, j] - true[i, j])
    return total / num_classes**2


def total_variation(estimated: Floats, true: Floats, class_weight: Floats) -> float:
    total = 0.0
    for i in range(len(true)):
        row = sum(abs(estimated[i, j] - true[i, j]) for j in range(len(true))) / 2
        total += class_weight[i] * row
    return float(total / sum(class_weight))
