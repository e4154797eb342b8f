"""Positions for a dataset of one's own: what CALLoss and SieveRecorder ask of a loop."""

from collections.abc import Mapping
from typing import Any

from torch.utils.data import Dataset

IDX = "idx"


class IndexedDataset(Dataset[Any]):
    """A map-style dataset whose items also say where they stand, however a loader shuffles.

    An item (x, y) becomes (x, y, idx); a dict gets the key ``idx``. The positions count in the
    order of ``dataset``, so that of a subset the labels of the subset belong to them.

    >>> IndexedDataset([("a", 0), ("b", 1)])[1]
    ('b', 1, 1)
    """

    def __init__(self, dataset: Any) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise ValueError(
                "dataset must have a length and items by position, got "
                f"{type(dataset).__name__}; positions of a stream have no meaning"
            )
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, idx: int) -> Any:
        if not hasattr(idx, "__index__"):
            raise ValueError(
                f"idx must be one position, got {type(idx).__name__}; let the loader collate "
                "(batch_size, or batch_sampler) in place of asking for a batch at once"
            )
        if not 0 <= idx < len(self):  # also ends iteration over the dataset itself
            raise IndexError(f"idx must lie in 0…{len(self) - 1}, got {idx}")
        item = self.dataset[idx]
        if isinstance(item, Mapping):
            if IDX in item:
                raise ValueError(f"items must not have a key {IDX!r} of their own; rename it")
            return {**item, IDX: idx}
        if isinstance(item, tuple | list):
            return (*item, idx)
        raise ValueError(
            f"items must be tuples such as (x, y), or dicts, got {type(item).__name__}"
        )
