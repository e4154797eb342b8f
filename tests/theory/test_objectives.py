"""The objectives and their minimisers against loops and enumeration; bad input."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from covlearn import theory
from covlearn.theory import Problem, examples, objectives
from covlearn.theory.objectives import worst_error
from tests.reference import theory as reference
from tests.theory.problems import (
    binary_problems,
    close,
    distributions,
    losses,
    parts_of,
    problems,
)


@given(st.data())
def test_risks_agree_with_loops_over_pairs_of_peers(data: st.DataObject) -> None:
    problem = data.draw(problems())
    loss = losses(data.draw, problem)
    beta = data.draw(st.sampled_from([0.0, 0.5, 1.0, 2.0]))
    mass, clean, transition = parts_of(problem)
    peer = theory.risk(problem, objectives.peer(problem, beta=beta), loss)
    assert peer == close(reference.peer_risk(mass, clean, transition, loss, beta))
    on_bayes = theory.risk(problem, objectives.bayes_peer(problem), loss)
    assert on_bayes == close(reference.bayes_peer_risk(mass, clean, loss))
    covariance = theory.covariance_terms(problem, loss)
    assert covariance == close(reference.covariance_terms(mass, clean, transition, loss))
    cal = theory.risk(problem, objectives.cal(problem, beta=beta), loss)
    assert cal == close(peer - covariance)


@given(st.data())
def test_minimisers_agree_with_all_classifiers(data: st.DataObject) -> None:
    problem = data.draw(problems(max_points=4))
    assume(problem.num_classes < 4)
    beta = data.draw(st.sampled_from([0.0, 1.0, 3.0]))
    mass, clean, transition = parts_of(problem)

    def cal(f: reference.Classifier) -> float:
        loss = reference.zero_one(f, problem.num_classes)
        covariance = reference.covariance_terms(mass, clean, transition, loss)
        return reference.peer_risk(mass, clean, transition, loss, beta) - covariance

    enumerated = reference.worst_error(mass, clean, problem.num_classes, cal)
    assert worst_error(problem, objectives.cal(problem, beta=beta)) == close(enumerated)
    chosen = theory.minimisers(objectives.cal(problem, beta=beta)).argmax(axis=1)
    everyone = reference.classifiers(len(mass), problem.num_classes)
    assert cal(chosen.tolist()) == close(min(cal(f) for f in everyone))


@given(st.data())
def test_printed_objective_agrees_with_all_classifiers(data: st.DataObject) -> None:
    problem = data.draw(binary_problems(max_points=5))
    refined = distributions(data.draw, len(problem.mass), 2)
    mass, clean, transition = parts_of(problem)

    def printed(f: reference.Classifier) -> float:
        loss = reference.zero_one(f, 2)
        against_minus = [row[0] for row in loss]
        return (
            reference.peer_risk(mass, clean, transition, loss)
            - reference.cov_over_proxy(mass, reference.z1(transition), f, refined)
            - reference.cov(mass, reference.z2(transition), against_minus)
        )

    enumerated = reference.worst_error(mass, clean, 2, printed)
    assert worst_error(problem, objectives.cal_printed(problem, refined)) == close(enumerated)


@given(st.data())
def test_prices(data: st.DataObject) -> None:
    problem = data.draw(binary_problems())
    refined = distributions(data.draw, len(problem.mass), 2)
    mean, within = theory.rates(problem), theory.class_rates(problem)
    z1, wrong = theory.z1(problem), theory.wrong_rate(problem, refined)
    for n, label in enumerate(problem.clean):
        other = problem.prior[1 - label]
        z_other = problem.mean(z1, given=1 - label)
        flip = problem.transition[n, label, 1 - label]
        over_all, in_class = [
            flip - (each.plus if label == 1 else each.minus) for each in (mean, within)
        ]
        expected = {
            "bayes_peer": other,
            "peer": other * within.informative - in_class,
            "cal": other * within.informative,
            "cal_printed": other * z_other,
        }
        for name, half in expected.items():
            coefficient = getattr(objectives, name)(problem)
            assert theory.error_price(problem, coefficient)[n] == close(2 * half), name
        assert expected["peer"] == close(other * z_other - over_all)
        proxy = objectives.cal_printed(problem, refined)
        shift = (z1[n] - problem.mean(z1)) * wrong[n]
        assert theory.error_price(problem, proxy)[n] == close(2 * (other * z_other + shift))


@given(binary_problems())
def test_rates_are_means_over_all_points_or_over_a_class(problem: Problem) -> None:
    mass, clean, transition = parts_of(problem)
    plus, minus = reference.flips(transition)
    mean, within = theory.rates(problem), theory.class_rates(problem)
    assert mean.plus == close(reference.mean(mass, plus))
    assert mean.minus == close(reference.mean(mass, minus))
    deviation = [abs(rate - mean.minus) for rate in minus]
    assert mean.spread_minus == close(reference.mean(mass, deviation))
    assert within.plus == close(reference.mean(mass, plus, lambda n: clean[n] == 1))
    assert within.minus == close(reference.mean(mass, minus, lambda n: clean[n] == 0))
    deviation = [abs(rate - within.plus) for rate in plus]
    assert within.spread_plus == close(reference.mean(mass, deviation, lambda n: clean[n] == 1))
    assert within.plus == close(problem.class_transition[1, 0])
    assert mean.plus == close(problem.mean_transition[1, 0])


GOOD: dict[str, Any] = {
    "mass": [0.5, 0.5],
    "clean": [0, 1],
    "transition": [[[0.9, 0.1], [0.2, 0.8]]] * 2,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mass": [0.5, 0.6]}, "sum to 1"),
        ({"mass": [1.0, 0.0]}, "positive"),
        ({"mass": [float("nan"), 0.5]}, "positive"),
        ({"mass": []}, "non-empty"),
        ({"clean": [-1, 1]}, "−1 is 0"),
        ({"clean": [0, 2]}, "0…1"),
        ({"clean": [0.0, 1.0]}, "integer"),
        ({"clean": [0]}, "one label a point"),
        ({"transition": [[[0.9, 0.2], [0.2, 0.8]]] * 2}, "sum to 1"),
        ({"transition": [[[1.1, -0.1], [0.2, 0.8]]] * 2}, "not negative"),
        ({"transition": [[[1.0]]] * 2}, "at least 2 classes"),
        ({"transition": [[0.9, 0.1], [0.2, 0.8]]}, "one K×K matrix a point"),
    ],
)
def test_bad_problems_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Problem(**(GOOD | change))


def test_bad_arguments_are_refused() -> None:
    problem = Problem(**GOOD)
    with pytest.raises(ValueError, match="one row a point"):
        theory.binary_decoupling(problem, [1])
    with pytest.raises(ValueError, match="one row a point"):
        theory.decoupling(problem, np.zeros((1, 2)))
    with pytest.raises(ValueError, match="two classes"):
        theory.rates(examples.pair_flips())
    with pytest.raises(ValueError, match="shape"):
        theory.imperfect_bound(problem, [0, 1])
    with pytest.raises(ValueError, match="sum over the refined label"):
        theory.counted_risk(problem, np.full((2, 2, 2), 0.25), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="sum over the refined label"):
        theory.counted_risk(problem, np.full((2, 2, 2), np.nan), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="must be finite"):
        theory.decoupling(problem, np.full((2, 2), np.inf))
    with pytest.raises(ValueError, match="K×K"):
        theory.beta_interval(np.eye(3), np.array([1.0]))
    with pytest.raises(ValueError, match="K×K"):
        theory.keeps_labels(np.eye(3), np.ones(2))
    with pytest.raises(ValueError, match="eps must be positive"):
        theory.cut_off_minimiser([0.5, 0.5], eps=0)
    with pytest.raises(ValueError, match="class other than"):
        theory.column_rates(examples.one_class().class_transition)
    with pytest.raises(ValueError, match="read-only"):
        problem.mass[0] = 1
