"""What only a GPU can show: a captured step is the eager one, bit by bit, and can be resumed."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from covlearn.capture import CapturedEpoch
from covlearn.checkpoint import Checkpoint
from covlearn.data import Augmentation, Loaded, Resident, Split
from covlearn.data.loaded import STEPS_AHEAD
from covlearn.engine import Machine, Plan, train
from covlearn.evaluation import model_bytes
from covlearn.ledger import Ledger
from covlearn.memory import Memory
from covlearn.methods import CAL, METHODS, Method
from covlearn.methods.ce import CrossEntropy
from covlearn.methods.cores import Confident
from covlearn.nets import build_net
from covlearn.run import LocalRun
from covlearn.schedules import Ramp
from covlearn.testing import make_toy, shortened
from tests.test_data import Images

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CAPTURED = Machine(device="cuda")
EAGER = Machine(device="cuda", capture=False)
VARIANTS: dict[str, Method] = {
    **{name: kind() for name, kind in METHODS.items()},
    "cal, dropped examples": CAL(lower=-2.0, upper=2.0),
    "cal, relabel": CAL(relabel=True),
    "cal, balanced": CAL(balanced_batches=5, sieve_balanced_batches=5),
    "cal, mixup": CAL(sieve_mixup=True, sieve_balanced_batches=5),
    "cal, targets mixed": CAL(target="refined", mixup=True),
    "cal, gce on mixed labels": CAL(target="refined", base="gce", peer=False, mixup=True),
    "cal, training scores": CAL(scores="training"),
    "cal, averaged scores": CAL(scores="averaged", threshold="argmax"),
    "cal, neighbours": CAL(scores="both", threshold="argmax", neighbours=5),
    "cal, rounds": CAL(scores="averaged", threshold="argmax", rounds=2),
    **{f"cal on {base}": CAL(base=base) for base in ("gce", "forward", "reweight")},
}


@pytest.fixture(autouse=True)
def _without_tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def each_plan(method: Any, **changes: Any) -> Any:
    plans = {name: value for name, value in vars(method).items() if isinstance(value, Plan)}
    return replace(method, **{name: replace(plan, **changes) for name, plan in plans.items()})


def fit(method: Method, machine: Machine, **options: Any) -> dict[str, Any]:
    """All that must be the same of two runs."""
    run = LocalRun(
        make_toy().split, net_options={"hidden": [32]}, machine=machine, seed=7,
        checkpoint_seconds=0.0, **options,
    )  # fmt: skip
    model = shortened(method, epochs=4).fit(run)
    assert run.last_ledger is not None
    ledger = {name: value.tolist() for name, value in run.last_ledger.state_dict().items()}
    losses = {stage: [line["loss"] for line in lines] for stage, lines in run.history.items()}
    return {"network": model_bytes(model), "ledger": ledger, "losses": losses}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_captured_run_is_the_eager_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replays, replay = [], CapturedEpoch.replay

    def counted(self: CapturedEpoch) -> None:
        replays.append(1)
        replay(self)

    monkeypatch.setattr(CapturedEpoch, "replay", counted)
    captured = fit(VARIANTS[name], CAPTURED)
    assert replays, "nothing was captured"
    number = len(replays)
    eager = fit(VARIANTS[name], EAGER)
    assert len(replays) == number
    assert captured == eager


@pytest.mark.parametrize("name", VARIANTS)
def test_a_captured_run_gives_the_same_bits_twice(name: str) -> None:
    assert fit(VARIANTS[name], CAPTURED) == fit(VARIANTS[name], CAPTURED)


@pytest.mark.parametrize(
    "changes", [{}, {"average": 0.9, "average_predictions": 0.9}, {"optimizer": "adam", "lr": 1e-3}]
)
@pytest.mark.parametrize("name", ["ce", "cores", "cal", "coteaching", "reweight_r"])
def test_a_captured_run_that_was_cut_off_ends_with_the_same_bits(
    name: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    method = each_plan(METHODS[name](), **changes)
    whole = fit(method, CAPTURED)
    assert whole == fit(method, EAGER)
    for stage, losses in whole["losses"].items():
        for epoch in range(len(losses)):
            with pytest.raises(KeyboardInterrupt):
                fit(method, CAPTURED, folder=tmp_path, after_epoch=partial(cut, stage, epoch))
    assert fit(method, CAPTURED, folder=tmp_path) == whole


def cut(stage: str, epoch: int, now: str, at: int, _: nn.Module, __: Ledger) -> dict[str, float]:
    if (now, at) == (stage, epoch):
        raise KeyboardInterrupt
    return {}


def images() -> Split:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (330, 32, 32, 3), generator=generator, dtype=torch.uint8)
    y = torch.randint(10, (330,), generator=generator)
    how = Augmentation((0.5,) * 3, (0.2,) * 3, crop=4, flip=True, rotate=15.0)
    return Split(x, y, 10, how)


def trained(machine: Machine, net: str, **options: Any) -> tuple[bytes, list[float]]:
    model = build_net(net, num_classes=10, input_shape=(3, 32, 32), seed=0)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    data = Resident(images(), batch_size=64, seed=0, device="cuda", **options)
    plan = Plan(epochs=2, batch_size=64, lr=0.05, weight_decay=5e-4)
    history = train(model, CrossEntropy(), data, plan, machine, seed=0)
    return model_bytes(model), [line["loss"] for line in history]


@pytest.mark.parametrize("options", [{}, {"mixup": True}, {"balanced_batches": 6}])
@pytest.mark.parametrize("net", ["cnn", "resnet18"])
def test_images_are_augmented_alike_when_captured(net: str, options: dict[str, Any]) -> None:
    assert trained(CAPTURED, net, **options) == trained(EAGER, net, **options)


def test_batches_are_those_of_the_cpu() -> None:
    here, there = (Resident(images(), batch_size=64, seed=3, device=d) for d in ("cpu", "cuda"))
    for ours, theirs in zip(here.epoch(2), there.epoch(2), strict=True):
        assert torch.equal(ours.idx, theirs.idx.cpu())
        # The angle's sine may differ in the last bit, and with it a pixel on a border.
        same = (ours.x - theirs.x.cpu()).abs().amax(dim=1) < 1e-4
        assert float(same.float().mean()) > 0.999


def test_loaded_batches_are_those_of_the_cpu() -> None:
    how = Augmentation(mean=(0.5,) * 3, std=(0.25,) * 3, flip=True, window=12)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (50, 16, 16, 3), dtype=torch.uint8, generator=generator)
    y = torch.arange(50) % 5
    options: dict[str, Any] = {"augmentation": how, "batch_size": 8, "mixup": True}
    on_cpu, on_gpu = (
        Loaded(Images(x), y, 5, device=device, num_workers=workers, **options)
        for device, workers in (("cpu", 0), ("cuda", 2))
    )
    for ours, theirs in zip(on_gpu.epoch(3), on_cpu.epoch(3), strict=True):
        assert ours.mix is not None
        assert theirs.mix is not None
        assert torch.equal(ours.idx.cpu(), theirs.idx)
        torch.testing.assert_close(ours.x.cpu(), theirs.x)
        torch.testing.assert_close(ours.mix.x.cpu(), theirs.mix.x)


@pytest.mark.parametrize("num_classes", [3, 100])
@pytest.mark.parametrize("size", [40, 300])
def test_predictions_are_averaged_as_on_the_cpu(num_classes: int, size: int) -> None:
    here, there = (
        Ledger(size, d, memory=Memory(size, num_classes, decay=0.8, device=d))
        for d in ("cpu", "cuda")
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        idx = torch.randperm(size, generator=generator)[: size - 7]
        logits = 3 * torch.randn(len(idx), num_classes, generator=generator)
        y = torch.randint(num_classes, idx.shape, generator=generator)
        idx[5], logits[5], y[5] = idx[-1], logits[-1], y[-1]  # comes twice, and is one pass
        here.write(idx, logits, y)
        there.write(idx.cuda(), logits.cuda(), y.cuda())
    for name, ours in here.state_dict().items():
        theirs = there.state_dict()[name].cpu()
        torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=2e-5, msg=name)


def test_what_is_read_is_not_far_ahead_of_the_device() -> None:
    split = images()
    data = Loaded(
        Images(split.x), split.y, split.num_classes, augmentation=split.augmentation,
        batch_size=16, device="cuda",
    )  # fmt: skip
    steps: list[torch.cuda.Event] = []
    waiting = []
    for _ in data.raw(0):
        waiting.append(sum(not step.query() for step in steps))
        torch.cuda._sleep(50_000_000)  # cycles: some 30 ms, in which many batches could be read
        steps.append(torch.cuda.current_stream().record_event())
    assert len(steps) > 4 * STEPS_AHEAD
    assert 1 < max(waiting) <= STEPS_AHEAD


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"mixup": True}, {"balanced_batches": 6}], ids=str)
def test_a_captured_step_of_what_is_read_is_the_eager_one(
    options: dict[str, Any], workers: int
) -> None:
    def run(machine: Machine) -> tuple[bytes, list[float]]:
        split = images()
        data = Loaded(
            Images(split.x), split.y, split.num_classes, augmentation=split.augmentation,
            batch_size=64, seed=3, num_workers=workers, device="cuda", **options,
        )  # fmt: skip
        model = build_net(
            "cnn", num_classes=split.num_classes, input_shape=(3, *split.x.shape[1:3]), seed=0
        )
        prior = torch.full((split.num_classes,), 1 / split.num_classes)
        objective = Confident(split.y, prior, Ramp(1.0)) if "mixup" in options else CrossEntropy()
        plan = Plan(epochs=3, batch_size=64, lr=0.05, average=0.9)
        history = train(model, objective, data, plan, machine, seed=0)
        data.close()
        return model_bytes(model), [line["loss"] for line in history]

    assert run(CAPTURED) == run(EAGER)


def test_bfloat16_learns_as_float32_does() -> None:
    _, exact = trained(CAPTURED, "resnet18")
    _, rounded = trained(replace(CAPTURED, precision="bfloat16"), "resnet18")
    assert rounded == pytest.approx(exact, rel=0.05)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_learns_as_eager_does() -> None:
    _, exact = trained(EAGER, "cnn")
    _, compiled = trained(replace(CAPTURED, compile=True), "cnn")
    assert compiled == pytest.approx(exact, rel=1e-3)


def test_an_epoch_is_one_launch_a_step_and_waits_for_nothing() -> None:
    split = images()
    data = Resident(split, batch_size=64, seed=0, device="cuda")
    model = build_net("cnn", num_classes=10, input_shape=(3, 32, 32), seed=0)
    profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True)

    def switch(epoch: int, *_: Any) -> dict[str, float]:
        if epoch == 1:
            profiler.start()
        elif epoch == 2:
            profiler.stop()
        return {}

    train(
        model, CrossEntropy(), data, Plan(epochs=3, lr=0.01), CAPTURED, seed=0, after_epoch=switch
    )
    calls = sorted(
        (event for event in profiler.events() or [] if event.name.startswith("cuda")),
        key=lambda event: event.time_range.start,
    )
    launches = [event.time_range.start for event in calls if event.name == "cudaGraphLaunch"]
    assert len(launches) == 6
    within = [
        event.name
        for event in calls
        if launches[0] < event.time_range.start < launches[-1]
        and event.name not in ("cudaGraphLaunch", "cudaStreamIsCapturing")
    ]
    assert within == []


class Dropping(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(3 * 32 * 32, 32), nn.Dropout(), nn.Linear(32, 10))


def test_dropout_is_the_same_after_a_resume(tmp_path: Path) -> None:
    def run(name: str, epochs: int) -> bytes:
        torch.manual_seed(0)
        model = Dropping()
        data = Resident(images(), batch_size=64, seed=0, device="cuda")
        checkpoint = Checkpoint(tmp_path / name, "dropout", seconds_between=0)
        plan = Plan(epochs=epochs, batch_size=64, lr=0.01)
        train(model, CrossEntropy(), data, plan, CAPTURED, seed=0, checkpoint=checkpoint)
        return model_bytes(model)

    whole = run("whole.pt", 3)
    run("cut.pt", 1)
    assert run("cut.pt", 3) == whole
