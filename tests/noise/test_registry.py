"""The registry says what the generators do."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from covlearn import noise
from covlearn.data import Split
from covlearn.data.cifar import CIFAR
from covlearn.data.sources import BY_RATE, Source, with_noise
from covlearn.noise.registry import (
    GENERATORS,
    HUMAN,
    PUBLISHED,
    label_digest,
    published_entry,
    regenerated,
)


def small() -> Source:
    x = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    split = Split(x, torch.arange(200) % 4, num_classes=4)
    return Source("small", split, split, clean=split.y)


def test_every_generator_is_named() -> None:
    functions = {name for name in noise.__all__ if name.islower()} - {"instance_dependent"}
    assert set(GENERATORS) == functions | set(noise.VARIANTS)
    assert {name for name, each in GENERATORS.items() if each.by_rate} == set(BY_RATE)


@pytest.mark.parametrize("name", BY_RATE)
def test_cards_have_the_name_and_version_of_the_registry(name: str) -> None:
    _, card = with_noise(small(), f"{name}:0.3", seed=1)
    assert card is not None
    assert (card.variant, card.version) == (name, GENERATORS[name].version)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("class_dependent", {"transition": np.eye(2)}),
        ("part_dependent", {"part": np.zeros(4, int), "transitions": [np.eye(2), np.eye(2)]}),
        ("instance_dependent_binary", {"e_plus": 0.1, "e_minus": 0.1}),
    ],
)
def test_functions_have_the_version_of_the_registry(name: str, arguments: dict[str, Any]) -> None:
    labels = getattr(noise, name)(np.array([0, 1, 0, 1]), seed=0, **arguments)
    assert (labels.card.variant, labels.card.version) == (name, GENERATORS[name].version)
    assert not GENERATORS[name].by_rate


def test_published_files_belong_to_known_data() -> None:
    assert len({entry.sha256 for entry in PUBLISHED.values()}) == len(PUBLISHED) == 6
    for name, entry in PUBLISHED.items():
        assert CIFAR[entry.data].num_classes == entry.num_classes
        assert name == f"IDN_{entry.rate:g}_C{entry.num_classes}"
        assert published_entry(entry.data, entry.rate) is entry
    assert {human.data for human in HUMAN.values()} == set(CIFAR)


def test_a_rate_that_nobody_published_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rates 0.2, 0.4, 0.6, got 0.3; cal:0.3 draws"):
        published_entry("cifar10", 0.3)


def test_labels_that_come_out_differently_are_refused() -> None:
    x = np.random.default_rng(0).integers(0, 256, size=(40, 3, 2, 2), dtype=np.uint8)
    clean = np.arange(40) % 10
    entry = PUBLISHED["IDN_0.4_C10"]
    with pytest.raises(ValueError, match="came out differently on this machine"):
        regenerated(entry, x, clean)
    drawn = noise.instance_dependent(x, clean, rate=0.4, num_classes=10, variant="cal", seed=0)
    labels = regenerated(replace(entry, sha256=label_digest(drawn.label)), x, clean)
    np.testing.assert_array_equal(labels.label, drawn.label)
    assert (labels.card.variant, labels.card.seed) == ("IDN_0.4_C10", None)
    assert labels.card.requested_rate == 0.4


@pytest.mark.parametrize("name", ["IDN_0.2_C100", "IDN_0.4_C100"])
def test_what_is_not_bit_for_bit_is_not_drawn(name: str) -> None:
    assert not PUBLISHED[name].bit_for_bit
    with pytest.raises(ValueError, match=f"{name} cannot be drawn again bit for bit .*{name}.pt"):
        regenerated(PUBLISHED[name], np.zeros((2, 3, 2, 2)), np.zeros(2, dtype=np.int64))
