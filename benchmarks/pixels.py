"""``covlearn fit`` on the pixels of few small images, without a pretrained network.

    python -m benchmarks.pixels [--seeds 2] [--out results/pixels.json]

2,000 images of Fashion-MNIST are written as PNG files into class folders by their noisy labels and
read back with ``features="none"``; 5,000 others, read by the same recipe, are the test. Recorded
are accuracy, of cross-entropy too, detection, and how far the probability of a wrong label is
from how often it is one. Cells that the file has are not run again.
"""

import argparse
import gzip
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.progress import track
from torch import Tensor

from benchmarks.detection import detection, meaning
from covlearn.data import Resident, Split
from covlearn.engine import Machine, predict
from covlearn.evaluation import EVALUATION_BATCH, commit, environment
from covlearn.fitted import prepared_from
from covlearn.fitting import fit_split, set_up
from covlearn.inputs import read_examples
from covlearn.methods.base import view_of
from covlearn.noise import instance_dependent, symmetric
from covlearn.run import LocalRun

FASHION = Path("/usr/share/datasets/fashion-mnist")
IMAGES, TESTS, CLASSES = 2_000, 5_000, 10
NOISES = ("ptd:0.2", "none", "symmetric:0.2", "ptd:0.4")


def fashion(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 28, 28) and labels of the part train or t10k."""
    pixels = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    x = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28)
    return x, np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)


def noisy_labels(x: NDArray[Any], y: NDArray[Any], spec: str, seed: int) -> NDArray[np.int64]:
    if spec == "none":
        return y
    kind, rate = spec.split(":")
    options: Any = {"rate": float(rate), "num_classes": CLASSES, "seed": seed}
    if kind == "symmetric":
        return symmetric(y, **options).label
    inputs = torch.from_numpy(x.reshape(len(x), -1)).float() / 255
    return instance_dependent(inputs, torch.from_numpy(y), variant=kind, **options).label


def write_folder(folder: Path, x: NDArray[Any], labels: NDArray[Any]) -> None:
    for number, (pixels, label) in enumerate(zip(x, labels, strict=True)):
        place = folder / str(label)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{number:05}.png")


def cell(spec: str, seed: int, settings: list[str], source: Path) -> dict[str, Any]:
    """One noise and seed."""
    torch.set_num_threads(1)
    all_x, all_y = fashion(source, "train")
    drawn = np.random.default_rng(seed).permutation(len(all_x))[: IMAGES + TESTS]
    x, clean, test_y = all_x[drawn[:IMAGES]], all_y[drawn[:IMAGES]], all_y[drawn[IMAGES:]]
    noisy = noisy_labels(x, clean, spec, seed)
    with tempfile.TemporaryDirectory() as name:
        write_folder(Path(name) / "train", x, noisy)
        write_folder(Path(name) / "test", all_x[drawn[IMAGES:]], test_y)
        examples = read_examples(Path(name) / "train", features="none")
        test = read_examples(Path(name) / "test", recipe=examples.recipe)
    assert examples.y is not None
    assert test.y is not None
    right = clean[[int(Path(key).stem) for key in examples.ids]]
    prepared = prepared_from(examples)
    setup = set_up("cal", split=prepared.split, settings=settings, device="cpu")

    def accuracy(model: torch.nn.Module, y: Tensor) -> float:
        split = Split(test.x, y, CLASSES, prepared.augmentation)
        data = Resident(split, batch_size=EVALUATION_BATCH, shuffle=False, device="cpu")
        logits, _ = predict(model, data, setup.machine)
        return float((logits.argmax(dim=1) == y).float().mean())

    started = time.process_time()
    fit = fit_split(prepared.split, setup, seed=seed)
    seconds = time.process_time() - started
    plain = set_up("ce", split=prepared.split, settings=_of_net(settings), device="cpu")
    run = LocalRun(
        prepared.split,
        net_name=plain.choice.net,
        net_options=plain.choice.net_options,
        machine=plain.machine,
        seed=seed,
    )
    ce = plain.choice.method.fit(view_of(run))
    verdicts = fit.verdicts
    flagged = verdicts.decision != "keep"
    relabelled = verdicts.decision == "relabel"
    return {
        "noise": spec,
        "seed": seed,
        "settings": settings,
        "net": setup.choice.net,
        "net_options": setup.choice.net_options,
        "processor_seconds": seconds,
        "accuracy": {"ours": accuracy(fit.model, test.y), "ce": accuracy(ce, test.y)},
        "evidence": fit.evidence.found,
        "surest": fit.evidence.surest,
        "surest_contradicted": fit.evidence.contradicted,
        "estimated_rate": fit.noise_rate,
        "sieves_right": float((fit.crossed.argmax(dim=1).numpy() == right).mean()),
        "relabelled_right": float((verdicts.suggested == right)[relabelled].mean())
        if relabelled.any()
        else None,
        "reliability": meaning(verdicts, right),
        **detection(verdicts.given, right, flagged, 1 - verdicts.quality, verdicts.refined),
        "commit": commit(),
    }


def _of_net(settings: list[str]) -> list[str]:
    return [line for line in settings if line.startswith("net.")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2, help="seeds 0 … N−1")
    parser.add_argument("--noise", nargs="+", default=list(NOISES))
    parser.add_argument("--set", nargs="+", default=[], help="settings of covlearn fit --set")
    parser.add_argument("--fashion", type=Path, default=FASHION)
    parser.add_argument("--out", type=Path, default=Path("results/pixels.json"))
    options = parser.parse_args()
    if not options.fashion.is_dir():
        raise SystemExit(f"SKIPPED: {options.fashion} has not Fashion-MNIST's IDX files")
    cells = json.loads(options.out.read_text())["cells"] if options.out.exists() else []
    done = {(made["noise"], made["seed"], *made["settings"]) for made in cells}
    tasks = [(spec, seed) for seed in range(options.seeds) for spec in options.noise]
    tasks = [task for task in tasks if (*task, *options.set) not in done]
    for task in track(tasks, description="cells"):
        cells.append(cell(*task, options.set, options.fashion))
        content = {"environment": environment(Machine()), "cells": cells}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
