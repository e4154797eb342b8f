"""What an epoch and a whole recipe take on so many GPUs: one function a term.

What goes in is measured (a file under results/), counted (operations and parameters of a network),
or assumed, with a source. Costs come three times: the low end of their ranges, the likely ones, and
the high end. The model describes the engine as it is: several processes run without CUDA graphs,
gradients are added up after the backward pass, and every process evaluates all images.
``benchmarks.growth`` has what comes of it.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from benchmarks.collectives import all_reduce_seconds
from covlearn.data.clothing1m import PUBLISHED_COUNTS
from covlearn.evaluation import EVALUATION_BATCH, EVALUATION_VALUES
from covlearn.nets import build_net

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
CIFAR_STEPS = 391  # of 50,000 images in batches of 128
VIEWS = ("low", "likely", "high")
FORWARD = 1 / 3  # of the arithmetic of a step, whose backward pass has two products for each one
LEDGER_BYTES = 24  # an example that are added up after an epoch: turns 8, four columns of 4
SMALL_SUMS = 2  # a step, beside the gradient: the weight of the batch, and its class masses

Part = Literal["compute", "all-reduce", "launches", "reading", "evaluation", "ledger and order"]


@dataclass(frozen=True)
class Work:
    """What a network does with one image, counted: products, outputs of its layers, layers."""

    products: int
    outputs: int
    layers: int
    parameters: int


def work_of(net: str, num_classes: int, side: int) -> Work:
    """Counted on shapes alone; batch norms follow convolutions one to one, and are not counted."""
    model = build_net(net, num_classes=num_classes, input_shape=(3, side, side), seed=0).to("meta")
    counted: list[tuple[int, int]] = []

    def look(layer: nn.Module, _: object, output: Tensor) -> None:
        weight = layer.weight
        assert isinstance(weight, Tensor)
        counted.append((output.numel() * weight[0].numel(), output.numel()))

    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(look)
    model(torch.zeros(1, 3, side, side, device="meta"))
    products, outputs = (sum(column) for column in zip(*counted, strict=True))
    return Work(products, outputs, len(counted), sum(p.numel() for p in model.parameters()))


@dataclass(frozen=True)
class Costs:
    """What things cost, in seconds unless named otherwise."""

    a_product: float
    an_output: float
    a_launched_layer: float
    a_launched_layer_forward: float
    a_captured_layer: float
    an_image_read: float
    an_example_ordered: float
    near_latency: float
    near_bandwidth: float
    far_latency: float
    far_bandwidth: float
    workers_a_gpu: int
    gpus_a_machine: int
    dollars_a_gpu_hour: float

    def an_image(self, work: Work) -> float:
        """GPU seconds of a training step for one image."""
        return work.products * self.a_product + work.outputs * self.an_output


@dataclass(frozen=True)
class Stage:
    """Epochs of a recipe; with mixup an image goes through the network twice."""

    name: str
    epochs: int
    images: int
    passes: int = 1


@dataclass(frozen=True)
class Case:
    """Data, a network and a recipe."""

    title: str
    net: str
    side: int
    num_classes: int
    examples: int
    stages: tuple[Stage, ...]
    evaluated: int
    """Images that are looked at after each epoch."""
    predictions: int
    """Passes over all examples beside training: D̂, and the probabilities of the record."""
    gpus: int
    batch: int
    """Of all GPUs together; of each, with ``batch_grows``."""
    batch_grows: bool = False
    in_files: bool = True

    def batch_of(self, gpus: int) -> int:
        """Images in a step of all GPUs."""
        return self.batch * gpus if self.batch_grows else self.batch


@dataclass(frozen=True)
class Engine:
    """What the engine does, or might do one day."""

    captured: bool = False
    """Steps are CUDA graphs, as they are in one process."""
    shares_evaluation: bool = False
    """Each process evaluates its share of the images."""


# ---- The terms ---------------------------------------------------------------------------------


def steps(case: Case, stage: Stage, gpus: int) -> int:
    """Steps of an epoch."""
    return math.ceil(stage.images / case.batch_of(gpus))


def compute_seconds(case: Case, stage: Stage, gpus: int, costs: Costs) -> float:
    """What the kernels of an epoch take on each GPU, if nothing keeps them waiting."""
    return stage.passes * stage.images / gpus * costs.an_image(_work(case))


def launch_seconds(
    case: Case, stage: Stage, gpus: int, costs: Costs, *, captured: bool = False
) -> float:
    """The least an epoch takes however small its batches are: a host's launches, or, of a captured
    step, kernels of the shortest length."""
    a_layer = costs.a_captured_layer if captured else costs.a_launched_layer
    return steps(case, stage, gpus) * stage.passes * _work(case).layers * a_layer


def sum_seconds(num_bytes: float, gpus: int, costs: Costs) -> float:
    """An all-reduce within a machine, or between machines."""
    near = gpus <= costs.gpus_a_machine
    latency, bandwidth = (
        (costs.near_latency, costs.near_bandwidth)
        if near
        else (costs.far_latency, costs.far_bandwidth)
    )
    return all_reduce_seconds(num_bytes, gpus, latency, bandwidth)


def gradient_seconds(case: Case, stage: Stage, gpus: int, costs: Costs) -> float:
    """Gradients, in float32, and the small sums of an epoch's steps."""
    gradient = sum_seconds(4 * _work(case).parameters, gpus, costs)
    small = SMALL_SUMS * sum_seconds(4 * case.num_classes, gpus, costs)
    return steps(case, stage, gpus) * (gradient + small)


def reading_seconds(case: Case, stage: Stage, gpus: int, costs: Costs) -> float:
    """Decoding an epoch's images beside each GPU; a partner of mixup may be another GPU's image."""
    if not case.in_files:
        return 0.0
    partners = (stage.passes - 1) * (1 - 1 / gpus)
    images = stage.images / gpus * (1 + partners)
    return images * costs.an_image_read / costs.workers_a_gpu


def evaluation_seconds(
    case: Case, images: int, gpus: int, costs: Costs, *, shared: bool = False
) -> float:
    """Predicting so many images: the slowest of reading, launching and computing."""
    images = math.ceil(images / gpus) if shared else images
    work, values = _work(case), 3 * (256 if case.in_files else case.side) ** 2
    batches = math.ceil(images / min(EVALUATION_BATCH, EVALUATION_VALUES // values))
    return max(
        images * costs.an_image(work) * FORWARD,
        batches * work.layers * costs.a_launched_layer_forward,
        images * costs.an_image_read / costs.workers_a_gpu if case.in_files else 0.0,
    )


def ledger_seconds(case: Case, gpus: int, costs: Costs) -> float:
    """Making the ledger whole after an epoch, in five sums, and drawing the next one's order."""
    merging = sum_seconds(LEDGER_BYTES * case.examples, gpus, costs)
    waiting = 4 * sum_seconds(0, gpus, costs)
    order = case.examples * costs.an_example_ordered if case.in_files else 0.0
    return merging + waiting + order


# ---- Together ----------------------------------------------------------------------------------


def epoch(case: Case, stage: Stage, gpus: int, costs: Costs, engine: Engine) -> dict[Part, float]:
    """Seconds of an epoch by part, which add up: what is hidden behind another counts there.

    Without a graph the host launches while the GPU computes and communicates; with one the GPU
    takes the shortest kernels' time at least. Readers work ahead of both.
    """
    compute = compute_seconds(case, stage, gpus, costs)
    sums = gradient_seconds(case, stage, gpus, costs)
    least = launch_seconds(case, stage, gpus, costs, captured=engine.captured)
    launches = max(0.0, least - compute - (0.0 if engine.captured else sums))
    reading = reading_seconds(case, stage, gpus, costs)
    return {
        "compute": compute,
        "all-reduce": sums,
        "launches": launches,
        "reading": max(0.0, reading - compute - sums - launches),
        "evaluation": evaluation_seconds(
            case, case.evaluated, gpus, costs, shared=engine.shares_evaluation
        ),
        "ledger and order": ledger_seconds(case, gpus, costs),
    }


def recipe(case: Case, gpus: int, costs: Costs, engine: Engine) -> dict[Part, float]:
    """Seconds of all stages by part, with the passes between and after them as evaluation."""
    total: dict[Part, float] = {}
    for stage in case.stages:
        for part, seconds in epoch(case, stage, gpus, costs, engine).items():
            total[part] = total.get(part, 0.0) + stage.epochs * seconds
    total["evaluation"] += case.predictions * evaluation_seconds(
        case, case.examples, gpus, costs, shared=engine.shares_evaluation
    )
    return total


def _work(case: Case) -> Work:
    key = (case.net, case.num_classes, case.side)
    if key not in _WORK:
        _WORK[key] = work_of(*key)
    return _WORK[key]


_WORK: dict[tuple[str, int, int], Work] = {}

# ---- What is measured, what is assumed ---------------------------------------------------------

CIFAR = Case(
    "CIFAR-10, ResNet-34 at 32², batch 128",
    "resnet34", 32, 10, 50_000,
    (Stage("sieve", 66, 50_000), Stage("cal", 100, 50_000)),
    evaluated=10_000, predictions=0, gpus=1, batch=128, in_files=False,
)  # fmt: skip
CLOTHING = Case(
    "Clothing1M, ResNet-50 at 224², batch 32 of all GPUs",
    "resnet50_imagenet", 224, 14, PUBLISHED_COUNTS["noisy_train"],
    (Stage("sieve", 120, 1_000 * 32, passes=2), Stage("cal", 120, 14 * 18_976)),
    evaluated=PUBLISHED_COUNTS["clean_val"] + PUBLISHED_COUNTS["clean_test"],
    predictions=2, gpus=8, batch=32,
)  # fmt: skip
IMAGENET = Case(
    "ImageNet-sized data, ResNet-50 at 224², 128 images a GPU",
    "resnet50_imagenet", 224, 1_000, 1_281_167,
    (Stage("sieve", 66, 1_281_167), Stage("cal", 100, 1_281_167)),
    evaluated=50_000, predictions=2, gpus=64, batch=128, batch_grows=True,
)  # fmt: skip
CASES = {"clothing1m": CLOTHING, "imagenet": IMAGENET}
GPUS = {"clothing1m": (1, 2, 4, 8), "imagenet": (1, 2, 4, 8, 16, 32, 64)}
ENGINES = {
    "as it is": Engine(),
    "evaluation shared": Engine(shares_evaluation=True),
    "captured steps": Engine(captured=True),
    "both": Engine(captured=True, shares_evaluation=True),
}


def measured() -> dict[str, Any]:
    """The figures that the model takes from other files, with the file that has each."""

    def look(file: str, *path: str | int) -> Any:
        found: Any = json.loads((RESULTS / file).read_text(encoding="utf-8"))
        for key in path:
            found = found[key]
        return {"file": f"results/{file}", "value": found}

    speed, images = "speed/epoch_cost.json", "images_a_cpu_second"
    readers = "workers of the loader"
    return {
        "epoch of CIFAR, captured, s": look(speed, "figures", "ce, K = 10", "epoch, s"),
        "epoch of CIFAR, not captured, s": look(speed, "figures", "eager ce, K = 10", "epoch, s"),
        "epoch of CIFAR, captured, PyTorch's own kernels, s": look(
            "speed/kernel_table.json", "tables", "before: plain capture", "epoch, s"
        ),
        "epoch of CIFAR, a plain loop, s": look(
            "speed/against_plain_loop.json", "figures", "plain, s", 2
        ),
        "kernels of a captured step": look(
            "speed/step_variants.json", "runs", 0, "figures", "all", "kernels a step"
        ),
        "predicting 10,000 CIFAR images in batches of 500, ms": look(
            "speed/evaluation.json", "ms", "500", 3
        ),
        "small files read, a core and second": look("scale/loader.json", "small", images, readers),
        "large files read, a core and second": look("scale/loader.json", "large", images, readers),
        "order of a million, s": look(
            "scale/loader.json", "of_a_million", "cpu_seconds_of_a_balanced_order"
        ),
        "cores beside the GPU": look(speed, "environment", "cores"),
        "bytes an example": look("scale/big.json", "memory", "kept, bytes an example"),
    }


# low, likely, high, and where it is from; not one of them was measured here.
ASSUMED: dict[str, tuple[tuple[float, float, float], str]] = {
    "launches of images from files, times those of data on the device": (
        (1.0, 1.0, 1.3), "a guess: pinning, copies and the augmentation's own launches come on top",
    ),
    "shortest kernel of a captured step, s": (
        (2e-6, 3e-6, 5e-6), "usual for small kernels in a graph; not measured at these batch sizes",
    ),
    "bandwidth of an all-reduce in a machine, bytes/s": (
        (475e9, 370e9, 250e9), "NVLink 4, 450e9 nominal: NVIDIA/nccl-tests issues 212 and 272",
    ),
    "latency of an all-reduce in a machine, s": ((15e-6, 30e-6, 60e-6), "a guess"),
    "bandwidth of an all-reduce between machines, bytes/s": (
        (400e9, 100e9, 25e9), "nominal: eight 400 Gbit/s cards a machine, two, or one of 200",
    ),
    "latency of an all-reduce between machines, s": ((30e-6, 60e-6, 200e-6), "a guess"),
    "GPUs a machine": ((8, 8, 8), "as machines with NVLink are sold"),
    "dollars a GPU-hour": ((2.0, 3.5, 7.0), "asked for an H200 in 2025 and 2026"),
}  # fmt: skip


def costs_of(view: int, known: dict[str, Any]) -> Costs:
    """The costs of one view: 0 the low end, 1 likely, 2 the high end.

    A GPU's time for an image is scaled from the captured CIFAR step: by products (low, as if
    arithmetic were all), by outputs of layers (likely, as if memory traffic were), and by outputs
    from the step with PyTorch's own kernels (high).
    """
    value = {name: entry["value"] for name, entry in known.items()}
    given = {name: values[view] for name, (values, _) in ASSUMED.items()}
    cifar = work_of("resnet34", 10, 32)
    images = CIFAR.examples
    fast = value["epoch of CIFAR, captured, s"] / images
    plain = value["epoch of CIFAR, captured, PyTorch's own kernels, s"] / images
    eager = "epoch of CIFAR, a plain loop, s" if view == 0 else "epoch of CIFAR, not captured, s"
    more = given["launches of images from files, times those of data on the device"]
    forward = value["predicting 10,000 CIFAR images in batches of 500, ms"] / 1e3 / 20
    kernels = value["kernels of a captured step"] / cifar.layers
    small, large = (
        1 / value[f"{size} files read, a core and second"] for size in ("small", "large")
    )
    return Costs(
        a_product=fast / cifar.products if view == 0 else 0.0,
        an_output=(0.0, fast, plain)[view] / cifar.outputs,
        a_launched_layer=more * value[eager] / CIFAR_STEPS / cifar.layers,
        a_launched_layer_forward=more * forward / cifar.layers,
        a_captured_layer=kernels * given["shortest kernel of a captured step, s"],
        an_image_read=(small, math.sqrt(small * large), large)[view],
        an_example_ordered=value["order of a million, s"] / 1e6,
        near_latency=given["latency of an all-reduce in a machine, s"],
        near_bandwidth=given["bandwidth of an all-reduce in a machine, bytes/s"],
        far_latency=given["latency of an all-reduce between machines, s"],
        far_bandwidth=given["bandwidth of an all-reduce between machines, bytes/s"],
        workers_a_gpu=value["cores beside the GPU"] - 1,
        gpus_a_machine=int(given["GPUs a machine"]),
        dollars_a_gpu_hour=given["dollars a GPU-hour"],
    )
