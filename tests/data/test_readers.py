"""Processes that read ahead: the batches are the same, whatever becomes of the processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from covlearn.data import Augmentation, Batch, Loaded
from tests.test_data import assert_same

SIZE, TROUBLE = 60, 17
HOW = Augmentation(mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3), flip=True, window=6)
IMAGES = torch.randint(
    256, (SIZE, 8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)
LABELS = torch.arange(SIZE) % 3


class Images(Dataset[Tensor]):
    """Images in memory, with something that happens before image 17 is read."""

    def __init__(self, trouble: Callable[[], None] = lambda: None) -> None:
        self.trouble = trouble

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Tensor:
        if index == TROUBLE:
            self.trouble()
        return IMAGES[index]


def loaded(dataset: Dataset[Tensor] | None = None, **options: Any) -> Loaded:
    defaults: dict[str, Any] = {"batch_size": 8, "seed": 3, "num_workers": 2}
    return Loaded(dataset or Images(), LABELS, 3, augmentation=HOW, **(defaults | options))


def assert_same_epoch(ours: Loaded, theirs: Loaded, epoch: int = 0) -> None:
    for a, b in zip(ours.epoch(epoch), theirs.epoch(epoch), strict=True):
        assert_same(a, b)


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mixup": True, "balanced_batches": 7},
        {"mixup": True, "num_processes": 2, "process": 1},
        {"shuffle": False},
    ],
    ids=str,
)
def test_batches_do_not_depend_on_the_number_of_workers(
    workers: int, options: dict[str, Any]
) -> None:
    ours, alone = loaded(num_workers=workers, **options), loaded(num_workers=0, **options)
    for epoch in (0, 1):
        assert_same_epoch(ours, alone, epoch)
    ours.close()


def once(flag: Path, then: Callable[[], None]) -> Callable[[], None]:
    def trouble() -> None:
        if not flag.exists():
            flag.touch()
            then()

    return trouble


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    time.sleep(1000)


@pytest.mark.parametrize(
    ("then", "seconds", "message"),
    [
        (die, 60.0, r"reader process \d+ ended \(SIGKILL\) before it had read batch \d; another"),
        (lambda: os._exit(3), 60.0, r"ended \(exit code 3\) before"),
        (hang, 0.5, r"reader process \d+ has not read batch \d in 0.5 seconds; another one takes"),
    ],
    ids=["killed", "exited", "hung"],
)
def test_a_worker_is_replaced_and_nothing_is_lost(
    tmp_path: Path, then: Callable[[], None], seconds: float, message: str
) -> None:
    dataset = Images(once(tmp_path / "flag", then))
    ours = loaded(dataset, worker_seconds=seconds, mixup=True)
    with pytest.warns(RuntimeWarning, match=message) as warned:
        assert_same_epoch(ours, loaded(num_workers=0, mixup=True))
    assert len(warned) == 1  # said once
    assert_same_epoch(ours, loaded(num_workers=0, mixup=True), epoch=1)
    ours.close()


def test_a_batch_that_kills_every_worker_is_given_up() -> None:
    ours = loaded(Images(die))
    with (
        pytest.warns(RuntimeWarning, match="another one takes its place") as warned,
        pytest.raises(
            ValueError, match=r"could not be read in 3 attempts: .* \(SIGKILL\)"
        ) as error,
    ):
        list(ours.epoch(0))
    assert len(warned) == 2
    assert "its examples are [" in str(error.value)


def unreadable() -> None:
    raise ValueError("images/1.jpg cannot be read as an image: no")


def broken() -> None:
    raise KeyError("rows")


def test_what_a_dataset_says_is_passed_on() -> None:
    with pytest.raises(ValueError, match=r"images/1.jpg cannot be read as an image: no"):
        list(loaded(Images(unreadable)).epoch(0))
    with pytest.raises(RuntimeError, match="example 17: KeyError: 'rows'"):
        list(loaded(Images(broken)).epoch(0))


def test_an_epoch_may_be_left_in_the_middle() -> None:
    ours = loaded()
    first = ours.epoch(0)
    for _ in range(3):
        next(first)
    first.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()
    assert_same_epoch(ours, loaded(num_workers=0), epoch=1)
    ours.close()


def test_workers_stay_for_training_and_go_after_an_evaluation() -> None:
    training, evaluation = loaded(), loaded(shuffle=False)
    pids = []
    for epoch in (0, 1):
        list(training.epoch(epoch))
        pids.append(sorted(child.pid or 0 for child in multiprocessing.active_children()))
    assert len(pids[0]) == 2
    assert pids[0] == pids[1]
    del training  # as good as close
    list(evaluation.epoch(0))
    assert not multiprocessing.active_children()


def test_a_batch_stays_as_it_was_when_the_next_ones_are_read() -> None:
    ours = loaded(num_workers=1)
    kept: list[Batch] = list(ours.epoch(0))
    for a, b in zip(kept, loaded(num_workers=0).epoch(0), strict=True):
        assert_same(a, b)
    ours.close()


def test_a_partner_of_mixup_is_read_once() -> None:
    reads = []

    class Counted(Images):
        def __getitem__(self, index: int) -> Tensor:
            reads.append(index)
            return super().__getitem__(index)

    batches = loaded(Counted(), num_workers=0, mixup=True)
    reads.clear()
    list(batches.epoch(0))
    assert sorted(reads) == list(range(SIZE))


ORPHANS = """
import multiprocessing, os, signal
from tests.data.test_readers import loaded
batches = loaded()
epoch = batches.epoch(0)
next(epoch)
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_their_parent_however_it_ends() -> None:
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"}
    done = subprocess.run(
        [sys.executable, "-c", ORPHANS],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env=environment,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 20
    while any(running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(running(pid) for pid in pids)


def running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_bad_numbers_are_refused() -> None:
    for options in ({"num_workers": -1}, {"worker_seconds": 0.0}):
        with pytest.raises(ValueError, match="expected num_workers ≥ 0 and worker_seconds > 0"):
            loaded(**options)
