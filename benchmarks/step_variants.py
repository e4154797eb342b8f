"""The captured step with one thing changed at a time: seconds an epoch, and the kernels of a step.

    python -m benchmarks.step_variants [--only NAME ...] [--compile]

CIFAR-10's size, ResNet-34, bfloat16, batch 128, random pixels. Each variant builds the network
anew, captures it, runs one epoch and then times two. Needs CUDA.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.epoch_cost import draw_split
from benchmarks.measure import write
from covlearn import engine, flat, kernels
from covlearn.capture import CapturedEpoch
from covlearn.data import Resident, Split
from covlearn.engine import Machine, Plan
from covlearn.ledger import Ledger
from covlearn.methods.ce import CrossEntropy
from covlearn.nets import build_net, fused, resnet

HEURISTICS = "TORCH_CUDNN_USE_HEURISTIC_MODE_B"


class Prepared:
    """A captured epoch as ``train`` sets it up."""

    def __init__(
        self, split: Split, *, seed: int = 0, working: bool = True, compiled: bool = False
    ) -> None:
        machine = Machine(device="cuda", precision="bfloat16")
        self.model = build_net("resnet34", num_classes=10, input_shape=(3, 32, 32), seed=seed)
        self.model.to("cuda", memory_format=torch.channels_last)  # type: ignore[call-overload]
        data = Resident(split, batch_size=128, seed=seed, device="cuda")
        plan = Plan(epochs=1, lr=0.01, weight_decay=5e-4)
        objective = CrossEntropy()
        self.ledger = Ledger(len(data), data.device)
        parameters: list[Tensor] = list(self.model.parameters())
        optimizer = engine.make_optimizer(parameters, plan, data.device)
        step = engine._Step(
            self.model, objective, optimizer, self.ledger, None, machine, parameters
        )
        state = engine._State(self.model, objective, optimizer, self.ledger, None)
        self.model.train()
        refresh = flat.use_working_copy(step) if working else None
        if compiled:
            step.model = torch.compile(step.model)  # type: ignore[assignment]
        self.captured = CapturedEpoch(step, state.parts, data, refresh)

    def seconds(self, epochs: int = 2) -> dict[str, Any]:
        """The time of an epoch's replays, after one that is not counted."""
        started = time.perf_counter()
        self.captured.begin(0)
        torch.cuda.synchronize()
        capture = time.perf_counter() - started
        self.captured.replay()
        torch.cuda.synchronize()
        losses = self.captured.losses.tolist()
        taken = []
        for epoch in range(1, 1 + epochs):
            self.captured.begin(epoch)
            torch.cuda.synchronize()
            started = time.perf_counter()
            self.captured.replay()
            torch.cuda.synchronize()
            taken.append(time.perf_counter() - started)
        return {
            "epoch, s": statistics.median(taken),
            "epochs, s": taken,
            "capture, s": capture,
            "first losses": losses[:5],
            "last loss of the first epoch": losses[-1],
        }

    def table(self, steps: int = 3) -> dict[str, Any]:
        """Kernels of a step: microseconds and launches by name."""
        graph = self.captured.graphs[128]
        self.captured.begin(0)
        graph.replay()
        torch.cuda.synchronize()
        activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities) as profile:
            for _ in range(steps):
                graph.replay()
            torch.cuda.synchronize()
        rows: dict[str, list[float]] = {}
        for event in profile.events():
            if event.device_type.name != "CUDA":
                continue
            row = rows.setdefault(event.name, [0.0, 0.0])
            row[0] += event.time_range.elapsed_us() / steps
            row[1] += 1 / steps
        return {
            "kernels a step": sum(row[1] for row in rows.values()),
            "us a step": sum(row[0] for row in rows.values()),
            "by kind": by_kind(rows),
            "by name": dict(sorted(rows.items(), key=lambda item: -item[1][0])),
        }


KINDS = {
    "convolution, forward": ("fprop", "precomputed_convolve", "tensorop_bf16_s16816fprop"),
    "convolution, gradient of the input": ("dgrad",),
    "convolution, gradient of the weight": ("wgrad", "ImplicitGemmConvolution", "ReduceSplitK"),
    "layout and padding": ("nhwcToNchw", "nchwToNhwc", "AddPadding"),
    "batch norm": ("batch_norm", "_moments", "_normalise", "_gradient"),
    "matrix products": ("nvjet", "gemm", "splitKreduce", "cublas"),
    "optimizer": ("_sgd", "FusedSgd", "fused_sgd", "TensorListMetadata<3>"),
    "inputs and ledger": ("_moved", "_written"),
    "copies and casts": ("copy", "Memcpy", "Fill", "emset", "TensorListMetadata<2>"),
}


def by_kind(rows: dict[str, list[float]]) -> dict[str, list[float]]:
    """Microseconds and launches a step by kind, by what the kernels' names tell."""
    kinds: dict[str, list[float]] = {}
    for name, (us, count) in rows.items():
        fits = (kind for kind, parts in KINDS.items() if any(part in name for part in parts))
        total = kinds.setdefault(next(fits, "other element-wise and reductions"), [0.0, 0.0])
        total[0] += us
        total[1] += count
    return dict(sorted(kinds.items(), key=lambda item: -item[1][0]))


@contextlib.contextmanager
def no_kernels() -> Iterator[None]:
    with mock.patch.object(kernels, "available", return_value=False):
        yield


@contextlib.contextmanager
def in_turn() -> Iterator[None]:
    init = flat.Beside.__init__

    def alone(self: flat.Beside, group: flat.Flat) -> None:
        init(self, group)
        self.stream = None

    with mock.patch.object(flat.Beside, "__init__", alone):
        yield


@contextlib.contextmanager
def added_by_autograd() -> Iterator[None]:
    def once(norm: Any, x: Tensor, residual: Tensor | None = None) -> fused.Twice:
        y = fused.norm_relu(norm, x, residual)
        return y, y

    with mock.patch.object(resnet, "norm_relu_twice", once):
        yield


@contextlib.contextmanager
def plain_norm() -> Iterator[None]:
    with mock.patch.object(fused, "fusible", return_value=False):
        yield


@contextlib.contextmanager
def cudnn(*, deterministic: bool, benchmark: bool) -> Iterator[None]:
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = benchmark
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False


@contextlib.contextmanager
def stem_as_it_is() -> Iterator[None]:
    with mock.patch.object(flat, "_padded", lambda maps, dtype: maps.to(dtype)):
        yield


Variant = tuple[Callable[[], contextlib.AbstractContextManager[None]], dict[str, Any]]
PLAIN = contextlib.nullcontext

VARIANTS: dict[str, Variant] = {
    "plain capture": (no_kernels, {"working": False}),
    "fused kernels, autocast": (PLAIN, {"working": False}),
    "working copy, PyTorch's batch norm": (plain_norm, {}),
    "working copy, one stream": (in_turn, {}),
    "all": (PLAIN, {}),
    "all, gradients added by autograd": (added_by_autograd, {}),
    "all, stem of 3 channels": (stem_as_it_is, {}),
    "all, cudnn benchmark": (lambda: cudnn(deterministic=True, benchmark=True), {}),
    "all, cudnn not deterministic": (lambda: cudnn(deterministic=False, benchmark=False), {}),
    "all, cudnn not deterministic, benchmark": (
        lambda: cudnn(deterministic=False, benchmark=True),
        {},
    ),
    "all, again": (PLAIN, {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--heuristics", action="store_true", help="cuDNN's heuristic mode B, too")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--name", default="step_variants")
    options = parser.parse_args()
    split = draw_split(50_000, 10, "cuda")
    figures: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    weights: dict[str, Tensor] = {}
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    for name, (context, how) in VARIANTS.items():
        if options.only and name not in options.only:
            continue
        try:
            with context():
                prepared = Prepared(split, **how)
                figures[name] = prepared.seconds()
                weights[name] = torch.cat(
                    [p.detach().flatten() for p in prepared.model.parameters()]
                )
                tables[name] = prepared.table()
                figures[name]["kernels a step"] = tables[name]["kernels a step"]
                figures[name]["us of kernels a step"] = tables[name]["us a step"]
        except Exception:  # the others are to be measured all the same
            traceback.print_exc()
        print(name, figures.get(name), flush=True)
        prepared = None  # type: ignore[assignment]
        torch.cuda.empty_cache()
    if "all, again" in weights:
        figures["same bits twice"] = bool(torch.equal(weights["all"], weights["all, again"]))
    if options.heuristics:
        environment = {**os.environ, HEURISTICS: "1"}
        command = [
            sys.executable,
            "-m",
            "benchmarks.step_variants",
            "--only",
            "all",
            "--name",
            "heuristics_b",
        ]
        subprocess.run(command, env=environment, check=False, timeout=90)
    if options.compile:
        try:
            with in_turn(), plain_norm():
                figures["working copy, compiled"] = Prepared(split, compiled=True).seconds()
        except Exception:
            traceback.print_exc()
    write(options.name, {"net": "resnet34", "batch": 128, "figures": figures})
    write(options.name + "_kernels", {"tables": tables})
    for name, value in figures.items():
        if isinstance(value, dict):
            print(
                f"{value['epoch, s']:.3f} s  {value.get('kernels a step', 0):.0f} kernels "
                f"{value.get('us of kernels a step', 0):.0f} us  "
                f"{value['capture, s']:.1f} s capture  {name}"
            )
        else:
            print(name, value)


if __name__ == "__main__":
    main()
