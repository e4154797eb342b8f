"""The binary statements: peer loss on D*, decoupling, the peer bound, optimality.

Z₁(x) = 1 − e₊(x) − e₋(x), Z₂(x) = e₊(x) − e₋(x), p = P(Y* = +1). A function named like a theorem
gives its two sides as printed, with e± = E[e±(X)]; ``…_repaired`` is the form that needs no
unspoken condition. Proofs: docs/theory.md.
"""

from dataclasses import dataclass

from numpy.typing import ArrayLike

from covlearn.kinds import checked
from covlearn.theory import objectives
from covlearn.theory.objectives import flips, risk, worst_error
from covlearn.theory.problem import MINUS, PLUS, Floats, Problem, Statement, one_hot, zero_one


@dataclass(frozen=True)
class Rates:
    """Mean noise rates e± and their mean absolute deviations ε±."""

    plus: float
    minus: float
    spread_plus: float
    spread_minus: float

    @property
    def informative(self) -> float:
        """1 − e₊ − e₋."""
        return 1 - self.plus - self.minus

    @property
    def spread(self) -> float:
        """ε₊ + ε₋."""
        return self.spread_plus + self.spread_minus


@checked
def z1(problem: Problem) -> Floats:
    """Z₁(x) = 1 − e₊(x) − e₋(x)."""
    flip_plus, flip_minus = flips(problem)
    return 1 - flip_plus - flip_minus


@checked
def z2(problem: Problem) -> Floats:
    """Z₂(x) = e₊(x) − e₋(x)."""
    flip_plus, flip_minus = flips(problem)
    return flip_plus - flip_minus


@checked
def rates(problem: Problem) -> Rates:
    """e± = E[e±(X)] and ε± = E|e±(X) − e±| over all points, as in Sec. 3.2 and 4.1 of the paper.

    At half of the points e₊(x) or e₋(x) is counterfactual: the result depends on numbers that no
    data can show.
    """
    return _rates(problem, given_plus=None, given_minus=None)


@checked
def class_rates(problem: Problem) -> Rates:
    """e₊ = P(Ỹ = −1 | Y* = +1), e₋ = P(Ỹ = +1 | Y* = −1), as in Sec. 3.3 of the paper.

    ε± are the mean absolute deviations within the class.
    """
    check_both_classes(problem)
    return _rates(problem, given_plus=PLUS, given_minus=MINUS)


@checked
def missing_covariance(problem: Problem) -> float:
    """δ = Cov(Z₁(X), 1{Y* = +1}) = P(Ỹ = +1) − [(1 − e₊ − e₋) p + e₋] with e± = E[e±(X)].

    The printed decoupling is exact for every classifier if and only if δ = 0.
    """
    return problem.cov(z1(problem), one_hot(problem.clean, 2)[:, PLUS])


@checked
def peer_on_bayes(problem: Problem, prediction: ArrayLike) -> Statement:
    """E_{D*}[1_PL(f, Y*)] = 2p(1−p)(a + b − 1), a and b the error rates of f on +1 and −1.

    Paper: Lemma (peer loss on D*), whose proof stops at an inequality.
    """
    check_both_classes(problem)
    error = _wrong(problem, prediction)
    p = problem.prior[PLUS]
    errors = problem.mean(error, given=PLUS) + problem.mean(error, given=MINUS)
    left = risk(problem, objectives.bayes_peer(problem), zero_one(problem, prediction))
    return Statement(left, float(2 * p * (1 - p) * (errors - 1)))


@checked
def binary_decoupling(problem: Problem, prediction: ArrayLike) -> Statement:
    """E[1_PL(f,Ỹ)] = (1−e₊−e₋) E_{D*}[1_PL(f,Y*)] + Cov(Z₁,1(f,Y*)) + Cov(Z₂,1(f,−1)).

    Paper: Theorem (Decoupling binary IDN). Exact if and only if δ = 0 or P(f = +1) = ½.
    """
    loss = zero_one(problem, prediction)
    on_bayes = risk(problem, objectives.bayes_peer(problem), loss)
    return Statement(
        left=risk(problem, objectives.peer(problem), loss),
        right=rates(problem).informative * on_bayes
        + problem.cov(z1(problem), _wrong(problem, prediction))
        + problem.cov(z2(problem), loss[:, MINUS]),
    )


@checked
def binary_decoupling_repaired(problem: Problem, prediction: ArrayLike) -> Statement:
    """The printed decoupling plus its missing term δ (P(f = +1) − P(f = −1)): always exact."""
    printed = binary_decoupling(problem, prediction)
    tilt = problem.mean(2 * one_hot(prediction, 2)[:, PLUS] - 1)
    return Statement(printed.left, printed.right + missing_covariance(problem) * tilt)


@checked
def optimality(problem: Problem) -> Statement:
    """P(f ≠ Y*) = 0 for every minimiser f of peer loss minus the two printed covariances.

    Paper: Theorem (optimality). True exactly when ``optimality_condition`` says so.
    """
    return Statement(worst_error(problem, objectives.cal_printed(problem)), 0.0)


@checked
def optimality_condition(problem: Problem) -> bool:
    """Both classes occur, E[Z₁ | Y* = +1] > 0 and E[Z₁ | Y* = −1] > 0."""
    if len(problem.present) < 2:
        return False
    return all(problem.mean(z1(problem), given=label) > 0 for label in (MINUS, PLUS))


@checked
def peer_bound(problem: Problem) -> Statement:
    """P(f ≠ Y*) ≤ 2(ε₊ + ε₋)/(1 − e₊ − e₋) + 2|p − ½| for every minimiser f of peer loss.

    Paper: Theorem (Performance of peer loss). True whenever 1 − e₊ − e₋ > 0, although the printed
    proof rests on a decoupling that need not hold.
    """
    mean = rates(problem)
    imbalance = 2 * abs(problem.prior[PLUS] - 0.5)
    return Statement(
        left=worst_error(problem, objectives.peer(problem)),
        right=ratio(2 * mean.spread, mean.informative) + float(imbalance),
        relation="<=",
    )


@checked
def peer_bound_repaired(problem: Problem) -> Statement:
    """P(f ≠ Y*) ≤ [p/(1−p) ε₊ + (1−p)/p ε₋] / (2(1 − e₊ − e₋)), all rates given the class.

    Attained, observable, and without an additive term; needs 1 − e₊ − e₋ > 0 given the class.
    """
    within = class_rates(problem)
    odds = problem.prior[PLUS] / problem.prior[MINUS]
    return Statement(
        left=worst_error(problem, objectives.peer(problem)),
        right=ratio(
            float(odds * within.spread_plus + within.spread_minus / odds), 2 * within.informative
        ),
        relation="<=",
    )


def ratio(above: float, below: float) -> float:
    """above / below, where a bound that divides by zero says nothing."""
    return above / below if below != 0 else float("inf")


def check_both_classes(problem: Problem) -> None:
    """Rates given the class exist only for a class that occurs."""
    if len(problem.present) < problem.num_classes:
        raise ValueError(
            f"every class must occur to have a noise rate, got only {problem.present} of "
            f"{problem.num_classes} classes; add a point of each missing class"
        )


def _rates(problem: Problem, *, given_plus: int | None, given_minus: int | None) -> Rates:
    flip_plus, flip_minus = flips(problem)
    plus = problem.mean(flip_plus, given=given_plus)
    minus = problem.mean(flip_minus, given=given_minus)
    return Rates(
        plus=plus,
        minus=minus,
        spread_plus=problem.mean(abs(flip_plus - plus), given=given_plus),
        spread_minus=problem.mean(abs(flip_minus - minus), given=given_minus),
    )


def _wrong(problem: Problem, prediction: ArrayLike) -> Floats:
    """1(f(x), Y*(x))."""
    wrong: Floats = (objectives.bayes(problem) * zero_one(problem, prediction)).sum(axis=1)
    return wrong
