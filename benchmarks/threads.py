"""Training on tables with one thread and with all, alone and while other processes use every core.

    python -m benchmarks.threads      # five minutes; results/speed/threads.json

Random features and labels: speed does not depend on them. Seconds of two epochs with the network
and plan that `recommended` has for the size, by turns.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from benchmarks.measure import ratio, seconds_by_turns, write
from covlearn import threads
from covlearn.data import Split
from covlearn.local_run import AfterEpoch
from covlearn.methods.base import view_of
from covlearn.methods.ce import CE
from covlearn.methods.scaled import recommended
from covlearn.run import LocalRun

SIZES = (
    *((500, 10, 64), (2_000, 10, 64), (5_000, 10, 64), (20_000, 10, 64)),
    *((120, 2, 4_000), (2_000, 10, 1_280), (20_000, 10, 1_280), (50_000, 10, 1_280)),
)


@contextmanager
def busy_cores() -> Iterator[None]:
    """Every core has another process to run."""
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(other.wait)
            stack.callback(other.kill)
        yield


def measured(
    size: tuple[int, int, int], *, rounds: int, after_epoch: AfterEpoch | None = None
) -> dict[str, Any]:
    """Medians, and the ratio within a round: all threads over one."""
    count, num_classes, features = size
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, features, generator=generator)
    split = Split(x, torch.randint(num_classes, (count,), generator=generator), num_classes)
    choice = recommended(
        "ce", num_examples=count, num_classes=num_classes, shape=tuple(split.x.shape[1:])
    )
    assert isinstance(choice.method, CE)
    method = replace(choice.method, plan=replace(choice.method.plan, epochs=2))
    run = LocalRun(
        split, net_name=choice.net, net_options=choice.net_options, after_epoch=after_epoch
    )
    step = threads.operations(run.net("ce"), method.plan.batch_size)

    def trained(number: int) -> None:
        torch.set_num_threads(number)
        method.fit(view_of(replace(run, history={}, facts={})))

    every = os.cpu_count() or 1
    seconds = seconds_by_turns(
        {"one": lambda: trained(1), "all": lambda: trained(every)},
        rounds=rounds,
        seconds_a_turn=0.0,
    )
    return {
        "examples": count,
        "features": features,
        "operations a step": step,
        "one thread, s": statistics.median(seconds["one"]),
        "all threads / one": ratio(seconds, "all", "one"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    threads.WORTH_SHARING = 0  # what is measured here is what this number is chosen by
    alone = [measured(size, rounds=options.rounds) for size in SIZES]
    print(*alone, "every core busy:", sep="\n", flush=True)
    with busy_cores():
        busy = [measured(size, rounds=options.rounds) for size in SIZES]
    print(*busy, sep="\n")
    write("threads", {"alone": alone, "every core busy": busy})


if __name__ == "__main__":
    main()
