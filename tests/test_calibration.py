"""Posteriors of labels: the formula, what is recovered from drawn data, and bad input."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from covlearn.calibration import (
    _likely,
    calibrated_scale,
    label_posterior,
    surest_transition,
    wrong_by_sureness,
)
from covlearn.noise import symmetric


def drawn(
    count: int, rate: float, *, num_classes: int = 5, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits that are right as often as their softmax says, right labels, and noisy ones."""
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(count, num_classes, generator=generator)
    clean = torch.multinomial(logits.softmax(1), 1, generator=generator).flatten()
    noisy = symmetric(clean, rate=rate, num_classes=num_classes, seed=seed).label
    return logits, clean, torch.from_numpy(noisy)


def uniform(rate: float, num_classes: int) -> Tensor:
    return torch.full((num_classes, num_classes), rate / (num_classes - 1)).fill_diagonal_(1 - rate)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_the_scale_is_found_through_the_noise(rate: float, factor: float) -> None:
    logits, _, noisy = drawn(8000, rate)
    found = calibrated_scale(factor * logits, noisy, uniform(rate, 5))
    assert found * factor == pytest.approx(1.0, rel=0.1)


def test_a_classifier_that_nothing_speaks_against_is_not_sure_without_end() -> None:
    # Right on all of two hundred but for the labels that are wrong everywhere alike.
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).repeat(100, 1)
    given = torch.arange(200) % 2
    given[:20] = 1 - given[:20]
    known = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    assert calibrated_scale(logits, given, known) > 10
    held = calibrated_scale(logits, given, known, spread=0.5)
    assert 1 < held < 3
    quality = label_posterior(logits, given, known, spread=0.5)[torch.arange(200), given].exp()
    assert 0.001 < float(quality.min()) < 0.2


def test_of_many_labels_the_prior_is_forgotten() -> None:
    logits, _, noisy = drawn(8000, 0.2)
    for factor in (0.2, 5.0):
        found = calibrated_scale(factor * logits, noisy, uniform(0.2, 5), spread=0.5)
        assert found * factor == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("spread", [0.0, -1.0, float("nan")])
def test_a_spread_must_be_positive(spread: float) -> None:
    with pytest.raises(ValueError, match="spread must be positive"):
        calibrated_scale(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), spread=spread)


def test_without_the_noise_the_scale_would_be_another() -> None:
    logits, _, noisy = drawn(8000, 0.4)
    assert calibrated_scale(logits, noisy, torch.eye(5)) < 0.5


def test_the_surest_show_the_noise_and_not_the_errors() -> None:
    logits, clean, noisy = drawn(8000, 0.3)
    errors = float((logits.argmax(1) != clean).float().mean())
    assert errors > 0.1
    estimated = surest_transition(logits, noisy)
    torch.testing.assert_close(estimated.sum(1), torch.ones(5).double())
    torch.testing.assert_close(estimated, uniform(0.3, 5).double(), atol=0.04, rtol=0)
    all_of_them = surest_transition(logits, noisy, surest=1.0)
    assert float(1 - all_of_them.diag().mean()) > 0.3 + errors / 2


def test_a_class_without_predictions_has_the_average_row() -> None:
    logits = torch.eye(3)[:2].repeat(100, 1) * 5
    given = torch.arange(200) % 2
    given[:20] = 1 - given[:20]
    estimated = surest_transition(logits, given, surest=1.0)
    rate = 1 - 180.5 / 201
    expected = torch.tensor([rate / 2, rate / 2, 1 - rate]).double()
    torch.testing.assert_close(estimated[2], expected)
    assert (estimated > 0).all()


def test_the_posterior_is_bayes_rule() -> None:
    logits, _, noisy = drawn(500, 0.2)
    transition = uniform(0.2, 5)
    scale = calibrated_scale(logits, noisy, transition)
    made = label_posterior(logits, noisy, transition).exp()
    for row in (0, 7, 499):
        weights = [math.exp(scale * value) for value in logits[row].tolist()]
        joint = [w * float(transition[y, noisy[row]]) for y, w in enumerate(weights)]
        np.testing.assert_allclose(made[row], np.array(joint) / sum(joint), rtol=1e-5)


@pytest.mark.parametrize("rate", [0.1, 0.4])
@pytest.mark.parametrize("factor", [0.3, 4.0])
def test_probabilities_are_as_often_right_as_they_say(rate: float, factor: float) -> None:
    logits, clean, noisy = drawn(20_000, rate)
    logits = factor * logits
    posterior = label_posterior(logits, noisy, surest_transition(logits, noisy)).exp()
    right = posterior.gather(1, noisy[:, None]).flatten()
    assert float(right.mean()) == pytest.approx(float((noisy == clean).double().mean()), abs=0.02)
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        of = (right >= low) & (right < low + 0.2)
        assert of.sum() > 100
        seen = float((noisy == clean)[of].double().mean())
        assert seen == pytest.approx(float(right[of].mean()), abs=0.07)


def wrong_on_hard_examples(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits that are always right, the true and the given labels, wrong where a logit is low."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.arange(count) % 3
    sure = torch.rand(count, generator=generator)
    logits = 4 * sure[:, None] * torch.nn.functional.one_hot(clean, 3)
    wrong = torch.rand(count, generator=generator) < 0.6 * (1 - sure) ** 2
    return logits, clean, torch.where(wrong, (clean + 1) % 3, clean)


def test_labels_that_are_wrong_on_hard_examples_are_found_by_how_sure_predictions_are() -> None:
    logits, clean, given = wrong_on_hard_examples(6000)
    transition = surest_transition(logits, given)
    times = wrong_by_sureness(logits, given, transition)
    by_quarter = [
        float(times[surest]) for surest in (logits.amax(dim=1)).argsort()[[5900, 2000, 9]]
    ]
    assert by_quarter == sorted(by_quarter)
    assert by_quarter[-1] > 3 * by_quarter[0]
    wrong, flagged, believed = given != clean, {}, {}
    for name, often in (("alike", None), ("by sureness", times)):
        posterior = label_posterior(logits, given, transition, times=often).exp()
        quality = posterior.gather(1, given[:, None]).flatten()
        flagged[name] = float((quality < 0.5)[wrong].double().mean())
        believed[name] = abs(float(quality.mean() - (~wrong).double().mean()))
    assert flagged["by sureness"] > 2 * flagged["alike"]
    assert believed["by sureness"] < believed["alike"]


@pytest.mark.parametrize("often", [0.0, 0.5, 1.0, 3.0, 1000.0])
def test_however_often_labels_are_wrong_they_are_distributed(often: float) -> None:
    transition = torch.tensor([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.3, 0.65, 0.05]])
    likely = _likely(transition, torch.arange(3), torch.full((3,), often).double())
    assert float(likely.min()) >= 0
    torch.testing.assert_close(likely.sum(dim=0), torch.ones(3).double())
    if often == 1.0:
        torch.testing.assert_close(likely, transition.T.double())


@pytest.mark.parametrize(("count", "num_classes"), [(40, 2), (50, 2), (61, 2), (400, 200)])
def test_labels_that_are_wrong_everywhere_alike_are_so_however_few_there_are(
    count: int, num_classes: int
) -> None:
    """Of so few, parts may be empty or hold a label of each class."""
    sure = torch.linspace(9, 3, count)
    predicted = torch.arange(count) % num_classes
    logits = sure[:, None] * torch.nn.functional.one_hot(predicted, num_classes)
    wrong = torch.arange(count) % 10 == 9
    given = torch.where(wrong, (predicted + 1) % num_classes, predicted)
    times = wrong_by_sureness(logits, given, uniform(0.1, num_classes))
    assert 1.0 <= float(times.max()) < 1.4


def test_of_a_label_that_was_heard_half_is_evidence_again() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(200, 3, generator=generator, dtype=torch.float64)
    given = torch.where(torch.arange(200) % 5 == 0, 0, logits.argmax(dim=1))
    known, heard = uniform(0.2, 3), torch.arange(200) < 120
    alone = (calibrated_scale(logits, given, known) * logits).log_softmax(dim=1)
    whole = label_posterior(logits, given, known)
    found = label_posterior(logits, given, known, heard=heard)
    between = ((alone + whole) / 2).log_softmax(dim=1)
    torch.testing.assert_close(found[heard], between[heard])
    torch.testing.assert_close(found[~heard], whole[~heard])
    assert not torch.allclose(alone[heard], whole[heard], rtol=0.05)


def test_a_label_that_cannot_be_leaves_finite_numbers() -> None:
    posterior = label_posterior(
        torch.tensor([[900.0, 0.0], [900.0, 0.0]]), torch.tensor([0, 1]), torch.eye(2)
    )
    assert bool(posterior.isfinite().all())
    torch.testing.assert_close(posterior.exp().sum(1), torch.ones(2).double())


def test_bad_input_is_a_sentence() -> None:
    logits, given = torch.zeros(4, 3), torch.zeros(4).long()
    with pytest.raises(ValueError, match="transition"):
        label_posterior(logits, given, torch.ones(3, 3))
    with pytest.raises(ValueError, match="given"):
        surest_transition(logits, given + 3)
    with pytest.raises(ValueError, match="given"):
        calibrated_scale(logits, given[:2], torch.eye(3))
    for times in (torch.ones(3), -torch.ones(4), torch.full((4,), torch.inf)):
        with pytest.raises(ValueError, match="times must be 4 finite numbers"):
            label_posterior(logits, given, torch.eye(3), times=times)
    for heard in (torch.ones(3).bool(), torch.ones(4)):
        with pytest.raises(ValueError, match="heard must be 4 booleans"):
            label_posterior(logits, given, torch.eye(3), heard=heard)
    with pytest.raises(ValueError, match=r"heard_share must lie in \[0, 1\], got 50"):
        label_posterior(logits, given, torch.eye(3), heard_share=50)
    with pytest.raises(ValueError, match="transition"):
        wrong_by_sureness(logits, given, torch.ones(3, 3))
