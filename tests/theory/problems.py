"""Random finite problems for hypothesis, and small helpers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from covlearn.theory import Problem, binary_problem
from covlearn.theory.problem import Floats

Draw = Callable[[st.SearchStrategy[Any]], Any]

# Random problems on a coarse grid: ties, zeros and ones come up, and examples shrink.
RATE = st.integers(0, 10).map(lambda tenth: tenth / 10)


def masses(draw: Draw, num_points: int) -> Floats:
    weight = np.array(draw(st.lists(st.integers(1, 9), min_size=num_points, max_size=num_points)))
    return np.asarray(weight / weight.sum())


def vector(draw: Draw, values: st.SearchStrategy[Any], num_points: int) -> list[Any]:
    drawn: list[Any] = draw(st.lists(values, min_size=num_points, max_size=num_points))
    return drawn


def distributions(draw: Draw, num_rows: int, num_classes: int) -> Floats:
    row = st.lists(st.integers(0, 6), min_size=num_classes, max_size=num_classes).filter(any)
    weight = np.array(vector(draw, row, num_rows), dtype=float)
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


@st.composite
def binary_problems(draw: Draw, max_points: int = 6) -> Problem:
    """Any binary problem in which both classes occur."""
    n = draw(st.integers(2, max_points))
    clean = [1, 0, *vector(draw, st.integers(0, 1), n - 2)]
    return binary_problem(masses(draw, n), clean, vector(draw, RATE, n), vector(draw, RATE, n))


@st.composite
def unrelated_problems(draw: Draw, balanced: bool = False) -> Problem:
    """Rates that do not depend on the class, so that δ = 0: each place has a point of each."""
    n = draw(st.integers(1, 3))
    p = 0.5 if balanced else draw(st.integers(1, 9)) / 10
    place = masses(draw, n)
    plus, minus = vector(draw, RATE, n), vector(draw, RATE, n)
    return binary_problem(
        np.concatenate([p * place, (1 - p) * place]), [1] * n + [0] * n, plus * 2, minus * 2
    )


@st.composite
def problems(draw: Draw, max_points: int = 5) -> Problem:
    """Any problem of two to four classes, some of which may not occur."""
    num_classes, n = draw(st.integers(2, 4)), draw(st.integers(2, max_points))
    clean = vector(draw, st.integers(0, num_classes - 1), n)
    assume(len(set(clean)) > 1)
    rows = distributions(draw, n * num_classes, num_classes)
    return Problem(masses(draw, n), clean, rows.reshape(n, num_classes, num_classes))


@st.composite
def structured_problems(draw: Draw, instance_dependent: bool = True) -> Problem:
    """E[T(X) | Y* = i] = e + (1 − Σe) 1_i, with zero-mean deviations at the points of a class."""
    num_classes = draw(st.integers(2, 4))
    copies = 2
    n = copies * num_classes
    clean = np.repeat(np.arange(num_classes), copies)
    e = np.array(vector(draw, st.integers(1, 9), num_classes)) / (10 * num_classes)
    expected = e + (1 - e.sum()) * np.eye(num_classes)
    mass = masses(draw, n)
    transition = np.array([distributions(draw, num_classes, num_classes) for _ in range(n)])
    for i in range(num_classes):
        first, second = copies * i, copies * i + 1
        transition[[first, second], i] = expected[i]
        if instance_dependent:  # move mass between two labels, one way here and the other way there
            a, b = (i + 1) % num_classes, i
            move = draw(st.integers(0, 9)) / 10 * min(expected[i, a], expected[i, b])
            light, heavy = sorted((first, second), key=lambda n: mass[n])
            transition[light, i, [a, b]] += [move, -move]
            transition[heavy, i, [a, b]] -= np.array([move, -move]) * mass[light] / mass[heavy]
    return Problem(mass, clean, transition)


def predictions(problem: Problem) -> st.SearchStrategy[list[int]]:
    label = st.integers(0, problem.num_classes - 1)
    return st.lists(label, min_size=len(problem.mass), max_size=len(problem.mass))


def losses(draw: Draw, problem: Problem) -> Floats:
    n, k = problem.noisy.shape
    return np.array(vector(draw, st.integers(-9, 9), n * k)).reshape(n, k) / 3


def parts_of(problem: Problem) -> tuple[Floats, Any, Floats]:
    return problem.mass, problem.clean, problem.transition


def close(value: float) -> Any:
    return pytest.approx(value, abs=1e-10)


@st.composite
def parted_problems(draw: Draw) -> tuple[Problem, list[int]]:
    n, num_parts = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    part = vector(draw, st.integers(0, num_parts - 1), n)
    plus, minus = vector(draw, RATE, num_parts), vector(draw, RATE, num_parts)
    clean = [1, 0, *vector(draw, st.integers(0, 1), n - 2)]
    rates = [plus[s] for s in part], [minus[s] for s in part]
    return binary_problem(masses(draw, n), clean, *rates), part
