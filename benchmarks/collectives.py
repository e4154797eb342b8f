"""Seconds of an all-reduce between processes of one machine (gloo, CPU), and a line through them.

    python -m benchmarks.collectives            # 2 and 4 processes, about a minute
    python -m benchmarks.collectives --quick    # two small sizes, nothing written

Sizes from one number to the gradient of a ResNet-50. Every process times the same calls, after a
barrier each, and a call has taken as long as in the slowest of them. The model that is fitted is
``latency + 2 (g − 1) / g · bytes / bandwidth``, with latency from the smallest size and bandwidth
from the largest. Sizes between the two are not used, and show how far the line is to be trusted.
The clock is the wall's, as waiting is what is measured; since others on the machine only ever add
to it, the line goes through the least of the rounds, and medians and the load stand beside it.
These are the CPU's figures, and say nothing about GPUs.
"""

import argparse
import json
import os
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from benchmarks.measure import environment

PLACE = Path(__file__).resolve().parents[1] / "results" / "scale" / "collectives.json"
PROCESSES = (2, 4)
SIZES = (4, 4_000, 400_000, 4_000_000, 40_000_000, 102_228_128)  # the last: ResNet-50, K = 1,000
ROUNDS = 25


def all_reduce_seconds(num_bytes: float, processes: int, latency: float, bandwidth: float) -> float:
    """What a ring of processes takes to add up so many bytes; nothing to add up with one."""
    if processes == 1:
        return 0.0
    return latency + 2 * (processes - 1) / processes * num_bytes / bandwidth


def fit(measured: dict[int, float], processes: int) -> dict[str, float]:
    """Latency in seconds and bytes a second, from the smallest and the largest size."""
    small, large = min(measured), max(measured)
    latency = measured[small]
    beyond = measured[large] - latency
    if beyond <= 0:
        raise ValueError(
            f"{large:,} bytes must take longer than {small:,}, got {measured[large]} s and "
            f"{latency} s; measure again on a quieter machine"
        )
    return {
        "latency, s": latency,
        "bytes a second": 2 * (processes - 1) / processes * large / beyond,
    }


def _one_of_them(
    rank: int, processes: int, port: int, sizes: tuple[int, ...], rounds: int, place: str
) -> None:
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, processes, is_master=rank == 0)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=processes)
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    values = {size: torch.zeros(size // 4) for size in sizes}
    for number in range(rounds + 1):
        for size in sizes:
            dist.barrier()
            started = time.perf_counter()
            dist.all_reduce(values[size])
            took = torch.tensor(time.perf_counter() - started, dtype=torch.float64)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            if number:  # the first one connects
                seconds[size].append(float(took))
    if rank == 0:
        Path(place).write_text(json.dumps(seconds), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def measure(processes: int, sizes: tuple[int, ...], rounds: int, place: Path) -> dict[str, Any]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    load = os.getloadavg()[0]
    spawn(_one_of_them, (processes, port, sizes, rounds, str(place)), nprocs=processes)
    seconds = {int(k): v for k, v in json.loads(place.read_text(encoding="utf-8")).items()}
    least = {size: min(values) for size, values in seconds.items()}
    line = fit(least, processes)
    predicted = {
        size: all_reduce_seconds(size, processes, line["latency, s"], line["bytes a second"])
        for size in sizes
    }
    return {
        "load before": load,
        "seconds, least": least,
        "seconds, median": {size: statistics.median(v) for size, v in seconds.items()},
        "line": line,
        "line / least": {size: predicted[size] / least[size] for size in sizes},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two small sizes, nothing written")
    options = parser.parse_args()
    sizes, rounds = (SIZES[:2], 3) if options.quick else (SIZES, ROUNDS)
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for processes in PROCESSES:
            found = measure(processes, sizes, rounds, Path(folder) / "seconds.json")
            figures[f"{processes} processes"] = found
            print(json.dumps({processes: found}, indent=2), flush=True)
    if not options.quick:
        record = {"environment": environment(), "backend": "gloo", "rounds": rounds}
        PLACE.write_text(json.dumps(record | {"figures": figures}, indent=2) + "\n")
        print(f"written: {PLACE}")


if __name__ == "__main__":
    main()
