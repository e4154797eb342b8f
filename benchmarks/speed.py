"""The engine beside a plain eager loop, in one run; and a picture of where a step's time goes.

    python -m benchmarks.speed            # on the CPU, and on the GPU if there is one
    python -m benchmarks.speed --draw     # the picture alone, from results/speed/kernel_table.json

CPU: an MLP on digits, epochs by turns. The bare loop keeps no ledger and cannot be resumed; it is
measured with SGD as PyTorch has it by default, and with the fused one that the engine uses. CPU
seconds of one thread, which others on the machine disturb less than the clock.

GPU: ResNet-34 on 50,000 images of CIFAR's size, batch 128, bfloat16. The plain loop has the data on
the device, channels last, autocast and the fused SGD, and launches every operation by itself.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.epoch_cost import HOW, draw_split, seconds_an_epoch
from benchmarks.measure import RESULTS, ratio, write
from covlearn.data import Resident
from covlearn.data.sources import load_data
from covlearn.engine import Machine, Plan, train
from covlearn.losses import cross_entropy
from covlearn.methods.ce import CrossEntropy
from covlearn.nets import build_net

BATCH, EPOCHS, ROUNDS = 64, 10, 30
STEPS = 391  # of an epoch of 50,000 in batches of 128


def on_cpu(rounds: int = ROUNDS) -> dict[str, float]:
    """Milliseconds an epoch of each loop, and the engine's over the others'."""
    split = load_data("digits").train

    def make() -> nn.Module:
        return build_net("mlp", num_classes=10, input_shape=(1, 8, 8), seed=0)

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

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    calls: dict[str, Callable[[], None]] = {
        "bare": partial(bare, fused=False),
        "bare, fused": partial(bare, fused=True),
        "engine": engine,
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            seconds[name].append((time.process_time() - start) / EPOCHS)
    torch.set_num_threads(threads)
    figures = {f"{name}, ms an epoch": 1e3 * statistics.median(seconds[name]) for name in calls}
    for name in ("bare", "bare, fused"):
        figures[f"engine / {name}"] = ratio(seconds, "engine", name)
    return figures


def on_gpu(size: int = 50_000, net: str = "resnet34", epochs: int = 3) -> dict[str, Any]:
    """Seconds an epoch of the plain loop and of the engine, set-up left out."""
    split = draw_split(size, 10, "cuda")
    machine = Machine(device="cuda", precision="bfloat16")
    plain = plain_epochs(split.x, split.y, net, epochs)
    engine, _ = seconds_an_epoch(CrossEntropy(), split, net, machine, epochs)
    figures: dict[str, Any] = {"plain, s": plain, "engine, s": engine}
    figures["plain / engine"] = statistics.median(plain[1:]) / statistics.median(engine[1:])
    return figures


def plain_epochs(x: Tensor, y: Tensor, net: str, epochs: int) -> list[float]:
    """What one would write in an afternoon."""
    device = x.device
    model = build_net(net, num_classes=10, input_shape=(3, 32, 32), seed=0)
    model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True
    )
    mean, std = (torch.tensor(v, device=device) for v in (HOW.mean, HOW.std))
    padded = nn.functional.pad(x.permute(0, 3, 1, 2), (4, 4, 4, 4)).permute(0, 2, 3, 1)
    place = torch.arange(32, device=device)
    seconds = []
    for _ in range(epochs):
        started = time.perf_counter()
        model.train()
        for idx in torch.randperm(len(x), device=device).split(128):
            row = torch.randint(9, (len(idx), 1, 1), device=device) + place.view(1, 32, 1)
            col = torch.randint(9, (len(idx), 1, 1), device=device) + place.view(1, 1, 32)
            flip = torch.rand(len(idx), 1, 1, device=device) < 0.5
            col = torch.where(flip, col.flip(2), col)
            image = padded[idx.view(-1, 1, 1), row, col]
            image = ((image / 255 - mean) / std).permute(0, 3, 1, 2)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                logits = model(image)
            loss = nn.functional.cross_entropy(logits.float(), y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return seconds


def draw() -> None:
    """results/speed/step.png: kernel time of a step by kind, before and after."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    content = json.loads((RESULTS / "kernel_table.json").read_text(encoding="utf-8"))
    tables = {
        name.partition(":")[0]: {
            kind: us for kind, (us, _) in table["by kind: us, launches"].items()
        }
        for name, table in content["tables"].items()
    }
    kinds = list(dict.fromkeys(kind for table in tables.values() for kind in table))
    figure = Figure(figsize=(8.4, 1.6 + 0.6 * len(tables)), layout="constrained")
    axes = figure.subplots()
    left = [0.0] * len(tables)
    for kind in kinds:
        widths = [table.get(kind, 0.0) / 1e3 for table in tables.values()]
        axes.barh(list(tables), widths, left=left, label=kind)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    # Kernels on two streams overlap: the step itself is shorter than their sum.
    steps = [1e3 * table["epoch, s"] / STEPS for table in content["tables"].values()]
    axes.plot(steps, list(tables), "kD", label="the step itself")
    axes.invert_yaxis()
    axes.set(xlabel="ms a step", title="ResNet-34, batch 128, bfloat16, one H200")
    axes.set_xlim(0, 1.05 * max(*left, *steps))
    figure.legend(fontsize=7, ncols=3, loc="outside lower center")
    figure.savefig(RESULTS / "step.png", dpi=110)
    print(f"written: {(RESULTS / 'step.png').relative_to(RESULTS.parents[1])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draw", action="store_true", help="the picture alone")
    parser.add_argument("--only", choices=["cpu", "gpu"], help="one half (default: what there is)")
    options = parser.parse_args()
    if not options.draw and options.only != "gpu":
        figures = on_cpu()
        print(json.dumps(figures, indent=2))
        write("engine_overhead", {"batch": BATCH, "rounds": ROUNDS, "figures": figures})
    if not options.draw and options.only != "cpu" and torch.cuda.is_available():
        gpu = on_gpu()
        print(json.dumps(gpu, indent=2))
        write("against_plain_loop", {"net": "resnet34", "examples": 50_000, "figures": gpu})
    if not options.only:
        draw()


if __name__ == "__main__":
    main()
