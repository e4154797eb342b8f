"""R trials at a time on one GPU, a stream each, against one trial alone: seconds a trial-epoch.

    python -m benchmarks.side_by_side

ResNet-34, bfloat16, batch 128, 50,000 random images, cross-entropy. Each trial is captured as
``train`` does it; one thread launches the trials' steps by turns. Needs CUDA.
"""

import statistics
import time
from typing import Any

import torch
from torch import Tensor

from benchmarks.epoch_cost import draw_split
from benchmarks.measure import write
from benchmarks.step_variants import Prepared

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


def main() -> None:
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
    for name, value in figures.items():
        print(name, value)
    write("side_by_side", {"net": "resnet34", "batch": 128, "figures": figures})


if __name__ == "__main__":
    main()
