"""Noise that is class-dependent within each part of the data: the down-weighting of Sec. 3.3.

``part[n]`` is the part of point n; e₊(x) and e₋(x) are constant on a part. ω_s is a part's mass and
Z_s = 1 − e₊ − e₋ on it. Proofs: docs/theory.md.
"""

import numpy as np
from numpy.typing import ArrayLike

from covlearn.kinds import checked
from covlearn.theory import objectives
from covlearn.theory.binary import class_rates, z1
from covlearn.theory.objectives import flips, risk
from covlearn.theory.problem import (
    SUM_TOLERANCE,
    Bools,
    Floats,
    Problem,
    Statement,
    zero_one,
)


@checked
def effective_weight(problem: Problem) -> Floats:
    """Z₁(x)/E[Z₁]: the weight of the true-label loss at x, one everywhere under uniform noise.

    The paper's down-weighting factor of part II against part I is the ratio of two such weights.
    """
    return z1(problem) / problem.mean(z1(problem))


@checked
def part_decoupling(problem: Problem, part: ArrayLike, prediction: ArrayLike) -> Statement:
    """E[1_PL(f, Ỹ)] = Σ_s ω_s Z_s E_{D*_s}[1_PL(f, Y*)], as printed in Sec. 3.3.

    The left side draws peers from the whole mixture, the right side within each part: exact for
    every f if and only if P(Ỹ = +1 | part) is the same in all parts.
    """
    loss = zero_one(problem, prediction)
    return Statement(
        risk(problem, objectives.peer(problem), loss), _weighted_parts(problem, part, loss)
    )


@checked
def part_decoupling_repaired(problem: Problem, part: ArrayLike, prediction: ArrayLike) -> Statement:
    """The printed right side minus 2 Cov_s(P(Ỹ = +1 | s), P(f = +1 | s)): always exact."""
    printed = part_decoupling(problem, part, prediction)
    masks = _parts(problem, part)
    weight = np.array([problem.mass[mask].sum() for mask in masks])
    noisy = np.array([_restrict(problem, mask).noisy_prior[1] for mask in masks])
    chosen = np.array([problem.mass[mask] @ np.asarray(prediction)[mask] for mask in masks])
    chosen = chosen / weight
    between = weight @ ((noisy - weight @ noisy) * (chosen - weight @ chosen))
    return Statement(printed.left, printed.right - 2 * float(between))


@checked
def part_decoupling_within(problem: Problem, part: ArrayLike, prediction: ArrayLike) -> Statement:
    """Σ_s ω_s E_{D̃_s}[1_PL(f, Ỹ)] with peers from the same part = Σ_s ω_s Z_s E_{D*_s}[1_PL].

    Always exact: the invariance lemma, part by part.
    """
    loss = zero_one(problem, prediction)
    within = 0.0
    for mask in _parts(problem, part):
        inside = _restrict(problem, mask)
        within += float(problem.mass[mask].sum()) * risk(
            inside, objectives.peer(inside), loss[mask]
        )
    return Statement(within, _weighted_parts(problem, part, loss))


@checked
def part_rate(problem: Problem, part: ArrayLike) -> Statement:
    """P(Ỹ = −1 | Y* = +1) = Σ_s ω_s e_{+,s}, as printed in Sec. 3.3.

    Exact if and only if e_{+,s} and P(Y* = +1 | s) are uncorrelated over the parts.
    """
    _parts(problem, part)
    return Statement(class_rates(problem).plus, problem.mean(flips(problem)[0]))


def _weighted_parts(problem: Problem, part: ArrayLike, loss: Floats) -> float:
    """Σ_s ω_s Z_s E_{D*_s}[ℓ_PL(f, Y*)]."""
    total = 0.0
    for mask in _parts(problem, part):
        inside = _restrict(problem, mask)
        on_bayes = risk(inside, objectives.bayes_peer(inside), loss[mask])
        total += float(problem.mass[mask].sum() * z1(problem)[mask][0]) * on_bayes
    return total


def _parts(problem: Problem, part: ArrayLike) -> list[Bools]:
    labels = np.asarray(part)
    if labels.shape != problem.mass.shape:
        raise ValueError(
            f"part must name one part a point, {problem.mass.shape}, got {labels.shape}"
        )
    masks = [labels == name for name in np.unique(labels)]
    for mask in masks:
        if any(np.ptp(flip[mask]) > SUM_TOLERANCE for flip in flips(problem)):
            raise ValueError(
                "e₊(x) and e₋(x) must be constant within a part; split the parts further"
            )
    return masks


def _restrict(problem: Problem, mask: Bools) -> Problem:
    mass = problem.mass[mask]
    return Problem(mass / mass.sum(), problem.clean[mask], problem.transition[mask])
