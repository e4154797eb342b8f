"""Curves of a run in TensorBoard: live, or of a run that is there already."""

import math
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from covlearn import records
from covlearn.integrations.extras import library
from covlearn.kinds import checked


class TensorBoard:
    """Follows a run: ``progress=`` of ``fit_and_evaluate``, ``fit_examples`` or ``run_job``.

    Each figure of an epoch becomes a curve ``stage/name``. One folder a run lets TensorBoard lay
    several over each other.
    """

    @checked
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        board = library("torch.utils.tensorboard", extra="tensorboard", wanted="TensorBoard")
        self.writer = board.SummaryWriter(str(folder))
        self.stage: str | None = None

    def __call__(self, stage: str, epochs: int, history: list[dict[str, Any]]) -> None:  # noqa: ARG002
        """Told of a stage, its number of epochs and its records so far, after each epoch."""
        # A stage that goes on after an interruption comes with epochs not seen here.
        for record in history if stage != self.stage else history[-1:]:
            self.write(stage, record)
        self.stage = stage
        self.writer.flush()

    def write(self, stage: str, record: dict[str, Any]) -> None:
        """One epoch; what is unknown has no point."""
        for name, value in record.items():
            if name not in ("epoch", "stage") and value is not None and math.isfinite(value):
                self.writer.add_scalar(f"{stage}/{name}", value, record["epoch"])

    def close(self) -> None:
        """Ends the file."""
        self.writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@checked
def write_tensorboard(run: str | os.PathLike[str], folder: str | os.PathLike[str]) -> int:
    """The epochs of a run, finished or not, as curves; returns how many epochs there are.

    ``folder`` is new or empty: written twice, TensorBoard would show every point twice.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} must be new or an empty folder; choose another name")
    records.read_config(Path(run))  # says so where it is no run
    metrics = records.read_metrics(Path(run))
    if not metrics:
        raise ValueError(f"{run} must hold epochs, and has none yet")
    try:
        with TensorBoard(folder) as board:
            for record in metrics:
                board.write(record["stage"], record)
    except OSError as error:  # half of the curves would keep the next try out
        shutil.rmtree(folder, ignore_errors=True)
        error.filename = str(folder)
        raise
    return len(metrics)
