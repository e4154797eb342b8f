"""R trials at a time on one GPU against one trial alone: seconds a trial-epoch.

    python -m benchmarks.side_by_side

ResNet-34, bfloat16, batch 128, 50,000 random images, cross-entropy, captured as ``train`` does it.
First a stream each, in one process whose one thread launches the trials' steps by turns. Then a
process each, as ``covlearn bench --processes`` has it, without and with CUDA's multi-process
service, and with an evaluation of 10,000 images after each epoch. Needs CUDA.
"""

import argparse
import multiprocessing
import statistics
import time
from typing import Any

import torch
from torch import Tensor

from benchmarks.epoch_cost import draw_split
from benchmarks.measure import write
from benchmarks.step_variants import Prepared
from covlearn.bench.mps import kernels_at_once
from covlearn.data import Resident
from covlearn.engine import Machine, predict

EPOCHS = 2


def weights(trial: Prepared) -> Tensor:
    return torch.cat([p.detach().flatten() for p in trial.model.parameters()])


def run(trials: list[Prepared]) -> list[float]:
    """Seconds of each epoch, all trials together; the first is not counted."""
    streams = [torch.cuda.Stream() for _ in trials]
    for trial in trials:
        trial.captured.begin(0)
    seconds = []
    for epoch in range(1 + EPOCHS):
        for trial in trials:
            trial.captured.begin(epoch)
        torch.cuda.synchronize()
        started = time.perf_counter()
        for step, size in enumerate(trials[0].captured.sizes):
            for trial, stream in zip(trials, streams, strict=True):
                with torch.cuda.stream(stream):
                    trial.captured.graphs[size].replay()
            if step % 8 == 7:
                streams[-1].synchronize()  # keep the trials together and the queue short
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


def trial_of_its_own(seed: int, together: Any, results: Any) -> None:
    """One of several processes: set up, wait for the others, run the epochs with evaluation."""
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    trial = Prepared(draw_split(50_000, 10, "cuda"), seed=seed)
    test = Resident(draw_split(10_000, 10, "cuda"), batch_size=1024, shuffle=False, device="cuda")
    machine = Machine(device="cuda", precision="bfloat16")

    def epoch(number: int) -> None:
        trial.captured(number)
        logits, _ = predict(trial.model, test, machine)
        float((logits.argmax(dim=1) == test.y).float().mean())

    epoch(0)
    together.wait()
    started = time.perf_counter()
    for number in range(1, 1 + EPOCHS):
        epoch(number)
    together.wait()
    results.put((seed, time.perf_counter() - started, weights(trial).double().sum().item()))


def in_processes(count: int) -> dict[str, Any]:
    """Seconds a trial-epoch of so many processes at a time, and a sum of each one's weights."""
    context = multiprocessing.get_context("spawn")
    together, results = context.Barrier(count), context.Queue()
    children = [
        context.Process(target=trial_of_its_own, args=(seed, together, results))
        for seed in range(count)
    ]
    for child in children:
        child.start()
    found = sorted(results.get(timeout=300) for _ in children)
    for child in children:
        child.join()
    return {
        "a trial-epoch with evaluation, s": max(seconds for _, seconds, _ in found)
        / (EPOCHS * count),
        "sums of weights": [total for _, _, total in found],
    }


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    split = draw_split(50_000, 10, "cuda")
    figures: dict[str, Any] = {}
    alone: dict[int, Tensor] = {}
    for seed in (0, 3):
        trial = Prepared(split, seed=seed)
        seconds = run([trial])
        alone[seed] = weights(trial)
        figures[f"alone, seed {seed}"] = {
            "a trial-epoch, s": statistics.median(seconds),
            "epochs, s": seconds,
        }
    for count in (2, 4):
        trials = [Prepared(split, seed=seed) for seed in range(count)]
        seconds = run(trials)
        each = statistics.median(seconds) / count
        figures[f"{count} side by side"] = {
            "a trial-epoch, s": each,
            "epochs of all, s": seconds,
            "alone / side by side": figures["alone, seed 0"]["a trial-epoch, s"] / each,
            "same bits as alone": all(
                bool(torch.equal(weights(trials[seed]), value))
                for seed, value in alone.items()
                if seed < count
            ),
        }
    alone_with_evaluation = in_processes(1)
    figures["a process alone"] = alone_with_evaluation
    figures["4 processes that take turns"] = in_processes(4)
    with kernels_at_once("cuda", 4) as at_once:
        for count in (2, 4) if at_once else ():
            figures[f"{count} processes with the service"] = in_processes(count)
    key = "a trial-epoch with evaluation, s"
    for name, value in figures.items():
        if "processes" in name:
            value["alone / side by side"] = alone_with_evaluation[key] / value[key]
        print(name, value)
    write("side_by_side", {"net": "resnet34", "batch": 128, "figures": figures})


if __name__ == "__main__":
    main()
