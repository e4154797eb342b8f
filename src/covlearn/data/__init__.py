"""What training sees: splits, batches, augmentation. No type here can hold a clean label."""

from covlearn.data.augment import Augmentation
from covlearn.data.batches import Batch, Batches, Loaded, Mix, Resident, Split
from covlearn.data.indexed import IndexedDataset

__all__ = [
    "Augmentation",
    "Batch",
    "Batches",
    "IndexedDataset",
    "Loaded",
    "Mix",
    "Resident",
    "Split",
]
