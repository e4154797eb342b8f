"""Every kind of noise by name: generators, the paper's published files, and human labels."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covlearn.checks import Array
from covlearn.kinds import checked
from covlearn.noise import simple
from covlearn.noise.card import NoisyLabels, with_card
from covlearn.noise.instance import instance_dependent, version_of

PUBLISHED_VERSION = 1


@dataclass(frozen=True)
class Generator:
    """A way to draw noisy labels; numbers measured under different ones are not comparable."""

    name: str
    version: int
    what: str
    by_rate: bool = True
    """Whether ``--noise NAME:RATE`` draws it; the others are functions of `covlearn.noise`."""


@dataclass(frozen=True)
class Published:
    """A label file of the paper, and how to draw the same labels from the pixels."""

    name: str
    data: str
    num_classes: int
    rate: float
    sha256: str
    """Of the noisy labels as bytes."""
    options: dict[str, Any] | None = None
    """For ``instance_dependent`` with variant cal and seed 0; None where nothing gives the same."""
    nearest: dict[str, Any] = field(default_factory=dict)
    """Where ``options`` is None, what comes nearest, for further draws of the same kind."""
    note: str = ""

    @property
    def bit_for_bit(self) -> bool:
        """Whether the labels can be drawn again without the file."""
        return self.options is not None


@dataclass(frozen=True)
class Human:
    """Labels that people gave, which have to be downloaded."""

    name: str
    data: str
    labels: tuple[str, ...] = field(default=())


GENERATORS = {
    generator.name: generator
    for generator in (
        Generator("symmetric", simple.VERSION, "to each other class alike"),
        Generator("pair", simple.VERSION, "to the next class, the last to the first"),
        Generator("cal", version_of("cal"), "by instance, the paper's: one W, capped above 0.5"),
        Generator("ptd", version_of("ptd"), "by instance, Xia et al. 2020: one W for each class"),
        Generator("simifeat", version_of("simifeat"), "by instance, Zhu et al. 2022: by rejection"),
        Generator("bltm", version_of("bltm"), "by instance, Yang et al. 2022: ptd with q ≤ 0.6"),
        Generator(
            "calibrated",
            version_of("calibrated"),
            "by instance, ours: a temperature keeps T's diagonal the largest, no class a sink",
        ),
        Generator("class_dependent", simple.VERSION, "by a transition matrix", by_rate=False),
        Generator(
            "confused", simple.VERSION, "to what a classifier confuses it with", by_rate=False
        ),
        Generator(
            "part_dependent", simple.VERSION, "a transition matrix for each part", by_rate=False
        ),
        Generator(
            "instance_dependent_binary",
            simple.VERSION,
            "two classes, flip rates of one's own for each example",
            by_rate=False,
        ),
    )
}
NEARLY = "capped where q > 0.5, with ties in an order that an unstable sort left"
PUBLISHED = {
    entry.name: entry
    for entry in (
        Published(
            "IDN_0.2_C10",
            "cifar10",
            10,
            0.2,
            "c634cf054f50dd64a3fca3986499e62f42548d8b0a1eaaef41240db7d58f2c09",
            options={},
        ),
        Published(
            "IDN_0.4_C10",
            "cifar10",
            10,
            0.4,
            "1cc6ecbcdb35dbfc68734eeb2cef1d09acef33a61f472b7fde3b5cfcade53c99",
            options={},
        ),
        Published(
            "IDN_0.6_C10",
            "cifar10",
            10,
            0.6,
            "d51a9eb5000bf40393331e0e706e9665eb6b7db7aac9c63a5df45bc2e5c192c1",
            options={"scale": 255.0, "cap": "published", "bounds": (0.3022, 0.8978)},
            note="bounds of q read off the file",
        ),
        Published(
            "IDN_0.2_C100",
            "cifar100",
            100,
            0.2,
            "cb4e7da31bba102b245e55c2f8ad2795f107d59fc4a2f2b4abfe108adc975666",
            nearest={"cap": "published"},
            note=NEARLY,
        ),
        Published(
            "IDN_0.4_C100",
            "cifar100",
            100,
            0.4,
            "dc8c0bff2a00e5f34aed2584d807d730345bbb0c77e22b59d51f40b1aa533022",
            nearest={"cap": "published"},
            note=NEARLY,
        ),
        Published(
            "IDN_0.6_C100",
            "cifar100",
            100,
            0.6,
            "7108cd32e7406a66e1bdc3d0d1e4ead1e33ea286816c4b9b12dc80ffd2496ad9",
            options={"cap": "none"},
        ),
    )
}
HUMAN = {
    "cifar10n": Human(
        "CIFAR-10N",
        "cifar10",
        ("aggre_label", "random_label1", "random_label2", "random_label3", "worse_label"),
    ),
    "cifar100n": Human("CIFAR-100N", "cifar100", ("noisy_label",)),
}


@checked
def label_digest(labels: NDArray[np.int64]) -> str:
    """SHA-256 of labels 0…255 as bytes."""
    return hashlib.sha256(labels.astype(np.uint8).data).hexdigest()


@checked
def published_entry(data: str, rate: float) -> Published:
    """The file of a data set and a rate."""
    rates = {entry.rate: entry for entry in PUBLISHED.values() if entry.data == data}
    if rate not in rates:
        raise ValueError(
            f"labels for {data} are published with the rates "
            f"{', '.join(f'{known:g}' for known in rates)}, got {rate:g}; cal:{rate:g} draws such "
            "noise at any rate"
        )
    return rates[rate]


@checked
def published_with(data: str, rate: float) -> list[Published]:
    """The files of a rate that may be meant: of CIFAR by its name, or in an .npz file."""
    return [
        entry
        for entry in PUBLISHED.values()
        if entry.rate == rate and (entry.data == data or data.endswith(".npz"))
    ]


@checked
def check_can_be_drawn(entry: Published) -> None:
    """The labels of some files cannot be drawn again, and have to be read from the file."""
    if entry.options is None:
        raise ValueError(
            f"{entry.name} cannot be drawn again bit for bit ({entry.note}); {_remedy(entry)}"
        )


@checked
def regenerated(entry: Published, x: Array, clean: NDArray[np.int64]) -> NoisyLabels:
    """The labels of a published file from CIFAR's uint8 pixels (N, 3, 32, 32), bit for bit."""
    check_can_be_drawn(entry)
    drawn = drawn_like(entry, x, clean, seed=0)
    if label_digest(drawn.label) != entry.sha256:
        raise ValueError(
            f"{entry.name} came out differently on this machine, whose arithmetic may round in "
            f"another way; {_remedy(entry)}"
        )
    return published_labels(entry, clean, drawn.label)


def _remedy(entry: Published) -> str:
    return (
        f"pass the published file, as file:PATH/{entry.name}.pt, or its folder to covlearn bench, "
        "as --published FOLDER"
    )


@checked
def drawn_like(entry: Published, x: Array, clean: NDArray[np.int64], *, seed: int) -> NoisyLabels:
    """Labels drawn as those of a published file were, as far as that is known, with any seed."""
    options = entry.nearest if entry.options is None else entry.options
    return instance_dependent(
        x,
        clean,
        rate=entry.rate,
        num_classes=entry.num_classes,
        variant="cal",
        seed=seed,
        **options,
    )


@checked
def published_labels(
    entry: Published, clean: NDArray[np.int64], noisy: NDArray[np.int64]
) -> NoisyLabels:
    """The labels of a published file with a card, the same whether they were drawn or read."""
    return with_card(
        clean,
        noisy,
        (clean != noisy).astype(np.float64),
        num_classes=entry.num_classes,
        variant=entry.name,
        version=PUBLISHED_VERSION,
        seed=None,
        requested_rate=entry.rate,
        notes=[f"as published, SHA-256 {entry.sha256}"],
    )
