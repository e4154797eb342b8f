"""β, and the cross-entropy with its cut-off."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from covlearn import theory
from covlearn.theory import Problem, objectives
from tests.reference import theory as reference
from tests.theory.problems import (
    close,
    distributions,
    problems,
    structured_problems,
    vector,
)


@given(st.data())
def test_beta_interval_is_where_the_bayes_label_wins(data: st.DataObject) -> None:
    problem = data.draw(st.one_of(problems(), structured_problems()))
    transition, prior = problem.class_transition, problem.noisy_prior
    beta = data.draw(st.integers(0, 40)) / 8
    low, high = theory.beta_interval(transition, prior)
    assume(min(abs(beta - low), abs(beta - high)) > 1e-6)
    inside = low < beta < high
    assert theory.keeps_labels(transition, beta * prior) == inside
    assert theory.cal_optimality(problem, beta=beta).holds == inside


@given(structured_problems())
def test_beta_condition_in_clean_terms(problem: Problem) -> None:
    e = theory.column_rates(problem.class_transition)
    p, informative = problem.prior, 1 - e.sum()
    beta = 1.75
    gaps = [
        informative * (1 - beta * (p[i] - p[k])) - (beta - 1) * (e[i] - e[k])
        for i in problem.present
        for k in range(len(p))
        if k != i
    ]
    assume(min(map(abs, gaps)) > 1e-9)
    assert theory.cal_optimality(problem, beta=beta).holds == (min(gaps) > 0)


def test_beta_costs_nothing_for_balanced_classes_and_equal_rates() -> None:
    uniform = np.full((5, 5), 0.1) + 0.5 * np.eye(5)
    assert theory.beta_interval(uniform, np.full(5, 0.2)) == (-math.inf, math.inf)
    prior = np.array([0.6, 0.1, 0.1, 0.1, 0.1])
    _, high = theory.beta_interval(uniform, prior @ uniform)
    assert high == close(1 / (0.6 - 0.1))  # symmetric noise: 1/(max P − min P), whatever the rate
    assert theory.beta_interval(np.full((2, 2), 0.5), np.array([0.5, 0.5])) == (math.inf, -math.inf)


@given(st.data())
def test_cut_off_minimiser_against_a_grid(data: st.DataObject) -> None:
    k = data.draw(st.integers(2, 3))
    coefficient = np.array(vector(data.draw, st.integers(-10, 10), k)) / 10
    eps = data.draw(st.sampled_from([1e-8, 1e-5, 0.1, 1.0]))
    p = theory.cut_off_minimiser(coefficient, eps=eps)
    assert p.sum() == close(1)
    assert (p >= 0).all()
    value = reference.cut_off_risk(coefficient, p, eps)
    grid = [reference.cut_off_risk(coefficient, q, eps) for q in reference.simplex(k, 40)]
    assert value <= min(grid) + 1e-9
    assert coefficient[p.argmax()] == coefficient.max()  # the 0-1 rule's class
    if eps == 1e-8 and coefficient.max() > 0:
        positive = np.maximum(coefficient, 0)
        assert p == pytest.approx(positive / positive.sum(), abs=1e-6)


@given(problems(), st.sampled_from([0.25, 0.5, 0.75, 1.0, 1.5]))
def test_cross_entropy_is_bounded_exactly_when_no_coefficient_is_negative(
    problem: Problem, beta: float
) -> None:
    coefficient = objectives.peer(problem, beta=beta)
    coefficient = np.where(abs(coefficient) < 1e-12, 0, coefficient)

    def lowest(eps: float) -> float:
        best = [theory.cut_off_minimiser(row, eps=eps) for row in coefficient]
        values = map(reference.cut_off_risk, coefficient, best, [eps] * len(best))
        return reference.mean(problem.mass, list(values))

    falls = lowest(1e-80) < lowest(1e-40) - 1e-9
    assert theory.bounded_below(coefficient) == (not falls)
    if beta > 1:
        assert not theory.bounded_below(coefficient)
    if beta == 1:
        assert theory.bounded_below(coefficient) == bool((coefficient == 0).all())


@given(st.data())
def test_one_hot_outputs_under_two_cut_offs(data: st.DataObject) -> None:
    row, prior = distributions(data.draw, 2, 3)
    terms = [(row, 1e-8), (-2 * prior, 1e-5)]
    cost = [sum(reference.cut_off_risk(c, np.eye(3)[k], eps) for c, eps in terms) for k in range(3)]
    preferred = theory.one_hot_coefficients(*terms)
    assert cost[int(preferred.argmax())] == close(min(cost))
    assert preferred[0] - preferred[2] == pytest.approx(cost[2] - cost[0], abs=1e-9)
