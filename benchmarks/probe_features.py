"""What ImageNet-pretrained features of a folder of images are worth: a linear probe on CIFAR-10.

    python -m benchmarks.probe_features          # ../shared/data, 3,000 + 1,000 of the test images

The images are written as PNG files into class folders and read back by ``read_examples`` with
efficientnet_lite0; a logistic regression learns the right labels of the first 3,000 and is asked
for those of the others.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.linear_model import LogisticRegression

from benchmarks.measure import write
from covlearn.inputs import read_examples
from covlearn.inputs.extractors import LITE0

SIDE, TILES, FIRST_TEST_MOSAIC = 32, 50, 20


def write_folder(data: Path, folder: Path, count: int) -> None:
    """The first CIFAR-10 test images, one folder a class."""
    labels = np.load(data / "labels.npz")["cifar10_test"]
    for number in range(count):
        mosaic, tile = divmod(number, TILES * TILES)
        if tile == 0:
            with Image.open(data / "cifar10" / f"{FIRST_TEST_MOSAIC + mosaic}.webp") as image:
                whole = image.convert("RGB")
        top, left = (SIDE * place for place in divmod(tile, TILES))
        path = folder / str(labels[number]) / f"{number:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        whole.crop((left, top, left + SIDE, top + SIDE)).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=beside)
    parser.add_argument("--train", type=int, default=3_000)
    parser.add_argument("--test", type=int, default=1_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name) / "images", Path(name) / "cache"
        write_folder(args.data, folder, args.train + args.test)
        start = time.perf_counter()
        examples = read_examples(folder, features=LITE0, cache=cache)
        first = time.perf_counter() - start
        start = time.perf_counter()
        again = read_examples(folder, features=LITE0, cache=cache)
        second = time.perf_counter() - start
    assert bool((again.x == examples.x).all())
    assert examples.y is not None
    x, y = examples.x.numpy(), examples.y.numpy()
    number = np.array([int(Path(key).stem) for key in examples.ids])
    first_ones = number < args.train

    def accuracy_of(x: NDArray[np.float32]) -> float:
        probe = LogisticRegression(C=0.1, max_iter=1000).fit(x[first_ones], y[first_ones])
        return float(probe.score(x[~first_ones], y[~first_ones]))

    accuracy = accuracy_of(x)
    seen = x[first_ones]
    print(f"{accuracy:.3f} of {args.test} right; {1000 * first / len(x):.0f} ms an image")
    write(
        "probe_features",
        {
            "data": "CIFAR-10 test images as PNG files in class folders",
            "extractor": examples.recipe["extractor"],
            "train": args.train,
            "test": args.test,
            "accuracy": accuracy,
            "accuracy_standardised": accuracy_of((x - seen.mean(axis=0)) / seen.std(axis=0)),
            "seconds": first,
            "seconds_from_cache": second,
        },
    )


if __name__ == "__main__":
    main()
