"""Curves that TensorBoard's own reader finds as metrics.jsonl has them."""

from pathlib import Path
from typing import Any

import pytest

from covlearn import records
from covlearn.cli import main
from covlearn.integrations.tensorboard import TensorBoard
from tests import runs
from tests.integrations.conftest import Case

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def curves(folder: Path) -> dict[str, dict[int, float]]:
    events: Any = accumulator.EventAccumulator(str(folder)).Reload()
    return {
        tag: {event.step: event.value for event in events.Scalars(tag)}
        for tag in events.Tags()["scalars"]
    }


def expected(run: Path) -> dict[str, dict[int, Any]]:
    found: dict[str, dict[int, Any]] = {}
    for line in records.read_metrics(run):
        for name, value in line.items():
            if name not in ("stage", "epoch") and value is not None:
                curve = found.setdefault(f"{line['stage']}/{name}", {})
                curve[line["epoch"]] = pytest.approx(value, rel=1e-6)
    return found


def test_a_run_that_is_there(
    wine: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, board = wine.fitted.folder, tmp_path / "board"
    assert main(["export", str(run), "--tensorboard", str(board)]) == 0
    assert f"{board}" in capsys.readouterr().out
    assert curves(board) == expected(run)
    assert main(["export", str(run), "--tensorboard", str(board)]) == 2
    assert "must be new or an empty folder" in capsys.readouterr().err


def test_a_run_that_is_followed(tmp_path: Path) -> None:
    with TensorBoard(tmp_path / "board") as board:
        runs.fit(tmp_path / "run", progress=board)
    assert curves(tmp_path / "board") == expected(tmp_path / "run")


def test_a_stage_that_goes_on_is_whole(tmp_path: Path) -> None:
    history = [{"epoch": epoch, "loss": 1.0 / (epoch + 1)} for epoch in range(3)]
    with TensorBoard(tmp_path) as board:
        board("cal", 3, history[:2])  # the first was in a process that has ended
        board("cal", 3, history)
    assert list(curves(tmp_path)["cal/loss"]) == [0, 1, 2]
