"""CIFAR-10 and CIFAR-100: what they are, and how to tell that these are they.

Whatever the images were read from, the arrays are checked against known digests. ``official`` is
the order of the official files, to which published noise labels belong. Pictures out of a folder
that does not say their order are brought into one that the pictures themselves decide, ``sorted``,
so that they too can be checked to the last bit.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from covlearn.kinds import nearest

SIDE = 32
OFFICIAL, SORTED = "official", "sorted"
WHAT = {
    "train_x": "training images",
    "train_y": "training labels",
    "test_x": "test images",
    "test_y": "test labels",
}


class Images(NamedTuple):
    """A whole data set: images (N, 32, 32, 3) and labels (N,), all uint8."""

    train_x: NDArray[np.uint8]
    train_y: NDArray[np.uint8]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.uint8]


@dataclass(frozen=True)
class Cifar:
    """One of the two data sets."""

    name: str
    title: str
    url: str
    folder: str
    """Of the official files, in the archive."""
    train_files: tuple[str, ...]
    test_file: str
    label_key: bytes
    num_classes: int
    num_train: int
    num_test: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    digests: Mapping[str, Mapping[str, str]]
    """By order, then by array: SHA-256 of the bytes."""


CIFAR10 = Cifar(
    name="cifar10",
    title="CIFAR-10",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    folder="cifar-10-batches-py",
    train_files=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test_file="test_batch",
    label_key=b"labels",
    num_classes=10,
    num_train=50_000,
    num_test=10_000,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    digests={
        OFFICIAL: {
            "train_x": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "train_y": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
            "test_x": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            "test_y": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        },
        SORTED: {
            "train_x": "32b25bb65187cdb40e66b2bd4dbb2de04f62e2d521f74c46a56f39f2afb56e96",
            "train_y": "f5f0254261d4b815631fb00355e0b4b53f8ee0ec2cdfdef4b12290a12aa2ddf8",
            "test_x": "27f7d008727f5b9a8f5b01f61503d2f52d3ba7f5ffb2c331b5b82775de2e2d72",
            "test_y": "24020a57eb5141b27aa0417447162290a6f6c5c1549a112edbed2c09fdbbf307",
        },
    },
)
CIFAR100 = Cifar(
    name="cifar100",
    title="CIFAR-100",
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    folder="cifar-100-python",
    train_files=("train",),
    test_file="test",
    label_key=b"fine_labels",
    num_classes=100,
    num_train=50_000,
    num_test=10_000,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    digests={
        OFFICIAL: {
            "train_x": "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
            "train_y": "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
            "test_x": "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
            "test_y": "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
        },
        SORTED: {
            "train_x": "314214c52cf8821c3fd95fc3391792a3b938be3130d8a6fa1472491c1bf41022",
            "train_y": "ea2cd91837953d77eeafb4c1f9add4fc27247412f0a8f42474f75beb5a4319fd",
            "test_x": "3649f267eb9a14c4acea5df2e2b437abe44b7a6b67c2ffd653ebea273d00305e",
            "test_y": "5cf52a13f3e25074c5cfeba73ebc826b83f8fde92ff0e85cecbd9d7efb334a85",
        },
    },
)
CIFAR = {facts.name: facts for facts in (CIFAR10, CIFAR100)}


def lookup(name: str) -> Cifar:
    """The facts about a data set."""
    if name not in CIFAR:
        raise ValueError(
            f"data must be one of {', '.join(CIFAR)}, got {name!r}{nearest(name, CIFAR)}"
        )
    return CIFAR[name]


class Differs(ValueError):
    """Arrays of the right shape that are not the data set's, and which of them differ."""

    def __init__(self, message: str, wrong: list[str]) -> None:
        super().__init__(message)
        self.wrong = wrong


def verified_order(images: Images, facts: Cifar) -> str:
    """``official`` or ``sorted`` if the arrays are the data set's, bit for bit; else an error.

    It names the arrays that differ from those of the order that most of them are in.
    """
    found = {}
    for name, array in images._asdict().items():
        count = facts.num_train if name.startswith("train") else facts.num_test
        shape = (count, SIDE, SIDE, 3) if name.endswith("_x") else (count,)
        if array.dtype != np.uint8 or array.shape != shape:
            raise ValueError(
                f"the {WHAT[name]} of {facts.title} must be uint8 of shape {shape}, got "
                f"{array.dtype} of shape {array.shape}"
            )
        found[name] = digest(array)
    by_order = {
        order: [name for name in found if found[name] != digests[name]]
        for order, digests in facts.digests.items()
    }
    nearest_order = min(by_order, key=lambda order: len(by_order[order]))
    wrong, expected = by_order[nearest_order], facts.digests[nearest_order]
    if not wrong:
        return nearest_order
    raise Differs(
        f"these are not the images and labels of {facts.title}: the "
        f"{' and the '.join(WHAT[name] for name in wrong)} differ (SHA-256 of the "
        f"{WHAT[wrong[0]]}: expected {expected[wrong[0]][:12]}…, got {found[wrong[0]][:12]}…); "
        "the source is damaged, altered or another data set: get it anew",
        wrong,
    )


def in_sorted_order(images: Images) -> Images:
    """The training and the test images each by the digest of their pixels, then by their label."""
    train = _sorting(images.train_x, images.train_y)
    test = _sorting(images.test_x, images.test_y)
    return Images(
        images.train_x[train], images.train_y[train], images.test_x[test], images.test_y[test]
    )


def digest(array: NDArray[np.uint8]) -> str:
    """SHA-256 of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _sorting(x: NDArray[np.uint8], y: NDArray[np.uint8]) -> list[int]:
    keys = [(hashlib.sha256(image).digest(), label) for image, label in zip(x, y, strict=True)]
    return sorted(range(len(keys)), key=keys.__getitem__)
