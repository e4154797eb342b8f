"""What is read out of users' own data, and what is said of the parts that cannot be read."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from torch import Tensor

OnBad: TypeAlias = Literal["refuse", "skip"]
Progress: TypeAlias = Callable[[int, int, str], None]
"""How far it is, how far it goes, and what is being done."""

FORMAT = 1  # of a recipe
LISTED = 3  # how many of many a message names
SECONDS_BETWEEN = 0.1  # calls of a progress callback


@dataclass(frozen=True)
class Skipped:
    """An example that was left out, and why."""

    id: str
    reason: str


@dataclass(frozen=True)
class Trusted:
    """Labels that a person decided on."""

    mask: Tensor
    """(N,) bool: whose they are."""
    before: dict[str, str]
    """By id, the label that the source gives."""


@dataclass(frozen=True)
class Examples:
    """Examples of any source in one form.

    Nothing of the source is missing from both ``ids`` and ``skipped``.
    """

    ids: list[str]
    """Unique and stable: the path below the folder, the id column, or the row number from zero."""
    x: Tensor
    """float32 features (N, D), or uint8 images (N, H, W, C) when images are to be trained on."""
    given: list[str] | None
    """The label of each as text; None where the source has none, "" where one example has none."""
    classes: list[str]
    """Names in order; numbers are sorted as numbers. Those of the recipe, where one was given."""
    y: Tensor | None
    """(N,) int64, positions in ``classes``; −1 for a label that a given recipe does not know."""
    paths: list[Path] | None
    """Image files, where the images are files."""
    table: Any
    """The original columns of these examples as a pandas DataFrame, for tables and manifests."""
    skipped: list[Skipped]
    recipe: dict[str, Any]
    """JSON: how ``x`` was made, enough to make ``x`` of new data alike."""
    notes: list[str] = field(default_factory=list)
    """What was done with the data that its owner should know of, in sentences."""
    trusted: Trusted | None = None
    """Labels that a person decided on, where there are such; ``given`` and ``y`` have them."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass
class Reading:
    """How a source is read: what happens to bad examples, who is told of progress, what is noted.

    ``where`` names the source in messages; ``place`` says where an example stands whose id does
    not.
    """

    where: str
    on_bad: OnBad = "refuse"
    progress: Progress | None = None
    place: Callable[[str], str] | None = None
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _shown: float = 0.0

    def bad(self, found: Sequence[Skipped]) -> None:
        """Lists bad examples, or refuses the whole source because of them."""
        if not found:
            return
        if self.place is not None:
            found = [
                replace(item, reason=f"{item.reason} ({self.place(item.id)})") for item in found
            ]
        if self.on_bad == "skip":
            self.skipped.extend(found)
            return
        listed = "; ".join(f"{item.id}: {item.reason}" for item in found[:LISTED])
        more = f"; and {len(found) - LISTED:,} more" if len(found) > LISTED else ""
        count = "an example" if len(found) == 1 else f"{len(found):,} examples"
        raise ValueError(
            f"{self.where} has {count} that cannot be used: {listed}{more}. Put that right, or "
            "leave such examples out and have them listed with on_bad='skip' (--on-bad skip)"
        )

    def note(self, sentence: str) -> None:
        """Keeps a sentence for the owner of the data, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def show(self, done: int, total: int, what: str) -> None:
        """Tells of progress, a few times a second and at the end; a total of 0 is not known yet."""
        if self.progress is None:
            return
        now = time.monotonic()
        if (total and done >= total) or now - self._shown >= SECONDS_BETWEEN:
            self._shown = now
            self.progress(done, total, what)


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with what it counts.

    >>> counted(1, "file"), counted(2000, "file"), counted(1, "label has", "labels have")
    ('1 file', '2,000 files', '1 label has')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def some(names: Sequence[Any], *, listed: int = LISTED) -> str:
    """The first few of many, for a message."""
    text = ", ".join(str(name).replace("\n", "\\n") for name in names[:listed])
    return text + (f" and {len(names) - listed:,} more" if len(names) > listed else "")
