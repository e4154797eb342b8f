"""Peer loss on D*, invariance, and the peer bound."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from covlearn import theory
from covlearn.theory import Problem, Statement, examples, objectives
from tests.reference import theory as reference
from tests.theory.problems import (
    binary_problems,
    close,
    losses,
    parts_of,
    predictions,
    problems,
    structured_problems,
)


@given(st.data())
def test_peer_loss_on_bayes_labels(data: st.DataObject) -> None:
    problem = data.draw(problems())
    assert theory.bayes_peer_covariance(problem, losses(data.draw, problem)).holds
    assert theory.peer_optimality(problem).holds  # any K, any prior with two classes
    binary = data.draw(binary_problems())
    assert theory.peer_on_bayes(binary, data.draw(predictions(binary))).holds


def test_peer_loss_on_one_class_says_nothing() -> None:
    assert theory.peer_optimality(examples.one_class()).residual == 1
    with pytest.raises(ValueError, match="every class must occur"):
        theory.peer_on_bayes(examples.one_class(), [1, 1])


@given(st.data())
def test_invariance_under_class_dependent_noise(data: st.DataObject) -> None:
    problem = data.draw(structured_problems(instance_dependent=False))
    assert theory.has_structure(problem.class_transition)
    assert theory.invariance(problem, losses(data.draw, problem)).holds


def test_invariance_fails_under_instance_dependent_noise() -> None:
    _, problem = examples.hard_boundary()
    prediction = theory.minimisers(objectives.peer(problem)).argmax(axis=1)
    loss = theory.zero_one(problem, prediction)
    statement = theory.invariance(problem, loss)
    assert not statement.holds
    assert statement.residual == close(theory.covariance_terms(problem, loss))


@given(binary_problems())
def test_peer_bound_holds_as_printed(problem: Problem) -> None:
    assume(theory.rates(problem).informative > 1e-6)
    mass, clean, transition = parts_of(problem)

    def peer(f: reference.Classifier) -> float:
        return reference.peer_risk(mass, clean, transition, reference.zero_one(f, 2))

    bound = theory.peer_bound(problem)
    assert bound.left == close(reference.worst_error(mass, clean, 2, peer))
    assert bound.holds


def test_peer_bound_needs_labels_that_inform() -> None:
    assert theory.peer_bound(examples.flipped()) == Statement(1.0, 0.0, "<=")
    assert not theory.peer_bound(examples.flipped()).holds


@given(binary_problems())
def test_repaired_peer_bound_holds(problem: Problem) -> None:
    assume(theory.class_rates(problem).informative > 1e-6)
    assert theory.peer_bound_repaired(problem).holds


def test_repaired_peer_bound_is_attained() -> None:
    bound = theory.peer_bound_repaired(examples.sharp_peer())
    assert bound.left == close(0.25)
    assert bound.right == close(0.25)
    assert theory.peer_bound(examples.sharp_peer()).right == close(0.6)
