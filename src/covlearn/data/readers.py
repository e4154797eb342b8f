"""Processes that read ahead of the training; one that dies or hangs is reported and replaced.

PyTorch's DataLoader ends a whole epoch when a worker dies, by an exception that may come in the
middle of a training step. Here a batch is asked for again, and training sees the same batches.
"""

import contextlib
import math
import mmap
import multiprocessing
import os
import signal
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

AHEAD = 2  # batches that each process has been asked for
TRIES = 3  # on one batch
ALIVE_EVERY = 0.5  # seconds between two looks whether the parent is there
Request = Sequence[int]


def can_fork() -> bool:
    """Whether processes can share memory as they are used here."""
    return "fork" in multiprocessing.get_all_start_methods()


class Readers:
    """``read`` gives the examples of each request, stacked, in the order of the requests.

    ``rows`` is the length of the longest request; ``seconds`` is how long a batch may take.
    """

    def __init__(
        self, dataset: Dataset[Tensor], *, workers: int, rows: int, seconds: float
    ) -> None:
        self.workers: list[tuple[BaseProcess, Connection]] = []
        self.owner = os.getpid()
        example = dataset[0].numpy()
        self.dataset = dataset
        self.seconds = seconds
        shape, kind = (AHEAD, rows, *example.shape), example.dtype
        self.slots = [_shared(shape, kind) for _ in range(workers)]
        for slots in self.slots:
            self.workers.append(self._start(slots))

    def read(self, requests: Iterable[Request]) -> Iterator[Tensor]:
        """A tensor is good until the next one is asked for: its memory is used again."""
        pending: deque[Request] = deque()  # asked for and not received, the next one first
        coming = iter(requests)
        asked = received = 0
        while True:
            while asked - received < AHEAD * len(self.workers):
                request = next(coming, None)
                if request is None:
                    break
                pending.append(request)
                self._ask(asked, request)
                asked += 1
            if not pending:
                return
            self._receive(received, pending)
            request = pending.popleft()
            slots = self.slots[received % len(self.workers)]
            slot = received // len(self.workers) % AHEAD
            yield torch.from_numpy(slots[slot, : len(request)])
            received += 1

    def close(self) -> None:
        """Ends the processes; a worker, which has a copy of this, does not."""
        if os.getpid() != self.owner:
            return
        for process, connection in self.workers:
            _end(process, connection)
        self.workers.clear()

    def __del__(self) -> None:
        self.close()

    def _start(self, slots: NDArray[Any]) -> tuple[BaseProcess, Connection]:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_work, args=(self.dataset, slots, theirs, os.getpid()), daemon=True
        )
        with warnings.catch_warnings():
            # From Python 3.12 on: that a fork of a process with threads may hang. It is replaced.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        return process, ours

    def _ask(self, number: int, request: Request) -> None:
        _, connection = self.workers[number % len(self.workers)]
        slot = number // len(self.workers) % AHEAD
        with contextlib.suppress(OSError):  # a dead one is found when its batch is waited for
            connection.send((slot, list(request)))

    def _receive(self, number: int, pending: Sequence[Request]) -> None:
        """Waits until a batch lies in its slot."""
        place = number % len(self.workers)
        for attempt in range(1, TRIES + 1):
            process, connection = self.workers[place]
            if connection in wait([connection, process.sentinel], timeout=self.seconds):
                try:
                    failure = connection.recv()
                except (EOFError, OSError):
                    pass  # it died while it answered
                else:
                    if failure is None:
                        return
                    raise failure
            process.join(timeout=0.1)
            what = (
                f"has not read batch {number} in {self.seconds:g} seconds"
                if process.exitcode is None
                else f"ended ({_how(process.exitcode)}) before it had read batch {number}"
            )
            _end(process, connection)
            if attempt == TRIES:
                raise ValueError(
                    f"batch {number} of the epoch could not be read in {TRIES} attempts: reader "
                    f"process {process.pid} {what}; look at memory and disk, or lower "
                    f"machine.workers; its examples are {list(pending[0][:5])} and "
                    f"{max(0, len(pending[0]) - 5)} more"
                )
            warnings.warn(
                f"reader process {process.pid} {what}; another one takes its place",
                RuntimeWarning,
                stacklevel=2,
            )
            self.workers[place] = self._start(self.slots[place])
            for ahead in range(0, len(pending), len(self.workers)):
                self._ask(number + ahead, pending[ahead])


def _work(dataset: Dataset[Tensor], slots: NDArray[Any], parent: Connection, pid: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, who ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)  # threads do not survive a fork
    while True:
        while not parent.poll(ALIVE_EVERY):
            if os.getppid() != pid:
                return
        try:
            slot, positions = parent.recv()
            failure: Exception | None = None
            try:
                for row, position in enumerate(positions):
                    slots[slot, row] = dataset[position].numpy()
            except ValueError as error:
                failure = ValueError(str(error))
            except Exception as error:
                failure = RuntimeError(f"example {position}: {type(error).__name__}: {error}")
            parent.send(failure)
        except (EOFError, OSError):
            return


def _shared(shape: tuple[int, ...], kind: np.dtype[Any]) -> NDArray[Any]:
    """Memory that a forked process shares; anonymous, since /dev/shm is small in containers."""
    memory = mmap.mmap(-1, math.prod(shape) * kind.itemsize)
    return np.frombuffer(memory, dtype=kind).reshape(shape)


def _end(process: BaseProcess, connection: Connection) -> None:
    connection.close()
    process.kill()
    process.join(timeout=5)


def _how(exitcode: int) -> str:
    if exitcode >= 0:
        return f"exit code {exitcode}"
    try:
        return signal.Signals(-exitcode).name
    except ValueError:
        return f"signal {-exitcode}"
