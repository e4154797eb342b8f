"""Checkpoints that were cut short or changed on the disk, and clocks that jump."""

import itertools
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from covlearn import records
from covlearn.checkpoint import Checkpoint
from tests.runs import METHOD, PLAN, assert_same_run, fit
from tests.test_resume import Killed, killed_after

PAGE = 4096
WIDE = {"hidden": [512]}
"""Weights that take several pages."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was cut off in its second stage."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    with pytest.raises(Killed):
        fit(folder, progress=killed_after(6), net_options=WIDE)
    return folder


def refused(path: Path, content: bytes) -> None:
    """A resumed run says so in a sentence, and leaves the file to be looked at."""
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"cal\.pt must be a checkpoint of covlearn, but"
    ) as caught:
        fit(path.parents[1], resume=True, net_options=WIDE)
    assert "delete it to start this stage again" in str(caught.value)
    assert path.read_bytes() == content


def test_truncated_at_each_page(saved: Path) -> None:
    path = saved / "stages" / "cal.pt"
    whole = path.read_bytes()
    lengths = [*range(0, len(whole), PAGE), len(whole) - 1]
    assert len(lengths) > 8
    for length in lengths:
        refused(path, whole[:length])
    path.write_bytes(whole)


def test_a_byte_that_changed(saved: Path) -> None:
    """PyTorch itself would take most of them for what was saved."""
    path = saved / "stages" / "cal.pt"
    whole = path.read_bytes()
    draw = random.Random(0)
    for place in [0, len(whole) - 1, *draw.sample(range(len(whole)), 20)]:
        changed = bytearray(whole)
        changed[place] ^= 1 << draw.randrange(8)
        refused(path, bytes(changed))
    refused(path, whole + b"\0")
    refused(path, bytes(len(whole)))
    path.write_bytes(whole)


def test_without_the_damaged_file_the_run_ends_the_same(saved: Path, tmp_path: Path) -> None:
    """What the sentence says to do."""
    (saved / "stages" / "cal.pt").unlink()
    fit(saved, resume=True, net_options=WIDE)
    fit(tmp_path / "whole", net_options=WIDE)
    assert_same_run(saved, tmp_path / "whole")


def test_the_disk_itself_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing says that the file should be deleted."""
    path = tmp_path / "a.pt"
    checkpoint = Checkpoint(path, "a")
    checkpoint.save({"a": torch.zeros(2)}, now=True)
    checkpoint.wait()

    def broken(_: Path) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", broken)
    with pytest.raises(OSError, match="Input/output error"):
        Checkpoint(path, "a").load()


def test_what_fails_in_the_background_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise MemoryError

    checkpoint = Checkpoint(tmp_path / "a.pt", "a")
    monkeypatch.setattr(torch, "save", failing)
    checkpoint.save({"a": torch.zeros(2)}, now=True)
    with pytest.raises(MemoryError):
        checkpoint.wait()


def test_a_clock_that_jumps_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Days back and forth at each look, as when a clock is set."""
    jumps = itertools.cycle([0.0, 1e6, -1e9])
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + next(jumps))
    written = []
    wait = Checkpoint.wait

    def counted(self: Checkpoint) -> None:
        written.extend([self.path.name] if self._thread is not None else [])
        wait(self)

    monkeypatch.setattr(Checkpoint, "wait", counted)
    fit(tmp_path / "jumping", checkpoint_seconds=1e5)
    # The first epoch of a stage and its last: the interval is not over between them.
    assert written == ["sieve.pt", "sieve.pt", "cal.pt", "cal.pt"]
    found = records.read(tmp_path / "jumping")
    assert len(found.metrics) == 2 * PLAN.epochs
    assert all(0 <= line["seconds"] < 60 for line in found.metrics)
    assert found.result is not None
    assert 0 <= found.result.seconds < 60
    monkeypatch.setattr(time, "time", now)
    fit(tmp_path / "steady", METHOD)
    assert_same_run(tmp_path / "jumping", tmp_path / "steady")
