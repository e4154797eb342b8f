"""CALLoss in a training loop of one's own."""

import pickle
from functools import partial
from pathlib import Path

import pytest
import safetensors.torch
import torch

from covlearn import losses
from covlearn.covariance import (
    CALLoss,
    SecondOrder,
    Weighting,
    cal,
)
from covlearn.sieve import Refined, SieveRecorder
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
    assert held == 2 * 4 * 1_281_167 + 4 * 1000 * 1000 + 2 * 4 * 1000 + 2 * 4
    assert not any(buffer.dtype == torch.float64 for buffer in criterion.buffers())


def test_weights_and_prior_in_double_are_kept_in_single() -> None:
    """As those of kernel_mean_matching and of NumPy are; not every device has double."""
    noisy, refined = draw_labels(17, 40, 3, dropped=0.3)
    weight = torch.rand(40, generator=torch.Generator().manual_seed(0)).double()
    prior = torch.full((3,), 1 / 3, dtype=torch.float64)
    for arguments in ((weight, prior), (weight.numpy(), prior.numpy())):
        criterion = CALLoss(noisy, refined, 3, weight=arguments[0], prior=arguments[1])
        assert not any(buffer.dtype == torch.float64 for buffer in criterion.buffers())
    with pytest.raises(ValueError, match="40 floating-point values, one an example"):
        CALLoss(noisy, refined, 3, weight=torch.ones(40, dtype=torch.long))


def test_its_state_is_tensors_alone(tmp_path: Path) -> None:
    """Else a model that holds it can be kept by neither safetensors nor Accelerate."""
    noisy, refined = draw_labels(11, 64, 4, dropped=0.3)
    model = torch.nn.Module()
    model.criterion = CALLoss(noisy, refined, num_classes=4, beta=0.3, weighting="sample")
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = torch.nn.Module()
    other.criterion = CALLoss(noisy, noisy, num_classes=4, weighting="sample")
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    assert other.criterion.beta == 0.3
    idx, logits = torch.arange(20), draw_logits(11, 20, 4)
    expected = model.criterion(logits, noisy[idx], idx)
    assert torch.equal(other.criterion(logits, noisy[idx], idx), expected)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_another_d_hat_is_counted_anew(weighting: Weighting) -> None:
    noisy, refined = draw_labels(12, 64, 4, dropped=0.3)
    weight = torch.rand(64, generator=torch.Generator().manual_seed(0)) + 0.2
    make = partial(CALLoss, noisy, num_classes=4, weight=weight, weighting=weighting)
    criterion, idx, logits = make(noisy), torch.arange(20), draw_logits(12, 20, 4)
    before = criterion(logits, noisy[idx], idx)
    criterion.set_refined(Refined(refined, keep=refined == noisy, score=torch.zeros(64)))
    expected = make(refined)(logits, noisy[idx], idx)
    assert torch.equal(criterion(logits, noisy[idx], idx), expected)
    assert expected != before
    with pytest.raises(ValueError, match="refined must have one entry an example, 64, got 10"):
        criterion.set_refined(refined[:10])


@pytest.mark.parametrize("cast", ["half", "bfloat16", "double", "float"])
def test_its_statistics_are_never_rounded(cast: str) -> None:
    noisy, refined = draw_labels(13, 64, 4)
    criterion, idx, logits = CALLoss(noisy, refined, 4), torch.arange(20), draw_logits(13, 20, 4)
    expected = criterion(logits, noisy[idx], idx)
    getattr(criterion, cast)()
    torch.testing.assert_close(criterion(logits, noisy[idx], idx), expected, rtol=1e-7, atol=1e-7)
    assert criterion.double().float().prior.dtype == torch.float32
    assert criterion.to("meta").transition.device.type == "meta"
    assert "beta=?" in repr(criterion)  # which has no value there


def test_logits_of_another_device_are_named() -> None:
    noisy, refined = draw_labels(14, 8, 4)
    criterion = CALLoss(noisy, refined, num_classes=4, empty_class="identity")
    with pytest.raises(ValueError, match="logits must be on the device of CALLoss, cpu, got meta"):
        criterion(torch.zeros(8, 4, device="meta"), noisy, torch.arange(8))


def test_class_weighting_warns_of_the_classes_that_a_batch_misses() -> None:
    labels = torch.arange(5000) % 1000
    idx = torch.arange(128)
    criterion = CALLoss(labels, labels, num_classes=1000)
    with pytest.warns(UserWarning, match="leaves out 88% of the covariance .* weighting='sample'"):
        criterion(torch.zeros(128, 1000), labels[idx], idx)
    criterion(torch.zeros(128, 1000), labels[idx], idx)  # once is enough
    for quiet in (
        CALLoss(labels, labels, 1000, weighting="sample"),
        CALLoss(labels % 10, labels % 10, 10),
    ):
        quiet(torch.zeros(128, len(quiet.prior)), quiet.noisy[idx].long(), idx)
    assert "num_classes=1000, beta=1, weighting='class'" in repr(criterion)


def test_by_sample_a_batch_in_parts_is_the_batch() -> None:
    """As docs/start/my_loop.md says of accumulated gradients and of processes; by class it is not."""
    noisy, refined = draw_labels(16, 64, 4)
    idx, logits = torch.arange(32), draw_logits(16, 32, 4)
    for weighting, same in (("sample", True), ("class", False)):
        criterion = CALLoss(noisy, refined, 4, weighting=weighting)  # type: ignore[arg-type]
        parts = [criterion(logits[part], noisy[part], part) for part in idx.split(8)]
        whole = criterion(logits, noisy[:32], idx)
        assert torch.allclose(torch.stack(parts).mean(), whole, atol=1e-6) == same
