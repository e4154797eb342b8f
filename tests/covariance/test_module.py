"""CALLoss in a training loop of one's own."""

import pickle
from functools import partial

import pytest
import torch

from covlearn import losses
from covlearn.covariance import (
    CALLoss,
    SecondOrder,
    Weighting,
    cal,
)
from covlearn.sieve import SieveRecorder
from tests.covariance.examples import WEIGHTINGS, draw_labels, draw_logits


def test_cal_loss_in_a_loop_learns_and_matches_the_function() -> None:
    noisy, refined = draw_labels(10, 64, 4)
    criterion = CALLoss(noisy, refined, num_classes=4, beta=1.0, reduction="none")
    idx = torch.randperm(64, generator=torch.Generator().manual_seed(0))[:16]
    logits = draw_logits(10, 16, 4)
    stats = SecondOrder.from_labels(noisy, refined, 4)
    expected = cal(
        logits,
        noisy[idx],
        refined[idx],
        stats,
        prior=torch.bincount(noisy, minlength=4) / 64,
        beta=1.0,
    )
    torch.testing.assert_close(criterion(logits, noisy[idx], idx), expected)
    mean = CALLoss(noisy, refined, num_classes=4, beta=1.0)
    torch.testing.assert_close(mean(logits, noisy[idx], idx), expected.mean())
    mean.beta = 0.0
    assert mean(logits, noisy[idx], idx) > expected.mean()


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_cal_loss_uses_example_weights_and_survives_a_state_dict(weighting: Weighting) -> None:
    noisy, refined = draw_labels(11, 64, 4, dropped=0.3)
    weight = torch.rand(64, generator=torch.Generator().manual_seed(0)) + 0.2
    make = partial(CALLoss, noisy, num_classes=4, weighting=weighting)
    criterion = make(refined, weight=weight, beta=0.3)
    idx = torch.arange(20)
    logits = draw_logits(11, 20, 4)
    value = criterion(logits, noisy[idx], idx)
    assert value != make(refined, beta=0.3)(logits, noisy[idx], idx)
    other = make(torch.arange(64) % 4, weight=torch.ones(64))
    assert other(logits, noisy[idx], idx) != value
    other.load_state_dict(criterion.state_dict())
    torch.testing.assert_close(other(logits, noisy[idx], idx), value)
    again = pickle.loads(pickle.dumps(criterion))
    torch.testing.assert_close(again(logits, noisy[idx], idx), value)


def test_cal_loss_shares_no_memory_with_its_arguments() -> None:
    noisy, refined = draw_labels(15, 40, 3)
    arguments = [noisy.int(), refined.int(), torch.ones(40), torch.full((3,), 1 / 3)]
    criterion = CALLoss(arguments[0], arguments[1], 3, weight=arguments[2], prior=arguments[3])
    logits, idx = draw_logits(15, 10, 3), torch.arange(10)
    before = criterion(logits, noisy[:10], idx)
    for argument in arguments:
        argument.zero_()
    assert torch.equal(criterion(logits, noisy[:10], idx), before)


def test_recorder_and_loss_in_one_loop() -> None:
    """The engineer's loop: warm up, record an epoch, refine, go on with CAL."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.arange(300) % 3
    x = torch.nn.functional.one_hot(clean, 3) * 6 + torch.randn(300, 3, generator=generator)
    noisy = torch.where(torch.rand(300, generator=generator) < 0.3, (clean + 1) % 3, clean)
    model = torch.nn.Linear(3, 3)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prior = torch.bincount(noisy) / 300
    for _ in range(40):
        optimizer.zero_grad()
        losses.cores(model(x), noisy, prior=prior, beta=1.5).mean().backward()
        optimizer.step()
    recorder = SieveRecorder(noisy, num_classes=3)
    for idx in torch.arange(300).split(64):
        recorder.update(idx, model(x[idx]))
    refined = recorder.refine()
    right_before = (noisy == clean).float().mean()
    assert (refined.label == clean).float().mean() > right_before + 0.15
    criterion = CALLoss(noisy, refined.label, num_classes=3, beta=1.0)
    for _ in range(40):
        optimizer.zero_grad()
        criterion(model(x), noisy, torch.arange(300)).backward()
        optimizer.step()
    assert (model(x).argmax(dim=1) == clean).float().mean() > 0.95


def test_labels_of_imagenet_size_are_kept_in_four_bytes() -> None:
    noisy = torch.arange(1_281_167) % 1000
    criterion = CALLoss(noisy, noisy.flip(0), num_classes=1000)
    held = sum(buffer.numel() * buffer.element_size() for buffer in criterion.buffers())
    assert held == 2 * 4 * 1_281_167 + 4 * 1000 * 1000 + 2 * 4 * 1000
