"""Peak memory of reading generated PNG images, in memory and through the mapped cache.

    python -m benchmarks.reading_memory          # 2,000, 10,000 and 20,000 images of 64 × 64

Each reading has a process of its own. ``peak_mib`` is the most memory of any kind that it held
while it read, less what it held before; ``own_mib_after`` is what it holds, apart from pages of
files, after every pixel was looked at once: such pages the system takes back when it needs them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.measure import peak_mebibytes, write

SIDE = 64
READER = "--read"


def draw(folder: Path, count: int) -> None:
    generator = np.random.default_rng(0)
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
    for place in range(count):
        pixels = generator.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "ab"[place % 2] / f"{place:06}.png", compress_level=0)


def own_mebibytes() -> float:
    """Memory that no file stands behind."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(
        int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("RssAnon")
    )


def read(folder: Path, cache: Path | None) -> None:
    """Reads a folder, and prints what that took as JSON."""
    from covlearn.inputs import cache as files  # noqa: PLC0415
    from covlearn.inputs import read_examples  # noqa: PLC0415

    # Once with next to nothing, so that what is imported does not count.
    read_examples({"x": np.zeros((4, 8, 8), np.uint8), "y": [0, 1, 0, 1]}, features="none")
    files.MAPPED_FROM = 1 if cache is not None else 1 << 60
    before, own_before = peak_mebibytes(reset=True), own_mebibytes()
    start = time.perf_counter()
    examples = read_examples(folder, features="none", cache=cache)
    found = {
        "seconds": time.perf_counter() - start,
        "peak_mib": peak_mebibytes() - before,
        # Then every pixel is looked at.
        "mean_pixel": float(np.mean([float(x.double().mean()) for x in examples.x])),
        "own_mib_after": own_mebibytes() - own_before,
    }
    print(json.dumps(found))


def measured(folder: Path, cache: Path | None) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.reading_memory", READER, str(folder)]
    command += [] if cache is None else [str(cache)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(printed)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[2_000, 10_000, 20_000])
    parser.add_argument(READER, type=Path, nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        read(args.read[0], args.read[1] if len(args.read) > 1 else None)
        return
    rows = []
    for count in args.counts:
        with tempfile.TemporaryDirectory() as name:
            folder, cache = Path(name) / "images", Path(name) / "cache"
            draw(folder, count)
            ways = {
                "mapped": measured(folder, cache),
                "mapped_again": measured(folder, cache),
                "in_memory": measured(folder, None),
            }
            assert len({way["mean_pixel"] for way in ways.values()}) == 1
            row = {"images": count, "pixels_mib": count * SIDE * SIDE * 3 / 2**20, **ways}
            rows.append(row)
            print(json.dumps(row))
    write("reading_memory", {"side": SIDE, "rows": rows})


if __name__ == "__main__":
    main()
