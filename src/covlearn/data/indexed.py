"""Positions for a dataset of one's own: what CALLoss and SieveRecorder ask of a loop."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.data import Dataset

IDX = "idx"


class IndexedDataset(Dataset[Any]):
    """A map-style dataset whose items also say where they stand, however a loader shuffles.

    An item (x, y) becomes (x, y, idx); a dict gets the key ``idx``. The positions count in the
    order of ``dataset``, so that of a subset the labels of the subset belong to them. What else the
    dataset has, as ``classes`` or ``transform``, is there by the same name, to be read and set;
    where it can fetch a batch at once (``__getitems__``), so can this.

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
        self._check(idx)
        return _with_position(self.dataset[idx], idx)

    def __setattr__(self, name: str, value: Any) -> None:
        # What is read there is set there: a transform of this one alone would change nothing.
        theirs = name != "dataset" and not name.startswith("_") and hasattr(self.dataset, name)
        if theirs:
            setattr(self.dataset, name, value)
        else:
            super().__setattr__(name, value)

    def _check(self, idx: int) -> None:
        if not hasattr(idx, "__index__"):
            raise ValueError(
                f"idx must be one position, got {type(idx).__name__}; let the loader collate "
                "(batch_size, or batch_sampler) in place of asking for a batch at once"
            )
        if not 0 <= idx < len(self):  # also ends iteration over the dataset itself
            raise IndexError(f"idx must lie in 0…{len(self) - 1}, got {idx}")

    def _items_at(self, positions: Sequence[int]) -> list[Any]:
        """The items at several positions, all asked for at once."""
        for idx in positions:
            self._check(idx)
        items = self.dataset.__getitems__(positions)
        if len(items) != len(positions):
            raise ValueError(
                f"__getitems__ of the {type(self.dataset).__name__} must return one item a "
                f"position, {len(positions)}, got {len(items)}; the loader collates them"
            )
        return [_with_position(item, idx) for item, idx in zip(items, positions, strict=True)]

    def __getattr__(self, name: str) -> Any:
        # Asked for what is not found here. A copy, or what is unpickled, has no dataset yet; and
        # a loader takes what has __getitems__ at its word, so it is here only if the dataset's is.
        if name == "dataset" or (name.startswith("_") and name != "__getitems__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = getattr(self.dataset, name)
        return self._items_at if name == "__getitems__" else found


def _with_position(item: Any, idx: int) -> Any:
    if isinstance(item, Mapping):
        if IDX in item:
            raise ValueError(f"items must not have a key {IDX!r} of their own; rename it")
        return {**item, IDX: idx}
    if isinstance(item, tuple | list):
        return (*item, idx)
    raise ValueError(f"items must be tuples such as (x, y), or dicts, got {type(item).__name__}")
