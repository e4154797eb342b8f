"""How a stage is optimised, and where and how that is computed."""

import contextlib
import os
from dataclasses import dataclass
from typing import Any, Literal

import torch

from covlearn.kinds import check_fields


@dataclass(frozen=True)
class Plan:
    """How one stage is optimised. Epochs count from zero."""

    epochs: int
    batch_size: int = 128
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.1
    lr_milestones: tuple[int, ...] = ()
    lr_factor: float = 0.1
    divide_lr: bool = False
    """Divide the learning rate by 1 + β each epoch, as the published code does."""
    momentum: float = 0.9
    weight_decay: float = 0.0
    average: float | None = None
    """Decay a step of an exponential average of the weights; None: no average."""
    average_predictions: float | None = None
    """Decay a pass of an average of what is said of each example; None: no average."""
    average_classes: int | None = None
    """How many classes of that average are kept for each example, the largest; None: all."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.epochs < 0 or self.batch_size < 1 or not self.lr > 0:
            raise ValueError(
                f"expected epochs ≥ 0, batch_size ≥ 1 and lr > 0, got epochs={self.epochs}, "
                f"batch_size={self.batch_size}, lr={self.lr}"
            )
        if not (0 <= self.momentum < 1 and self.weight_decay >= 0 and 0 < self.lr_factor <= 1):
            raise ValueError(
                f"expected 0 ≤ momentum < 1, weight_decay ≥ 0 and 0 < lr_factor ≤ 1, got "
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
