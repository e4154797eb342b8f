"""Where the demo's time goes, and what threads, memory format and bfloat16 bring on a CPU.

    python -m benchmarks.small_machines

The demo's four methods, one seed each, by part. Then training steps of the two networks that data
without a GPU gets: an MLP on features and a small convolutional network on images, settings by
turns, each in a process of its own; seconds of the clock, so that nothing else should run.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.measure import write
from covlearn import demo
from covlearn.data.sources import load_data, with_noise
from covlearn.nets import build_net
from covlearn.records import read

SHAPES: dict[str, tuple[int, ...]] = {"mlp": (64,), "cnn": (3, 32, 32)}
SETTINGS = {
    "1 thread": {"threads": 1},
    "2 threads": {"threads": 2},
    "2 threads, channels last": {"threads": 2, "channels_last": True},
    "2 threads, channels last, bfloat16": {"threads": 2, "channels_last": True, "low": True},
}
ROUNDS = 3


def demo_by_part() -> dict[str, dict[str, float]]:
    """Seconds of one seed of the demo, method by method."""
    torch.set_num_threads(1)
    parts: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        demo.fit(demo.METHODS[0], 1, Path(folder))  # imports are nobody's part
        started = time.perf_counter()
        with_noise(load_data("digits"), demo.NOISE, seed=0)
        data = time.perf_counter() - started
        for name in demo.METHODS:
            started = time.perf_counter()
            demo.fit(name, 0, Path(folder))
            total = time.perf_counter() - started
            seconds: dict[str, float] = {"data and noise": data}
            for line in read(Path(folder) / f"{name}-0").metrics:
                evaluation = float(line["evaluation_seconds"])
                stage = f"training, {line['stage']}"
                seconds[stage] = seconds.get(stage, 0.0) + float(line["seconds"]) - evaluation
                seconds["evaluation"] = seconds.get("evaluation", 0.0) + evaluation
            seconds["records, refinement and the rest"] = total - sum(seconds.values())
            parts[name] = seconds | {"in all": total}
    return parts


def steps_a_second(
    net: str, *, threads: int, channels_last: bool = False, low: bool = False
) -> float:
    """Training steps a second in batches of 128, set-up left out."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(128, *SHAPES[net], generator=generator)
    y = torch.randint(10, (128,), generator=generator)
    model = build_net(net, num_classes=10, input_shape=SHAPES[net], seed=0)
    if channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.to(memory_format=torch.channels_last) if x.ndim == 4 else x
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    done, started = -5, time.perf_counter()
    while True:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
            logits = model(x)
        loss = nn.functional.cross_entropy(logits.float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == 0:
            started = time.perf_counter()
        elapsed = time.perf_counter() - started
        if done > 0 and elapsed > 3:
            return done / elapsed


def in_a_process(net: str, options: dict[str, Any]) -> float | str:
    """Apart, since threads are set once, and since some processors crash in bfloat16."""
    code = (
        "from benchmarks.small_machines import steps_a_second; "
        f"print(steps_a_second({net!r}, **{options!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    return float(done.stdout) if done.returncode == 0 else f"exit code {done.returncode}"


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    figures: dict[str, Any] = {"demo, one seed, s": demo_by_part(), "steps a second": {}}
    for net in SHAPES:
        found: dict[str, list[float | str]] = {name: [] for name in SETTINGS}
        for _ in range(ROUNDS):
            for name, options in SETTINGS.items():
                found[name].append(in_a_process(net, options))
        base = found["1 thread"]
        figures["steps a second"][net] = {
            name: {
                "steps a second": values,
                "over 1 thread": statistics.median(
                    a / b
                    for a, b in zip(values, base, strict=True)
                    if isinstance(a, float) and isinstance(b, float)
                )
                if all(isinstance(value, float) for value in values)
                else None,
            }
            for name, values in found.items()
        }
    print(json.dumps(figures, indent=2))
    write("small_machines", {"batch": 128, "rounds": ROUNDS, "figures": figures})


if __name__ == "__main__":
    main()
