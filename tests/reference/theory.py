"""The paper's definitions on a finite problem, as plain loops over points, labels and peers.

A problem is (mass, clean, transition): lists of masses, of labels 0…K−1 (binary −1 is 0, +1 is 1)
and of K×K matrices. A loss is a table loss[n][j]; a proxy is refined[n][i] = P(Ŷ = i | x_n).
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Table = Any  # nested sequences of floats
Classifier = Sequence[int]


def mean(mass: Table, values: Table, keep: Callable[[int], bool] = lambda n: True) -> float:
    top = bottom = 0.0
    for n in range(len(mass)):
        if keep(n):
            top += mass[n] * values[n]
            bottom += mass[n]
    return top / bottom


def cov(mass: Table, a: Table, b: Table, keep: Callable[[int], bool] = lambda n: True) -> float:
    product = [a[n] * b[n] for n in range(len(mass))]
    return mean(mass, product, keep) - mean(mass, a, keep) * mean(mass, b, keep)


def zero_one(f: Classifier, num_classes: int) -> Table:
    return [[0.0 if f[n] == j else 1.0 for j in range(num_classes)] for n in range(len(f))]


def noisy_risk(mass: Table, clean: Table, transition: Table, loss: Table) -> float:
    total = 0.0
    for n in range(len(mass)):
        for j in range(len(transition[n])):
            total += mass[n] * transition[n][clean[n]][j] * loss[n][j]
    return total


def peer_risk(
    mass: Table, clean: Table, transition: Table, loss: Table, beta: float = 1.0
) -> float:
    """The features of one peer against the noisy label of another, over all pairs."""
    total = noisy_risk(mass, clean, transition, loss)
    for n1 in range(len(mass)):
        for n2 in range(len(mass)):
            for j in range(len(transition[n2])):
                chance = mass[n1] * mass[n2] * transition[n2][clean[n2]][j]
                total -= beta * chance * loss[n1][j]
    return total


def bayes_peer_risk(mass: Table, clean: Table, loss: Table) -> float:
    total = 0.0
    for n1 in range(len(mass)):
        total += mass[n1] * loss[n1][clean[n1]]
        for n2 in range(len(mass)):
            total -= mass[n1] * mass[n2] * loss[n1][clean[n2]]
    return total


def flips(transition: Table) -> tuple[list[float], list[float]]:
    return [matrix[1][0] for matrix in transition], [matrix[0][1] for matrix in transition]


def z1(transition: Table) -> list[float]:
    plus, minus = flips(transition)
    return [1 - plus[n] - minus[n] for n in range(len(plus))]


def z2(transition: Table) -> list[float]:
    plus, minus = flips(transition)
    return [plus[n] - minus[n] for n in range(len(plus))]


def cov_over_proxy(mass: Table, a: Table, f: Classifier, refined: Table) -> float:
    """Cov of A(X) and 1(f(X), Ŷ), X and Ŷ drawn from the proxy."""
    product = first = second = 0.0
    for n in range(len(mass)):
        for i in range(len(refined[n])):
            chance = mass[n] * refined[n][i]
            wrong = 1.0 if f[n] != i else 0.0
            product += chance * a[n] * wrong
            first += chance * a[n]
            second += chance * wrong
    return product - first * second


def decoupled_binary(mass: Table, clean: Table, transition: Table, f: Classifier) -> float:
    """The right side of Theorem (Decoupling binary IDN) with e± = E[e±(X)]."""
    plus, minus = flips(transition)
    loss = zero_one(f, 2)
    wrong = [loss[n][clean[n]] for n in range(len(mass))]
    against_minus = [loss[n][0] for n in range(len(mass))]
    informative = 1 - mean(mass, plus) - mean(mass, minus)
    return (
        informative * bayes_peer_risk(mass, clean, loss)
        + cov(mass, z1(transition), wrong)
        + cov(mass, z2(transition), against_minus)
    )


def is_class(clean: Table, i: int) -> Callable[[int], bool]:
    return lambda n: bool(clean[n] == i)


def covariance_terms(mass: Table, clean: Table, transition: Table, loss: Table) -> float:
    """Σ_i P_i Σ_j Cov(T_ij(X), ℓ_j(X) | Y* = i)."""
    total = 0.0
    for i in sorted(set(clean)):
        prior = sum(mass[n] for n in range(len(mass)) if clean[n] == i)
        for j in range(len(transition[0])):
            entry = [matrix[i][j] for matrix in transition]
            column = [row[j] for row in loss]
            total += prior * cov(mass, entry, column, is_class(clean, i))
    return total


def class_dependent_risk(mass: Table, clean: Table, transition: Table, loss: Table) -> float:
    """Σ_i P_i Σ_j E[T_ij | Y* = i] E[ℓ_j | Y* = i]."""
    total = 0.0
    for i in sorted(set(clean)):
        inside = [n for n in range(len(mass)) if clean[n] == i]
        prior = sum(mass[n] for n in inside)
        for j in range(len(transition[0])):
            rate = sum(mass[n] * transition[n][i][j] for n in inside) / prior
            average = sum(mass[n] * loss[n][j] for n in inside) / prior
            total += prior * rate * average
    return total


def counted_covariance(mass: Table, joint: Table, loss: Table) -> float:
    """Σ_i P(Ŷ=i) Σ_j Cov(1{Ỹ=j}, ℓ_j | Ŷ=i) over triples (x, Ŷ, Ỹ)."""
    total = 0.0
    num_classes = len(joint[0])
    for i in range(num_classes):
        share = sum(mass[n] * sum(joint[n][i]) for n in range(len(mass)))
        if share == 0:
            continue
        for j in range(num_classes):
            product = label = average = 0.0
            for n in range(len(mass)):
                for noisy in range(num_classes):
                    chance = mass[n] * joint[n][i][noisy] / share
                    hit = 1.0 if noisy == j else 0.0
                    product += chance * hit * loss[n][j]
                    label += chance * hit
                    average += chance * loss[n][j]
            total += share * (product - label * average)
    return total


def classifiers(num_points: int, num_classes: int) -> Iterator[tuple[int, ...]]:
    return itertools.product(range(num_classes), repeat=num_points)


def worst_error(
    mass: Table,
    clean: Table,
    num_classes: int,
    objective: Callable[[Classifier], float],
    tie: float = 1e-11,
) -> float:
    """P(f ≠ Y*) of the worst classifier among all that minimise the objective, by enumeration."""
    everyone = list(classifiers(len(mass), num_classes))
    values = [objective(f) for f in everyone]
    best = min(values)
    worst = 0.0
    for f, value in zip(everyone, values, strict=True):
        if value <= best + tie:
            error = sum(float(mass[n]) for n in range(len(mass)) if f[n] != clean[n])
            worst = max(worst, error)
    return worst


def cut_off_risk(coefficient: Table, p: Table, eps: float) -> float:
    total = 0.0
    for k in range(len(p)):
        total -= coefficient[k] * math.log(p[k] + eps)
    return total


def simplex(num_classes: int, steps: int) -> Iterator[list[float]]:
    """All distributions whose entries are multiples of 1/steps."""
    for parts in itertools.product(range(steps + 1), repeat=num_classes - 1):
        if sum(parts) <= steps:
            yield [part / steps for part in parts] + [(steps - sum(parts)) / steps]
