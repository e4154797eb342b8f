"""The fast path on CUDA: right, the same bits every time, resumable, and as few kernels as promised."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from covlearn import flat, kernels
from covlearn.capture import CapturedEpoch
from covlearn.checkpoint import Checkpoint
from covlearn.data import Augmentation, Resident, Split, counter
from covlearn.data.augment import augment, gathered
from covlearn.engine import Machine, Plan, train
from covlearn.ledger import Ledger
from covlearn.methods.ce import CrossEntropy
from covlearn.nets import build_net, fused

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (torch.cuda.is_available() and kernels.available()), reason="needs CUDA and Triton"
    ),
]

HOW = Augmentation((0.49, 0.48, 0.45), (0.2, 0.19, 0.21), crop=4, flip=True)
FAST = Machine(device="cuda", precision="bfloat16")


def draw_maps(*shape: int) -> Tensor:
    return (
        torch.randn(shape, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)
    )


def error(mine: Tensor | None, reference: Tensor | None) -> float:
    assert mine is not None
    assert reference is not None
    mine, reference = mine.detach().double(), reference.detach()
    return float((mine - reference).norm() / reference.norm())


@pytest.mark.parametrize("shape", [(128, 64, 32), (80, 128, 16), (128, 256, 8), (3, 512, 4)])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_fused_norm_against_float64(
    shape: tuple[int, int, int], residual: bool, both: bool
) -> None:
    torch.manual_seed(0)
    size, channels, side = shape
    x = (2 * draw_maps(size, channels, side, side) + 3).requires_grad_()
    added = draw_maps(size, channels, side, side).requires_grad_() if residual else None
    norm = nn.BatchNorm2d(channels).cuda()
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5)
        norm.bias.normal_()
    reference = nn.BatchNorm2d(channels).cuda().double()
    reference.load_state_dict(norm.state_dict())
    x64 = x.detach().double().requires_grad_()
    added64 = None if added is None else added.detach().double().requires_grad_()
    before64 = reference(x64) + (0 if added64 is None else added64)
    # Where rounding decides on which side of zero it is, there is no right gradient.
    clear = (before64.abs() > 1e-3).detach()
    slope, other = draw_maps(*x.shape) * clear, draw_maps(*x.shape) * clear
    assert fused.fusible(norm, x)
    y, alias = fused.norm_relu_twice(norm, x, added)
    torch.autograd.backward([y, alias] if both else [y], [slope, other] if both else [slope])
    y64 = before64.relu()
    y64.backward(slope.double() + (other.double() if both else 0))
    assert error(y, y64) < 5e-3
    assert error(x.grad, x64.grad) < 5e-3
    assert error(norm.weight.grad, reference.weight.grad) < 1e-5
    assert error(norm.bias.grad, reference.bias.grad) < 1e-5
    assert error(norm.running_mean, reference.running_mean) < 1e-5
    assert error(norm.running_var, reference.running_var) < 1e-5
    assert int(norm.num_batches_tracked or 0) == 1
    if added is not None and added64 is not None:
        assert error(added.grad, added64.grad) < 5e-3


def test_norm_of_a_large_mean_keeps_its_variance() -> None:
    x = (1000 + 4 * torch.randn(64, 64, 8, 8, device="cuda")).bfloat16()
    x = x.contiguous(memory_format=torch.channels_last)
    norm = nn.BatchNorm2d(64).cuda()
    y = fused.norm_only(norm, x)
    expected = (x.double() - x.double().mean((0, 2, 3), keepdim=True)) / x.double().std(
        (0, 2, 3), keepdim=True, correction=0
    )
    assert error(y, expected) < 5e-3


def test_images_have_the_same_bits_as_on_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (300, 32, 32, 3), generator=generator, dtype=torch.uint8)
    idx = torch.randperm(300, generator=generator)[:128]
    for how in (HOW, HOW.still):
        for epoch in range(3):
            key = counter.key(2**40 + 3, epoch)
            mine = gathered(images.cuda(), idx.cuda(), key.cuda(), how)
            theirs = augment(images[idx], idx, key, how)
            assert torch.equal(mine.cpu(), theirs)
            assert mine.stride() == theirs.stride()


def test_the_ledger_holds_what_it_does_without_kernels() -> None:
    generator = torch.Generator().manual_seed(0)
    ledgers = Ledger(300, "cuda"), Ledger(300)
    for num_classes in (2, 10, 100):
        logits = 3 * torch.randn(128, num_classes, generator=generator)
        y = torch.randint(num_classes, (128,), generator=generator)
        idx = torch.randperm(300, generator=generator)[:128]
        ledgers[0].write(idx.cuda(), logits.cuda(), y.cuda())
        ledgers[1].write(idx, logits, y)
    for mine, theirs in zip(ledgers[0].buffers(), ledgers[1].buffers(), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-5, atol=1e-5)


def draw_split(size: int = 1000) -> Split:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(size) % 4
    x = torch.randint(100, (size, 32, 32, 3), generator=generator, dtype=torch.uint8)
    x[torch.arange(size), :, 8 * y] += 100
    return Split(x, y, 4, HOW)


class Stop(Exception):
    """Stands in for a kill."""


def run(
    machine: Machine,
    *,
    size: int = 1000,
    epochs: int = 2,
    stop: int | None = None,
    checkpoint: Checkpoint | None = None,
    average: float | None = None,
    mixup: bool = False,
) -> tuple[nn.Module, list[dict[str, float]], Ledger]:
    model = build_net("resnet18", num_classes=4, input_shape=(3, 32, 32), seed=0)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    data = Resident(draw_split(size), batch_size=128, seed=1, device=machine.device, mixup=mixup)
    ledger = Ledger(len(data), data.device)

    def after_epoch(epoch: int, shown: nn.Module, ledger: Ledger) -> dict[str, float]:
        if epoch == stop:
            raise Stop
        return {}

    history = train(
        model,
        CrossEntropy(),
        data,
        Plan(epochs=epochs, lr=0.02, weight_decay=5e-4, average=average),
        machine,
        seed=2,
        ledger=ledger,
        checkpoint=checkpoint,
        after_epoch=after_epoch,
    )
    return model, history, ledger


def state(model: nn.Module) -> Tensor:
    """All weights and statistics."""
    floats = [v for v in model.state_dict().values() if v.is_floating_point()]
    return torch.cat([value.detach().contiguous().flatten().double() for value in floats])


@pytest.mark.parametrize("mixup", [False, True])
def test_one_fast_step_is_that_of_eager_float32(mixup: bool) -> None:
    """As near to float32 as PyTorch's own bfloat16 is, weight by weight."""
    machines = (
        FAST,
        Machine(device="cuda", precision="bfloat16", capture=False),
        Machine(device="cuda", capture=False),
    )
    fast, low, eager = (run(machine, size=128, epochs=1, mixup=mixup) for machine in machines)
    assert fast[1][0]["loss"] == pytest.approx(eager[1][0]["loss"], rel=0.01)
    start = build_net("resnet18", num_classes=4, input_shape=(3, 32, 32), seed=0).cuda()
    parameters = zip(
        fast[0].named_parameters(),
        low[0].parameters(),
        eager[0].parameters(),
        start.parameters(),
        strict=True,
    )
    for (name, mine), rounded, theirs, before in parameters:
        # Each weight on its own: running statistics and large layers would hide the others.
        step, low_step, exact = (
            (w.detach() - before.detach()).flatten().double() for w in (mine, rounded, theirs)
        )
        error, low_error = ((s - exact).norm() / exact.norm() for s in (step, low_step))
        assert float(error) <= 1.5 * float(low_error) + 0.02, name


def test_the_fast_path_learns_what_the_eager_one_does() -> None:
    fast, eager = run(FAST), run(Machine(device="cuda", capture=False))
    for mine, theirs in zip(fast[1], eager[1], strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=0.05)


@pytest.mark.parametrize("average", [None, 0.9])
def test_the_same_bits_twice_and_after_a_resume(average: float | None, tmp_path: Path) -> None:
    whole, history, ledger = run(FAST, epochs=4, average=average)
    again, _, _ = run(FAST, epochs=4, average=average)
    assert torch.equal(state(whole), state(again))

    def checkpoint() -> Checkpoint:
        return Checkpoint(tmp_path / "stage.pt", "this", seconds_between=0)

    first = checkpoint()
    with pytest.raises(Stop):
        run(FAST, epochs=4, average=average, checkpoint=first, stop=2)
    first.wait()
    resumed, later, rows = run(FAST, epochs=4, average=average, checkpoint=checkpoint())
    assert torch.equal(state(whole), state(resumed))
    assert [r["loss"] for r in history] == [r["loss"] for r in later]
    assert all(map(torch.equal, ledger.buffers(), rows.buffers()))


class Shared(nn.Module):
    """One convolution used twice, and one once."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(64, 64, 3, padding=1, bias=False)
        self.last = nn.Conv2d(64, 8, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.conv(self.conv(x).relu()).relu())
        return y.mean(dim=(2, 3))


def test_a_weight_used_twice_gets_both_gradients() -> None:
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    models = [Shared().to("cuda", memory_format=torch.channels_last) for _ in range(2)]  # type: ignore[call-overload]
    models[1].load_state_dict(models[0].state_dict())
    start = state(models[0])
    x = draw_maps(16, 64, 8, 8)
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1, device="cuda"), momentum=0.9)
        for model in models
    ]
    working = flat.Working(models[0], optimizers[0])
    steps: list[tuple[nn.Module, Any]] = [(working.model, working), (models[1], optimizers[1])]
    for model, optimizer in steps:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).float().square().sum()
        loss.backward()
        optimizer.step()
    assert error(state(models[0]) - start, state(models[1]) - start) < 1e-2


@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
def test_a_step_has_few_kernels_and_never_waits() -> None:
    """Of structure, not of time: what a captured ResNet-34 step may launch."""
    counts: list[float] = []
    replay = CapturedEpoch.replay

    def watched(self: CapturedEpoch) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            replay(self)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
        activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, acc_events=True) as profile:
            self.position.zero_()
            self.graphs[128].replay()
            torch.cuda.synchronize()
        counts.append(sum(event.device_type.name == "CUDA" for event in profile.events()))

    model = build_net("resnet34", num_classes=4, input_shape=(3, 32, 32), seed=0)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    data = Resident(draw_split(256), batch_size=128, seed=1, device="cuda")
    with mock.patch.object(CapturedEpoch, "replay", watched):
        train(model, CrossEntropy(), data, Plan(epochs=1), FAST, seed=0)
    assert 0 < counts[0] < 430
