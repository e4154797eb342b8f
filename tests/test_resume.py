"""Runs that were cut off, found a full disk or diverged: nothing is lost, and bits are the same."""

import errno
import os
import resource
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from covlearn import records
from covlearn.methods import CAL, Run
from covlearn.methods.ce import CrossEntropy
from tests.runs import FILES, PLAN, assert_same_run, fit


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    fit(folder)
    return folder


class Killed(BaseException):
    """Stands in for a kill: no handler of an Exception sees it."""


def killed_after(epochs: int) -> Callable[[str, int, list[dict[str, float]]], None]:
    count = 0

    def progress(stage: str, total: int, history: list[dict[str, float]]) -> None:
        nonlocal count
        count += 1
        assert total == PLAN.epochs
        if count == epochs:
            raise Killed

    return progress


@pytest.mark.parametrize(
    ("epochs", "seconds"), [*((epochs, 0.0) for epochs in range(1, 9)), (3, 1e9), (6, 1e9)]
)
def test_a_run_cut_off_after_any_epoch_ends_with_the_same_bits(
    tmp_path: Path, finished: Path, epochs: int, seconds: float
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Killed):
        fit(folder, progress=killed_after(epochs), checkpoint_seconds=seconds)
    assert len(records.read(folder).metrics) == epochs
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "cal", "epo')  # as a kill may leave it
    with pytest.raises(ValueError, match="unfinished run; continue it with --resume"):
        fit(folder)
    with pytest.raises(ValueError, match="holds a run of another configuration: seed is 3 there"):
        fit(folder, seed=4, resume=True)
    fit(folder, resume=True, checkpoint_seconds=seconds)
    assert_same_run(folder, finished)


def test_a_run_may_be_cut_off_again_and_again(tmp_path: Path, finished: Path) -> None:
    folder = tmp_path / "run"
    for _ in range(8):
        with pytest.raises(Killed):
            fit(folder, progress=killed_after(2), resume=True)
        lines = [(line["stage"], line["epoch"]) for line in records.read(folder).metrics]
        assert len(set(lines)) == len(lines)
        if len(lines) == 8:
            break
    fit(folder, resume=True)
    assert_same_run(folder, finished)


@dataclass(frozen=True)
class Refused:
    """Must not be run."""

    def fit(self, run: Run) -> nn.Module:
        raise AssertionError


def test_a_finished_run_is_not_run_again(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: (finished / name).stat().st_mtime_ns for name in FILES}
    monkeypatch.setattr(CAL, "fit", Refused.fit)
    assert fit(finished) == fit(finished, resume=True) == records.read(finished).result
    assert {name: (finished / name).stat().st_mtime_ns for name in FILES} == before


# Of 16: the configuration, the environment, then each stage's first line and four checkpoints, then
# metrics, table, weights and the result.
@pytest.mark.parametrize("good_writes", [0, 1, 2, 3, 4, 7, 8, 11, 12, 13, 14, 15])
def test_a_full_disk_loses_nothing(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch, good_writes: int
) -> None:
    folder = tmp_path / "run"
    done, lock, fsync = [0], threading.Lock(), os.fsync

    def full(descriptor: int) -> None:
        with lock:
            done[0] += 1
        if done[0] > good_writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device"):
            fit(folder)
    assert not list(tmp_path.rglob("*.partial"))
    fit(folder, resume=True)
    assert_same_run(folder, finished)


def test_a_checkpoint_that_finds_no_room_stops_the_run(tmp_path: Path) -> None:
    """With the system's own limit, and tensors that do not fit into a file's buffer."""
    wide = {"hidden": [512]}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))  # room for the configuration
    try:
        with pytest.raises(OSError, match="File too large"):
            fit(tmp_path / "cut", net_options=wide)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    fit(tmp_path / "cut", net_options=wide, resume=True)
    fit(tmp_path / "whole", net_options=wide)
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


@dataclass(frozen=True)
class Diverging:
    """One good stage, then a network whose loss is NaN from the fourth epoch on."""

    def fit(self, run: Run) -> nn.Module:
        model = run.net("a")
        run.train("good", model, CrossEntropy(), PLAN)
        run.train("bad", model, NaNFrom(epoch=3), PLAN)
        return model


class NaNFrom(CrossEntropy):
    def __init__(self, *, epoch: int) -> None:
        super().__init__()
        self.start = epoch
        self.register_buffer("factor", torch.ones(()))

    factor: Tensor

    def begin_epoch(self, epoch: int, ledger: object) -> None:
        self.factor.fill_(torch.nan if epoch >= self.start else 1.0)

    def forward(self, outputs: Any, batch: Any) -> tuple[Tensor, None]:
        return super().forward(outputs, batch)[0] * self.factor, None


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"stage bad: epoch 3, step [01]: .*bad.pt is kept"):
        fit(tmp_path, Diverging())
    saved = torch.load(tmp_path / "stages" / "bad.pt", weights_only=True)["state"]
    assert len(saved["history"]) == 3
    assert all(bool(value.isfinite().all()) for value in saved["model"].values())
    assert len(records.read(tmp_path).metrics) == 4 + 3
    kept = (tmp_path / "stages" / "bad.pt").read_bytes()
    with pytest.raises(ValueError, match="stage bad: epoch 3"):
        fit(tmp_path, Diverging(), resume=True)
    assert (tmp_path / "stages" / "bad.pt").read_bytes() == kept


def test_a_damaged_checkpoint_is_named_and_kept(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        fit(tmp_path, progress=killed_after(6))
    path = tmp_path / "stages" / "cal.pt"
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half)
    with pytest.raises(ValueError, match=r"stage cal: .*cal.pt must be a checkpoint") as caught:
        fit(tmp_path, resume=True)
    assert "is kept" not in str(caught.value)
    assert path.read_bytes() == half


def test_two_processes_do_not_work_in_one_folder(tmp_path: Path) -> None:
    def meanwhile(stage: str, epochs: int, history: list[Any]) -> None:
        with pytest.raises(ValueError, match="another process is at work in"):
            fit(tmp_path, resume=True)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, progress=meanwhile)
    fit(tmp_path, resume=True)  # the first one has gone
