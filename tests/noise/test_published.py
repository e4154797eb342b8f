"""The published label files, from the pixels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from covlearn import noise


def cifar_pixels(folder: Path) -> NDArray[np.uint8]:
    """The training images, 2,500 in each of the first 20 mosaics, as (N, 3, 32, 32)."""
    images = []
    for file in sorted(folder.glob("*.webp"))[:20]:
        with Image.open(file) as mosaic:
            tiles = np.asarray(mosaic.convert("RGB")).reshape(50, 32, 50, 32, 3)
        images.append(tiles.transpose(0, 2, 4, 1, 3).reshape(2500, 3, 32, 32))
    return np.concatenate(images)


@pytest.fixture(scope="module")
def cifar10(shared_data: Path) -> NDArray[np.uint8]:
    return cifar_pixels(shared_data / "cifar10")


@pytest.mark.parametrize(
    ("rate", "largest"), [(0.2, 0.259), (0.4, 0.410)], ids=["IDN_0.2_C10", "IDN_0.4_C10"]
)
def test_published_cifar10_files_bit_for_bit(
    cifar10: NDArray[np.uint8], shared_data: Path, rate: float, largest: float
) -> None:
    labels = np.load(shared_data / "labels.npz")
    result = noise.instance_dependent(
        cifar10, labels["cifar10_train"], rate=rate, num_classes=10, variant="cal", seed=0
    )
    np.testing.assert_array_equal(result.label, labels[f"IDN_{rate}_C10"])
    assert result.card.largest_class == 2
    assert result.card.largest_share == pytest.approx(largest, abs=5e-4)
    assert "class 2," in result.card.warnings[0]


@pytest.mark.parametrize(
    ("num_classes", "scale", "options"),
    [
        (10, 255, {"cap": "published", "bounds": (0.3022, 0.8978)}),
        (100, 1, {"cap": "none"}),
    ],
    ids=["IDN_0.6_C10", "IDN_0.6_C100"],
)
def test_published_files_at_high_rate_bit_for_bit(
    shared_data: Path, num_classes: int, scale: int, options: dict[str, Any]
) -> None:
    # All 50,000: the bounds of the first were inferred from the file, and a part could fit by luck.
    pixels = cifar_pixels(shared_data / f"cifar{num_classes}")
    labels = np.load(shared_data / "labels.npz")
    result = noise.instance_dependent(
        pixels / scale,
        labels[f"cifar{num_classes}_train"],
        rate=0.6,
        num_classes=num_classes,
        variant="cal",
        seed=0,
        **options,
    )
    np.testing.assert_array_equal(result.label, labels[f"IDN_0.6_C{num_classes}"])
