"""The small problems that docs/theory.md speaks of: counterexamples, and the ones that are drawn.

Each is as small as it can be, and its point is in the docstring; the tests hold them to it.
"""

import numpy as np

from covlearn.kinds import checked
from covlearn.theory.problem import Floats, Ints, Problem, binary_problem, one_hot


def noisier_class() -> Problem:
    """p = ½, class-dependent noise, but class +1 sits where both rates are high: δ ≠ 0.

    The printed binary decoupling fails, for the constant classifier f = +1 among others.
    """
    return binary_problem([0.5, 0.5], [1, 0], [0.4, 0.1], [0.4, 0.1])


def other_counterfactuals() -> Problem:
    """``noisier_class`` with other values of e₊ where Y* = −1 and e₋ where Y* = +1.

    Every observable quantity is the same, the printed terms are not.
    """
    return binary_problem([0.5, 0.5], [1, 0], [0.4, 0.4], [0.1, 0.1])


def misleading_counterfactual() -> Problem:
    """1 − e₊ − e₋ > 0 but E[Z₁ | Y* = −1] < 0, by a rate that no data can show.

    Observable noise: e₊ = 0 and e₋ = 0.4, class-dependent. Peer loss is right everywhere, CAL with
    the printed covariances is wrong on all of class +1.
    """
    return binary_problem([0.5, 0.5], [1, 0], [0.0, 0.8], [0.0, 0.4])


def flipped() -> Problem:
    """Class-dependent noise with e₊ + e₋ > 1: labels that lie more often than not."""
    return binary_problem([0.5, 0.5], [1, 0], [0.6, 0.6], [0.6, 0.6])


def one_class() -> Problem:
    """p = 1 and constant noise: peer loss is constant, so every classifier minimises it."""
    return binary_problem([0.5, 0.5], [1, 1], [0.2, 0.2], [0.2, 0.2])


def sharp_peer() -> Problem:
    """Half of class +1 at e₊ = ⅔, no other noise: the repaired peer bound is attained."""
    return binary_problem([0.25, 0.25, 0.5], [1, 1, 0], [2 / 3, 0.0, 0.0], [0.0, 0.0, 0.0])


def pair_flips() -> Problem:
    """K = 3, pair noise 0 → 1 → 2 → 0 whose mean E[T(X)] has the structure T_ij = e_j.

    E[T(X) | Y*] has not, so the K-class decoupling fails for the classifier f = Y* + 1.
    """
    seen = np.array([[0.8, 0.2, 0.0], [0.0, 0.8, 0.2], [0.2, 0.0, 0.8]])
    wanted = np.where(np.eye(3) == 1, 0.8, 0.1)
    unseen = (3 * wanted - seen) / 2  # the two counterfactual matrices of each row
    transition = np.array([np.where(np.eye(3)[n][:, None] == 1, seen, unseen) for n in range(3)])
    return Problem([1 / 3] * 3, [0, 1, 2], transition)


def no_structure() -> Problem:
    """K = 3, class-dependent, each row of T largest on its diagonal, but T_ij ≠ e_j.

    Peer loss and CAL with β = 1 give class 0 to class 1.
    """
    transition = [[0.4, 0.35, 0.25], [0.05, 0.9, 0.05], [0.45, 0.0, 0.55]]
    return Problem([0.1, 0.1, 0.8], [0, 1, 2], [transition] * 3)


def two_parts() -> tuple[Problem, Ints]:
    """Two parts with unlike class shares and noise, and the part of each point.

    The printed part-dependent equality fails, for f = Y* among others.
    """
    part = np.array([1, 1, 2, 2])
    flip = np.where(part == 1, 0.1, 0.4)
    return binary_problem([0.1, 0.4, 0.4, 0.1], [1, 0, 1, 0], flip, flip), part


def noisy_corner() -> tuple[Problem, Floats]:
    """p = ½, e₊ = e₋ = 0.1 but 0.4 on a tenth of the points, and a D̂ wrong just there.

    τ = 0.9. The error of CAL is above the printed bound, and peer loss makes none at all.
    """
    problem = binary_problem(
        [0.05, 0.05, 0.45, 0.45], [1, 0, 1, 0], [0.4, 0.4, 0.1, 0.1], [0.4, 0.4, 0.1, 0.1]
    )
    return problem, one_hot([0, 1, 1, 0], 2)


def class_noise_and_proxy() -> tuple[Problem, Floats]:
    """Class-dependent noise of 0.2 and a D̂ that is wrong on a tenth: ε± = 0, τ = 0.9.

    The printed bound says no error; CAL with counted T̂ learns D̂ and errs on that tenth.
    """
    problem = binary_problem([0.05, 0.05, 0.45, 0.45], [1, 0, 1, 0], [0.2] * 4, [0.2] * 4)
    return problem, one_hot([0, 1, 1, 0], 2)


def regions() -> Problem:
    """Five regions of equal mass and class shares, e₊ = e₋ from 0.05 to 0.45: down-weighting."""
    flip = np.repeat([0.05, 0.15, 0.25, 0.35, 0.45], 2)
    return binary_problem(np.full(10, 0.1), [1, 0] * 5, flip, flip)


@checked
def hard_boundary(num_points: int = 200) -> tuple[Floats, Problem]:
    """Points x in (0, 1), Y* = +1 for x > ½, e₋ = 0.35, e₊ = 0.1 rising to 0.48 at x = ½.

    Labels are right more often than not everywhere, yet peer loss is wrong next to the boundary.
    """
    if num_points < 2:
        raise ValueError(f"num_points must be at least 2, one a class, got {num_points}")
    x = (np.arange(num_points) + 0.5) / num_points
    flip_plus = 0.1 + 0.38 * np.exp(-(((x - 0.5) / 0.15) ** 2))
    problem = binary_problem(
        np.full(num_points, 1 / num_points),
        (x > 0.5).astype(np.int64),
        flip_plus,
        np.full(num_points, 0.35),
    )
    return x, problem


@checked
def growing_proxy(wrong: float, *, follows_noise: bool = True) -> tuple[Problem, Floats]:
    """``noisy_corner`` in a hundred places, and a D̂ wrong on a share ``wrong`` of them.

    Wrong at the noisiest places first (``follows_noise``), or anywhere with the same chance.
    """
    if not 0 <= wrong <= 1:
        raise ValueError(f"wrong must lie in [0, 1], got {wrong}; it is a share")
    place = np.repeat(np.arange(100), 2)  # a point of each class at every place
    flip = np.where(place < 10, 0.4, 0.1)
    problem = binary_problem(np.full(200, 1 / 200), [1, 0] * 100, flip, flip)
    rate = (place < round(100 * wrong)).astype(float) if follows_noise else np.full(200, wrong)
    labels = one_hot(problem.clean, 2)
    refined: Floats = labels * (1 - rate)[:, None] + (1 - labels) * rate[:, None]
    return problem, refined
