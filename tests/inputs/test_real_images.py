"""Real images through a real network: ImageNet-pretrained features tell CIFAR's classes apart."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from benchmarks.probe_features import write_folder
from covlearn.inputs import extractors, read_examples
from covlearn.inputs.extractors import LITE0
from tests.inputs.make import read_pixels

TRAIN, TEST = 80, 40


def test_features_of_a_real_folder(shared_data: Path, tmp_path: Path) -> None:
    for package in extractors.LITE0_PACKAGES:
        pytest.importorskip(package, reason="the extra lite is not installed")
    folder, cache = tmp_path / "images", tmp_path / "cache"
    write_folder(shared_data, folder, TRAIN + TEST)
    examples = read_examples(folder, cache=cache)
    assert examples.recipe["extractor"]["name"] == LITE0
    assert examples.x.shape == (TRAIN + TEST, 1280)
    again = read_examples(folder, cache=cache, recipe=examples.recipe)
    assert torch.equal(again.x, examples.x)
    assert examples.y is not None
    first = np.array([int(Path(key).stem) < TRAIN for key in examples.ids])
    x, y = examples.x.numpy(), examples.y.numpy()
    probe = LogisticRegression(C=0.1, max_iter=1000).fit(x[first], y[first])
    assert probe.score(x[~first], y[~first]) > 0.4  # a tenth by chance, from eight images a class


def test_pixels_of_a_real_folder(shared_data: Path, tmp_path: Path) -> None:
    write_folder(shared_data, tmp_path / "images", 300)
    examples = read_pixels(tmp_path / "images")
    assert examples.x.shape == (300, 32, 32, 3)
    labels = np.load(shared_data / "labels.npz")["cifar10_test"]
    number = [int(Path(key).stem) for key in examples.ids]
    assert examples.y is not None
    np.testing.assert_array_equal(examples.y, labels[number])
