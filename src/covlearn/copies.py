"""Examples that come more than once: copies of a wrong label vouch for each other.

Rows of a table of few categories look alike, too, and are no copies: each has a label of its own,
and together they are what is known of such rows. So copies must be of inputs that would not come
twice by chance, and have one label wherever a person has not decided on it.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

MANY = 0.05  # of the examples, to be worth a word
SAME_LABEL = 0.98  # of those that look like an earlier one, if they are copies of it
LARGEST = 0.01  # of all examples, that copies of one may be, or ten: else nothing else is learned
SPARE_BITS = 20.0
"""Two examples of N² look alike by a chance of 2 to minus so many at most, if columns had nothing
to do with each other; they have, hence so many."""
CONTINUOUS, ITS_BITS = 0.9, 24.0
"""A column most of whose values differ has more of them than so few examples show."""
BLOCK = 4096


def first_alike(x: Any) -> Tensor | None:
    """(N,): the first example with the same input, itself if there is none before.

    None of images that stay in their files.

    >>> first_alike(torch.tensor([[1.0, 0.0], [3.0, 4.0], [1.0, -0.0]]))
    tensor([0, 1, 0])
    """
    if not isinstance(x, Tensor):
        return None
    seen: dict[int, int] = {}
    first: list[int] = []
    for block in x.detach().split(BLOCK):
        rows = block.cpu()
        if rows.is_floating_point():  # NumPy knows no bfloat16, and −0 is 0
            rows = (rows if rows.element_size() > 2 else rows.float()) + 0.0
        first += [seen.setdefault(hash(row.tobytes()), len(first) + at)
                  for at, row in enumerate(rows.numpy())]  # fmt: skip
    return torch.tensor(first)


def first_copied(x: Any, y: Tensor, judged: Tensor) -> Tensor | None:
    """The same, of examples that were copied with their label; None if none seem to be.

    Labels that a person decided on (not ``judged``) may differ from those of their copies.

    >>> x, y = torch.rand(4, 2).repeat(2, 1), torch.tensor([0, 1, 0, 1, 0, 1, 0, 1])
    >>> first_copied(x, y, torch.ones(8).bool())
    tensor([0, 1, 2, 3, 0, 1, 2, 3])
    >>> first_copied(x.round(), y, torch.ones(8).bool()) is None  # few categories
    True
    """
    first = first_alike(x)
    if first is None:
        return None
    itself = torch.arange(len(first))
    most = max(10, round(LARGEST * len(first)))
    first = torch.where(first.bincount(minlength=len(first))[first] > most, itself, first)
    again = first != itself
    if not bool(again.any()) or not _never_alike_by_chance(x, ~again):
        return None
    asked = again & judged & judged[first]
    same = y[asked] == y[first[asked]]
    return None if len(same) and float(same.float().mean()) < SAME_LABEL else first


def _never_alike_by_chance(x: Tensor, rows: Tensor) -> bool:
    """Whether the columns of the rows have too many values for two rows to share all of them."""
    flat, different = x.detach().reshape(len(x), -1), int(rows.sum())
    missing = 2 * np.log2(different) + SPARE_BITS
    for column in range(flat.shape[1]):
        values = flat[:, column].cpu()[rows].double().numpy()
        _, counts = np.unique(values, return_counts=True)
        missing += np.log2(((counts / different) ** 2).sum())
        missing -= ITS_BITS * (len(counts) >= CONTINUOUS * different)
        if missing <= 0:
            return True
    return False


def note_on_copies(x: Any, copied: Tensor | None) -> list[str]:
    """A sentence where many examples are the same.

    >>> x = torch.arange(20.0)[:, None]
    >>> note_on_copies(x, None), len(note_on_copies(x // 2, None))
    ([], 1)
    """
    first = first_alike(x) if copied is None else copied
    if first is None:
        return []
    same = int((first.bincount()[first] > 1).sum())
    if same < MANY * len(first):
        return []
    if copied is not None:
        again = len(first) - len(first.unique())
        return [
            f"{again:,} of {len(first):,} examples are copies of others; "
            "each is learned from as often as it is there: leave copies out"
        ]
    return [
        f"{same:,} of {len(first):,} examples have the same features as another one; if they are "
        "copies, a wrong label that was copied looks right: leave copies out"
    ]
