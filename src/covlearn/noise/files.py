"""Label files: our own, which carry their noise card, and those that others published.

- ``.npz``, ours: ``noisy``, ``clean``, ``flip_rate`` and the card as JSON.
- ``.npz`` of anyone's: ``noisy`` and, if they are known, ``clean``.
- ``.pt``, a dictionary: ``noise_label_train`` with ``clean_label_train`` (the paper's files), or
  CIFAR-N's ``clean_label`` with ``worse_label``, ``aggre_label``, …, or ``noisy_label``.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covlearn import npz
from covlearn.atomic import write_bytes
from covlearn.kinds import checked, nearest
from covlearn.noise.card import NoiseCard, NoisyLabels, with_card
from covlearn.noise.inputs import clean_labels
from covlearn.noise.registry import PUBLISHED, label_digest, published_labels
from covlearn.noise.torch_files import read_vectors
from covlearn.plain_files import parse_json

CLEAN = ("clean_label_train", "clean_label", "clean")
DEFAULT = ("noise_label_train", "noisy_label", "noisy")
FILE_VERSION = 1
LISTED = 5
OWN = ("noisy", "clean", "flip_rate", "card")
NOT_OURS = "not what covlearn noise writes"
NOT_READ = "not called noisy or clean, as labels in an .npz file are"


@dataclass(frozen=True, eq=False)
class LabelFile:
    """Clean labels, and one or more sets of noisy ones by name."""

    path: Path
    clean: NDArray[np.int64] | None
    """None if an .npz file does not have them."""
    noisy: dict[str, NDArray[np.int64]]
    own: NoisyLabels | None = None
    """What covlearn wrote, if it did."""
    left_out: dict[str, str] = field(default_factory=dict)
    """What else the file holds, by name, and why no labels are read from it."""


@checked
def write_labels(path: Path, labels: NoisyLabels, clean: NDArray[np.int64]) -> None:
    """Labels and card in one .npz file, whole or not at all; equal labels give equal bytes."""
    if path.suffix != ".npz":
        raise ValueError(f"labels go into a file that ends in .npz, got {str(path)!r}")
    buffer = io.BytesIO()
    card = json.dumps(labels.card.to_dict(), allow_nan=False)
    np.savez_compressed(
        buffer,
        noisy=labels.label,
        clean=clean,
        flip_rate=labels.flip_rate,
        card=np.array(card),
    )
    write_bytes(path, buffer.getvalue())


@checked
def read_label_file(path: Path) -> LabelFile:
    """All that a label file holds; nothing in it is run."""
    if not path.is_file():
        raise ValueError(f"label file {path} does not exist")
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix not in (".pt", ".pth"):
        raise ValueError(f"a label file must end in .pt or .npz, got {str(path)!r}")
    read = read_vectors(path)
    vectors, left_out = read.found, dict(read.left_out)
    clean = next((vectors[name] for name in CLEAN if name in vectors), None)
    noisy = {name: vector for name, vector in vectors.items() if not name.startswith("clean")}
    if clean is None or not noisy:
        but = f"; {_left_out(left_out)}" if left_out else ""
        raise ValueError(
            f"{path} must hold clean labels (clean_label_train or clean_label) and noisy ones "
            f"beside them, found {', '.join(vectors) or 'no vector of integers'}{but}"
        )
    if "clean_coarse_label" in vectors:
        coarse = [name for name in noisy if "coarse" in name]
        left_out |= dict.fromkeys(coarse, "of coarser classes than clean_label")
        noisy = {name: vector for name, vector in noisy.items() if name not in coarse}
    for name, vector in noisy.items():
        if len(vector) != len(clean):
            raise ValueError(f"{name} in {path} has {len(vector)} labels for {len(clean)} examples")
    return LabelFile(path, clean, noisy, left_out=left_out)


@checked
def path_and_name(place: str) -> tuple[str, str]:
    """The parts of ``PATH#NAME``; a path may have a # of its own.

    >>> path_and_name("a/b.pt#worse_label"), path_and_name("b.pt")
    (('a/b.pt', 'worse_label'), ('b.pt', ''))
    """
    path, _, name = place.rpartition("#")
    return (place, "") if not path or Path(place).is_file() else (path, name)


@checked
def chosen_name(file: LabelFile) -> str:
    """The set of noisy labels that is meant where none is named."""
    for name in DEFAULT:
        if name in file.noisy:
            return name
    first, *others = file.noisy
    if others:
        raise ValueError(
            f"{file.path} holds several sets of labels, {', '.join(file.noisy)}; name one, as "
            f"file:{file.path}#{first}"
        )
    return first


@checked
def labels_from_file(
    place: str, clean: NDArray[np.int64], *, num_classes: int, data: str
) -> NoisyLabels:
    """The noisy labels of ``PATH`` or ``PATH#NAME``, which must belong to these clean labels."""
    path, name = path_and_name(place)
    file = read_label_file(Path(path))
    _check_same(file, clean, data)
    name = name or chosen_name(file)
    if name not in file.noisy:
        why = file.left_out.get(name)
        raise ValueError(
            f"{path} holds the labels {', '.join(file.noisy)}, not {name!r}"
            f"{f', which is {why}' if why else nearest(name, file.noisy)}"
        )
    if file.own is not None:
        return file.own
    noisy = clean_labels(file.noisy[name], num_classes=num_classes, name=f"{name} in {path}")
    digest = label_digest(noisy)
    for entry in PUBLISHED.values():
        if entry.sha256 == digest:
            return published_labels(entry, clean, noisy)
    notes = [f"{name} of {Path(path).name}, SHA-256 {digest}"]
    if file.clean is None:
        notes.append("no clean labels in the file: that its order is the data's was not checked")
    return with_card(
        clean,
        noisy,
        (clean != noisy).astype(np.float64),
        num_classes=num_classes,
        variant="file",
        version=FILE_VERSION,
        seed=None,
        requested_rate=None,
        notes=notes,
    )


def _check_same(file: LabelFile, clean: NDArray[np.int64], data: str) -> None:
    """A label file is for one data set in one order."""
    count = len(next(iter(file.noisy.values())))
    if count != len(clean):
        raise ValueError(
            f"{file.path} has labels of {count:,} examples, and {data} has "
            f"{len(clean):,}: it is for another data set"
        )
    if file.clean is None:
        return
    differing = np.flatnonzero(file.clean != clean)
    if len(differing):
        first = int(differing[0])
        raise ValueError(
            f"the clean labels in {file.path} are not those of {data}: {len(differing):,} of "
            f"{len(clean):,} differ, first that of example {first}, {file.clean[first]} there and "
            f"{clean[first]} in the data; it is for another data set or another order"
        )


def _read_npz(path: Path) -> LabelFile:
    try:
        arrays = npz.read_arrays(path)
    except (ValueError, OSError) as error:
        raise ValueError(
            f"{path} must be a label file, an .npz file with noisy and, if they are known, clean: "
            f"{error}"
        ) from error
    if "card" in arrays:
        return _own(path, arrays)
    if "noisy" not in arrays:
        raise ValueError(
            f"{path} must be a label file, an .npz file with noisy and, if they are known, clean: "
            f"noisy is missing; it holds {', '.join(arrays) or 'nothing'}"
        )
    found = {
        name: _vector(arrays[name], name, path) for name in ("noisy", "clean") if name in arrays
    }
    noisy, clean = found["noisy"], found.get("clean")
    if clean is not None and len(clean) != len(noisy):
        raise ValueError(f"noisy in {path} has {len(noisy)} labels for {len(clean)} examples")
    others = [name for name in arrays if name not in found]
    return LabelFile(path, clean, {"noisy": noisy}, left_out=dict.fromkeys(others, NOT_READ))


def _left_out(what: Mapping[str, str]) -> str:
    listed = [f"{name} is {why}" for name, why in what.items()]
    return ", ".join(listed[:LISTED]) + (", …" if len(listed) > LISTED else "")


def _vector(array: NDArray[Any], name: str, path: Path) -> NDArray[np.int64]:
    if array.dtype.kind not in "iu" or array.ndim != 1 or not array.size:
        raise ValueError(
            f"{name} in {path} must be a vector of class numbers 0…K−1, got {array.dtype} of shape "
            f"{array.shape}"
        )
    return array.astype(np.int64)


def _own(path: Path, arrays: dict[str, NDArray[Any]]) -> LabelFile:
    try:
        card = NoiseCard.from_dict(parse_json(str(arrays["card"])))
        noisy, clean = (
            clean_labels(arrays[name], num_classes=card.num_classes, name=name)
            for name in ("noisy", "clean")
        )
        flip_rate = arrays["flip_rate"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(
            f"{path} must be a label file that covlearn noise wrote, with noisy, clean, flip_rate "
            f"and card: {what}"
        ) from error
    if not len(noisy) == len(clean) == len(flip_rate) == card.num_examples or (
        float((noisy != clean).mean()) != card.actual_rate
    ):
        raise ValueError(f"the card in {path} is of other labels than those in it; write it anew")
    others = [name for name in arrays if name not in OWN]
    own = NoisyLabels(noisy, flip_rate, card)
    return LabelFile(path, clean, {"noisy": noisy}, own, dict.fromkeys(others, NOT_OURS))
