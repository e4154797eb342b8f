"""A run's network as one ONNX file: raw inputs in, probabilities out.

What is done to inputs before the network sees them is in the graph: numbers are standardised,
images normalised and, where the run has ImageNet-pretrained features, turned into those. What is
not numbers in a table is the caller's to bring into them: a date is days since 1970, a category a
column of 0 or 1 for each of its values. The file says in its metadata what the columns of ``x`` and
the classes are (``columns`` and ``classes``, JSON), and how a run made inputs of its source
(``recipe``).
"""

import contextlib
import json
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covlearn.atomic import write_bytes
from covlearn.fitted import Fitted, load
from covlearn.inputs.extractors import make_extractor
from covlearn.inputs.numbers import scored
from covlearn.inputs.tables import feature_names
from covlearn.integrations.extras import library
from covlearn.kinds import checked
from covlearn.preparation import Standardizer

INPUT, OUTPUTS = "x", ["probabilities", "logits"]
__all__ = ["to_onnx"]

TOLERANCE = 1e-4
CHECKED = (5, 1)  # sizes of the batches that both are asked about


class Pixels(nn.Module):
    """uint8 images (N, H, W, C) as a network takes them, (N, C, H, W)."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    mean: Tensor
    std: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Normalised by channel."""
        return ((x.float() / 255 - self.mean) / self.std).permute(0, 3, 1, 2)


class Standardized(nn.Module):
    """Columns of mean zero and deviation one, in float64 as in training; a missing one is zero."""

    def __init__(self, how: Standardizer) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(np.asarray(how.mean, dtype=np.float64)))
        self.register_buffer("scale", torch.from_numpy(np.asarray(how.scale, dtype=np.float64)))

    mean: Tensor
    scale: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """(N, D)."""
        values = (x.flatten(1).double() - self.mean) / self.scale
        return torch.where(values.isnan(), 0.0, values).float()


class Ranked(nn.Module):
    """Columns that are read by rank (:mod:`covlearn.inputs.numbers`), the others as they are.

    y = s_0 + Σ_i slope_i · clamp(x − k_i, 0, k_{i+1} − k_i), the line through the knots.
    """

    def __init__(self, knots: dict[int, list[float]], width: int) -> None:
        super().__init__()
        lines = {place: scored(each) for place, each in knots.items()}
        most = max(len(at) for at, _ in lines.values())
        start, gap, slope = (torch.zeros(width, most, dtype=torch.float64) for _ in range(3))
        first = torch.zeros(width, dtype=torch.float64)
        for place, (at, score) in lines.items():
            pieces = len(at) - 1
            start[place, :pieces] = torch.from_numpy(at[:-1])
            gap[place, :pieces] = torch.from_numpy(np.diff(at))
            slope[place, :pieces] = torch.from_numpy(np.diff(score) / np.diff(at))
            first[place] = float(score[0])
        ranked = torch.tensor([place in knots for place in range(width)])
        for name, value in [("start", start), ("gap", gap), ("slope", slope), ("first", first)]:
            self.register_buffer(name, value)
        self.register_buffer("ranked", ranked)

    start: Tensor
    gap: Tensor
    slope: Tensor
    first: Tensor
    ranked: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """(N, D)."""
        values = x.flatten(1).double()
        along = torch.minimum((values.unsqueeze(2) - self.start).clamp(min=0.0), self.gap)
        return torch.where(self.ranked, self.first + (self.slope * along).sum(dim=2), values)


class Probabilities(nn.Module):
    """What is last: a softmax, with the logits beside it."""

    def forward(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """(N, K) each."""
        return logits.softmax(dim=1), logits


@checked
def to_onnx(
    run: Fitted | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    allow: Sequence[str] = (),
) -> float:
    """Writes the network of a run of ``covlearn fit``, once onnxruntime agrees with it.

    The input ``x`` is float64 numbers (N, D) as they are in the source, NaN where a table has none,
    or uint8 images (N, H, W, C) of the recipe's size; the outputs are ``probabilities`` and
    ``logits``, both (N, K). Returned is the largest difference between onnxruntime and PyTorch on
    inputs drawn at random; one above 1e-4 is an error, and nothing is written. ``allow`` is that of
    :func:`covlearn.fitted.load`.
    """
    onnx, runtime, _ = (
        library(name, extra="onnx", wanted="to_onnx")
        for name in ("onnx", "onnxruntime", "onnxscript")
    )
    fitted = run if isinstance(run, Fitted) else load(run, allow=allow)
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} must be a file, but it is a folder; name a file in it")
    columns = feature_names(fitted.recipe) if fitted.recipe["kind"] == "table" else None
    graph = whole_graph(fitted)
    batches = [random_inputs(fitted, count) for count in CHECKED]
    with _quiet():
        program = torch.onnx.export(
            graph,
            (batches[0],),
            input_names=[INPUT],
            output_names=OUTPUTS,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    onnx.helper.set_model_props(
        proto,
        {
            "columns": json.dumps(columns, ensure_ascii=False),
            "classes": json.dumps(fitted.classes, ensure_ascii=False),
            "recipe": json.dumps(fitted.recipe, ensure_ascii=False),
            "covlearn": str(fitted.config["covlearn"]),
        },
    )
    content = proto.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    difference = max(_difference(session, graph, x) for x in batches)
    if not difference <= TOLERANCE:
        raise ValueError(
            f"onnxruntime must agree with PyTorch to {TOLERANCE:g}, got a difference of "
            f"{difference:.3g}; nothing was written"
        )
    write_bytes(path, content)
    return difference


@torch.no_grad()
def _difference(session: Any, graph: nn.Module, x: Tensor) -> float:
    """The largest of any output, of logits by their size: a saturated softmax would hide it."""
    theirs = session.run(OUTPUTS, {INPUT: x.numpy()})
    probabilities, logits = (
        float((torch.from_numpy(their) - our).abs().max())
        for their, our in zip(theirs, graph(x), strict=True)
    )
    return max(probabilities, logits / (1 + float(graph(x)[1].abs().max())))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch's exporter calls what PyTorch has deprecated, and tells who lacks torchvision so."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logger.setLevel(level)


def whole_graph(fitted: Fitted) -> nn.Module:
    """From raw inputs to probabilities, in evaluation mode."""
    parts: list[nn.Module] = []
    if (known := fitted.recipe.get("extractor")) is not None:
        extractor = make_extractor(known["name"])
        if extractor.weights != known["weights"]:
            raise ValueError(
                f"the weights of {known['name']} must be those of training, got others; install "
                "the same version"
            )
        parts += [Pixels(extractor.mean, extractor.std), extractor.net.cpu(), nn.Flatten()]
    if fitted.augmentation is not None:
        parts.append(Pixels(fitted.augmentation.mean, fitted.augmentation.std))
    if (how := source_scaling(fitted.recipe)) is not None:
        if knots := ranked_columns(fitted.recipe):
            parts.append(Ranked(knots, len(how.mean)))
        parts.append(Standardized(how))
    if fitted.standardizer is not None:
        parts.append(Standardized(fitted.standardizer))
    return nn.Sequential(*parts, fitted.model, Probabilities()).eval()


def source_scaling(recipe: dict[str, Any]) -> Standardizer | None:
    """How a recipe scales the numbers of a source; None for images, which it leaves as they are."""
    if recipe["kind"] == "features":
        return Standardizer(np.array(recipe["mean"]), np.array(recipe["std"]))
    if recipe["kind"] != "table":
        return None
    mean: list[float] = []
    scale: list[float] = []
    for column in recipe["columns"]:
        if column["kind"] == "category":
            as_they_are = len(column["categories"]) + column["other"]
        elif column.get("knots"):
            as_they_are = 1
        else:
            as_they_are = 0
            mean += np.atleast_1d(column["mean"]).tolist()
            scale += np.atleast_1d(column["std"]).tolist()
        as_they_are += column["missing"]
        mean += [0.0] * as_they_are
        scale += [1.0] * as_they_are
    return Standardizer(np.array(mean), np.array(scale))


def ranked_columns(recipe: dict[str, Any]) -> dict[int, list[float]]:
    """The knots of the columns that are read by rank, by their places."""
    knots: dict[int, list[float]] = {}
    place = 0
    for column in recipe.get("columns") or ():
        if column.get("knots"):
            knots[place] = column["knots"]
        place += len(feature_names({"columns": [column]}))
    return knots


def random_inputs(fitted: Fitted, count: int) -> Tensor:
    """Inputs of the run's kind, the same each time."""
    draw = np.random.default_rng(count)
    known: dict[str, Any] | None = fitted.recipe.get("extractor")
    if known is not None or fitted.augmentation is not None:
        if known is not None:
            size = make_extractor(known["name"]).size
            shape: tuple[int, ...] = (size, size, 3)
        else:
            channels, height, width = fitted.config["data"]["shape"]
            shape = (height, width, channels)
        pixels: NDArray[np.uint8] = draw.integers(0, 256, (count, *shape), dtype=np.uint8)
        return torch.from_numpy(pixels)
    how = source_scaling(fitted.recipe)
    assert how is not None
    rows: NDArray[np.float64] = how.mean + how.scale * draw.standard_normal((count, len(how.mean)))
    return torch.from_numpy(rows)
