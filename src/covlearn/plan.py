"""How a stage is optimised, and where and how that is computed."""

import contextlib
import os
from dataclasses import dataclass
from typing import Any, Literal

import torch

from covlearn.kinds import check_fields

MOST_EPOCHS, MOST_BATCH = 1_000_000, 2**31 - 1


@dataclass(frozen=True)
class Plan:
    """How one stage is optimised. Epochs count from zero."""

    epochs: int
    """0: the stage is not trained."""
    batch_size: int = 128
    """Examples a step."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.1
    """The learning rate to begin with."""
    lr_milestones: tuple[int, ...] = ()
    """In each of these epochs it is multiplied by ``lr_factor``, and stays so; (): in none."""
    lr_factor: float = 0.1
    """What a milestone multiplies it by."""
    divide_lr: bool = False
    """Divide the learning rate by 1 + β each epoch, as the published code does."""
    momentum: float = 0.9
    """Of SGD; Adam does not use it."""
    weight_decay: float = 0.0
    """Of all parameters, as a penalty: it is added to the gradient."""
    average: float | None = None
    """The decay of an exponential average of the weights over the steps, as 0.999; the stage ends
    with the average. None: no average."""
    average_predictions: float | None = None
    """The decay of an average of what is predicted for each example over the passes, as 0.9. None:
    no average."""
    average_classes: int | None = None
    """How many classes of that average are kept for each example, the likeliest; None: all."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not (0 <= self.epochs <= MOST_EPOCHS and 1 <= self.batch_size <= MOST_BATCH):
            raise ValueError(
                f"expected epochs from 0 to {MOST_EPOCHS:,} and batch_size from 1 to "
                f"{MOST_BATCH:,}, got epochs={self.epochs}, batch_size={self.batch_size}"
            )
        if min(self.lr_milestones, default=0) < 0:
            raise ValueError(
                f"lr_milestones are epochs, which count from 0, got {min(self.lr_milestones)}"
            )
        if self.lr <= 0:
            raise ValueError(f"expected a finite lr > 0, got lr={self.lr}")
        decays = 0 <= self.momentum < 1 and self.weight_decay >= 0
        if not (decays and 0 < self.lr_factor <= 1):
            raise ValueError(
                f"expected 0 ≤ momentum < 1, a finite weight_decay ≥ 0 and 0 < lr_factor ≤ 1, got "
                f"momentum={self.momentum}, weight_decay={self.weight_decay}, "
                f"lr_factor={self.lr_factor}"
            )
        if self.average_classes is not None and self.average_classes < 1:
            raise ValueError(f"average_classes must be at least 1, got {self.average_classes}")
        for name in ("average", "average_predictions"):
            decay = getattr(self, name)
            if decay is not None and not 0 < decay < 1:
                raise ValueError(f"{name} must lie in (0, 1), got {decay}")


@dataclass(frozen=True)
class Machine:
    """Where and how it is computed: nothing here changes what is minimised."""

    device: str = "cpu"
    precision: Literal["float32", "bfloat16"] = "float32"
    capture: bool = True
    """Run a step as one CUDA graph, where device, data and objective allow it."""
    compile: bool = False
    sync_batch_norm: bool = False
    """With several processes: batch norm over the batch of all of them, not of each its own."""
    workers: int | None = None
    """Processes that read images which stay in files; None: as many as there are cores to spare.
    The batches are the same whatever their number."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.workers is not None and self.workers < 0:
            raise ValueError(f"workers must be at least 0, got {self.workers}")

    def num_workers(self) -> int:
        """For this process, which leaves a core to itself where there is another."""
        if self.workers is not None:
            return self.workers
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return max(1, (cores or 1) // here - 1)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """bfloat16 where it is safe, if asked for; losses are float32 in any case."""
        if self.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)
