"""What is minimised, as a table of coefficients c_j(x).

Every objective of the paper is linear in the losses, E[Σ_j c_j(X) ℓ(f(X), j)], and therefore
is its table c of shape (N, K). A covariance is such a table too: Cov(A, ℓ_j) = E[(A − E A) ℓ_j].
With the 0-1 loss the risk at x is a constant minus c_{f(x)}(x): the minimiser over all classifiers
picks the largest coefficient at every point, f(x) ∈ argmax_k c_k(x).
"""

import numpy as np
from numpy.typing import ArrayLike

from covlearn.kinds import checked
from covlearn.theory.problem import (
    MINUS,
    SUM_TOLERANCE,
    Bools,
    Floats,
    Problem,
    check_distribution,
    check_finite,
    check_loss,
    one_hot,
)

TIE = 1e-12  # two coefficients closer than this are equal up to rounding


@checked
def risk(problem: Problem, coefficient: Floats, loss: Floats) -> float:
    """E[Σ_j c_j(X) ℓ_j(X)]."""
    check_loss(problem, coefficient, name="coefficient")
    return problem.mean((coefficient * check_loss(problem, loss)).sum(axis=1))


@checked
def minimisers(coefficient: Floats) -> Bools:
    """All classes that a minimiser of the 0-1 risk may pick at x: the ties of max_k c_k(x)."""
    if coefficient.ndim != 2 or coefficient.shape[1] < 2:
        raise ValueError(
            "coefficient must have one row a point and one column a class, got shape "
            f"{coefficient.shape}"
        )
    check_finite(coefficient, name="coefficient")
    ties: Bools = coefficient >= coefficient.max(axis=1, keepdims=True) - TIE
    return ties


@checked
def error_price(problem: Problem, coefficient: Floats) -> Floats:
    """What the cheapest error at x costs, c_{Y*}(x) − max_{k≠Y*} c_k(x).

    Positive: every minimiser is right at x. Negative: every minimiser is wrong there.
    """
    is_label = one_hot(problem.clean, problem.num_classes).astype(bool)
    coefficient = check_loss(problem, coefficient, name="coefficient")
    rivals = np.where(is_label, -np.inf, coefficient)
    price: Floats = coefficient[is_label] - rivals.max(axis=1)
    return price


@checked
def worst_error(problem: Problem, coefficient: Floats) -> float:
    """P(f(X) ≠ Y*) of the worst classifier among the minimisers of the 0-1 risk."""
    return float(problem.mass @ (error_price(problem, coefficient) <= TIE))


@checked
def bayes(problem: Problem) -> Floats:
    """E[ℓ(f, Y*)]: c_j(x) = 1{Y*(x) = j}."""
    return one_hot(problem.clean, problem.num_classes)


@checked
def noisy(problem: Problem) -> Floats:
    """E[ℓ(f, Ỹ)]: c_j(x) = P(Ỹ = j | x)."""
    return problem.noisy


@checked
def bayes_peer(problem: Problem, *, beta: float = 1.0) -> Floats:
    """Peer loss on D*: c_j(x) = 1{Y*(x) = j} − β P_j."""
    return bayes(problem) - check_finite(beta, name="beta") * problem.prior


@checked
def peer(problem: Problem, *, beta: float = 1.0) -> Floats:
    """Peer loss on the noisy labels: c_j(x) = P(Ỹ = j | x) − β π_j. Paper: Sec. 3.1.

    The expected peer term is E_X E_Ỹ ℓ(f(X), Ỹ) with X and Ỹ independent. β = 1 is peer loss,
    any other β the 0-1 form of CORES².
    """
    return noisy(problem) - check_finite(beta, name="beta") * problem.noisy_prior


@checked
def cal(problem: Problem, *, beta: float = 1.0) -> Floats:
    """Peer loss minus Σ_j E_{Y*} Cov(T_{Y*j}(X), ℓ_j | Y*): c_j(x) = T_{Y*(x) j} − β π_j.

    T is the transition given the class, E[T(X) | Y*]. Paper: Eq. (cov_def).
    """
    covariance = noisy(problem) - problem.class_transition[problem.clean]
    return peer(problem, beta=beta) - covariance


@checked
def cal_printed(problem: Problem, refined: ArrayLike | None = None) -> Floats:
    """Peer loss minus Cov(Z₁, 1(f, Ŷ)) minus Cov(Z₂, 1(f, −1)), as the binary theorems print it.

    ``refined`` is P(Ŷ = j | x) of shape (N, 2); without it D̂ = D*. Paper: Sec. 4.2 and 4.3.
    """
    proxy = bayes(problem) if refined is None else check_refined(problem, refined)
    flip_plus, flip_minus = flips(problem)
    z1, z2 = 1 - flip_plus - flip_minus, flip_plus - flip_minus
    covariance = (z1 - problem.mean(z1))[:, None] * proxy
    covariance[:, MINUS] += z2 - problem.mean(z2)
    return peer(problem) - covariance


@checked
def cal_counted(problem: Problem, joint: ArrayLike, *, beta: float = 1.0) -> Floats:
    """CAL as it is run: T̂ counted on D̂, c_j(x) = Σ_i P(Ŷ = i | x) T̂_ij − β π_j.

    ``joint[n, i, j]`` is P(Ŷ = i, Ỹ = j | x_n): the refined label may depend on the noisy one.
    """
    refined: Floats = check_joint(problem, joint).sum(axis=2)
    # Labels that are absent weigh nothing.
    transition: Floats = np.nan_to_num(counted_transition(problem, joint))
    return refined @ transition - check_finite(beta, name="beta") * problem.noisy_prior


@checked
def counted_transition(problem: Problem, joint: ArrayLike) -> Floats:
    """T̂_ij = P(Ỹ = j | Ŷ = i); NaN in the row of a refined label that never occurs."""
    counts = np.tensordot(problem.mass, check_joint(problem, joint), axes=1)
    total = counts.sum(axis=1, keepdims=True)
    rows: Floats = np.divide(counts, total, out=np.full_like(counts, np.nan), where=total > 0)
    return rows


@checked
def flips(problem: Problem) -> tuple[Floats, Floats]:
    """e₊(x) and e₋(x) of a binary problem."""
    if problem.num_classes != 2:
        raise ValueError(
            f"this statement is about two classes, the problem has {problem.num_classes}; "
            "use the K-class form"
        )
    return problem.transition[:, 1, 0], problem.transition[:, 0, 1]


@checked
def check_refined(problem: Problem, refined: ArrayLike) -> Floats:
    """P(Ŷ = j | x): one distribution a point."""
    table = np.asarray(refined, dtype=np.float64)
    if table.shape != problem.noisy.shape:
        raise ValueError(
            f"refined must be P(Ŷ = j | x) of shape {problem.noisy.shape}, got {table.shape}; "
            "one_hot(labels, num_classes) makes it of labels"
        )
    check_distribution(table, name="rows of refined")
    return table


@checked
def check_joint(problem: Problem, joint: ArrayLike) -> Floats:
    """P(Ŷ = i, Ỹ = j | x), whose sum over i must be the problem's own P(Ỹ = j | x)."""
    table = np.asarray(joint, dtype=np.float64)
    if table.shape != problem.transition.shape:
        raise ValueError(
            f"joint must be P(Ŷ = i, Ỹ = j | x) of shape {problem.transition.shape}, "
            f"got {table.shape}"
        )
    agrees = abs(table.sum(axis=1) - problem.noisy) <= SUM_TOLERANCE  # false for NaN
    if not (agrees.all() and (table >= 0).all()):
        raise ValueError(
            "joint must not be negative and its sum over the refined label must be the problem's "
            "P(Ỹ = j | x)"
        )
    return table
