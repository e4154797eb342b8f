"""Clothing1M as it is published: key lists, label files and folders of images.

A key is the path of an image (``images/4/12/33,12.jpg``). ``noisy_train_key_list.txt`` and
``clean_{train,val,test}_key_list.txt`` say which images are in which part; ``noisy_label_kv.txt``
and ``clean_label_kv.txt`` give each key its label, 0…13. The text files lie beside ``images/`` or,
as many have it, in ``annotations/``.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from covlearn.data.archives import Progress, silent
from covlearn.data.augment import Augmentation
from covlearn.data.batches import Split
from covlearn.data.image_files import LISTED, SHOWN_EVERY, image_files, seems_whole
from covlearn.kinds import checked

NUM_CLASSES = 14
KEY_LISTS = {
    "noisy_train": "noisy_train_key_list.txt",
    "clean_train": "clean_train_key_list.txt",
    "clean_val": "clean_val_key_list.txt",
    "clean_test": "clean_test_key_list.txt",
}
LABELS = {"noisy": "noisy_label_kv.txt", "clean": "clean_label_kv.txt"}
CATEGORIES = "category_names_eng.txt"
PUBLISHED_COUNTS = {
    "noisy_train": 1_000_000,
    "clean_train": 47_570,
    "clean_val": 14_313,
    "clean_test": 10_526,
}
SHORT_SIDE, SIDE = 256, 224
# Of ImageNet's channels, as the network was pre-trained with them.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Part:
    """Images of one part, by key, with their labels."""

    root: Path
    keys: list[str]
    labels: Tensor


@checked
def read_split(root: Path, name: str, progress: Progress = silent) -> Split:
    """One part as a split whose images stay in their files: 224² of 256²."""
    part = read_part(root, name)
    images = image_files(root, part.keys, side=SHORT_SIDE, progress=progress)
    how = Augmentation(mean=MEAN, std=STD, window=SIDE)
    return Split(images, part.labels, NUM_CLASSES, how)


@checked
def read_part(root: Path, name: str) -> Part:
    """One part, ``noisy_train`` by its noisy labels and the others by their clean ones."""
    if name not in KEY_LISTS:
        raise ValueError(f"part must be one of {', '.join(KEY_LISTS)}, got {name!r}")
    folder = _texts(root)
    keys = _keys(folder / KEY_LISTS[name])
    label_file = folder / LABELS[name.partition("_")[0]]
    labels = _labels(label_file)
    missing = [key for key in keys if key not in labels]
    if missing:
        raise ValueError(
            f"{label_file} must have a label for each key of {KEY_LISTS[name]}, but "
            f"{len(missing):,} have none, first {missing[0]!r}"
        )
    values = torch.tensor([labels[key] for key in keys], dtype=torch.int64)
    wrong = ((values < 0) | (values >= NUM_CLASSES)).nonzero().flatten()
    if len(wrong):
        first = int(wrong[0])
        raise ValueError(
            f"labels in {label_file} must lie in 0…{NUM_CLASSES - 1}, got {int(values[first])} for "
            f"{keys[first]!r}"
        )
    return Part(root, keys, values)


@dataclass(frozen=True)
class Report:
    """What a folder holds, what is wrong with it, and what is merely worth knowing."""

    counts: dict[str, int]
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@checked
def check_layout(root: Path, progress: Progress = silent) -> Report:
    """Looks for every file that the lists name, and whether it begins and ends as an image."""
    if not root.is_dir():
        raise ValueError(f"{root} must be the folder of Clothing1M, and is no folder")
    folder = _texts(root)
    report = Report({})
    labels = {kind: _labels(folder / name) for kind, name in LABELS.items()}
    for kind, by_key in labels.items():
        wrong = [key for key, label in by_key.items() if not 0 <= label < NUM_CLASSES]
        if wrong:
            report.problems.append(
                f"{LABELS[kind]}: {len(wrong):,} labels are not in 0…{NUM_CLASSES - 1}, first "
                f"{by_key[wrong[0]]} for {wrong[0]!r}"
            )
    part_of: dict[str, str] = {}
    for part, name in KEY_LISTS.items():
        keys = _keys(folder / name)
        report.counts[part] = len(keys)
        if len(keys) != PUBLISHED_COUNTS[part]:
            report.notes.append(
                f"{name} has {len(keys):,} keys, the published one {PUBLISHED_COUNTS[part]:,}"
            )
        own = labels[part.partition("_")[0]]
        _note(report, f"{name}: keys without a label", [key for key in keys if key not in own])
        missing, damaged = _not_there(root, keys, part, progress)
        _note(report, f"{name}: images missing", missing)
        _note(report, f"{name}: images empty, cut short or no JPEG or PNG", damaged)
        _note(report, f"{name}: keys twice or in two parts", _twice(keys, part_of))
        part_of |= dict.fromkeys(keys, part)
    categories = folder / CATEGORIES
    names = categories.read_text(encoding="utf-8").split("\n") if categories.exists() else []
    if (count := sum(bool(name.strip()) for name in names)) != NUM_CLASSES:
        report.notes.append(f"{CATEGORIES} must name {NUM_CLASSES} classes, it names {count}")
    return report


def _not_there(
    root: Path, keys: list[str], part: str, progress: Progress
) -> tuple[list[str], list[str]]:
    """The images that are missing, and those that are none."""
    missing, damaged = [], []
    for done, key in enumerate(keys):
        if done % SHOWN_EVERY == 0:
            progress(f"looking for {part}", done, len(keys))
        path = root / key
        if not os.path.isfile(path):  # which a name that is too long is not, and no error
            missing.append(key)
        elif not seems_whole(path):
            damaged.append(key)
    return missing, damaged


def _twice(keys: list[str], part_of: dict[str, str]) -> list[str]:
    seen: set[str] = set()
    return [key for key in keys if key in part_of or key in seen or seen.add(key)]  # type: ignore[func-returns-value]


def _note(report: Report, what: str, keys: list[str]) -> None:
    if keys:
        shown = ", ".join(keys[:LISTED]) + (", …" if len(keys) > LISTED else "")
        report.problems.append(f"{what}: {len(keys):,} ({shown})")


def _texts(root: Path) -> Path:
    """The folder of the text files, all of which must be there."""
    needed = [*KEY_LISTS.values(), *LABELS.values()]
    folder = root / "annotations" if (root / "annotations").is_dir() else root
    missing = [name for name in needed if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            f"{folder} must hold the text files of Clothing1M, but {', '.join(missing)} is missing"
        )
    return folder


def _keys(path: Path) -> list[str]:
    keys = path.read_text(encoding="utf-8").split()
    for key in keys:
        if key.startswith("/") or ".." in PurePosixPath(key).parts:
            raise ValueError(f"{path} must hold paths below the data's folder, got {key!r}")
    return keys


def _labels(path: Path) -> dict[str, int]:
    labels = {}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            match line.split():
                case []:
                    continue
                case [key, label] if re.fullmatch("-?[0-9]{1,9}", label):
                    labels[key] = int(label)
                case _:
                    raise ValueError(
                        f"{path}, line {number}, must read KEY LABEL, as "
                        f"images/0/0/1.jpg 5, got {line.strip()[:80]!r}"
                    )
    return labels
