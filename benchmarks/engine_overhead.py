"""The engine against a bare PyTorch loop, on the CPU: an MLP on digits, epochs by turns.

    python -m benchmarks.engine_overhead

The bare loop draws its own permutation and minimises the same loss; it keeps no ledger and cannot
be resumed.
"""

import statistics
import time

import torch
from torch import nn

from benchmarks.measure import write
from covlearn.data import Resident
from covlearn.data.sources import load_data
from covlearn.engine import Machine, Plan, train
from covlearn.losses import cross_entropy
from covlearn.methods.ce import CrossEntropy
from covlearn.nets import build_net

BATCH, EPOCHS, ROUNDS = 64, 10, 20


def make() -> nn.Module:
    return build_net("mlp", num_classes=10, input_shape=(1, 8, 8), seed=0)


def main() -> None:
    split = load_data("digits").train

    def bare() -> None:
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
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

    figures = {}
    for threads in (1,):
        torch.set_num_threads(threads)
        seconds: dict[str, list[float]] = {"bare": [], "engine": []}
        for _ in range(ROUNDS):
            for name, call in (("bare", bare), ("engine", engine)):
                start = time.perf_counter()
                call()
                seconds[name].append((time.perf_counter() - start) / EPOCHS)
        ratios = [e / b for e, b in zip(seconds["engine"], seconds["bare"], strict=True)]
        figures[f"{threads} threads"] = {
            "bare, ms an epoch": 1e3 * statistics.median(seconds["bare"]),
            "engine, ms an epoch": 1e3 * statistics.median(seconds["engine"]),
            "engine / bare": statistics.median(ratios),
        }
    for name, value in figures.items():
        print(name, value)
    write("engine_overhead", {"batch": BATCH, "figures": figures})


if __name__ == "__main__":
    main()
