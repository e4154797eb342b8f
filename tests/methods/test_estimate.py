"""The estimated noise rate: its equation, and how near the truth it comes."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covlearn.engine import Plan
from covlearn.methods.coteaching import estimate_rate
from covlearn.run import LocalRun
from tests.methods.toy import noisy_run
from tests.reference import transition as reference

PLAN = Plan(epochs=5, batch_size=32, lr=0.02)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
def test_the_estimate_is_near_the_truth_on_easy_data(rate: float) -> None:
    run = noisy_run(1000, rate=rate)
    estimate = estimate_rate(run, PLAN)
    assert estimate == pytest.approx(rate, abs=0.03)
    assert run.facts == {"estimated_rate": estimate}
    assert list(run.history) == ["rate"]
    assert len(run.history["rate"]) == PLAN.epochs


class Foretold(LocalRun):
    """A run whose networks say what a test wants them to say."""

    probs: Tensor

    def predict(self, model: nn.Module, *, features: bool = False) -> tuple[Tensor, Tensor | None]:
        return self.probs.log(), None


def foretold(probs: Tensor) -> Foretold:
    run = noisy_run(len(probs))
    told = Foretold(run.split, net_options=run.net_options)
    told.probs = probs
    return told


def test_it_is_one_minus_the_expected_diagonal() -> None:
    probs = np.random.default_rng(0).dirichlet(np.full(3, 0.4), size=90)
    run = foretold(torch.from_numpy(probs))
    joint = reference.confident_joint(probs, run.split.y.numpy(), 3)
    expected = 1.0
    for i in range(3):
        prior, stay = joint[i].sum() / joint.sum(), joint[i, i] / joint[i].sum()
        expected -= prior * stay
    assert 0.2 < expected < 0.9
    assert estimate_rate(run, Plan(epochs=0)) == pytest.approx(expected, rel=1e-6)


def test_a_network_that_agrees_with_all_labels_finds_no_noise() -> None:
    labels = noisy_run(90).split.y
    run = foretold(torch.nn.functional.one_hot(labels, 3) * 0.97 + 0.01)
    assert estimate_rate(run, Plan(epochs=0)) == 0.0
