"""A table whose rows name image files, with labels.

Paths are relative to the folder of the file that names them. They must lie below it: a path that is
absolute or climbs up with ``..`` is taken if it ends there all the same, and is bad input if not,
so that an id is always a path that can be written below another folder. In a table that is already
in memory, which the user's own program made, images may lie anywhere; relative paths start at the
current folder, and ids are the paths below the folder that all images have in common.
"""

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from covlearn.inputs.examples import Skipped


def image_paths(column: Any, folder: Path | None) -> tuple[list[Path], list[str], dict[int, str]]:
    """For each row the file, its id, and for some why it is bad.

    ``folder`` is None for a table in memory.
    """
    base = Path(os.path.abspath(folder or "."))
    paths: list[Path] = []
    bad: dict[int, str] = {}
    for row, cell in enumerate(column):
        text = cell.strip() if isinstance(cell, str) else ""
        if isinstance(cell, Path):
            text = str(cell)
        if not text or "\0" in text:
            bad[row] = "it has no image path" if not text else "its image path is no path"
        path = Path(os.path.normpath(base / _forward(text, base)))
        if folder is not None and row not in bad and not path.is_relative_to(base):
            bad[row] = (
                f"its image {text} lies outside of {base}; move the table to a folder above its "
                "images"
            )
        paths.append(path)
    if folder is None:
        parents = [str(path.parent) for row, path in enumerate(paths) if row not in bad]
        base = Path(os.path.commonpath(parents)) if parents else base
    ids = [
        path.relative_to(base).as_posix() if row not in bad else ""
        for row, path in enumerate(paths)
    ]
    return paths, ids, bad


def repeated_ids(
    ids: list[str], place: Callable[[int], str], labels: list[str] | None
) -> list[tuple[int, Skipped]]:
    """The rows whose id came before, and whether their label is another.

    ``place`` says where a row is, by its position among the ids.
    """
    first: dict[str, int] = {}
    found = []
    for position, key in enumerate(ids):
        if key not in first:
            first[key] = position
            continue
        earlier = first[key]
        reason = f"its id is that of {place(earlier)} too, and ids must be different"
        if labels is not None and labels[position] != labels[earlier]:
            reason += f"; the labels differ, {labels[earlier]!r} and {labels[position]!r}"
        found.append((position, Skipped(f"{key} ({place(position)})", reason)))
    return found


def _forward(text: str, base: Path) -> PurePosixPath | Path:
    """A path with backslashes, as Windows writes it, unless a file has that very name."""
    if "\\" in text and not (base / text).exists():
        return PurePosixPath(PureWindowsPath(text).as_posix())
    return Path(text)
