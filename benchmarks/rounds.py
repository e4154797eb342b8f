"""D̂ → network → D̂′ → network …: does the share of right labels keep rising, and when to stop?

    python -m benchmarks.rounds --processes 2                  # digits and Fashion-MNIST, a CPU
    python -m benchmarks.rounds --data cifar10 --seeds 1 --out results/beyond/rounds_cifar10.json

One CAL a cell with averaged predictions, ``ROUNDS`` rounds of stage 2, each from new weights or
from the last round's, and for comparison one stage 2 as long as all of these. Of each round, by
clean labels: the share of D̂ that is right, and the test accuracy of the network that was trained
on it; beside these what can be seen without: the share of D̂ that is the given label, and on which
share it differs from the last one. CIFAR-10 needs a GPU, and has the network and the plans of
``benchmarks/ingredients.toml``. Cells that the file has are not run again.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from benchmarks.job_runs import run_of
from benchmarks.pixels import FASHION, fashion
from covlearn.bench.table import read_table
from covlearn.data import Split
from covlearn.data.sources import Source, load_data, with_noise
from covlearn.engine import predict
from covlearn.evaluation import environment, evaluation_batches
from covlearn.job import Job, make_machine, resolve_device, settled
from covlearn.ledger import Ledger
from covlearn.local_run import LocalRun
from covlearn.methods import CAL
from covlearn.methods.base import view_of

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "results" / "beyond" / "rounds.json"
NOISES = ("cal:0.4", "ptd:0.4", "calibrated:0.4")
SETTINGS = ("scores=averaged", "threshold=argmax", "look_for_evidence=true")
ROUNDS, IMAGES, TESTS = 4, 8_000, 10_000


@dataclass
class Watched(LocalRun):
    """A run that writes down each D̂, and how right each network of stage 2 is on test data."""

    test: Split | None = None
    refinements: list[Tensor] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)

    def keep_labels(self, label: Tensor, *others: Any, **options: Any) -> None:
        """Once a round."""
        super().keep_labels(label, *others, **options)
        self.refinements.append(label.cpu())

    def train(self, stage: str, model: nn.Module, *others: Any, **options: Any) -> Ledger:
        """Once for the sieve, then once a round."""
        ledger = super().train(stage, model, *others, **options)
        if stage != "sieve":
            assert self.test is not None
            logits, _ = predict(model, evaluation_batches(self.test, self.machine), self.machine)
            right = logits.argmax(dim=1).cpu() == self.test.y
            self.accuracy.append(float(right.double().mean()))
        return ledger


def loaded(name: str) -> Source:
    """Data by name; of Fashion-MNIST the first images, as vectors."""
    if name != "fashion":
        return load_data(name)
    parts = []
    for part, count in (("train", IMAGES), ("t10k", TESTS)):
        x, y = fashion(FASHION, part)
        flat = torch.from_numpy(x[:count].reshape(-1, 784).copy()).float() / 255
        parts.append(Split(flat, torch.from_numpy(y[:count]), num_classes=10))
    train, test = parts
    return Source("fashion", train, test, clean=train.y)


def job_for(data: str, noise: str, seed: int) -> Job:
    """``recommended``, on small data with averaged predictions as it has them for images."""
    if data == "cifar10":
        table = read_table(ROOT / "benchmarks" / "ingredients.toml")
        return Job(
            data, "cal", noise, "recommended", seed, table.net, settings=tuple(table.settings)
        )
    return Job("digits", "cal", noise, "recommended", seed, settings=SETTINGS)


def one(task: tuple[str, str, int]) -> dict[str, Any]:
    """The rounds of one cell, in each way."""
    torch.set_num_threads(1)
    data, noise, seed = task
    job = job_for(data, noise, seed)
    method, _ = settled(job)
    assert isinstance(method, CAL)
    source, _ = with_noise(loaded(data), noise, seed=seed)
    clean = source.clean
    assert clean is not None
    # The judges in the end have a D̂ of their own, which nothing is trained on.
    method, plan = replace(method, judges="sieve"), method.plan
    longer = replace(
        plan,
        epochs=ROUNDS * plan.epochs,
        lr_milestones=tuple(ROUNDS * epoch for epoch in plan.lr_milestones),
    )
    found: dict[str, Any] = {"given": float((source.train.y == clean).double().mean())}
    ways = {
        "new": replace(method, rounds=ROUNDS, rounds_from="new"),
        "last": replace(method, rounds=ROUNDS, rounds_from="last"),
        "longer": replace(method, plan=longer),
    }
    with tempfile.TemporaryDirectory() as place:
        for way, tried in ways.items():
            run = run_of(
                job,
                source,
                Watched,
                test=source.test,
                folder=Path(place, way),
                shared_stages=Path(place, "shared"),  # the sieve, and the first round
            )
            try:
                tried.fit(view_of(run))
            finally:
                if run.to_share is not None:
                    run.to_share.release()
            found[way] = {
                "refined right": [float((d == clean).double().mean()) for d in run.refinements],
                "as given": [float((d == source.train.y).double().mean()) for d in run.refinements],
                "changed": run.facts.get("rounds_changed", []),
                "accuracy": run.accuracy,
            }
    return found


def cells_made(
    make: Callable[[Any], dict[str, Any]], tasks: list[Any], processes: int
) -> Iterator[dict[str, Any]]:
    """The cells, side by side where that is asked for."""
    if processes == 1:
        yield from map(make, tasks)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(make, tasks)


def made_and_left(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """The cells that the file has, and the tasks of those that it lacks, by name."""
    cells: dict[str, Any] = {}
    if options.out.exists():
        cells = json.loads(options.out.read_text(encoding="utf-8"))["cells"]
    tasks = {
        f"{data}/{noise}/{seed}": (data, noise, seed)
        for seed, data, noise in product(range(options.seeds), options.data, options.noise)
    }
    return cells, {name: task for name, task in tasks.items() if name not in cells}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["digits", "fashion"])
    parser.add_argument("--noise", nargs="+", default=list(NOISES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    cells, tasks = made_and_left(options)
    made = track(cells_made(one, list(tasks.values()), options.processes), total=len(tasks))
    machine = make_machine(resolve_device("auto"), {})
    for name, cell in zip(tasks, made, strict=True):
        cells[name] = cell
        record = {"rounds": ROUNDS, "environment": environment(machine), "cells": cells}
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
