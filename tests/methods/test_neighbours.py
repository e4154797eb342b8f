"""D̂ of the mean over an example and its nearest ones, and of an evaluation pass as well."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covlearn.data.sources import load_data, with_noise
from covlearn.methods import posteriors
from covlearn.methods.base import view_of
from covlearn.methods.cal import CAL
from covlearn.methods.crossfit import CrossFittedCAL
from covlearn.methods.posteriors import over_neighbours
from covlearn.methods.presets import preset
from covlearn.run import LocalRun
from covlearn.testing import make_toy, shortened
from tests.reference import neighbours as reference

NEAR = CAL(scores="both", threshold="argmax", neighbours=5, look_for_evidence=True)


@pytest.mark.parametrize("count", [1, 3, 29])
@pytest.mark.parametrize("compared", [1, 100, 2**26])
def test_means_are_those_of_the_loop(
    count: int, compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posteriors, "COMPARED", compared)
    draw = np.random.default_rng(count)
    probs, features = draw.dirichlet(np.ones(4), size=30), draw.normal(size=(30, 6))
    expected = reference.over_neighbours(probs, features, count)
    found = over_neighbours(torch.from_numpy(probs), torch.from_numpy(features), count)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_an_example_counts_though_others_are_its_equals() -> None:
    probs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    found = over_neighbours(probs, torch.ones(4, 2), 1)
    torch.testing.assert_close(found[0], torch.tensor([0.5, 0.5]))


def fitted(method: CAL, **changes: Any) -> tuple[LocalRun, nn.Module]:
    run = LocalRun(replace(make_toy(600).split, **changes), seed=0)
    short: Any = shortened(method, epochs=8)
    # A sieve that has hardly begun leaves something to the neighbours.
    return run, replace(short, sieve_plan=replace(short.sieve_plan, epochs=1)).fit(view_of(run))


def label_of(run: LocalRun) -> Tensor:
    assert run.refined is not None
    return run.refined[0]


class Kept(LocalRun):
    """Keeps the sieve, as it was when it was trained."""

    def train(self, stage: str, model: nn.Module, *others: Any, **options: Any) -> Any:
        ledger = super().train(stage, model, *others, **options)
        if stage == "sieve":
            self.sieve = model
        return ledger


def test_refined_labels_are_those_of_both_over_neighbours() -> None:
    alone, _ = fitted(replace(NEAR, scores="averaged", neighbours=0))
    run = Kept(make_toy(600).split, seed=0)
    short: Any = shortened(NEAR, epochs=8)
    replace(short, sieve_plan=replace(short.sieve_plan, epochs=1)).fit(view_of(run))
    logits, features = run.predict(run.sieve, features=True)
    assert alone.refined_by is not None
    assert features is not None
    both = (alone.refined_by.exp() + logits.softmax(dim=1)) / 2
    mean = reference.over_neighbours(both.double().numpy(), features.double().numpy(), 5)
    assert run.refined_by is not None
    np.testing.assert_allclose(run.refined_by.exp(), mean, rtol=0, atol=1e-5)
    assert np.mean(label_of(run).numpy() == mean.argmax(axis=1)) > 0.998  # but for ties
    assert bool((label_of(run) != label_of(alone)).any()), "or this test would show nothing"


def test_evidence_is_looked_for_in_the_averages() -> None:
    names = ("surest", "surest_contradicted", "evidence_p_value")
    (with_both, _), (alone, _) = (
        fitted(NEAR),
        fitted(replace(NEAR, scores="averaged", neighbours=0)),
    )
    assert [with_both.facts[name] for name in names] == [alone.facts[name] for name in names]


def test_what_a_person_decided_stays_and_tells_its_neighbours() -> None:
    trusted = torch.arange(600) < 300
    (run, _), (without, _) = fitted(NEAR, trusted=trusted), fitted(NEAR)
    assert torch.equal(label_of(run)[trusted], run.split.y[trusted])
    assert bool((label_of(run) != label_of(without))[~trusted].any())


def test_more_of_the_refined_labels_are_right_on_digits() -> None:
    source, _ = with_noise(load_data("digits"), "calibrated:0.4", seed=0)
    assert source.clean is not None
    method: Any = preset("recommended", "cal", "small")
    shares = []
    for count in (0, 20):
        run = LocalRun(source.train, seed=0)
        replace(method, scores="averaged", neighbours=count).fit(view_of(run))
        shares.append(float((label_of(run) == source.clean).float().mean()))
    assert shares[1] > shares[0] + 0.05


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"neighbours": -1}, "neighbours must not be negative, got -1"),
        ({"neighbours": 5, "scores": "training"}, "neighbours needs the probabilities"),
        ({"neighbours": 5, "probs": "a.npy"}, "there is none; leave labels and probs out"),
        ({"scores": "both", "probs": "a.npy"}, "there is none; leave labels and probs out"),
        ({"scores": "both", "labels": "a.npy"}, "there is none; leave labels and probs out"),
        ({"neighbours": 5, "covariance": False}, "there is none"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CAL(**settings)


def test_more_neighbours_than_examples_are_refused_before_training() -> None:
    run = LocalRun(make_toy(20).split)
    with pytest.raises(ValueError, match="fewer than the 20 examples, got 20; lower it"):
        replace(NEAR, neighbours=20).fit(run)
    assert not run.history


def test_cross_fitted_sieves_have_no_neighbours() -> None:
    with pytest.raises(ValueError, match="use method cal for neighbours, or leave it out"):
        CrossFittedCAL(neighbours=5)
