"""The losses again, as float64 loops over examples and classes, from the papers' equations."""

from math import exp, log

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def softmax(logits: Floats) -> Floats:
    probs = np.zeros(logits.shape)
    for n in range(len(logits)):
        top = max(logits[n])
        powers = [exp(z - top) for z in logits[n]]
        for k in range(len(powers)):
            probs[n, k] = powers[k] / sum(powers)
    return probs


def cross_entropy(logits: Floats, y: Ints, eps: float = 1e-8) -> Floats:
    probs = softmax(logits)
    return np.array([-log(probs[n, y[n]] + eps) for n in range(len(y))])


def generalized_cross_entropy(logits: Floats, y: Ints, q: float = 0.7) -> Floats:
    probs = softmax(logits)
    return np.array([(1 - probs[n, y[n]] ** q) / q for n in range(len(y))])


def truncated_generalized_cross_entropy(
    logits: Floats, y: Ints, q: float = 0.7, k: float = 0.5
) -> Floats:
    probs = softmax(logits)
    values = []
    for n in range(len(y)):
        p = probs[n, y[n]]
        values.append((1 - p**q) / q if p > k else (1 - k**q) / q)
    return np.array(values)


def forward_corrected(logits: Floats, y: Ints, transition: Floats, eps: float = 1e-8) -> Floats:
    probs = softmax(logits)
    values = []
    for n in range(len(y)):
        noisy = sum(probs[n, i] * transition[i, y[n]] for i in range(len(transition)))
        values.append(-log(noisy + eps))
    return np.array(values)


def reweighted(logits: Floats, y: Ints, transition: Floats, eps: float = 1e-8) -> Floats:
    probs = softmax(logits)
    values = []
    for n in range(len(y)):
        noisy = sum(probs[n, i] * transition[i, y[n]] for i in range(len(transition)))
        weight = (probs[n, y[n]] + eps) / (noisy + eps)
        values.append(-weight * log(probs[n, y[n]] + eps))
    return np.array(values)


def dmi(logits: Floats, y: Ints, eps: float = 1e-3) -> float:
    probs = softmax(logits)
    num_classes = logits.shape[1]
    joint = np.zeros((num_classes, num_classes))
    for n in range(len(y)):
        for k in range(num_classes):
            joint[y[n], k] += probs[n, k]
    return -log(abs(np.linalg.det(joint)) + eps)


def confidence(logits: Floats, prior: Floats, eps: float = 1e-5) -> Floats:
    probs = softmax(logits)
    values = []
    for n in range(len(logits)):
        values.append(sum(-prior[k] * log(probs[n, k] + eps) for k in range(len(prior))))
    return np.array(values)


def joint(logits_1: Floats, logits_2: Floats, y: Ints, weight: float) -> Floats:
    p, r = softmax(logits_1), softmax(logits_2)
    ce = cross_entropy(logits_1, y) + cross_entropy(logits_2, y)
    values = []
    for n in range(len(y)):
        kl = 0.0
        for k in range(p.shape[1]):
            kl += p[n, k] * log(p[n, k] / r[n, k]) + r[n, k] * log(r[n, k] / p[n, k])
        values.append((1 - weight) * ce[n] + weight * kl)
    return np.array(values)
