"""What instance-dependent label noise costs: 50,000 × 3,072 uint8 features, K = 10 and 100.

    python -m benchmarks.noise_speed

Every figure comes from a process of its own. The plain loop projects, normalises and draws one
example at a time, as the published code does; it is timed on a part of the examples in the same
process and scaled up, without its own set-up (q and W), which is in ours.
"""

import argparse
import json
import subprocess
import sys
import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import peak_mebibytes, write
from covlearn.noise import VARIANTS, instance_dependent

NUM_EXAMPLES, NUM_FEATURES = 50_000, 3072
LOOP_EXAMPLES = 500
ROUNDS = 3


def plain_loop(x: NDArray[np.uint8], y: NDArray[np.int64], num_classes: int) -> float:
    """Seconds an example."""
    rng = np.random.RandomState(0)
    weight = rng.normal(size=(NUM_FEATURES, num_classes))
    rate = rng.uniform(0.3, 0.5, size=LOOP_EXAMPLES)
    start = time.perf_counter()
    for n in range(LOOP_EXAMPLES):
        score = np.matmul(x[n].astype(np.float64), weight)
        score[y[n]] = -np.inf
        share = np.exp(score - score.max())
        p = rate[n] * share / share.sum()
        p[y[n]] = 1 - rate[n]
        rng.choice(num_classes, p=p)
    return (time.perf_counter() - start) / LOOP_EXAMPLES


def measure(variant: str, num_classes: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, size=(NUM_EXAMPLES, NUM_FEATURES), dtype=np.uint8)
    y = rng.integers(0, num_classes, size=NUM_EXAMPLES)
    before = peak_mebibytes(reset=True)
    seconds, processor, loop = [], [], []
    for _ in range(ROUNDS):
        loop.append(NUM_EXAMPLES * plain_loop(x, y, num_classes))
        start, used = time.perf_counter(), time.process_time()
        instance_dependent(x, y, rate=0.4, num_classes=num_classes, variant=variant, seed=0)
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)  # of all cores; steady on a busy machine
    return {
        "seconds": float(np.median(seconds)),
        "processor seconds": float(np.median(processor)),
        "loop, seconds": float(np.median(loop)),
        "loop / ours": float(np.median(np.array(loop) / seconds)),
        "peak MiB above the inputs": peak_mebibytes() - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--one", nargs=2, metavar=("VARIANT", "K"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return
    figures: dict[str, dict[str, float]] = {}
    for num_classes in (10, 100):
        for variant in VARIANTS:
            arguments = ["--one", variant, str(num_classes)]
            command = [sys.executable, "-m", "benchmarks.noise_speed", *arguments]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            title = f"{variant}, K = {num_classes}"
            figures[title] = json.loads(done.stdout)
            print(title, {name: round(value, 2) for name, value in figures[title].items()})
    shape = {"examples": NUM_EXAMPLES, "features": NUM_FEATURES, "rate": 0.4}
    write("noise", shape | {"loop_examples": LOOP_EXAMPLES, "figures": figures})


if __name__ == "__main__":
    main()
