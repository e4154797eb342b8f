"""A short CAL trial from start to end, as ``fit_and_evaluate`` runs it, and what a whole one costs.

    python -m benchmarks.trial_cost [--epochs 3 3]

50,000 + 10,000 random images, ResNet-34, bfloat16, evaluation each epoch. The whole trial of
66 + 100 epochs is the short one's set-up and epochs, extrapolated; with ``--epochs 66 100`` it is
measured.
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.epoch_cost import draw_split
from benchmarks.measure import write
from covlearn.engine import Machine
from covlearn.methods import CAL
from covlearn.records import read
from covlearn.run import fit_and_evaluate

WHOLE = (66, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, nargs=2, default=[3, 3])
    parser.add_argument("--net", default="resnet34")
    parser.add_argument("--examples", type=int, default=50_000)
    options = parser.parse_args()
    on_cuda = torch.cuda.is_available()
    machine = Machine("cuda", "bfloat16") if on_cuda else Machine()
    split = draw_split(options.examples, 10, "cpu")
    test = draw_split(options.examples // 5, 10, "cpu")
    method = CAL(threshold="argmax")  # random labels have no groups to tell apart
    method = dataclasses.replace(
        method,
        sieve_plan=dataclasses.replace(method.sieve_plan, epochs=options.epochs[0], lr=0.01),
        plan=dataclasses.replace(method.plan, epochs=options.epochs[1], lr=0.01),
    )
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        fit_and_evaluate(
            method, split, test=test, folder=Path(folder) / "run", machine=machine, net=options.net
        )
        total = time.perf_counter() - started
        lines = read(Path(folder) / "run").metrics
    stages: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        stages.setdefault(str(line["stage"]), []).append(dict(line))
    figures: dict[str, Any] = {"epochs": options.epochs, "whole run, s": total}
    whole = total
    for (name, epochs), count in zip(stages.items(), WHOLE, strict=True):
        seconds = [epoch["seconds"] for epoch in epochs]
        steady = statistics.median(seconds[1:] or seconds)
        figures[name] = {
            "epochs with evaluation, s": seconds,
            "evaluation, s": [epoch["evaluation_seconds"] for epoch in epochs],
        }
        whole += (count - len(epochs)) * steady
    figures["66 + 100 epochs by these figures, s"] = whole
    for name, value in figures.items():
        print(name, value)
    write("trial_cost", {"net": options.net, "examples": len(split), "figures": figures})


if __name__ == "__main__":
    main()
