"""Two processes that train together, to be compared with one."""

import datetime
import pickle
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.multiprocessing.spawn import (
    ProcessExitedException,
    ProcessRaisedException,
    spawn,
)

from covlearn.methods import Method
from covlearn.run import LocalRun
from covlearn.testing.short import shortened
from covlearn.testing.toy import NET_OPTIONS, SEED, make_toy, require

SECONDS = 90
"""After which processes that wait for each other have failed."""
CLOSE = 1e-5
IMPORTABLE = (
    "two_processes starts new ones, which import the method's class: define it at the top of a "
    'module, and where a script calls the check, do so under if __name__ == "__main__"'
)

Tensors = dict[str, Tensor]


def check_two_processes(method: Method) -> None:
    """Two processes (gloo, a net without batch norm) that share batches end where one does."""
    first, second = fit_in_two_processes({"": method})
    require_two_equal_one(method, first[""], second[""])


def require_two_equal_one(method: Method, first: Tensors, second: Tensors) -> None:
    """What the two processes ended with is the same, and that of one up to rounding."""
    for other, tolerance, what in ((second, 0.0, "each other"), (fitted(method), CLOSE, "one")):
        try:
            torch.testing.assert_close(first, other, rtol=tolerance, atol=tolerance)
        except AssertionError as error:
            raise AssertionError(
                f"two processes end otherwise than {what}; what looks across the batch sees half "
                "of it: add up with covlearn.distributed.sum_of, or rank what gathered returns: "
                f"{error}"
            ) from error


def fitted(method: Method) -> Tensors:
    """Weights, D̂ with its scores, and ledger of a method on the toy, as this process has them."""
    # The last of four batches has 27 examples: one more for the first of two processes.
    run = LocalRun(make_toy(123).split, net_options=NET_OPTIONS, seed=SEED)
    outcome: Tensors = dict(shortened(method).fit(run).state_dict())
    if run.refined is not None:
        outcome |= {"refined": run.refined[0], "refined score": run.refined[1]}
    return outcome | ({} if run.last_ledger is None else dict(run.last_ledger.named_buffers()))


def fit_in_two_processes(methods: Mapping[str, Method]) -> tuple[dict[str, Tensors], ...]:
    """What each of two processes ends with, by the methods' names; they are started once."""
    try:
        pickle.dumps(methods)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise AssertionError(f"{IMPORTABLE}: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        processes = spawn(_work, args=(folder, dict(methods)), nprocs=2, join=False)
        assert processes is not None
        try:
            # The first call returns when one has ended.
            ended = processes.join(timeout=SECONDS) or processes.join(timeout=SECONDS)
        except ProcessExitedException as error:  # before it got to any work
            raise AssertionError(f"{IMPORTABLE}: {error}") from error
        except ProcessRaisedException as error:
            raise AssertionError(f"one of two processes failed: {error}") from error
        finally:
            for process in processes.processes:
                process.kill()
        require(ended, "two processes that train together hang: do all call the same collectives?")
        first, second = (
            torch.load(Path(folder) / f"{process}.pt", weights_only=True) for process in (0, 1)
        )
    return first, second


def _work(process: int, folder: str, methods: Mapping[str, Method]) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=process,
        world_size=2,
        timeout=datetime.timedelta(seconds=SECONDS),
    )
    outcome = {name: fitted(method) for name, method in methods.items()}
    torch.save(outcome, Path(folder) / f"{process}.pt")
    torch.distributed.destroy_process_group()
