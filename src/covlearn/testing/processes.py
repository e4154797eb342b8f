"""Processes that train together, to be compared with one."""

import datetime
import os
import pickle
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.spawn import (
    ProcessExitedException,
    ProcessRaisedException,
    spawn,
)

from covlearn.kinds import checked
from covlearn.methods import Method
from covlearn.run import LocalRun
from covlearn.testing.short import shortened
from covlearn.testing.toy import NET_OPTIONS, SEED, make_toy, require

SECONDS = 90
"""After which processes that wait for each other have failed, for each of them."""
CLOSE = 1e-5
IMPORTABLE = (
    "two_processes starts new ones, which import the method's class: define it at the top of a "
    'module, and where a script calls the check, do so under if __name__ == "__main__"'
)

Tensors = dict[str, Tensor]


def check_two_processes(method: Method) -> None:
    """Two processes (gloo, a net without batch norm) that share batches end where one does."""
    outcomes = fit_in_processes({"": method}, 2)
    require_equal_one(method, [outcome[""] for outcome in outcomes])


@checked
def require_equal_one(method: Method, outcomes: Sequence[Tensors], **options: Any) -> None:
    """What the processes ended with is the same, and that of one up to rounding."""
    if not outcomes:
        raise ValueError("outcomes must hold one of each process, got none; see fit_in_processes")
    first, *others = outcomes
    alone = fitted(method, **options)
    compared = [(other, 0.0, "each other") for other in others] + [(alone, CLOSE, "one")]
    for other, tolerance, what in compared:
        try:
            torch.testing.assert_close(first, other, rtol=tolerance, atol=tolerance)
        except AssertionError as error:
            raise AssertionError(
                f"{word(len(outcomes))} processes end otherwise than {what}; what looks across "
                "the batch sees a part of it: add up with covlearn.distributed.sum_of, or rank "
                f"what gathered returns: {error}"
            ) from error


def fitted(method: Method, **options: Any) -> Tensors:
    """Weights, D̂ with its scores, and ledger of a method on the toy, as this process has them.

    ``options`` are those of the run.
    """
    # The last of four batches has 27 examples: one more for the first of two processes.
    own: dict[str, Any] = {"net_options": NET_OPTIONS, "seed": SEED, **options}
    run = LocalRun(make_toy(123).split, **own)
    outcome: Tensors = dict(shortened(method).fit(run).state_dict())
    if run.refined is not None:
        outcome |= {"refined": run.refined[0], "refined score": run.refined[1]}
    return outcome | ({} if run.last_ledger is None else dict(run.last_ledger.named_buffers()))


@checked
def fit_in_processes(
    methods: Mapping[str, Method], number: int, **options: Any
) -> list[dict[str, Tensors]]:
    """What each of so many processes ends with, by the methods' names; they are started once."""
    if number < 1:
        raise ValueError(f"number must be at least 1 process, got {number}")
    try:
        pickle.dumps(methods)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise AssertionError(f"{IMPORTABLE}: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        work = (folder, number, dict(methods), options)
        processes = spawn(_work, args=work, nprocs=number, join=False)
        assert processes is not None
        ended, deadline = False, time.monotonic() + SECONDS * number
        try:
            while not ended and time.monotonic() < deadline:  # a call returns when one has ended
                ended = processes.join(timeout=SECONDS)
        except ProcessExitedException as error:
            if not _mark(folder, error.error_index).exists():
                raise AssertionError(f"{IMPORTABLE}: {error}") from error
            by_signal = error.signal_name is not None
            how = f"by {error.signal_name}" if by_signal else f"with exit code {error.exit_code}"
            raise AssertionError(
                f"one of {word(number)} processes was ended at its work, {how}, and could not say "
                "why; do all call the same collectives, with the same shapes?"
            ) from error
        except ProcessRaisedException as error:
            raise AssertionError(f"one of {word(number)} processes failed: {error}") from error
        finally:
            for process in processes.processes:
                process.kill()
        require(ended, "processes that train together hang: do all call the same collectives?")
        return [
            torch.load(Path(folder) / f"{process}.pt", weights_only=True)
            for process in range(number)
        ]


def word(number: int) -> str:
    """A number of processes for a sentence."""
    return {2: "two", 4: "four"}.get(number, str(number))


def _mark(folder: str, process: int) -> Path:
    """The file that says that a process has imported what it needs and begun."""
    return Path(folder) / f"{process}.began"


def _work(
    process: int,
    folder: str,
    number: int,
    methods: Mapping[str, Method],
    options: Mapping[str, Any],
) -> None:
    _mark(folder, process).touch()
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=process,
        world_size=number,
        timeout=datetime.timedelta(seconds=SECONDS * number),
    )
    outcome = {name: fitted(method, **options) for name, method in methods.items()}
    torch.save(outcome, Path(folder) / f"{process}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    # What gloo leaves running can abort a process as its interpreter ends; the work is done by now.
    os._exit(0)
