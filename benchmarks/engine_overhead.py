"""The engine against a bare PyTorch loop, on the CPU: an MLP on digits, epochs by turns.

    python -m benchmarks.engine_overhead

The bare loop draws its own permutation and minimises the same loss; it keeps no ledger and cannot
be resumed. It is measured twice: with SGD as PyTorch has it by default, and with the fused one that
the engine uses. CPU seconds of one thread, which others on the machine disturb less than the clock.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks.measure import ratio, write
from covlearn.data import Resident
from covlearn.data.sources import load_data
from covlearn.engine import Machine, Plan, train
from covlearn.losses import cross_entropy
from covlearn.methods.ce import CrossEntropy
from covlearn.nets import build_net

BATCH, EPOCHS, ROUNDS = 64, 10, 30


def make() -> nn.Module:
    return build_net("mlp", num_classes=10, input_shape=(1, 8, 8), seed=0)


def main() -> None:
    split = load_data("digits").train

    def bare(*, fused: bool) -> None:
        model = make()
        optimizer = torch.optim.SGD(
            model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=fused
        )
        for _ in range(EPOCHS):
            model.train()
            for idx in torch.randperm(len(split)).split(BATCH):
                loss = cross_entropy(model(split.x[idx]), split.y[idx]).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def engine() -> None:
        data = Resident(split, batch_size=BATCH, seed=0)
        plan = Plan(epochs=EPOCHS, batch_size=BATCH, lr=0.1, weight_decay=5e-4)
        train(make(), CrossEntropy(), data, plan, Machine(), seed=0)

    torch.set_num_threads(1)
    calls: dict[str, Callable[[], None]] = {
        "bare": partial(bare, fused=False),
        "bare, fused": partial(bare, fused=True),
        "engine": engine,
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.process_time()
            call()
            seconds[name].append((time.process_time() - start) / EPOCHS)
    figures: dict[str, float] = {
        f"{name}, ms an epoch": 1e3 * statistics.median(seconds[name]) for name in calls
    }
    for name in ("bare", "bare, fused"):
        figures[f"engine / {name}"] = ratio(seconds, "engine", name)
    for name, value in figures.items():
        print(f"{name:24} {value:.3f}")
    write("engine_overhead", {"batch": BATCH, "rounds": ROUNDS, "figures": figures})


if __name__ == "__main__":
    main()
