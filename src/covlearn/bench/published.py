"""The labels that the authors published: which file a cell takes them from, and that it has them.

The registry knows each file by the digest of its labels, so that no other file can be taken for it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covlearn.bench.table import Cell
from covlearn.data.cifar import CIFAR
from covlearn.data.sources import check_noise
from covlearn.job import Job
from covlearn.noise.files import chosen_name, read_label_file
from covlearn.noise.registry import (
    PUBLISHED,
    Published,
    check_can_be_drawn,
    label_digest,
    published_entry,
    published_with,
)

SHOWN = 12  # digits of a digest


def published_file(cell: Cell, job: Job, folder: Path | None) -> Path | None:
    """The file in ``--published FOLDER`` that a cell's labels are read from; None where drawn."""
    kind, _, rate = check_noise(job.noise)
    if folder is None or kind != "published":
        return None
    if cell.column.published is not None:
        return folder / cell.column.published
    return folder / f"{published_entry(job.data, rate).name}.pt" if job.data in CIFAR else None


def check_published_file(path: Path, job: Job) -> None:
    """The file must be there, and hold the very labels that were published with the job's rate."""
    if not path.is_file():
        raise ValueError(f"there is no published file {path}")
    rate = check_noise(job.noise)[2]
    entries = published_with(job.data, rate)
    file = read_label_file(path)
    labels = file.noisy[chosen_name(file)]
    if labels.min() < 0 or labels.max() > 255:  # a digest is of bytes
        got = "labels that do not lie in 0…255"
    else:
        found = label_digest(labels)
        if found in {entry.sha256 for entry in entries}:
            return
        known = next((entry.name for entry in PUBLISHED.values() if entry.sha256 == found), None)
        got = f"those of {known}" if known else "labels that are none of the published ones"
        got += f" (SHA-256 {found[:SHOWN]}…)"
    raise ValueError(
        f"{path} must hold the labels published as {' or '.join(map(_named, entries))}, got {got}; "
        "put the authors' file there, as they published it"
    )


def check_labels_at_hand(job: Job, folder: Path | None) -> None:
    """Without the authors' files, published labels must be such as can be drawn again."""
    kind, _, rate = check_noise(job.noise)
    if folder is None and kind == "published" and job.data in CIFAR:
        check_can_be_drawn(published_entry(job.data, rate))


def not_as_published(config: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    """Where a run of published labels had others, from a file that was not looked at, in words.

    Its noise card has the name of a published file if, and only if, the labels had its digest.
    """
    kind, _, rate = check_noise(job["noise"])
    if kind != "published":
        return []
    card = config.get("noise")
    found = card.get("variant") if isinstance(card, Mapping) else None
    names = [entry.name for entry in published_with(job["data"], rate)]
    if found in names:
        return []
    what = " or ".join(names)
    return [f"the noisy labels are not those published as {what} (noise.variant is {found!r})"]


def _named(entry: Published) -> str:
    return f"{entry.name} (SHA-256 {entry.sha256[:SHOWN]}…)"
