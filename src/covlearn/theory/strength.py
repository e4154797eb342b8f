"""What β ≠ 1 and an unbounded loss cost, which the paper's theory leaves open.

The 0-1 risk with coefficients c_k(x) = T_{Y*k} − w_k, w = βπ, picks argmax_k c_k(x); the
cross-entropy with the same coefficients needs its cut-off ε. Proofs: docs/theory.md.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from covlearn.kinds import check_kind, checked, shown
from covlearn.theory.objectives import TIE
from covlearn.theory.problem import Floats, check_finite


@checked
def keeps_labels(transition: Floats, weight: Floats) -> bool:
    """T_ii − T_ik > w_i − w_k for every class i that occurs and k ≠ i: Y* is the only minimiser.

    ``weight`` is what the regulariser subtracts, βπ, or β√π/Σ√π in the paper's first stage.
    Rows of ``transition`` that are NaN belong to classes that do not occur.
    """
    _check_shapes(transition, weight)
    coefficient = transition - weight
    price = np.diagonal(coefficient)[:, None] - coefficient
    rivals = price[~np.eye(len(transition), dtype=bool)]
    return bool((rivals[~np.isnan(rivals)] > TIE).all())


@checked
def beta_interval(transition: Floats, noisy_prior: Floats) -> tuple[float, float]:
    """The open interval of β for which Y* is the only minimiser; empty if low ≥ high.

    T_ii − T_ik > β(π_i − π_k): a pair with π_i > π_k bounds β from above, one with π_i < π_k
    from below. With T_ij = e_j the condition reads
    (1 − Σe)[1 − β(P_i − P_k)] > (β − 1)(e_i − e_k).

    >>> low, high = beta_interval(np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([0.38, 0.62]))
    >>> round(high, 3)
    2.5
    """
    _check_shapes(transition, noisy_prior)
    low, high = -math.inf, math.inf
    for i, k in np.ndindex(transition.shape):
        price, tilt = float(transition[i, i] - transition[i, k]), noisy_prior[i] - noisy_prior[k]
        if i == k or math.isnan(price):
            continue
        if tilt > TIE:
            high = min(high, price / float(tilt))
        elif tilt < -TIE:
            low = max(low, price / float(tilt))
        elif price <= TIE:
            return math.inf, -math.inf
    return low, high


@checked
def bounded_below(coefficient: Floats) -> bool:
    """Whether E[Σ_k c_k(X) (−ln p_k(X))] has a lower bound over all p: no coefficient is negative.

    The coefficients at x sum to 1 − β. With β > 1 the risk is never bounded; with β = 1 only if
    the labels say nothing (all c = 0); with β < 1 if and only if P(Ỹ = k | x) ≥ βπ_k everywhere.
    """
    return bool((check_finite(coefficient, name="coefficient") >= 0).all())


@checked
def cut_off_minimiser(coefficient: ArrayLike, *, eps: float) -> Floats:
    """argmin over distributions p of −Σ_k c_k ln(p_k + ε) at one point.

    p_k = max(0, c_k/λ − ε) over the positive c_k, λ so that p sums to one; without a positive one
    the vertex of the largest c_k. Its argmax is the 0-1 rule's class; p → (c)₊/Σ(c)₊ for ε → 0.

    >>> cut_off_minimiser([0.6, 0.2, -0.8], eps=1e-5).round(3).tolist()
    [0.75, 0.25, 0.0]
    """
    if not 0 < eps < math.inf:
        raise ValueError(
            f"eps must be positive and finite, got {eps}; without a cut-off there is no minimiser"
        )
    c = np.asarray(coefficient, dtype=np.float64)
    if c.ndim != 1 or len(c) < 2 or not np.isfinite(c).all():
        raise ValueError(
            f"coefficient must be a finite vector of 2 classes or more, got {shown(coefficient)}"
        )
    p = np.zeros_like(c)
    if c.max() <= 0:
        p[c.argmax()] = 1.0
        return p
    order = np.argsort(-c)
    for size in range(int((c > 0).sum()), 0, -1):  # the largest support whose levels are positive
        chosen = order[:size]
        level = c[chosen] * (1 + size * eps) / c[chosen].sum() - eps
        if level[-1] >= 0:
            p[chosen] = level
            break
    return p


def one_hot_coefficients(*terms: tuple[Floats, float]) -> Floats:
    """Σ_t c_t ln((1 + ε_t)/ε_t): the class a one-hot output prefers when terms differ in ε.

    The published ε = 1e-8 in the first term and 1e-5 in the others weigh P(Ỹ = k | x) 1.6 times as
    much as the rest: between one-hot outputs β acts as 0.625 β, and CAL keeps a share of T(x).
    """
    if not terms:
        raise ValueError("expected a coefficient with its eps at least, got none")
    for term in terms:
        check_kind(term, tuple[Floats, float], name="a term")
    return sum(
        (coefficient * math.log1p(1 / eps) for coefficient, eps in terms),
        start=np.zeros_like(terms[0][0]),
    )


def _check_shapes(transition: Floats, weight: Floats) -> None:
    if transition.ndim != 2 or transition.shape != weight.shape * 2:
        raise ValueError(
            f"transition must be K×K and the weights K numbers, got {transition.shape} "
            f"and {weight.shape}"
        )
