"""The K-class statements: invariance, the central claim, decoupling.

Any loss: ``loss[n, j]`` is ℓ(f(x_n), j), a table of shape (N, K). Proofs: docs/theory.md.
"""

import numpy as np

from covlearn.kinds import checked
from covlearn.theory import objectives
from covlearn.theory.objectives import risk, worst_error
from covlearn.theory.problem import (
    SUM_TOLERANCE,
    Floats,
    Problem,
    Statement,
    check_loss,
    check_square,
)


@checked
def column_rates(transition: Floats) -> Floats:
    """e_j, the mean of T_ij over i ≠ j: all of them under the structure T_ij = e_j.

    Rows of classes that do not occur (NaN) are left out.
    """
    num_classes = len(check_square(transition))
    columns = [np.delete(transition[:, j], j) for j in range(num_classes)]
    seen = [column[~np.isnan(column)] for column in columns]
    if any(len(column) == 0 for column in seen):
        raise ValueError("e_j needs a class other than j that occurs; add a point of another class")
    return np.array([column.mean() for column in seen])


@checked
def has_structure(transition: Floats) -> bool:
    """T_ij = e_j for all i ≠ j, the condition of the paper's corollary; nothing for K = 2."""
    expected = column_rates(transition) * (1 - np.eye(len(transition)))
    off_diagonal = np.where(np.eye(len(transition)) == 1, 0, transition)
    present = ~np.isnan(transition).any(axis=1)
    return bool((abs(off_diagonal - expected)[present] <= SUM_TOLERANCE).all())


@checked
def covariance_terms(problem: Problem, loss: Floats) -> float:
    """Σ_j E_{Y*} Cov(T_{Y*j}(X), ℓ_j | Y*) = Σ_i P_i Σ_j Cov(T_ij(X), ℓ_j(X) | Y* = i)."""
    check_loss(problem, loss)
    return sum(
        float(problem.prior[i]) * problem.cov(problem.transition[:, i, j], loss[:, j], given=i)
        for i in problem.present
        for j in range(problem.num_classes)
    )


@checked
def class_dependent_risk(problem: Problem, loss: Floats) -> Statement:
    """E[ℓ(f, Ỹ)] − Cov = Σ_i P_i Σ_j T_ij E[ℓ_j | Y* = i] with T = E[T(X) | Y*].

    The paper's central claim: minus the covariances, the risk under any T(x) is the risk under
    class-dependent noise, for any loss. Always exact.
    """
    check_loss(problem, loss)
    transition = problem.class_transition
    expected = sum(
        float(problem.prior[i] * transition[i, j]) * problem.mean(loss[:, j], given=i)
        for i in problem.present
        for j in range(problem.num_classes)
    )
    return Statement(
        risk(problem, problem.noisy, loss) - covariance_terms(problem, loss), float(expected)
    )


@checked
def invariance(problem: Problem, loss: Floats) -> Statement:
    """E[ℓ_PL(f, Ỹ)] = (1 − Σ_j e_j) E_{D*}[ℓ_PL(f, Y*)].

    Paper: Lemma (Invariant property of peer loss), here for K classes and any loss. Exact when the
    noise is class-dependent with T_ij = e_j.
    """
    return _decoupled(problem, loss, problem.class_transition, covariance=0.0)


@checked
def decoupling(problem: Problem, loss: Floats) -> Statement:
    """E[ℓ_PL(f, Ỹ)] = (1 − Σ_j e_j) E_{D*}[ℓ_PL(f, Y*)] + Σ_j E_{Y*} Cov(T_{Y*j}(X), ℓ_j | Y*).

    Paper: Corollary (Decoupling multi-class IDN), read with T = E[T(X) | Y*]. Exact when that T
    has the structure T_ij = e_j; for two classes always.
    """
    return _decoupled(problem, loss, problem.class_transition, covariance_terms(problem, loss))


@checked
def decoupling_printed(problem: Problem, loss: Floats) -> Statement:
    """The same corollary with the paper's T = E[T(X)] over all points: not exact."""
    return _decoupled(problem, loss, problem.mean_transition, covariance_terms(problem, loss))


@checked
def decoupling_repaired(problem: Problem, loss: Floats) -> Statement:
    """E[ℓ_PL(f, Ỹ)] = Σ_i P_i Σ_j (T_ij − π_j) E[ℓ_j | Y* = i] + Cov with T = E[T(X) | Y*].

    Peer loss under class-dependent noise plus the covariances: always exact, no structure needed.
    """
    class_dependent = risk(problem, objectives.cal(problem), loss)
    return Statement(
        risk(problem, objectives.peer(problem), loss),
        class_dependent + covariance_terms(problem, loss),
    )


@checked
def bayes_peer_covariance(problem: Problem, loss: Floats) -> Statement:
    """E_{D*}[ℓ_PL(f, Y*)] = Σ_j Cov(1{Y* = j}, ℓ_j): peer loss on D* is itself a covariance."""
    check_loss(problem, loss)
    labels = objectives.bayes(problem)
    covariances = [problem.cov(labels[:, j], loss[:, j]) for j in range(problem.num_classes)]
    return Statement(risk(problem, objectives.bayes_peer(problem), loss), sum(covariances))


@checked
def peer_optimality(problem: Problem) -> Statement:
    """P(f ≠ Y*) = 0 for every minimiser f of the 0-1 peer loss on D*.

    Paper: Lemma (peer loss on D*), here for any K. Exact for any prior with two classes or more.
    """
    return Statement(worst_error(problem, objectives.bayes_peer(problem)), 0.0)


@checked
def cal_optimality(problem: Problem, *, beta: float = 1.0) -> Statement:
    """P(f ≠ Y*) = 0 for every minimiser f of the 0-1 CAL risk with T = E[T(X) | Y*].

    Exact if and only if ``keeps_labels(T, βπ)``; with T_ij = e_j and β = 1 that is Σ_j e_j < 1
    and two classes or more.
    """
    return Statement(worst_error(problem, objectives.cal(problem, beta=beta)), 0.0)


def _decoupled(problem: Problem, loss: Floats, transition: Floats, covariance: float) -> Statement:
    informative = 1 - float(column_rates(transition).sum())
    on_bayes = risk(problem, objectives.bayes_peer(problem), loss)
    return Statement(
        risk(problem, objectives.peer(problem), loss), informative * on_bayes + covariance
    )
