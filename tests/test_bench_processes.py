"""Cells side by side: a stage they share is trained once, and a GPU is shared by a service."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from covlearn import stages
from covlearn.atomic import without_links
from covlearn.bench import mps
from covlearn.stages import FollowedCheckpoint


def checkpoint(folder: Path, name: str) -> FollowedCheckpoint:
    return FollowedCheckpoint(
        folder / name / "sieve.pt",
        "identity",
        seconds_between=0.0,
        follow=None,
        shared=folder / "shared" / "sieve.pt",
    )


def test_who_comes_second_waits_for_the_shared_stage_and_reads_it(tmp_path: Path) -> None:
    first, second = checkpoint(tmp_path, "first"), checkpoint(tmp_path, "second")
    first.claim()
    found = []

    def come_second() -> None:
        second.claim()
        found.append(second.load())
        second.release()

    thread = threading.Thread(target=come_second)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), "it must wait while the first one trains"
    first.save({"history": [1]}, now=True)
    first.wait()
    first.share()
    thread.join(30)
    assert found == [{"history": [1]}]


def test_a_claim_that_was_given_up_is_free(tmp_path: Path) -> None:
    first, second = checkpoint(tmp_path, "first"), checkpoint(tmp_path, "second")
    first.claim()
    first.release()
    second.claim()
    assert second.load() is None
    second.release()


def test_a_place_that_is_cleared_while_it_is_claimed_or_shared_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command that starts on the same table clears what nobody has locked yet."""
    first, second = checkpoint(tmp_path, "first"), checkpoint(tmp_path, "second")
    cleared: list[str] = []

    def clearing(path: str, flags: int) -> int:
        if not cleared:
            cleared.append(path)
            shutil.rmtree(tmp_path / "shared")
        return without_links(path, flags)

    monkeypatch.setattr(stages, "without_links", clearing)
    first.claim()
    assert len(cleared) == 1
    first.save({"history": [1]}, now=True)
    first.wait()
    monkeypatch.setattr(os, "fsync", lambda _: shutil.rmtree(tmp_path / "shared"))
    first.share()
    monkeypatch.undo()
    second.claim()
    assert second.load() is None
    second.release()


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control program that writes down what it is told, first on the path."""
    log = tmp_path / "calls"
    program = tmp_path / "bin" / mps.CONTROL
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@ in $CUDA_MPS_PIPE_DIRECTORY: $(cat)" >> {log}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(mps, "TRIAL", "pass")
    for name in mps.PLACES:
        monkeypatch.delenv(name, raising=False)
    return log


def test_the_service_starts_and_ends_with_the_table(calls: Path) -> None:
    with mps.kernels_at_once("cuda", 4) as at_once:
        place = os.environ[mps.PLACES[0]]
        assert at_once
        assert Path(place).is_dir()
    assert calls.read_text().split("\n")[:2] == [f"-d in {place}: ", f" in {place}: quit -t 5"]
    assert not any(name in os.environ for name in mps.PLACES)
    assert not Path(place).exists()


def test_a_service_that_no_process_can_use_is_ended_again(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "TRIAL", "raise SystemExit(1)")
    with mps.kernels_at_once("cuda", 4) as at_once:
        assert not at_once
        assert mps.PLACES[0] not in os.environ
    assert "quit" in calls.read_text()


def test_the_users_own_service_is_left_alone(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mps.PLACES[0], "/mine")
    with mps.kernels_at_once("cuda", 4) as at_once:
        assert at_once
    assert not calls.exists()
    assert os.environ[mps.PLACES[0]] == "/mine"


@pytest.mark.parametrize(("device", "processes"), [("cpu", 4), ("cuda", 1)])
def test_no_service_where_none_is_needed(calls: Path, device: str, processes: int) -> None:
    with mps.kernels_at_once(device, processes) as at_once:
        assert not at_once
    assert not calls.exists()
