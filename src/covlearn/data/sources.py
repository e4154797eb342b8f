"""Data by name, and noise by name to put on its labels."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covlearn import npz
from covlearn.checks import check_labels
from covlearn.data import clothing1m
from covlearn.data.archives import Progress, silent
from covlearn.data.augment import Augmentation
from covlearn.data.batches import Split
from covlearn.data.cifar import CIFAR, OFFICIAL, Cifar
from covlearn.data.store import open_stored
from covlearn.kinds import check_fields, checked, nearest
from covlearn.noise import VARIANTS, NoiseCard, NoisyLabels, instance_dependent, pair, symmetric
from covlearn.noise.files import labels_from_file
from covlearn.noise.registry import (
    GENERATORS,
    Published,
    drawn_like,
    label_digest,
    published_entry,
    regenerated,
)
from covlearn.records import MOST_CLASSES

__all__ = [
    "Source",
    "check_data_name",
    "check_noise",
    "digits",
    "from_clothing1m",
    "from_npz",
    "from_store",
    "load_data",
    "noisy_labels",
    "with_noise",
]

DIGITS_TEST = 500
BY_RATE = ("symmetric", "pair", *VARIANTS)
NOISES = ("none", *BY_RATE, "published", "as_published", "file")
NPZ_NEEDS = ("x", "y", "x_test", "y_test")


@dataclass(frozen=True)
class Source:
    """Training examples with the labels they came with, and a test split with right ones.

    ``clean``, the right labels of the training examples where they are known, is for evaluation
    alone: a method is given ``train`` and nothing else. ``validation``, where the data has such a
    part, is other examples with right labels, to choose an epoch by.
    """

    name: str
    train: Split
    test: Split
    clean: Tensor | None = None
    validation: Split | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.clean is not None:
            num_classes, length = self.train.num_classes, len(self.train)
            check_labels(self.clean, num_classes=num_classes, length=length, name="clean")


@checked
def load_data(name: str, progress: Progress = silent) -> Source:
    """``"digits"``, ``"cifar10"``, ``"cifar100"``, Clothing1M's folder, or an .npz file's path.

    CIFAR must have been fetched (``covlearn data fetch``). An .npz file has x, y, x_test, y_test
    and perhaps clean, where ``x`` holds uint8 images (N, H, W, C) or float features (N, …), and
    labels are 0…K−1.
    """
    check_data_name(name)
    if name == "digits":
        return digits()
    if is_folder(name):
        return from_clothing1m(Path(name), progress)
    return from_store(CIFAR[name]) if name in CIFAR else from_npz(Path(name))


@checked
def check_data_name(name: str) -> None:
    """Refuses what :func:`load_data` cannot load, by its name alone."""
    known = ["digits", *CIFAR]
    if name not in known and not name.endswith(".npz") and not is_folder(name):
        raise ValueError(
            f"data must be {', '.join(known)}, the folder of Clothing1M or the path of an .npz "
            f"file, got {name!r}{nearest(name, known)}"
        )


def is_folder(name: str) -> bool:
    """Whether data is a folder: Clothing1M's, since no other is read from one."""
    return name not in ("digits", *CIFAR) and Path(name).is_dir()


@checked
def from_clothing1m(root: Path, progress: Progress = silent) -> Source:
    """The million noisy images to train on, the clean parts to choose by and to test with.

    No right label of a training image is known; the clean training part is not used.
    """
    train, validation, test = (
        clothing1m.read_split(root, part, progress)
        for part in ("noisy_train", "clean_val", "clean_test")
    )
    return Source("clothing1m", train, test, validation=validation)


@checked
def from_store(facts: Cifar, path: Path | None = None) -> Source:
    """CIFAR as it was fetched; images are normalised by the usual constants, and not moved.

    ``-sorted`` in the source's name says that the images are not in the official order.
    """
    stored = open_stored(facts, path)
    augmentation = Augmentation(mean=facts.mean, std=facts.std)
    train, test = (
        Split(x, y.long(), facts.num_classes, augmentation)
        for x, y in ((stored.train_x, stored.train_y), (stored.test_x, stored.test_y))
    )
    name = facts.name if stored.order == OFFICIAL else f"{facts.name}-{stored.order}"
    return Source(name, train, test, clean=train.y)


def digits() -> Source:
    """scikit-learn's 8×8 digits, scaled to 0–1: 1297 to train on, always the same 500 to test.

    The file has writer after writer, so that it is shuffled before it is cut.
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415  slow to import, and only here

    x, y = load_digits(return_X_y=True)
    images = torch.from_numpy(x / 16).float().reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(y).long()
    # NumPy promises the legacy generator's draws for ever.
    order = torch.from_numpy(np.random.RandomState(0).permutation(len(y)))
    whole = Split(images, labels, num_classes=10)
    train = whole.subset(order[:-DIGITS_TEST])
    return Source("digits", train, whole.subset(order[-DIGITS_TEST:]), clean=train.y)


@checked
def from_npz(path: Path) -> Source:
    """Arrays from a file; its labels ``y`` may be noisy, those of ``y_test`` are taken as right."""
    arrays = _read_npz(path)
    y, y_test = arrays["y"], arrays["y_test"]
    for name in ("y", "y_test"):
        if arrays[name].dtype.kind not in "iu" or arrays[name].ndim != 1 or not arrays[name].size:
            raise ValueError(
                f"{name} in {path} must be a vector of class numbers 0…K−1, got "
                f"{arrays[name].dtype} of shape {arrays[name].shape}"
            )
    if arrays["x"].shape[1:] != arrays["x_test"].shape[1:]:
        raise ValueError(
            f"x and x_test in {path} must hold examples of one shape, got "
            f"{arrays['x'].shape[1:]} and {arrays['x_test'].shape[1:]}"
        )
    num_classes = max(2, int(y.max()) + 1, int(y_test.max()) + 1)
    if num_classes > MOST_CLASSES:
        raise ValueError(
            f"y and y_test in {path} must be class numbers of at most {MOST_CLASSES:,} classes, "
            f"got {num_classes - 1}; np.unique(labels, return_inverse=True) numbers any classes"
        )
    augmentation = still(arrays["x"])
    try:
        train, test = (
            Split(
                _inputs(arrays[x]), torch.from_numpy(y.astype(np.int64)), num_classes, augmentation
            )
            for x, y in (("x", y), ("x_test", y_test))
        )
        clean = None
        if "clean" in arrays:
            clean = check_labels(
                arrays["clean"], num_classes=num_classes, length=len(train), name="clean"
            )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return Source(str(path), train, test, clean)


@checked
def with_noise(source: Source, spec: str, *, seed: int) -> tuple[Source, NoiseCard | None]:
    """The source with noise on its training labels, which were right until now, and the card.

    ``spec`` is one of

    - ``none``;
    - KIND:RATE with symmetric, pair or a variant of instance-dependent noise, which looks at the
      raw inputs, images in channel-height-width order;
    - ``published:RATE``, the paper's own labels for CIFAR, drawn again; they have no seed;
    - ``as_published:RATE``, new labels for CIFAR, drawn as those were;
    - ``file:PATH`` or ``file:PATH#NAME``, labels out of a file (`covlearn.noise.files`).
    """
    labels = noisy_labels(source, spec, seed=seed)
    if labels is None:
        return source, None
    noisy = replace(source.train, y=torch.from_numpy(labels.label))
    return replace(source, train=noisy, clean=source.train.y), labels.card


@checked
def noisy_labels(source: Source, spec: str, *, seed: int) -> NoisyLabels | None:
    """The labels that :func:`with_noise` puts on a source; None for no noise."""
    kind, given, rate = check_noise(spec)
    if kind == "none":
        return None
    train = source.train
    if source.clean is not None and not torch.equal(source.clean, train.y):
        raise ValueError(f"the labels of {source.name} are noisy already; pass noise none")
    if kind == "file":
        return labels_from_file(
            given, train.y.numpy(), num_classes=train.num_classes, data=source.name
        )
    if kind in ("published", "as_published"):
        entry, x = _published(source, rate)
        if kind == "published":
            return regenerated(entry, x, train.y.numpy())
        return drawn_like(entry, x, train.y.numpy(), seed=seed)
    return _draw(kind, train, rate=rate, seed=seed)


@checked
def check_noise(spec: str) -> tuple[str, str, float]:
    """The kind of noise that a text names, what follows it, and the rate where it has one."""
    kind, _, given = spec.partition(":")
    if kind not in NOISES and kind in GENERATORS:
        raise ValueError(
            f"noise {kind} needs more than a rate: draw it in Python with covlearn.noise.{kind}, "
            "keep it with covlearn.noise.files.write_labels, and pass file:PATH"
        )
    if kind not in NOISES:
        raise ValueError(
            f"noise must be one of {', '.join(NOISES)}, got {kind!r}{nearest(kind, NOISES)}"
        )
    if kind == "none":
        if given:
            raise ValueError(f"noise none has no rate, got {spec!r}")
        return kind, given, 0.0
    if kind == "file":
        if not given:
            raise ValueError(f"noise must read file:PATH, as file:labels.npz, got {spec!r}")
        return kind, given, 0.0
    try:
        rate = float(given)
    except ValueError:
        raise ValueError(f"noise must read KIND:RATE, as {kind}:0.4, got {spec!r}") from None
    if not 0 <= rate < 1:
        raise ValueError(f"rate must lie in [0, 1), got {rate:g} in noise {spec!r}")
    return kind, given, rate


def _published(source: Source, rate: float) -> tuple[Published, Tensor]:
    """The entry of a data set, told by its labels, not its name, and its pixels (N, 3, 32, 32)."""
    train = source.train
    found = label_digest(train.y.numpy())
    for facts in CIFAR.values():
        if found == facts.digests[OFFICIAL]["train_y"] and train.augmentation is not None:
            x = train.whole("published noise")
            return published_entry(facts.name, rate), x.permute(0, 3, 1, 2)
    raise ValueError(
        f"published noise is for {' and '.join(CIFAR)} in the official order, and {source.name} "
        "does not have their labels; get them with: covlearn data fetch cifar10"
    )


def _draw(kind: str, train: Split, *, rate: float, seed: int) -> NoisyLabels:
    options: dict[str, Any] = {"rate": rate, "num_classes": train.num_classes, "seed": seed}
    if kind == "symmetric":
        return symmetric(train.y, **options)
    if kind == "pair":
        return pair(train.y, **options)
    x = train.whole("instance-dependent noise")
    if train.augmentation is not None:
        x = x.permute(0, 3, 1, 2)
    return instance_dependent(x, train.y, variant=kind, **options)


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    if not path.exists():
        raise ValueError(f"data file {path} does not exist")
    try:
        arrays = npz.read_arrays(path)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as an .npz file of arrays: {error}") from error
    missing = [name for name in NPZ_NEEDS if name not in arrays]
    if missing:
        raise ValueError(
            f"{path} must hold {', '.join(NPZ_NEEDS)}, but {', '.join(missing)} is missing; "
            f"it holds {', '.join(arrays) or 'nothing'}"
        )
    return arrays


def _inputs(x: NDArray[Any]) -> Tensor:
    if x.dtype.kind == "f":
        x = x.astype(np.float32)
        if not np.isfinite(x).all():
            bad = int(np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(axis=1))[0])
            raise ValueError(f"inputs must be finite, got NaN or infinity first in row {bad}")
    return torch.from_numpy(np.ascontiguousarray(x))


def still(x: NDArray[Any]) -> Augmentation | None:
    """Images are normalised by the mean and deviation of their channels, and not moved."""
    if x.dtype != np.uint8 or x.ndim != 4:
        return None
    level = np.arange(256) / 255
    mean, std = [], []
    for channel in range(x.shape[3]):
        share = np.bincount(x[..., channel].ravel(), minlength=256) / x[..., channel].size
        mean.append(float(share @ level))
        variance = float(share @ (level - mean[-1]) ** 2)
        std.append(max(variance**0.5, 1 / 255))  # a channel that is constant stays finite
    return Augmentation(mean=tuple(mean), std=tuple(std))
