"""What is found out about a run, and how it is written down. Clean labels are known here only."""

import hashlib
import io
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from covlearn import distributed, records
from covlearn.config import plain
from covlearn.data import Augmentation, ImageFiles, Loaded, Resident, Split, batches_of
from covlearn.engine import Machine, Record, predict
from covlearn.ledger import Ledger
from covlearn.metrics import (
    accuracy,
    accuracy_of,
    average_precision,
    label_quality,
    memorisation,
    reliability,
)
from covlearn.objective import Committee
from covlearn.records import Figure, Stage
from covlearn.transition import count_transition

EVALUATION_BATCH = 1024
EVALUATION_VALUES = 2**24  # in a batch, of large images
SCORE_BINS = 80

Progress = Callable[[str, int, list[Record]], None]
"""Told of a stage, its number of epochs and its records so far, after each epoch."""
Kept = tuple[Tensor, Tensor, str]
"""D̂ with a score each and the reason, as a method hands them to ``keep_labels``."""


class Evaluator:
    """Looks at a network after each epoch; the only one who knows clean labels."""

    def __init__(
        self,
        test: Split,
        *,
        held: Split | None,
        held_is_noisy: bool = True,
        noisy: Tensor,
        clean: Tensor | None,
        machine: Machine,
    ) -> None:
        self.test = evaluation_batches(test, machine)
        self.held = None if held is None else evaluation_batches(held, machine)
        self.chosen_by = "held-out noisy labels" if held_is_noisy else "the validation labels"
        self.num_classes = test.num_classes
        self.noisy = noisy.cpu()
        self.clean = None if clean is None else clean.cpu()
        self.machine = machine

    def __call__(self, stage: str, epoch: int, model: nn.Module, ledger: Ledger) -> Record:  # noqa: ARG002
        """One epoch's figures; NaN, null on the disk, where one is unknown."""
        started = time.perf_counter()
        fitted = None
        if self.clean is not None and ledger.written:
            fitted = memorisation(ledger.prediction, self.noisy, self.clean)
        figures = {
            "test_accuracy": self.accuracy(model, self.test),
            "holdout_accuracy": math.nan if self.held is None else self.accuracy(model, self.held),
            "memorisation": math.nan if fitted is None else fitted,
        }
        if ledger.memory is not None and ledger.written:
            averaged = ledger.memory.predictions().cpu()
            figures["averaged_agreement"] = accuracy(averaged, self.noisy)
            if self.clean is not None:
                figures["averaged_right"] = accuracy(averaged, self.clean)
        return figures | {"evaluation_seconds": time.perf_counter() - started}

    def accuracy(self, model: nn.Module, data: Resident | Loaded) -> float:
        """Share of the examples for which the highest logit is the label's.

        Of a committee, its first member's: the network that such methods return.
        """
        if isinstance(model, Committee):
            model = model.members[0]
        logits, _ = predict(model, data, self.machine)
        return accuracy(logits.argmax(dim=1), data.y)

    def figures(self, history: Mapping[str, list[Record]], model: nn.Module) -> dict[str, Any]:
        """The accuracies of all stages and of the network that the method returned."""
        stages = {
            stage: Stage(
                epochs=len(epochs),
                seconds=sum(record["seconds"] for record in epochs),
                test_accuracy=accuracy_of(epochs, chosen_by=self.chosen_by),
                memorisation=plain(epochs[-1]["memorisation"]) if epochs else None,
            )
            for stage, epochs in history.items()
        }
        # A stage that was switched off by zero epochs has no figures of its own.
        final = next((name for name in reversed(stages) if stages[name].epochs), None)
        return {
            "final_stage": final,
            "test_accuracy": accuracy_of([]) if final is None else stages[final].test_accuracy,
            "returned": Figure(
                self.accuracy(model, self.test), None, "the network that the method returned"
            ),
            "memorisation": None if final is None else stages[final].memorisation,
            "seconds": sum(stage.seconds for stage in stages.values()),
            "stages": stages,
        }

    def labels(self, kept: Kept | None) -> dict[str, Any] | None:
        """What became of the labels, and how good that is where the clean ones are known."""
        if kept is None:
            return None
        refined, score, reason = kept
        quality = ranked = None
        if self.clean is not None:
            quality = label_quality(refined, self.noisy, self.clean, num_classes=self.num_classes)
            ranked = average_precision(score.nan_to_num(), self.noisy != self.clean)
        return {
            "reason": reason,
            "changed": int((refined != self.noisy).sum()) / len(refined),
            "dropped": int((refined < 0).sum()),
            "quality": plain(quality),
            "average_precision": ranked,
        }

    def refinement(self, kept: Kept | None, said: Tensor | None = None) -> dict[str, Any] | None:
        """How the scores are spread and what T̂ is, for right and wrong labels where they are known.

        T̂ is counted on D̂, the true T on the clean labels; rows are true classes. ``said`` are the
        logits (N, K) that D̂ came from, if they are known: how far they mean what they say.
        """
        if kept is None:
            return None
        refined, score, reason = kept
        finite = score[score.isfinite()].float()
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        edges = torch.linspace(low, max(high, low + 1e-6), SCORE_BINS + 1)
        groups = {"all": torch.ones_like(self.noisy, dtype=torch.bool)}
        if self.clean is not None:
            groups |= {"right": self.noisy == self.clean, "wrong": self.noisy != self.clean}
        labels = {"estimated": refined} | ({} if self.clean is None else {"true": self.clean})
        stated = {}
        if said is not None and self.clean is not None:
            stated["reliability"] = self.reliability(said.float().softmax(dim=1))
        return stated | {
            "reason": reason,
            "score_edges": [round(edge, 4) for edge in edges.tolist()],
            "scores": {
                name: torch.histogram(score[group].float(), edges).hist.int().tolist()
                for name, group in groups.items()
            },
            "transition": {
                name: [
                    [round(value, 4) for value in row]
                    for row in count_transition(
                        label, self.noisy, num_classes=self.num_classes, empty_class="identity"
                    ).tolist()
                ]
                for name, label in labels.items()
            },
        }

    def reliability(self, probs: Tensor) -> dict[str, list[tuple[int, float, float]]]:
        """Of the given label (quality) and the most probable one (confidence), by bins."""
        assert self.clean is not None
        confidence, label = probs.max(dim=1)
        quality = probs.gather(1, self.noisy.unsqueeze(1)).squeeze(1)
        return {
            "quality": reliability(quality, self.noisy == self.clean),
            "confidence": reliability(confidence, label == self.clean),
        }


class Recorder:
    """Writes metrics.jsonl as the epochs come, and passes them on."""

    def __init__(
        self, history: Mapping[str, list[Record]], folder: Path, progress: Progress | None
    ) -> None:
        self.history = history
        self.folder = folder
        self.progress = progress
        self.stage: str | None = None

    def __call__(self, stage: str, epochs: int, history: list[Record]) -> None:
        """The first epoch of a stage in this process replaces what a killed one had written."""
        if stage != self.stage:
            records.write_metrics(self.folder, {**self.history, stage: history})
            self.stage = stage
        else:
            records.append_metrics(self.folder, stage, history[-1])
        if self.progress is not None:
            self.progress(stage, epochs, history)


def example_table(
    noisy: Tensor,
    kept: Kept | None,
    ledger: Ledger | None,
    clean: Tensor | None,
    learned_from: Tensor | None = None,
) -> dict[str, Sequence[Any] | None]:
    """The columns of labels.csv; what is not known is None.

    ``learned_from`` has the labels of the ledger's stage where they are not the given ones: of
    other labels the ledger says nothing of the given.
    """

    def column(values: Tensor | None, known: Tensor | None = None) -> Any:
        if values is None:
            return None
        # As NumPy's own scalars, whose text is the shortest that reads back as the same float32.
        cells = list(values.detach().cpu().numpy())
        if known is None:
            return cells
        return [cell if told else None for cell, told in zip(cells, known.tolist(), strict=True)]

    suggested, score = (None, None) if kept is None else kept[:2]
    ledger = ledger if ledger is not None and ledger.written else None
    of_given = None if learned_from is None else learned_from.cpu() == noisy.cpu()
    return {
        "given": column(noisy),
        "suggested": column(suggested),
        "score": column(score),
        "prediction": column(None if ledger is None else ledger.prediction),
        "loss": column(None if ledger is None else ledger.loss, of_given),
        "learned": column(None if ledger is None else ledger.learned, of_given),
        "clean": column(clean),
    }


def model_bytes(model: nn.Module) -> bytes:
    """The weights in the safetensors format, the same bytes for the same weights."""
    # Each tensor on its own and in plain order: the format knows neither views nor strides.
    state = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in model.state_dict().items()
    }
    return safetensors.torch.save(state)


def probs_bytes(logits: Tensor, idx: Tensor) -> bytes:
    """An .npz with the probabilities (N, K) of the training examples and their positions."""
    file = io.BytesIO()
    np.savez(file, probs=logits.float().softmax(dim=1).cpu().numpy(), idx=idx.cpu().numpy())
    return file.getvalue()


def environment(machine: Machine) -> dict[str, Any]:
    """What a run is computed on and with."""
    device = torch.device(machine.device)
    on_cuda = device.type == "cuda"
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": distributed.num_processes(),
        "gpu": torch.cuda.get_device_name(device) if on_cuda else None,
        "cuda": torch.version.cuda if on_cuda else None,
        "commit": commit(),
    }


def commit() -> str | None:
    """The commit of the sources in use, marked where files differ from it; None if unknown.

    ``COVLEARN_COMMIT`` says it where the sources were copied without their history.
    """
    if named := os.environ.get("COVLEARN_COMMIT"):
        return named
    source = Path(__file__).resolve()
    try:
        known = subprocess.run(
            ["git", "ls-files", "--error-unmatch", source.name],
            cwd=source.parent,
            capture_output=True,
            check=False,
        )
        if known.returncode == 0:
            shown = subprocess.run(
                ["git", "describe", "--always", "--dirty", "--abbrev=12", "--match="],
                cwd=source.parent,
                capture_output=True,
                text=True,
                check=True,
            )
            return shown.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pass  # no git, or sources without their history
    return None


def evaluation_batches(split: Split, machine: Machine) -> Resident | Loaded:
    """The examples in their order, in batches that fit however large an example is."""
    fitting = max(1, EVALUATION_VALUES // max(1, math.prod(split.x.shape[1:])))
    return batches_of(
        split,
        num_workers=machine.num_workers(),
        batch_size=min(EVALUATION_BATCH, fitting),
        shuffle=False,
        device=machine.device,
    )


def said_of(
    model: nn.Module, split: Split, *, device: str = "cpu", features: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Logits of examples that are asked about after training, and features if asked for."""
    data = Resident(split, batch_size=EVALUATION_BATCH, shuffle=False, device=device)
    return predict(model, data, Machine(device=device), features=features)


def unlabelled(x: Tensor, augmentation: Augmentation | None) -> Split:
    """Examples of which only the inputs are known; their labels stand for nothing."""
    return Split(x, torch.zeros(len(x), dtype=torch.int64), 2, augmentation)


def described(
    split: Split, test: Split, clean: Tensor | None, validation: Split | None = None
) -> dict[str, Any]:
    """What identifies the data of a run: sizes, and a digest of each array."""
    chosen = {}
    if validation is not None:
        chosen = {"validation_x": digest(validation.x), "validation_y": digest(validation.y)}
    if split.trusted is not None:
        chosen["trusted"] = digest(split.trusted)
    return {
        "examples": len(split),
        "classes": split.num_classes,
        "shape": list(split.x.shape[1:]),
        "augmentation": plain(split.augmentation),
        "x": digest(split.x),
        "y": digest(split.y),
        "test_x": digest(test.x),
        "test_y": digest(test.y),
        "clean": None if clean is None else digest(clean),
        **chosen,
    }


def digest(values: Tensor | ImageFiles) -> str:
    """A short name for the values of a tensor, or for the names and sizes of files."""
    if isinstance(values, ImageFiles):
        return values.identity[:16]
    array = np.ascontiguousarray(values.detach().cpu().numpy())
    return hashlib.sha256(array.data).hexdigest()[:16]
