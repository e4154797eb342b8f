"""Run folders of ``covlearn fit``: fit a source into one, and predict from one.

Beside the files of every run (:mod:`covlearn.records`) there are

labels.csv         one line an example: id, given, suggested, decision, quality, confidence, reason
recipe.json        how inputs are made of a source, their means and deviations, and the classes
examples.parquet   ids, and paths of images, for exports
table.parquet      the source's own columns, where it is a table
trusted.csv        labels that a person decided on and those they replace, where there are such
probs.npz          what the verdicts were read off (N, K)
refinement.npz     T̂ and the covariances (K, K)

A network is built again from its configuration and weights: nothing is unpickled.
"""

import io
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import covlearn
from covlearn import cells, distributed, records, saved
from covlearn.atomic import check_can_write, write_bytes
from covlearn.config import check_allowed, plain
from covlearn.copies import note_on_copies
from covlearn.data.augment import Augmentation
from covlearn.evaluation import (
    Progress,
    Recorder,
    digest,
    environment,
    model_bytes,
    probs_bytes,
    said_of,
    unlabelled,
)
from covlearn.fitting import Fit, Prepared, Setup, check_net, fit_split, set_up
from covlearn.inputs import Examples
from covlearn.kinds import checked
from covlearn.local_run import input_shape, machine_config
from covlearn.nets import build_net, load_pretrained, num_parameters
from covlearn.noise.inputs import check_seed
from covlearn.preparation import Standardizer
from covlearn.run import method_name
from covlearn.saved import COLUMNS, EXAMPLES, RECIPE, REFINEMENT, TABLE, TRUSTED
from covlearn.stages import alone_in, digests_of_files, start_as
from covlearn.verdicts import DECISIONS


@dataclass(frozen=True)
class FitResult:
    """What came out of ``covlearn fit``, for result.json."""

    method: str
    seed: int
    examples: int
    classes: int
    skipped: list[dict[str, str]]
    """Examples of the source that could not be used, with the reason."""
    noise_rate: float
    decisions: dict[str, int]
    evidence: dict[str, Any]
    facts: dict[str, Any]
    seconds: float
    notes: list[str] = field(default_factory=list)
    kind: str = "fit"
    format: int = records.FORMAT


def prepared_from(examples: Examples) -> Prepared:
    """Examples of a source as a network takes them; refused without labels of two classes."""
    if examples.y is None:
        raise ValueError("the source must have labels to fit to, got none; name them by label")
    if len(examples.classes) < 2:
        raise ValueError(f"the source must have two classes at least, got {examples.classes}")
    trusted = None if examples.trusted is None else examples.trusted.mask
    return Prepared.of(examples.x.numpy(), examples.y, len(examples.classes), trusted)


@checked
def fit_examples(
    examples: Examples,
    folder: Path,
    *,
    source: dict[str, Any],
    method: str = "cal",
    preset: str = "recommended",
    net: str = "auto",
    settings: tuple[str, ...] = (),
    seed: int = 0,
    device: str = "auto",
    resume: bool = False,
    progress: Progress | None = None,
) -> FitResult:
    """Fits, judges every label and writes the run folder; a finished one is read back.

    ``source`` says for the record where the examples are from.
    """
    check_seed(seed)
    prepared = prepared_from(examples)
    setup = set_up(
        method, split=prepared.split, preset=preset, net=net, settings=settings, device=device
    )
    check_net(prepared.split, setup)
    config = configuration(prepared, setup, source=source, seed=seed, preset=preset)
    recording = distributed.process() == 0
    with alone_in(folder):
        finished = start_as(FitResult, folder, config, resume=resume)
        if finished is not None:
            return finished
        if recording:
            records.write_json(folder / records.ENVIRONMENT, environment(setup.machine))
        try:
            fit = fit_split(
                prepared.split,
                setup,
                seed=seed,
                classes=examples.classes,
                folder=folder,
                follow=(lambda history: Recorder(history, folder, progress)) if recording else None,
            )
        except (ValueError, MemoryError):
            if recording:
                records.abandon_if_empty(folder)
            raise
        result = FitResult(
            method=config["method"]["name"],
            seed=seed,
            examples=len(examples),
            classes=len(examples.classes),
            skipped=[asdict(item) for item in examples.skipped],
            noise_rate=fit.noise_rate,
            decisions={name: fit.verdicts.count(name) for name in DECISIONS},
            evidence=asdict(fit.evidence) | {"sentence": fit.evidence.sentence},
            facts=plain(fit.facts),
            seconds=sum(record["seconds"] for stage in fit.history.values() for record in stage),
            notes=[*examples.notes, *note_on_copies(prepared.split.x, prepared.split.copied)],
        )
        if recording:
            write_files(folder, examples, prepared, fit, result)
            shutil.rmtree(folder / records.STAGES, ignore_errors=True)
        return result


def configuration(
    prepared: Prepared, setup: Setup, *, source: dict[str, Any], seed: int, preset: str
) -> dict[str, Any]:
    """Everything that decides what is computed."""
    split, choice = prepared.split, setup.choice
    return {
        "format": records.FORMAT,
        "command": "fit",
        "covlearn": covlearn.__version__,
        "method": {"name": method_name(choice.method), **plain(choice.method)},
        "preset": preset,
        "seed": seed,
        "net": {"name": choice.net, **choice.net_options},
        "augmentation": None if setup.augmentation is None else plain(setup.augmentation),
        "files": digests_of_files([plain(choice.method), choice.net_options]),
        "source": source,
        "data": {
            "examples": len(split),
            "classes": split.num_classes,
            "shape": list(input_shape(split)),
            "x": digest(split.x),
            "y": digest(split.y),
            "trusted": None if split.trusted is None else digest(split.trusted),
            # How copies are dealt with has changed; runs without any are the same as before.
            **({} if split.copied is None else {"different": len(split.copied.unique())}),
        },
        "machine": machine_config(setup.machine),
    }


def look_at_run(
    folder: Path,
    prepared: Prepared,
    setup: Setup,
    *,
    source: dict[str, Any],
    seed: int,
    preset: str,
    resume: bool,
) -> bool:
    """Whether the folder has this run, finished; refuses what would be, whatever the inputs are.

    What follows from the number and the shape of examples is compared where those are the run's.
    """
    if not (folder / records.CONFIG).exists():
        return False
    there = records.read_config(folder)
    split, data = prepared.split, there["data"]
    one = replace(prepared, split=replace(split, x=split.x[:1], y=split.y[:1], trusted=None))
    config = configuration(one, setup, source=source, seed=seed, preset=preset)
    parts = ["command", "source", "seed", "preset"]
    if (data["examples"], data.get("shape")) == (len(split), list(input_shape(split))):
        parts += ["method", "net", "augmentation", "files", "machine"]
    known = {**there, **{name: config[name] for name in parts}}
    return records.same_run(FitResult, folder, known, resume=resume) is not None


def write_files(
    folder: Path, examples: Examples, prepared: Prepared, fit: Fit, result: FitResult
) -> None:
    """All files of a finished run; the result comes last, for it says that the others are there."""
    verdicts, classes = fit.verdicts, examples.classes
    records.write_metrics(folder, fit.history)
    rows = zip(
        examples.ids,
        [classes[number] for number in verdicts.given],
        [classes[number] for number in verdicts.suggested],
        verdicts.decision.tolist(),
        [f"{value:.6g}" for value in verdicts.quality],
        [f"{value:.6g}" for value in verdicts.confidence],
        verdicts.reason,
        strict=True,
    )
    cells.write_cells(folder / records.LABELS, COLUMNS, rows)
    standardizer, augmentation = prepared.standardizer, prepared.augmentation
    recipe = {
        "recipe": examples.recipe,
        "classes": classes,
        "mean": None if standardizer is None else standardizer.mean,
        "scale": None if standardizer is None else standardizer.scale,
        "augmentation": None if augmentation is None else plain(augmentation),
    }
    records.write_json(folder / RECIPE, recipe)
    paths = None if examples.paths is None else [str(path.resolve()) for path in examples.paths]
    _write_parquet(folder / EXAMPLES, pd.DataFrame({"id": examples.ids, "path": paths}))
    if examples.table is not None:
        _write_parquet(folder / TABLE, examples.table)
    if examples.trusted is not None:
        ids, given = examples.ids, [classes[number] for number in verdicts.given]
        before = examples.trusted.before
        kept = [(i, y, before[i]) for i, y in zip(ids, given, strict=True) if i in before]
        cells.write_cells(folder / TRUSTED, ("id", "label", "before"), kept)
    idx = torch.arange(len(examples))
    write_bytes(folder / records.PROBS, probs_bytes(fit.logits, idx))
    statistics = io.BytesIO()
    np.savez(statistics, transition=fit.transition.numpy(), covariance=fit.covariance.numpy())
    write_bytes(folder / REFINEMENT, statistics.getvalue())
    write_bytes(folder / records.MODEL, model_bytes(fit.model))
    records.write_json(folder / records.RESULT, result)


@dataclass(frozen=True)
class Fitted:
    """A finished run folder, to predict from and to export."""

    folder: Path
    config: dict[str, Any]
    result: FitResult
    recipe: dict[str, Any]
    """How inputs are made of a source (``recipe=`` of ``read_examples``)."""
    classes: list[str]
    standardizer: Standardizer | None
    augmentation: Augmentation | None

    allow: tuple[str, ...] = ()
    """Code that the run may import, ``pkg.mod:factory``: a network of one's own."""

    @cached_property
    def labels(self) -> dict[str, list[str]]:
        """The columns of labels.csv as text."""
        return saved.read_labels(self.folder, self.classes)

    @cached_property
    def paths(self) -> list[Path | None]:
        """The image file of each example, None where it is none of its own."""
        return saved.read_paths(self.folder, self.labels["id"])

    @cached_property
    def table(self) -> Any:
        """The source's own columns as a DataFrame; None where it was no table."""
        return saved.read_own_table(self.folder, len(self.labels["id"]))

    @cached_property
    def statistics(self) -> dict[str, NDArray[np.float64]]:
        """``transition`` and ``covariance``, (K, K) each."""
        return saved.read_statistics(self.folder, len(self.classes))

    @cached_property
    def probs(self) -> NDArray[np.float64]:
        """What the verdicts were read off, (N, K)."""
        shape = (len(self.labels["id"]), len(self.classes))
        arrays = saved.read_numbers(self.folder / records.PROBS, {"probs": shape})
        return arrays["probs"].astype(np.float64)

    @cached_property
    def people(self) -> dict[str, tuple[str, str]]:
        """By id, the label that a person decided on and the one that it replaces."""
        return saved.read_people(self.folder, self.classes)

    @cached_property
    def model(self) -> nn.Module:
        """The network, in evaluation mode; one of somebody's own only if it is allowed."""
        config, weights = self.folder / records.CONFIG, self.folder / records.MODEL
        name, options = self.config["net"]["name"], dict(self.config["net"])
        check_allowed(name, self.allow, where=str(config))
        options.pop("name")
        options.pop("pretrained", None)  # all weights are in the run's own file
        described: dict[str, Any] = {
            "num_classes": len(self.classes),
            "input_shape": self.config["data"].get("shape"),
            "options": options,
        }
        if not weights.is_file():
            raise ValueError(f"{weights} is missing: this is not the whole folder of a run")
        if num_parameters(name, **described) > weights.stat().st_size:
            raise ValueError(f"{config} must describe the network of {weights}, got a larger one")
        net = build_net(name, seed=0, **described)
        if load_pretrained(net, weights):
            raise ValueError(f"{weights} must have weights for each class of {self.folder}")
        return net.eval()

    def probabilities(self, x: Tensor, *, device: str = "cpu") -> NDArray[np.float64]:
        """(N, K) of inputs as ``read_examples`` makes them by the recipe."""
        if self.standardizer is not None:
            x = torch.from_numpy(self.standardizer(x.numpy())).float()
        expected = self.config["data"].get("shape")
        split = unlabelled(x, self.augmentation)
        if list(input_shape(split)) != expected:
            raise ValueError(
                f"examples must have the shape that the run was fitted to, {expected}, got "
                f"{list(input_shape(split))}"
            )
        logits, _ = said_of(self.model, split, device=device)
        return np.asarray(logits.cpu().double().softmax(dim=1).numpy())


@checked
def load(folder: str | os.PathLike[str], *, allow: Sequence[str] = ()) -> Fitted:
    """What ``covlearn fit`` left in a folder.

    A run may name a network of its owner's, ``pkg.mod:factory``. That is code: it is imported when
    the network is asked for, and only if ``allow`` names it, too.
    """
    folder = Path(folder)
    config = records.read_config(folder)
    if config.get("command") != "fit":
        raise ValueError(f"{folder} must be a run of covlearn fit, but it is one of covlearn train")
    result = records.read_outcome(folder, FitResult)
    if result is None:
        raise ValueError(
            f"{folder} holds an unfinished run; continue it with covlearn fit --resume"
        )
    if not {*DECISIONS} <= set(result.decisions) or not saved.is_evidence(result.evidence):
        raise ValueError(f"{folder / records.RESULT} must have decisions and evidence of a fit")
    saved.check_source(config, folder / records.CONFIG)
    made = saved.read_recipe(folder)
    return Fitted(
        folder=folder,
        config=config,
        result=result,
        recipe=made.recipe,
        classes=made.classes,
        standardizer=made.standardizer,
        augmentation=made.augmentation,
        allow=tuple(allow),
    )


def check_place(folder: Path) -> None:
    """Refuses a folder that cannot become a run, before the data is read for it."""
    records.check_place(folder)
    check_can_write(folder)


def _write_parquet(path: Path, table: pd.DataFrame) -> None:
    content = io.BytesIO()
    try:
        table.to_parquet(content, index=False)
    except (ValueError, TypeError, OverflowError):  # a column of several types
        content = io.BytesIO()
        table.astype(str).to_parquet(content, index=False)
    write_bytes(path, content.getvalue())


__all__ = ["FitResult", "Fitted", "fit_examples", "load"]
