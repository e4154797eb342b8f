"""Decoupling, binary and K-class, and the optimality of CAL."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from covlearn import theory
from covlearn.theory import Problem, examples, objectives
from covlearn.theory.objectives import worst_error
from tests.reference import theory as reference
from tests.theory.problems import (
    binary_problems,
    close,
    losses,
    parts_of,
    predictions,
    problems,
    structured_problems,
    unrelated_problems,
)


@given(st.data())
def test_binary_decoupling_misses_one_covariance(data: st.DataObject) -> None:
    problem = data.draw(binary_problems())
    prediction = data.draw(predictions(problem))
    printed = theory.binary_decoupling(problem, prediction)
    mass, clean, transition = parts_of(problem)
    loss = reference.zero_one(prediction, 2)
    assert printed.left == close(reference.peer_risk(mass, clean, transition, loss))
    assert printed.right == close(reference.decoupled_binary(mass, clean, transition, prediction))
    is_plus = [float(label == 1) for label in clean]
    delta = reference.cov(mass, reference.z1(transition), is_plus)
    assert printed.residual == close(delta * (2 * reference.mean(mass, prediction) - 1))
    assert theory.missing_covariance(problem) == close(delta)
    assert theory.binary_decoupling_repaired(problem, prediction).holds
    assert theory.decoupling(problem, theory.zero_one(problem, prediction)).holds  # repair B


@given(st.data())
def test_binary_decoupling_is_exact_when_rates_and_class_are_unrelated(
    data: st.DataObject,
) -> None:
    problem = data.draw(unrelated_problems())
    assert theory.binary_decoupling(problem, data.draw(predictions(problem))).holds


def test_binary_decoupling_depends_on_what_nobody_can_see() -> None:
    seen, other = examples.noisier_class(), examples.other_counterfactuals()
    assert np.array_equal(seen.noisy, other.noisy)
    assert theory.binary_decoupling(seen, [1, 1]).residual == close(-0.15)
    assert theory.binary_decoupling(other, [1, 1]).holds


@given(st.data())
def test_minus_the_covariances_any_noise_is_class_dependent(data: st.DataObject) -> None:
    problem = data.draw(problems())
    loss = losses(data.draw, problem)
    statement = theory.class_dependent_risk(problem, loss)
    mass, clean, transition = parts_of(problem)
    assert statement.holds
    expected = reference.class_dependent_risk(mass, clean, transition, loss)
    assert statement.right == close(expected)
    assert statement.left == close(
        reference.noisy_risk(mass, clean, transition, loss)
        - reference.covariance_terms(mass, clean, transition, loss)
    )
    assert theory.decoupling_repaired(problem, loss).holds


@given(st.data())
def test_decoupling_is_exact_with_structure_given_the_class(data: st.DataObject) -> None:
    problem = data.draw(structured_problems())
    assert theory.has_structure(problem.class_transition)
    assert theory.decoupling(problem, losses(data.draw, problem)).holds


def test_decoupling_fails_with_the_mean_over_all_points() -> None:
    problem = examples.pair_flips()
    loss = theory.zero_one(problem, [1, 2, 0])
    assert theory.has_structure(problem.mean_transition)
    assert not theory.has_structure(problem.class_transition)
    assert theory.decoupling_printed(problem, loss).residual == close(-0.1)
    binary = examples.misleading_counterfactual()
    loss = theory.zero_one(binary, [1, 0])
    assert theory.decoupling(binary, loss).holds
    assert theory.decoupling_printed(binary, loss).residual == close(-0.1)


@given(st.data())
def test_structure_is_needed_for_every_loss_to_decouple(data: st.DataObject) -> None:
    problem = data.draw(problems())
    assume(len(problem.present) == problem.num_classes)
    n, k = problem.noisy.shape
    units = np.eye(n * k).reshape(n * k, n, k)  # a loss is a sum of these
    exact = all(theory.decoupling(problem, unit).holds for unit in units)
    assert exact == theory.has_structure(problem.class_transition)


@given(binary_problems())
def test_printed_cal_is_optimal_exactly_under_its_condition(problem: Problem) -> None:
    z1 = theory.z1(problem)
    assume(all(abs(problem.mean(z1, given=label)) > 1e-9 for label in (0, 1)))
    assert theory.optimality(problem).holds == theory.optimality_condition(problem)


@given(st.one_of(binary_problems(), structured_problems()))
def test_cal_given_the_class_is_optimal_exactly_when_labels_inform(problem: Problem) -> None:
    informative = 1 - theory.column_rates(problem.class_transition).sum()
    assume(abs(informative) > 1e-9)
    assert theory.cal_optimality(problem).holds == (informative > 0)


def test_optimality_needs_each_of_its_conditions() -> None:
    assert theory.optimality(examples.one_class()).left == 1
    assert not theory.optimality_condition(examples.one_class())
    assert theory.optimality(examples.flipped()).left == 1
    problem = examples.misleading_counterfactual()
    assert theory.rates(problem).informative == close(0.4)
    assert theory.optimality(problem).left == close(0.5)
    assert theory.cal_optimality(problem).holds
    assert worst_error(problem, objectives.peer(problem)) == 0
    inexact = examples.noisier_class()  # decoupling fails, optimality does not
    assert theory.optimality(inexact).holds
    assert theory.cal_optimality(examples.no_structure()).left == close(0.1)
