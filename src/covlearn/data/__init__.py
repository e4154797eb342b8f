"""What training sees: splits, batches, augmentation. No type here can hold a clean label."""

from covlearn.data.augment import Augmentation
from covlearn.data.batches import Batch, Batches, Loaded, Mix, Resident, Split

__all__ = ["Augmentation", "Batch", "Batches", "Loaded", "Mix", "Resident", "Split"]
