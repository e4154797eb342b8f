"""CIFAR from every form it comes in, on look-alikes of a few images."""

from pathlib import Path

import numpy as np
import pytest
import torch

from covlearn import cli
from covlearn.data.cifar import CIFAR, CIFAR100, Cifar, Images
from covlearn.data.sources import load_data
from covlearn.data.store import store
from tests.data import lookalike as make
from tests.data.forms import (
    Build,
    dotted_plain_archive,
    folder_of_a_download,
    folder_of_npm_pack,
    inner_folder,
    numbered_classes,
    numbered_folders,
    official_archive,
    official_folder,
    package_archive,
    package_folder,
)


@pytest.mark.parametrize(
    "build",
    [
        official_folder,
        inner_folder,
        official_archive,
        dotted_plain_archive,
        package_archive,
        folder_of_npm_pack,
        folder_of_a_download,
        package_folder,
        numbered_folders,
        numbered_classes,
    ],
)
def test_every_form_gives_the_same_file(
    tmp_path: Path, own_folder: Path, cifar10: tuple[Cifar, Images], build: Build
) -> None:
    facts, images = cifar10
    source = build(tmp_path / "source", images, facts)
    assert cli.main(["data", "fetch", "cifar10", "--from", str(source)]) == 0
    expected = store(images, facts, tmp_path / "expected").read_bytes()
    assert [path.name for path in own_folder.iterdir()] == ["cifar10.safetensors"]
    assert (own_folder / "cifar10.safetensors").read_bytes() == expected
    data = load_data("cifar10")
    assert data.name == "cifar10"
    for split, x, y in (
        (data.train, images.train_x, images.train_y),
        (data.test, images.test_x, images.test_y),
    ):
        np.testing.assert_array_equal(split.x.numpy(), x)
        np.testing.assert_array_equal(split.y.numpy(), y)
        assert split.num_classes == 10
        assert split.augmentation is not None
        assert not split.augmentation.moves
        assert split.augmentation.mean == (0.4914, 0.4822, 0.4465)
        assert split.augmentation.std == (0.2023, 0.1994, 0.2010)
    assert data.clean is not None
    assert torch.equal(data.clean, data.train.y)


@pytest.mark.parametrize("build", [official_folder, official_archive])
def test_cifar100_has_its_fine_labels(
    tmp_path: Path, cifar100: tuple[Cifar, Images], build: Build
) -> None:
    facts, images = cifar100
    source = build(tmp_path / "source", images, facts)
    assert cli.main(["data", "fetch", "cifar100", "--from", str(source)]) == 0
    data = load_data("cifar100")
    np.testing.assert_array_equal(data.train.y.numpy(), images.train_y)
    assert data.train.num_classes == 100
    assert data.train.augmentation is not None
    assert data.train.augmentation.std == (0.2673, 0.2564, 0.2762)


def test_classes_that_are_numbers_count_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, images = make.tiny(CIFAR100, num_train=100, num_test=100)
    monkeypatch.setitem(CIFAR, "cifar100", facts)
    source = make.class_folders(tmp_path / "source", images, numbered=True, names=False)
    assert cli.main(["data", "fetch", "cifar100", "--from", str(source)]) == 0  # 10 is not after 1
    np.testing.assert_array_equal(load_data("cifar100").train.y.numpy(), images.train_y)


def test_images_without_an_order_are_sorted_and_say_so(
    tmp_path: Path,
    cifar10: tuple[Cifar, Images],
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, images = cifar10
    source = make.class_folders(tmp_path / "source", images, numbered=False)
    assert cli.main(["data", "fetch", "cifar10", "--from", str(source)]) == 0
    assert "published noise labels do not fit them" in capsys.readouterr().out
    data = load_data("cifar10")
    assert data.name == "cifar10-sorted"
    expected = make.sorted_by_pixels(images)
    np.testing.assert_array_equal(data.train.x.numpy(), expected.train_x)
    np.testing.assert_array_equal(data.train.y.numpy(), expected.train_y)
    assert cli.main(["data", "list"]) == 0
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if "│" in line]
    columns = [" ".join(" ".join(pieces).split()) for pieces in zip(*rows, strict=True)]
    assert any("not official order" in text for text in columns)  # lines may be broken


def test_a_wrong_number_does_not_decide_the_order(
    tmp_path: Path, cifar10: tuple[Cifar, Images]
) -> None:
    _, images = cifar10
    backwards = Images(*(array[::-1] for array in images))
    source = make.class_folders(tmp_path / "source", backwards, numbered=True)
    assert cli.main(["data", "fetch", "cifar10", "--from", str(source)]) == 0
    assert load_data("cifar10").name == "cifar10-sorted"
