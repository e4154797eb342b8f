"""What a CAL trial costs with each preset, and what methods of several networks hold on the GPU.

    python -m benchmarks.preset_cost            # CIFAR-10's size, ResNet-34, on CUDA
    python -m benchmarks.preset_cost --tiny     # a small network, to see that it runs

Images that a network tells apart at once, 40 % of their labels wrong, so that each stage does what
it does on real ones. Every stage is cut to three epochs; a whole trial of CAL is the short one with
the epochs that are missing, each as long as the median of those after the first.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.epoch_cost import HOW
from benchmarks.measure import write
from covlearn.data import Split
from covlearn.engine import Machine
from covlearn.methods import Method
from covlearn.methods.presets import preset
from covlearn.records import read
from covlearn.run import fit_and_evaluate
from covlearn.testing import shortened

TRIALS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "CAL, published": ("published", "cal", {}),
    "CAL, recommended": ("recommended", "cal", {}),
    "CAL, recommended, mixup": ("recommended", "cal", {"target": "refined", "mixup": True}),
    "Co-teaching": ("paper", "coteaching", {}),
    "JoCoR": ("paper", "jocor", {}),
    "Reweight-R": ("paper", "reweight_r", {}),
    "PTD-R-V": ("published", "ptd", {}),
}
PLAN_OF_STAGE = {"sieve": "sieve_plan", "cal": "plan"}


def draw(size: int, seed: int, wrong: float) -> Split:
    """Noise around a colour for each class, and labels of which ``wrong`` are drawn anew."""
    generator = torch.Generator().manual_seed(seed)
    colours = torch.randint(64, 192, (10, 1, 1, 3), generator=torch.Generator().manual_seed(0))
    y = torch.randint(10, (size,), generator=generator)
    x = colours[y] + torch.randint(-60, 60, (size, 32, 32, 3), generator=generator)
    other = torch.randint(10, (size,), generator=generator)
    again = torch.rand(size, generator=generator) < wrong / 0.9
    return Split(x.to(torch.uint8), torch.where(again, other, y), 10, HOW)


def cost(method: Method, size: int, machine: Machine, net: str) -> dict[str, Any]:
    """Seconds of a short trial and of its epochs; of CAL also those of a whole one."""
    on_cuda = machine.device == "cuda"
    if on_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    split, test = draw(size, 1, 0.4), draw(size // 5, 2, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        started = time.perf_counter()
        short = shortened(method, epochs=3, batch_size=128)
        fit_and_evaluate(short, split, test=test, folder=run, machine=machine, net=net)
        total = time.perf_counter() - started
        lines = read(run).metrics
    seconds: dict[str, list[float]] = {}
    for line in lines:
        seconds.setdefault(str(line["stage"]), []).append(float(line["seconds"]))
    found = {
        "short trial, s": total,
        "epochs, s": seconds,
        "peak GiB": torch.cuda.max_memory_allocated() / 2**30 if on_cuda else None,
    }
    if set(seconds) == set(PLAN_OF_STAGE):
        missing = {
            stage: getattr(method, PLAN_OF_STAGE[stage]).epochs - len(each)
            for stage, each in seconds.items()
        }
        found["epochs"] = sum(missing.values()) + len(lines)
        found["whole trial, s"] = total + sum(
            count * statistics.median(seconds[stage][1:]) for stage, count in missing.items()
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size, net = (640, "cnn") if options.tiny else (50_000, "resnet34")
    machine = Machine(device, "float32" if device == "cpu" else "bfloat16")
    figures: dict[str, Any] = {}
    for name, (settings, method, changes) in TRIALS.items():
        whole = replace(preset(settings, method, "cifar10"), **changes)  # type: ignore[type-var]
        figures[name] = cost(whole, size, machine, net)
        print(name, figures[name], flush=True)
    published = figures["CAL, published"].get("whole trial, s")
    for name in ("CAL, recommended", "CAL, recommended, mixup"):
        if published is not None and "whole trial, s" in figures[name]:
            figures[f"{name} / published"] = figures[name]["whole trial, s"] / published
    write("preset_cost", {"net": net, "examples": size, "figures": figures})


if __name__ == "__main__":
    main()
