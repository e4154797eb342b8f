"""CAL with an imperfect D̂, as printed and as it is run."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from covlearn import theory
from covlearn.theory import binary_problem, examples, objectives, one_hot
from covlearn.theory.objectives import worst_error
from tests.reference import theory as reference
from tests.theory.problems import (
    RATE,
    binary_problems,
    close,
    distributions,
    losses,
    parts_of,
    predictions,
    problems,
    unrelated_problems,
    vector,
)


@given(st.data())
def test_repaired_imperfect_bound_holds(data: st.DataObject) -> None:
    problem = data.draw(binary_problems())
    assume(all(problem.mean(theory.z1(problem), given=label) > 1e-6 for label in (0, 1)))
    refined = distributions(data.draw, len(problem.mass), 2)
    assert theory.imperfect_bound_repaired(problem, refined).holds


@given(st.data())
def test_imperfect_bound_when_errors_and_noise_are_unrelated(data: st.DataObject) -> None:
    problem = data.draw(unrelated_problems(balanced=True))
    assume(theory.rates(problem).informative > 1e-6)
    wrong = data.draw(RATE)
    labels = one_hot(problem.clean, 2)
    refined = labels * (1 - wrong) + (1 - labels) * wrong
    unrelated = theory.imperfect_bound_unrelated(problem, refined)
    printed = theory.imperfect_bound(problem, refined)
    assert unrelated.holds
    assert printed.holds
    assert 4 * unrelated.right <= printed.right + 1e-12
    if wrong < 0.5 and (theory.z1(problem) >= 0).all():
        assert unrelated.left == 0


@given(st.data())
def test_right_more_often_than_not_at_every_point_is_enough(data: st.DataObject) -> None:
    problem = data.draw(unrelated_problems(balanced=True))
    assume((theory.z1(problem) >= 0).all() and problem.mean(theory.z1(problem)) > 1e-6)
    n = len(problem.mass)
    rate = np.array(vector(data.draw, st.integers(0, 49), n))[:, None] / 100
    labels = one_hot(problem.clean, 2)
    refined = labels * (1 - rate) + (1 - labels) * rate
    assert theory.imperfect_bound(problem, refined).left == 0


@pytest.mark.parametrize("wrong", [0.2, 0.5, 1.0])
def test_unrelated_bound_is_attained(wrong: float) -> None:
    share, mean = 0.2, 0.2  # of the noisy points, and of Z₁
    below = mean * (1 - 1 / (2 * wrong))  # the price is zero there
    above = (mean - share * below) / (1 - share)
    flip = [(1 - below) / 2] * 2 + [(1 - above) / 2] * 2
    mass = [share / 2, share / 2, (1 - share) / 2, (1 - share) / 2]
    problem = binary_problem(mass, [1, 0, 1, 0], flip, flip)
    labels = one_hot(problem.clean, 2)
    bound = theory.imperfect_bound_unrelated(problem, labels * (1 - wrong) + (1 - labels) * wrong)
    assert bound.left == close(share)
    assert bound.right == close(share)


@given(st.data())
def test_imperfect_bound_holds_as_printed_up_to_three_quarters(data: st.DataObject) -> None:
    problem = data.draw(unrelated_problems(balanced=True))
    assume(theory.rates(problem).informative > 1e-6)
    refined = distributions(data.draw, len(problem.mass), 2)
    assume(theory.share_right(problem, refined) <= 0.75)
    assert theory.imperfect_bound(problem, refined).holds


@pytest.mark.parametrize("wrong", [0.01, 0.1, 0.2, 0.249])
def test_imperfect_bound_fails_for_every_better_proxy(wrong: float) -> None:
    clean = [1, 0, 1, 0]
    z_wrong = 0.499 * (1 - wrong) / (1 - 0.499 * wrong)  # just under half of E[Z₁]; Z₁ = 1 outside
    flip = [(1 - z_wrong) / 2] * 2 + [0.0] * 2
    problem = binary_problem([wrong / 2, wrong / 2, *[(1 - wrong) / 2] * 2], clean, flip, flip)
    refined = one_hot([0, 1, 1, 0], 2)
    assert theory.share_right(problem, refined) == close(1 - wrong)
    bound = theory.imperfect_bound(problem, refined)
    assert bound.left == close(wrong)
    assert not bound.holds
    assert theory.imperfect_bound_repaired(problem, refined).right == close(2 * wrong * 0.501)


def test_better_than_half_is_not_always_better_than_peer() -> None:
    problem, refined = examples.noisy_corner()
    assert theory.share_right(problem, refined) == close(0.9)
    assert not theory.imperfect_bound(problem, refined).holds
    assert theory.imperfect_bound(problem, refined).left == close(0.1)
    assert worst_error(problem, objectives.peer(problem)) == 0
    assert not theory.covariance_error(problem, refined, [0, 1, 0, 1]).holds


def test_imperfect_bound_fails_for_a_perfect_proxy_too() -> None:
    problem = examples.misleading_counterfactual()
    bound = theory.imperfect_bound(problem, objectives.bayes(problem))
    assert (bound.left, bound.right) == (close(0.5), close(0))


@given(st.data())
def test_covariance_error_is_that_of_two_covariances(data: st.DataObject) -> None:
    problem = data.draw(binary_problems())
    refined = distributions(data.draw, len(problem.mass), 2)
    prediction = data.draw(predictions(problem))
    mass, clean, transition = parts_of(problem)
    z1 = reference.z1(transition)
    statement = theory.covariance_error(problem, refined, prediction)
    perfect = reference.cov_over_proxy(mass, z1, prediction, one_hot(clean, 2))
    assert statement.left == close(
        reference.cov_over_proxy(mass, z1, prediction, refined) - perfect
    )


@given(st.data())
def test_counted_cal_learns_the_proxy_under_class_dependent_noise(data: st.DataObject) -> None:
    problem = data.draw(problems(max_points=4))
    n, k = problem.noisy.shape
    share = distributions(data.draw, n * k, k).reshape(n, k, k)  # P(Ŷ | x, Ỹ)
    joint = share.transpose(0, 2, 1) * problem.noisy[:, None, :]
    loss = losses(data.draw, problem)
    mass, clean, transition = parts_of(problem)
    statement = theory.counted_risk(problem, joint, loss)
    assert statement.holds
    noisy = reference.noisy_risk(mass, clean, transition, loss)
    assert statement.left == close(noisy - reference.counted_covariance(mass, joint, loss))
    coefficient = objectives.cal_counted(problem, joint, beta=0)
    assert theory.risk(problem, coefficient, loss) == close(statement.right)


@given(st.data())
def test_counted_cal_returns_its_proxy(data: st.DataObject) -> None:
    problem = data.draw(problems())
    labels = data.draw(predictions(problem))
    joint = theory.refined_given_x(problem, one_hot(labels, problem.num_classes))
    counted = theory.counted_transition(problem, joint)
    chosen = theory.minimisers(objectives.cal_counted(problem, joint))
    returned = np.array_equal(chosen, one_hot(labels, problem.num_classes).astype(bool))
    assert returned == theory.keeps_labels(counted, problem.noisy_prior)


def test_counted_cal_errs_where_its_proxy_does() -> None:
    problem, refined = examples.class_noise_and_proxy()
    joint = theory.refined_given_x(problem, refined)
    assert theory.imperfect_bound(problem, refined).right == close(0)
    assert worst_error(problem, objectives.cal_counted(problem, joint)) == close(0.1)
    assert worst_error(problem, objectives.peer(problem)) == 0
