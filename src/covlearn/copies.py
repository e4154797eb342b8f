"""Examples that come more than once: copies of a wrong label vouch for each other."""

from typing import Any

import torch
from torch import Tensor

MANY = 0.05  # of the examples, to be worth a word
SAME_LABEL = 0.98  # of those that look like an earlier one, if they are copies of it
MOST = 10
"""Of one example. More that look alike are rows of few categories: held back together, nothing
would be left to tell what they are."""


def first_alike(x: Any) -> Tensor | None:
    """(N,): the first example with the same input, itself if there is none before.

    None of images that stay in their files.

    >>> first_alike(torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    tensor([0, 1, 0])
    """
    if not isinstance(x, Tensor):
        return None
    seen: dict[int, int] = {}
    rows = x.cpu().numpy()
    return torch.tensor([seen.setdefault(hash(row.tobytes()), at) for at, row in enumerate(rows)])


def first_copied(x: Any, y: Tensor) -> Tensor | None:
    """The same, of examples that were copied with their label; None if none seem to be.

    Labels of rows that only look alike, in a table of few categories, were given one by one. Where
    some are wrong they differ, and those of copies do not.

    >>> x = torch.tensor([[1.0], [2.0], [1.0], [2.0]])
    >>> first_copied(x, torch.tensor([0, 1, 0, 1])), first_copied(x, torch.tensor([0, 1, 1, 1]))
    (tensor([0, 1, 0, 1]), None)
    """
    first = first_alike(x)
    if first is None:
        return None
    itself = torch.arange(len(first))
    first = torch.where(first.bincount(minlength=len(first))[first] > MOST, itself, first)
    again = first != itself
    same = y == y[first]
    return first if bool(again.any()) and float(same[again].float().mean()) >= SAME_LABEL else None


def note_on_copies(x: Any) -> list[str]:
    """A sentence where many examples are the same.

    >>> note_on_copies(torch.arange(20.0)[:, None]), len(note_on_copies(torch.ones(4, 1)))
    ([], 1)
    """
    first = first_alike(x)
    if first is None:
        return []
    same = int((first.bincount()[first] > 1).sum())
    if same < MANY * len(first):
        return []
    return [
        f"{same:,} of {len(first):,} examples have the same features as another one; if they are "
        "copies, each counts as often as it is there: leave copies out"
    ]
