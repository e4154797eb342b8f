"""A folder of class folders: which images there are, and of which class.

A class is a folder directly below; images may lie deeper in it, in folders of any name. What starts
with a dot, and what systems leave behind (``__MACOSX``, ``Thumbs.db``), is not looked at. Links are
followed, each folder once. Files that are no images by their name are counted in a note.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from covlearn.inputs.examples import Reading, Skipped, counted, some
from covlearn.inputs.images import is_image_name, is_other_image_name

LEFT_BEHIND = frozenset(("__macosx", "thumbs.db", "desktop.ini", "$recycle.bin", "@eadir"))
SPLITS = frozenset(("train", "training", "test", "testing", "val", "valid", "validation", "dev"))


@dataclass(frozen=True)
class Listed:
    """Images by id, with a label each where there are any."""

    ids: list[str]
    paths: list[Path]
    labels: list[str] | None


def list_folder(folder: Path, reading: Reading, *, classes: list[str] | None = None) -> Listed:
    """The images of a folder, sorted by path.

    ``classes``, those that a model knows, say that labels are not needed: then images may also lie
    in the folder itself, and folders are taken for labels only if all of them are such classes.
    """
    names: list[str] = []
    others: list[str] = []
    bad: list[Skipped] = []
    for name in _below(folder, folder, set(), bad):
        if not _encodable(name):
            shown = name.encode("utf-8", "backslashreplace").decode()
            bad.append(Skipped(shown, "its name is no text in UTF-8; rename it"))
        elif is_image_name(name):
            names.append(name)
        elif is_other_image_name(name):
            bad.append(Skipped(name, "images of this kind are not read; save it as JPEG or PNG"))
        else:
            others.append(name)
        reading.show(len(names), 0, "looking for images")
    if others:
        reading.note(
            counted(
                len(others),
                "file that is no image by its name was left out",
                "files that are no images by their name were left out",
            )
            + f": {some(others)}"
        )
    names.sort()
    loose = [name for name in names if "/" not in name]
    tops = sorted({name.partition("/")[0] for name in names if "/" in name})
    if classes is not None:
        labelled = bool(tops) and not loose and set(tops) <= set(classes)
    else:
        labelled = True
        _check_class_folders(folder, tops, loose, names)
        bad += [
            Skipped(name, "it lies in no class folder, so that it has no label") for name in loose
        ]
        names = [name for name in names if "/" in name]
    reading.bad(bad)
    if not names:
        raise ValueError(f"{folder} holds no image that can be read ({_seen(others)})")
    _note_empty(folder, tops, reading)
    return Listed(
        ids=names,
        paths=[folder / name for name in names],
        labels=[name.partition("/")[0] for name in names] if labelled else None,
    )


def _check_class_folders(folder: Path, tops: list[str], loose: list[str], names: list[str]) -> None:
    if not names:
        return
    if not tops:
        raise ValueError(
            f"{folder} must hold one folder a class, with the images of the class in it, but its "
            f"{len(loose):,} images lie in it directly; sort them into folders, or write a CSV "
            "file of paths and labels"
        )
    if {top.lower() for top in tops} <= SPLITS and all(name.count("/") > 1 for name in names):
        raise ValueError(
            f"{folder} must hold one folder a class, but it holds the splits {', '.join(tops)}; "
            f"name one of them, as {folder / tops[0]}"
        )


def _note_empty(folder: Path, tops: list[str], reading: Reading) -> None:
    empty = [
        entry.name
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not _hidden(entry.name) and entry.name not in tops
    ]
    if empty:
        reading.note(f"folders without an image that can be read are no classes: {some(empty)}")


def _below(
    folder: Path, top: Path, seen: set[tuple[int, int]], bad: list[Skipped]
) -> Iterator[str]:
    """Paths of files below ``top``, with forward slashes; a link into itself ends."""
    where = folder.relative_to(top).as_posix()
    try:
        status = folder.stat()
        if (status.st_dev, status.st_ino) in seen:
            return
        seen.add((status.st_dev, status.st_ino))
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        if folder == top:
            raise ValueError(f"{folder} cannot be read: {error.strerror}") from error
        bad.append(Skipped(where, f"this folder cannot be read ({error.strerror})"))
        return
    for entry in entries:
        if _hidden(entry.name):
            continue
        if entry.is_dir():
            yield from _below(folder / entry.name, top, seen, bad)
        else:
            yield (folder / entry.name).relative_to(top).as_posix()


def _encodable(name: str) -> bool:
    """Whether the name can be written into a file of ids."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in LEFT_BEHIND


def _seen(others: list[str]) -> str:
    return f"but {some(others)}" if others else "it is empty"
