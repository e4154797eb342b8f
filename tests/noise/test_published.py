"""The published label files, from the pixels."""

from pathlib import Path

import numpy as np
import pytest

from covlearn.data.sources import Source
from covlearn.noise.registry import PUBLISHED, Published, regenerated

LARGEST = {"IDN_0.2_C10": 0.259, "IDN_0.4_C10": 0.410, "IDN_0.6_C10": 0.354, "IDN_0.6_C100": 0.249}


def test_four_of_six_can_be_drawn_again() -> None:
    assert {name for name, entry in PUBLISHED.items() if entry.bit_for_bit} == set(LARGEST)


@pytest.mark.parametrize("entry", [PUBLISHED[name] for name in LARGEST], ids=LARGEST)
def test_published_files_bit_for_bit(
    real_cifar: dict[str, Source], shared_data: Path, entry: Published
) -> None:
    # All 50,000: the bounds of IDN_0.6_C10 were inferred from the file, and a part could fit by luck.
    labels = np.load(shared_data / "labels.npz")
    train = real_cifar[entry.data].train
    result = regenerated(entry, train.x.permute(0, 3, 1, 2), train.y.numpy())
    np.testing.assert_array_equal(result.label, labels[entry.name])
    assert result.card.largest_share == pytest.approx(LARGEST[entry.name], abs=5e-4)
    assert result.card.warnings[0].startswith("sink: class")
