"""Seconds an epoch of the engine on one GPU: CE, CORES², CAL's second stage, averages, eager CE.

    python -m benchmarks.epoch_cost            # CIFAR-10's size, ResNet-34, on CUDA
    python -m benchmarks.epoch_cost --tiny     # a few steps of a small network, to see that it runs
    python -m benchmarks.epoch_cost --averages # what both averages cost, alone; averages_cost.json

Random pixels: speed does not depend on what they show. Turns within one run; the first epoch of
each, with set-up and capture, is reported apart. The captured epochs run under CUDA's check for
host synchronisation, which raises if a step waits for the device.
"""

import argparse
import statistics
import time
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import write
from covlearn.capture import CapturedEpoch
from covlearn.covariance import SecondOrder
from covlearn.data import Augmentation, Resident, Split
from covlearn.engine import Machine, Objective, Plan, train
from covlearn.ledger import Ledger
from covlearn.methods.cal_loss import CovarianceAssisted
from covlearn.methods.ce import CrossEntropy
from covlearn.methods.cores import Confident
from covlearn.nets import build_net
from covlearn.schedules import Ramp

HOW = Augmentation((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), crop=4, flip=True)
BOTH_AVERAGES = {"average": 0.999, "average_predictions": 0.9}


def draw_split(size: int, num_classes: int, device: str) -> Split:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (size, 32, 32, 3), generator=generator, dtype=torch.uint8)
    y = torch.randint(num_classes, (size,), generator=generator)
    return Split(x.to(device), y.to(device), num_classes, HOW)


def objectives(split: Split) -> dict[str, Objective]:
    noisy = split.y.cpu()
    generator = torch.Generator().manual_seed(1)
    other = torch.randint(split.num_classes, noisy.shape, generator=generator)
    refined = torch.where(torch.rand(len(noisy), generator=generator) < 0.6, noisy, other)
    stats = SecondOrder.from_labels(noisy, refined, split.num_classes, empty_class="identity")
    prior = torch.bincount(noisy, minlength=split.num_classes) / len(noisy)
    beta = Ramp(1.0)
    return {
        "ce": CrossEntropy(),
        "cores": Confident(split.y, prior, beta, sieve_from=1),
        "cal": CovarianceAssisted(refined, stats, None, prior=prior, beta=beta),
    }


def seconds_an_epoch(
    objective: Objective, split: Split, net: str, machine: Machine, epochs: int, **plan_changes: Any
) -> tuple[list[float], list[float]]:
    """Seconds of each epoch and its loss; the first has set-up and capture in it."""
    model = build_net(net, num_classes=split.num_classes, input_shape=(3, 32, 32), seed=0)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    data = Resident(split, batch_size=128, seed=0, device=machine.device)
    plan = Plan(epochs=epochs, lr=0.01, weight_decay=5e-4, **plan_changes)
    history = train(model, objective, data, plan, machine, seed=0)
    return [r["seconds"] for r in history], [r["loss"] for r in history]


def check_no_wait(device: str) -> None:
    """From here on, a captured epoch's replays raise if they make the host wait."""
    if device != "cuda":
        return
    replay = CapturedEpoch.replay

    def watched(self: CapturedEpoch) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            replay(self)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    CapturedEpoch.replay = watched  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--averages", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size, net = (600, "cnn") if options.tiny else (50_000, "resnet34")
    precision: Any = "float32" if device == "cpu" else "bfloat16"
    machine = Machine(device=device, precision=precision)
    check_no_wait(device)
    figures: dict[str, Any] = {}
    about = {"net": net, "examples": size, "batch": 128, "figures": figures}
    for num_classes in (10,) if options.averages else (10, 100):
        split = draw_split(size, num_classes, device)
        steady: dict[str, list[float]] = {}
        runs: dict[str, tuple[Objective, dict[str, float]]] = {
            name: (objective, {}) for name, objective in objectives(split).items()
        }
        runs["ce with both averages"] = (CrossEntropy(), BOTH_AVERAGES)
        if options.averages:
            del runs["cores"], runs["cal"]
        for name, (objective, changes) in runs.items():
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            started = time.perf_counter()
            seconds, losses = seconds_an_epoch(
                objective, split, net, machine, options.epochs, **changes
            )
            steady[name] = seconds[1:]
            figures[f"{name}, K = {num_classes}"] = {
                "first epoch, s": seconds[0],
                "epoch, s": statistics.median(seconds[1:]),
                "epochs, s": seconds[1:],
                "losses": losses,
                "peak GiB": torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None,
                "whole, s": time.perf_counter() - started,
            }
        for name in [name for name in steady if name != "ce"]:
            ratio = statistics.median(steady[name]) / statistics.median(steady["ce"])
            figures[f"{name} / ce, K = {num_classes}"] = ratio
    if options.averages:
        print(figures)
        write("averages_cost", about)
        return
    split = draw_split(size, 10, device)
    eager = Machine(device=device, precision=precision, capture=False)
    seconds, losses = seconds_an_epoch(CrossEntropy(), split, net, eager, 2)
    figures["eager ce, K = 10"] = {"epoch, s": seconds[-1], "losses": losses}
    small = draw_split(2000, 10, device)
    figures["captured against eager, float32, one epoch of a CNN, largest difference"] = float(
        same_as_eager(small, "cnn", device)
    )
    for name, value in figures.items():
        print(name, value)
    write("epoch_cost", about)


def same_as_eager(split: Split, net: str, device: str) -> Tensor:
    """Largest difference of the weights after an epoch captured and an epoch eager, in float32."""
    weights = []
    for capture in (True, False):
        model = build_net(net, num_classes=split.num_classes, input_shape=(3, 32, 32), seed=0)
        data = Resident(split, batch_size=128, seed=0, device=device)
        plan = Plan(epochs=1, lr=0.01, weight_decay=5e-4)
        machine = Machine(device=device, capture=capture)
        train(model, CrossEntropy(), data, plan, machine, seed=0, ledger=Ledger(len(split), device))
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return (weights[0] - weights[1]).abs().max()


if __name__ == "__main__":
    main()
