"""Hugging Face's Trainer: positions in a batch that any collator makes.

Nothing here imports transformers: a collator is a function from a list of items to a batch.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from covlearn.data.indexed import IDX
from covlearn.kinds import checked


class IndexCollator:
    """Takes ``idx`` out of the items, lets the collator do its work, and puts them in the batch.

    The items are those of ``IndexedDataset``; items without positions, such as those of a test set,
    pass as they are. The Trainer needs ``remove_unused_columns=False``, or it takes ``idx`` away.

    >>> items = [{"text": "a", "idx": 7}, {"text": "b", "idx": 2}]
    >>> IndexCollator(lambda items: {"text": [item["text"] for item in items]})(items)
    {'text': ['a', 'b'], 'idx': tensor([7, 2])}
    """

    @checked
    def __init__(self, collator: Callable[[list[dict[str, Any]]], Mapping[str, Any]]) -> None:
        self.collator = collator

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A batch with its positions."""
        have = [IDX in item for item in items]
        if any(have) and not all(have):
            raise ValueError(
                f"all items of a batch must have {IDX!r}, or none, got {sum(have)} of {len(have)}"
            )
        plain = [{name: item[name] for name in item if name != IDX} for item in items]
        batch = dict(self.collator(plain))
        if all(have):
            batch[IDX] = torch.tensor([int(item[IDX]) for item in items])
        return batch
