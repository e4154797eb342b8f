"""CAL with an imperfect D̂: the printed bound, its repair, and CAL as it is run.

ρ(x) = P(Ŷ ≠ Y* | x) and 1 − τ = E[ρ(X)]. All features stay, so D̂ and D* have the same X and
the covariance of Z₂ does not depend on Ŷ at all. Proofs: docs/theory.md.
"""

import numpy as np
from numpy.typing import ArrayLike

from covlearn.kinds import checked
from covlearn.theory import objectives
from covlearn.theory.binary import check_both_classes, rates, ratio, z1
from covlearn.theory.objectives import (
    check_joint,
    check_refined,
    counted_transition,
    risk,
    worst_error,
)
from covlearn.theory.problem import MINUS, PLUS, Floats, Problem, Statement, check_loss, zero_one


@checked
def wrong_rate(problem: Problem, refined: ArrayLike) -> Floats:
    """ρ(x) = P(Ŷ ≠ Y*(x) | x)."""
    right: Floats = (objectives.bayes(problem) * check_refined(problem, refined)).sum(axis=1)
    return 1 - right


@checked
def share_right(problem: Problem, refined: ArrayLike) -> float:
    """τ = P(Ŷ = Y*)."""
    return 1 - problem.mean(wrong_rate(problem, refined))


@checked
def covariance_error(problem: Problem, refined: ArrayLike, prediction: ArrayLike) -> Statement:
    """Cov_D̂(Z₁, 1(f, Ŷ)) − Cov_D*(Z₁, 1(f, Y*)) ≤ 2(1−τ)(ε₊ + ε₋).

    Paper: the step of the proof of Theorem (Imperfect Covariance) that fails when D̂ is wrong where
    the noise rate is unusual.
    """
    loss = zero_one(problem, prediction)
    on_bayes = (objectives.bayes(problem) * loss).sum(axis=1)
    on_refined = (check_refined(problem, refined) * loss).sum(axis=1)
    return Statement(
        left=problem.cov(z1(problem), on_refined) - problem.cov(z1(problem), on_bayes),
        right=2 * (1 - share_right(problem, refined)) * rates(problem).spread,
        relation="<=",
    )


@checked
def imperfect_bound(problem: Problem, refined: ArrayLike) -> Statement:
    """P(f ≠ Y*) ≤ 4(1−τ)(ε₊ + ε₋)/(1 − e₊ − e₋), printed for p = ½.

    Paper: Theorem (Imperfect Covariance). False for every τ in (¾, 1) without an assumption on
    where D̂ is wrong.
    """
    mean = rates(problem)
    return Statement(
        left=worst_error(problem, objectives.cal_printed(problem, refined)),
        right=ratio(4 * (1 - share_right(problem, refined)) * mean.spread, mean.informative),
        relation="<=",
    )


@checked
def imperfect_bound_repaired(problem: Problem, refined: ArrayLike) -> Statement:
    """P(f ≠ Y*) ≤ E[h 1{Y*=+1}]/(P(−1) E[Z₁|−1]) + E[h 1{Y*=−1}]/(P(+1) E[Z₁|+1]).

    h(x) = (E[Z₁] − Z₁(x))₊ ρ(x): how much noisier than the average a point is, where D̂ is wrong.
    Any p; with p = ½ and δ = 0 it is 2 E[h]/(1 − e₊ − e₋). Needs ``optimality_condition``.
    """
    check_both_classes(problem)
    excess = np.maximum(problem.mean(z1(problem)) - z1(problem), 0) * wrong_rate(problem, refined)
    harm = {i: problem.prior[i] * problem.mean(excess, given=i) for i in (MINUS, PLUS)}
    price = {i: problem.prior[i] * problem.mean(z1(problem), given=i) for i in (MINUS, PLUS)}
    return Statement(
        left=worst_error(problem, objectives.cal_printed(problem, refined)),
        right=ratio(harm[PLUS], price[MINUS]) + ratio(harm[MINUS], price[PLUS]),
        relation="<=",
    )


@checked
def imperfect_bound_unrelated(problem: Problem, refined: ArrayLike) -> Statement:
    """P(f ≠ Y*) ≤ (1−τ) E|Z₁ − E Z₁| / (1 − e₊ − e₋), a quarter of the printed bound or less.

    For p = ½, δ = 0 and a D̂ that is not wrong more often where the noise is above its mean:
    Cov((E[Z₁] − Z₁)₊, ρ) ≤ 0.
    """
    spread = problem.mean(abs(z1(problem) - problem.mean(z1(problem))))
    return Statement(
        left=worst_error(problem, objectives.cal_printed(problem, refined)),
        right=ratio((1 - share_right(problem, refined)) * spread, rates(problem).informative),
        relation="<=",
    )


@checked
def refined_given_x(problem: Problem, refined: ArrayLike) -> Floats:
    """P(Ŷ = i, Ỹ = j | x) when Ŷ and Ỹ are independent given x, e.g. when Ŷ is a function of x."""
    return check_refined(problem, refined)[:, :, None] * problem.noisy[:, None, :]


@checked
def counted_risk(problem: Problem, joint: ArrayLike, loss: Floats) -> Statement:
    """E[ℓ(f,Ỹ)] − Σ_i P̂_i Σ_j Cov(1{Ỹ=j}, ℓ_j | Ŷ=i) = Σ_i P̂_i Σ_j T̂_ij E[ℓ_j | Ŷ=i].

    For any D̂: CAL with counted T̂ learns the labels of D̂ under class-dependent noise T̂. With
    Ŷ a function of x its 0-1 minimiser is Ŷ itself wherever ``keeps_labels`` holds for T̂.
    """
    check_loss(problem, loss)
    table = check_joint(problem, joint)
    refined = table.sum(axis=2)
    transition = np.nan_to_num(counted_transition(problem, joint))
    deviation = table - refined[:, :, None] * transition  # E[(1{Ỹ=j} − T̂_ij) 1{Ŷ=i} | x]
    covariance = np.einsum("n,nij,nj->", problem.mass, deviation, loss)
    learned = np.einsum("n,ni,ij,nj->", problem.mass, refined, transition, loss)
    return Statement(risk(problem, problem.noisy, loss) - float(covariance), float(learned))
