"""What training sees: splits, batches, augmentation. No type here can hold a clean label."""

from covlearn.data.augment import Augmentation
from covlearn.data.batches import Batch, Batches, Mix, Resident, Split
from covlearn.data.image_files import ImageFiles
from covlearn.data.indexed import IndexedDataset
from covlearn.data.loaded import Loaded, batches_of

__all__ = [
    "Augmentation",
    "Batch",
    "Batches",
    "ImageFiles",
    "IndexedDataset",
    "Loaded",
    "Mix",
    "Resident",
    "Split",
    "batches_of",
]
