"""The covariance term again: triple loops over examples and pairs of classes, in float64."""

from math import log

import numpy as np

from tests.reference.losses import Floats, Ints, confidence, cross_entropy, softmax


def losses(logits: Floats, eps: float = 1e-5) -> Floats:
    probs = softmax(logits)
    return np.array([[-log(p + eps) for p in row] for row in probs])


def statistics(
    noisy: Ints, refined: Ints, num_classes: int, weight: Floats
) -> tuple[Floats, Floats]:
    """T̂ and P by counting, each example with its weight."""
    joint = np.zeros((num_classes, num_classes))
    for n in range(len(noisy)):
        if refined[n] != -1:
            joint[refined[n], noisy[n]] += weight[n]
    transition = np.zeros_like(joint)
    for i in range(num_classes):
        transition[i] = joint[i] / joint[i].sum()
    return transition, joint.sum(axis=1) / joint.sum()


def term(
    loss: Floats,
    noisy: Ints,
    refined: Ints,
    transition: Floats,
    class_weight: Floats,
    weighting: str,
    weight: Floats,
    kept_share: float,
    mean_loss: Floats | None = None,
) -> float:
    """Σ_i Σ_j over the batch of (1{ŷ=i, ỹ=j} − T_ij)(ℓ_j − m_ij), by class mean or by sample."""
    num_examples, num_classes = loss.shape
    total = 0.0
    for i in range(num_classes):
        members = [n for n in range(num_examples) if refined[n] == i]
        mass = sum(weight[n] for n in members)
        for n in members:
            deviation = 0.0
            for j in range(num_classes):
                centre = 0.0 if mean_loss is None else mean_loss[i, j]
                indicator = 1.0 if noisy[n] == j else 0.0
                deviation += (indicator - transition[i, j]) * (loss[n, j] - centre)
            if weighting == "class":
                total += class_weight[i] * weight[n] / mass * deviation
            else:
                total += weight[n] * deviation / num_examples / kept_share
    return total


def table(loss: Floats, noisy: Ints, refined: Ints, num_classes: int, weight: Floats) -> Floats:
    """Cov(1{ỹ = j}, ℓ_j | ŷ = i) by its definition E[(A − E A)(B − E B)]."""
    covariance = np.zeros((num_classes, num_classes))
    for i in range(num_classes):
        members = [n for n in range(len(noisy)) if refined[n] == i]
        mass = sum(weight[n] for n in members)
        for j in range(num_classes):
            flips = [1.0 if noisy[n] == j else 0.0 for n in members]
            mean_flip = sum(weight[n] * a for n, a in zip(members, flips, strict=True)) / mass
            mean_loss = sum(weight[n] * loss[n, j] for n in members) / mass
            covariance[i, j] = (
                sum(
                    weight[n] * (a - mean_flip) * (loss[n, j] - mean_loss)
                    for n, a in zip(members, flips, strict=True)
                )
                / mass
            )
    return covariance


def dense_term(loss: Floats, noisy: Ints, refined: Ints) -> float:
    """The term over a whole data set, through the K×K×N array of T̂_ij(x_n) = 1{ŷ=i, ỹ=j}."""
    num_examples, num_classes = loss.shape
    flips = np.zeros((num_classes, num_classes, num_examples))
    flips[refined, noisy, np.arange(num_examples)] = 1
    total = 0.0
    for i in range(num_classes):
        members = refined == i
        for j in range(num_classes):
            rate = flips[i, j, members].mean()
            total += ((flips[i, j, members] - rate) * loss[members, j]).sum() / num_examples
    return total


def cal_mean(logits: Floats, noisy: Ints, prior: Floats, beta: float, covariance: float) -> float:
    return float(
        cross_entropy(logits, noisy).mean() - beta * confidence(logits, prior).mean() - covariance
    )
