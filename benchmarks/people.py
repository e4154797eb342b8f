"""`fit` on images whose labels are wrong as people's are, by ImageNet-pretrained features.

    covlearn data fetch cifar10
    python -m benchmarks.people --processes 2      # ten minutes

3,000 images of CIFAR-10 a seed, with efficientnet_lite0's features, and labels that are in
``benchmarks/labels`` or drawn here; 2,000 of the test images are the test. Beside it, on the same
splits and with the same network, what ``benchmarks/peers.py`` has. The labels of three labellers
were drawn from what a linear classifier on such features confuses, so that they are wrong where
these features do not tell.
"""

import argparse
import json
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track
from torch import Tensor

from benchmarks.confused import LABELS
from benchmarks.detection import noisy_labels
from benchmarks.peers import Row, ours, peers
from benchmarks.three_labellers import SIZE, features_of
from covlearn.data import Split
from covlearn.data.sources import load_data
from covlearn.engine import Machine
from covlearn.evaluation import environment
from covlearn.fitting import Prepared
from covlearn.inputs.extractors import LITE0

OUT = Path(__file__).resolve().parents[1] / "results" / "people.json"
IMAGES, TESTS, CLASSES = 3_000, 2_000, 10
DRAWN = ("three_labellers_0.4", "confused_0.4", "confused_0.1")
NOISES = (*DRAWN, "symmetric:0.2", "none")
METHODS = ("ce", "CleanLearning", "cleanlab", "cleanlab, our sieves", "ours")
FIGURES = ("accuracy", "f1", "average_precision", "refined_right", "flagged")


def features(folder: Path, seeds: int) -> dict[str, NDArray[Any]]:
    """Features and right labels of the first images of both parts, kept in a file."""
    # By all that they depend on, and under their name only when they are whole.
    file = folder / f"people_{LITE0}_{SIZE}_{seeds * IMAGES}_{TESTS}.npz"
    if not file.exists():
        source = load_data("cifar10")
        assert source.clean is not None
        train, test, count = source.train.x, source.test, seeds * IMAGES
        folder.mkdir(parents=True, exist_ok=True)
        partial_file = file.with_suffix(".partial.npz")
        np.savez(
            partial_file,
            train=features_of(train[:count].numpy()),
            train_y=source.clean[:count].numpy(),
            test=features_of(test.x[:TESTS].numpy()),
            test_y=test.y[:TESTS].numpy(),
        )
        partial_file.replace(file)
    with np.load(file) as arrays:
        return dict(arrays)


def split_of(
    data: dict[str, NDArray[Any]], noise: str, seed: int
) -> tuple[Split, Tensor, tuple[Tensor, Tensor]]:
    """A seed's images with their labels, the right ones, and the test."""
    these = slice(seed * IMAGES, (seed + 1) * IMAGES)
    clean = torch.from_numpy(data["train_y"][these]).long()
    prepared = Prepared.of(data["train"][these], clean, CLASSES)
    if noise in DRAWN:
        with np.load(LABELS / f"{noise}_cifar10.npz") as labels:
            given = torch.from_numpy(labels["noisy"][these]).long()
    else:
        given = noisy_labels(prepared.split, noise, seed)
    split = replace(prepared.split, y=given)
    assert prepared.standardizer is not None
    test_x = torch.from_numpy(prepared.standardizer(data["test"])).float()
    return split, clean, (test_x, torch.from_numpy(data["test_y"]).long())


def cell(task: tuple[str, int], data: dict[str, NDArray[Any]]) -> dict[str, Row]:
    """Of each method its row."""
    torch.set_num_threads(1)
    split, clean, test = split_of(data, *task)
    rows = chain.from_iterable(group(split, clean, test, task[1]) for group in (peers, ours))
    return {row["method"]: row for row in rows}


def means(cells: dict[str, dict[str, Row]]) -> dict[str, dict[str, dict[str, float]]]:
    """Of each noise and method the mean of each figure that it has."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for noise in dict.fromkeys(name.rpartition("/")[0] for name in cells):
        these = [cell for name, cell in cells.items() if name.rpartition("/")[0] == noise]
        table[noise] = {
            method: {
                figure: statistics.fmean(cell[method][figure] for cell in these)
                for figure in FIGURES
                if figure in these[0][method]
            }
            for method in METHODS
        }
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--noise", nargs="+", default=list(NOISES), choices=NOISES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--features", type=Path, default=Path("runs"), help="where they are kept")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    data = features(options.features, options.seeds)
    tasks = list(product(options.noise, range(options.seeds)))
    # Not forked: this process has threads by now.
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        made = track(pool.map(partial(cell, data=data), tasks), total=len(tasks))
        cells = {"/".join(map(str, task)): rows for task, rows in zip(tasks, made, strict=True)}
    table = means(cells)
    record = {"environment": environment(Machine()), "means": table, "cells": cells}
    options.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for noise, methods in table.items():
        for method, row in methods.items():
            print(noise, method, {name: round(value, 4) for name, value in row.items()})


if __name__ == "__main__":
    main()
