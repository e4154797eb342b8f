"""Noise by parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covlearn import theory
from covlearn.theory import examples, objectives
from tests.reference import theory as reference
from tests.theory.problems import (
    close,
    parted_problems,
    parts_of,
    predictions,
)


@given(st.data())
def test_parts_are_exact_with_their_own_peers_or_with_the_correction(data: st.DataObject) -> None:
    problem, part = data.draw(parted_problems())
    prediction = data.draw(predictions(problem))
    printed = theory.part_decoupling(problem, part, prediction)
    mass, clean, transition = parts_of(problem)
    loss = np.array(reference.zero_one(prediction, 2))
    assert printed.left == close(reference.peer_risk(mass, clean, transition, loss))
    weighted = within = 0.0
    for s in set(part):
        inside = np.array(part) == s
        share = mass[inside].sum()
        arrays = mass[inside] / share, clean[inside], transition[inside]
        z = 1 - transition[inside][0, 1, 0] - transition[inside][0, 0, 1]
        weighted += share * z * reference.bayes_peer_risk(*arrays[:2], loss[inside])
        within += share * reference.peer_risk(*arrays, loss[inside])
    assert printed.right == close(weighted)
    assert theory.part_decoupling_within(problem, part, prediction).left == close(within)
    assert theory.part_decoupling_within(problem, part, prediction).holds
    assert theory.part_decoupling_repaired(problem, part, prediction).holds


@given(st.data())
def test_parts_are_exact_as_printed_iff_their_noisy_shares_agree(data: st.DataObject) -> None:
    problem, part = data.draw(parted_problems())
    inside = [np.array(part) == s for s in set(part)]
    share = [problem.mass[s] @ problem.noisy[s, 1] / problem.mass[s].sum() for s in inside]
    agree = max(share) - min(share) < 1e-9
    everyone = reference.classifiers(len(part), 2)
    exact = all(theory.part_decoupling(problem, part, f).holds for f in everyone)
    assert exact == agree


def test_two_parts() -> None:
    problem, part = examples.two_parts()
    prediction = problem.clean
    assert theory.part_decoupling(problem, part, prediction).residual == close(-0.09)
    rate = theory.part_rate(problem, part)
    assert (rate.left, rate.right) == (close(0.34), close(0.25))
    weight = theory.effective_weight(problem)
    assert weight[2] / weight[0] == close(0.2 / 0.8)
    assert problem.mean(weight) == close(1)
    assert theory.part_rate(examples.regions(), np.arange(10) // 2).holds
    with pytest.raises(ValueError, match="constant within a part"):
        theory.part_decoupling(problem, [1, 1, 1, 1], prediction)


def test_weight_is_what_an_error_costs_where_parts_are_alike() -> None:
    problem = examples.regions()
    for objective, expected in [
        (objectives.peer, theory.effective_weight(problem)),
        (objectives.cal, np.ones(10)),
    ]:
        price = theory.error_price(problem, objective(problem))
        assert price / problem.mean(price) == pytest.approx(expected)
