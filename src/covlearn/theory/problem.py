"""A finite learning problem with label noise: every expectation is a sum, so nothing is estimated.

Points x with masses, the Bayes label Y*(x) of each, and a noise matrix T(x) for each. The binary
classes −1 and +1 of the paper are the numbers 0 and 1 here (Paper: Sec. 3).
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covlearn.kinds import checked

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Numbers = TypeVar("Numbers", float, Floats)

SUM_TOLERANCE = 1e-9
MINUS, PLUS = 0, 1


@dataclass(frozen=True)
class Statement:
    """Both sides of a printed or repaired statement, for one problem."""

    left: float
    right: float
    relation: Literal["=", "<="] = "="

    @property
    def residual(self) -> float:
        """Left minus right: zero for an equality that holds, at most zero for a bound."""
        return self.left - self.right

    @property
    def holds(self) -> bool:
        """Whether the relation holds, up to rounding."""
        rounding = SUM_TOLERANCE * max(1.0, abs(self.left), abs(self.right))
        excess = abs(self.residual) if self.relation == "=" else self.residual
        return bool(excess <= rounding)


@dataclass(frozen=True, eq=False, init=False)
class Problem:
    """Points with masses, Bayes labels and T_ij(x) = P(Ỹ = j | Y* = i, x).

    Row i of T(x) at a point whose label is not i is counterfactual: no data can show it. The
    paper's averages E[T(X)] contain such rows, ``class_transition`` does not.

    >>> problem = Problem([0.5, 0.5], [0, 1], [[[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.2, 0.8]]])
    >>> problem.noisy_prior.tolist()
    [0.55, 0.45]
    """

    mass: Floats
    clean: Ints
    transition: Floats

    @checked
    def __init__(self, mass: ArrayLike, clean: ArrayLike, transition: ArrayLike) -> None:
        freeze = object.__setattr__
        freeze(self, "mass", _frozen(np.asarray(mass, dtype=np.float64)))
        freeze(self, "transition", _frozen(np.asarray(transition, dtype=np.float64)))
        freeze(self, "clean", _frozen(_labels(clean)))
        self._check()

    def _check(self) -> None:
        points, matrices = self.mass.shape, self.transition.shape
        if len(points) != 1 or points[0] == 0:
            raise ValueError(f"mass must be a non-empty vector, one entry a point, got {points}")
        if not (np.isfinite(self.mass).all() and (self.mass > 0).all()):
            raise ValueError("every mass must be positive; leave out points that never occur")
        if abs(self.mass.sum() - 1) > SUM_TOLERANCE:
            raise ValueError(f"masses must sum to 1, got {self.mass.sum():.9g}; divide by the sum")
        if len(matrices) != 3 or matrices[0] != points[0] or matrices[1] != matrices[2]:
            raise ValueError(
                f"transition must hold one K×K matrix a point, shape ({points[0]}, K, K), "
                f"got {matrices}"
            )
        if matrices[1] < 2:
            raise ValueError("transition must have at least 2 classes, got 1")
        check_distribution(self.transition, name="rows of transition")
        if self.clean.shape != points:
            raise ValueError(f"clean must have one label a point, {points}, got {self.clean.shape}")
        one_hot(self.clean, self.num_classes)  # refuses labels out of range

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self.transition.shape[1])

    def mean(self, values: Floats, *, given: int | None = None) -> float:
        """E[V], or E[V | Y* = given]."""
        weight = self.mass if given is None else self.mass * (self.clean == given)
        return float(weight @ values / weight.sum())

    def cov(self, a: Floats, b: Floats, *, given: int | None = None) -> float:
        """Cov(A, B) = E[(A − E A)(B − E B)], all given Y* = given if that is set."""
        centred_a = a - self.mean(a, given=given)
        centred_b = b - self.mean(b, given=given)
        return self.mean(centred_a * centred_b, given=given)

    @property
    def prior(self) -> Floats:
        """P_i = P(Y* = i)."""
        return self.mass @ one_hot(self.clean, self.num_classes)

    @property
    def present(self) -> list[int]:
        """The classes that occur: those with P_i > 0."""
        return [int(i) for i in np.unique(self.clean)]

    @property
    def noisy(self) -> Floats:
        """P(Ỹ = j | x): row Y*(x) of T(x), the only row that data can show; shape (N, K)."""
        rows: Floats = self.transition[np.arange(len(self.clean)), self.clean]
        return rows

    @property
    def noisy_prior(self) -> Floats:
        """π_j = P(Ỹ = j)."""
        return self.mass @ self.noisy

    @property
    def mean_transition(self) -> Floats:
        """T_ij = E[T_ij(X)], the average the paper writes; counterfactual rows count."""
        return np.tensordot(self.mass, self.transition, axes=1)

    @property
    def class_transition(self) -> Floats:
        """T_ij = E[T_ij(X) | Y* = i] = P(Ỹ = j | Y* = i); NaN in the row of a class not present."""
        table = np.full((self.num_classes, self.num_classes), np.nan)
        for i in self.present:
            table[i] = [self.mean(self.noisy[:, j], given=i) for j in range(self.num_classes)]
        return table


@checked
def binary_problem(
    mass: ArrayLike, clean: ArrayLike, flip_plus: ArrayLike, flip_minus: ArrayLike
) -> Problem:
    """Two classes from e₊(x) = P(Ỹ = −1 | Y* = +1, x) and e₋(x) = P(Ỹ = +1 | Y* = −1, x).

    Paper: Sec. 3. Labels are 0 for −1 and 1 for +1.

    >>> binary_problem([0.5, 0.5], [1, 0], [0.2, 0.2], [0.1, 0.1]).class_transition.tolist()
    [[0.9, 0.1], [0.2, 0.8]]
    """
    plus, minus = np.broadcast_arrays(
        np.asarray(flip_plus, dtype=np.float64), np.asarray(flip_minus, dtype=np.float64)
    )
    rows_minus = np.stack([1 - minus, minus], axis=-1)
    rows_plus = np.stack([plus, 1 - plus], axis=-1)
    return Problem(mass, clean, np.stack([rows_minus, rows_plus], axis=-2))


@checked
def one_hot(labels: ArrayLike, num_classes: int) -> Floats:
    """Row n has a one at label n."""
    array = _labels(labels)
    if array.size and (array.min() < 0 or array.max() >= num_classes):
        raise ValueError(
            f"labels must lie in 0…{num_classes - 1}, got {array.min()} to {array.max()}; "
            "number the classes from zero (the binary −1 is 0, +1 is 1)"
        )
    return np.eye(num_classes)[array]


@checked
def zero_one(problem: Problem, prediction: ArrayLike) -> Floats:
    """The 0-1 loss 1(f(x), j) = 1{f(x) ≠ j} for every x and j; shape (N, K)."""
    return 1 - check_loss(problem, one_hot(prediction, problem.num_classes), name="prediction")


def check_loss(problem: Problem, loss: Floats, *, name: str = "loss") -> Floats:
    """One row a point, one column a class, all finite."""
    if loss.shape != problem.noisy.shape:
        raise ValueError(
            f"{name} must have one row a point and K columns, {problem.noisy.shape}, "
            f"got {loss.shape}"
        )
    return check_finite(loss, name=name)


def check_square(transition: Floats) -> Floats:
    """A K×K matrix; NaN in the rows of classes that do not occur."""
    if transition.ndim != 2 or transition.shape[0] != transition.shape[1]:
        raise ValueError(f"transition must be K×K, got shape {transition.shape}")
    return transition


def check_finite(values: Numbers, *, name: str) -> Numbers:
    """Nothing that an expectation cannot be taken of."""
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity; cut it off")
    return values


def check_distribution(rows: Floats, *, name: str) -> None:
    """Rows of probabilities: finite, not negative, summing to one."""
    if not np.isfinite(rows).all() or (rows < 0).any():
        raise ValueError(f"{name} must be finite and not negative, got a minimum of {rows.min()}")
    sums = rows.sum(axis=-1)
    if (abs(sums - 1) > SUM_TOLERANCE).any():
        raise ValueError(
            f"{name} must sum to 1, got sums from {sums.min():.9g} to {sums.max():.9g}"
        )


def _labels(labels: ArrayLike) -> Ints:
    array = np.asarray(labels)
    if array.dtype.kind not in "iu":
        raise ValueError(f"labels must be integer class numbers, got {array.dtype}")
    return array.astype(np.int64)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    copy = array.copy()
    copy.setflags(write=False)
    return copy
