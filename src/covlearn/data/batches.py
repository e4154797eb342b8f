"""The vocabulary of training data: what a network is shown, and in which order.

No type here has room for a clean label: clean labels meet a model in evaluation alone. Order and
augmentation are a function of (seed, epoch, idx), so that the same epoch comes out of both
implementations, of any number of processes, and of a run that was interrupted.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from covlearn.checks import check_device, check_labels, check_mask
from covlearn.copies import first_copied
from covlearn.data import counter
from covlearn.data.augment import Augmentation, augment, check_inputs, gathered
from covlearn.kinds import check_fields, checked, shown


class Mix(NamedTuple):
    """What mixup adds to a batch."""

    x: Tensor
    """Mixed inputs."""
    y: Tensor
    """The partners' labels (B,)."""
    share: Tensor
    """The inputs' own share in the mixture (B,)."""
    idx: Tensor
    """The partners' positions in the training set (B,)."""


class Batch(NamedTuple):
    """What a step sees: no clean label is in it."""

    x: Tensor
    """Inputs, augmented."""
    y: Tensor
    """Noisy labels (B,)."""
    idx: Tensor
    """Positions in the training set (B,)."""
    mix: Mix | None = None
    """With mixup, what it adds."""


class Raw(NamedTuple):
    """A batch as it is read: its positions, those to read (partners of mixup, too), the inputs."""

    whole: Tensor
    request: Tensor
    x: Tensor


@dataclass(frozen=True)
class Split:
    """Examples with the labels they came with.

    ``x`` holds uint8 images (N, H, W, C), which need an ``augmentation`` (at least mean and std),
    or float features (N, …), which take none. Images that do not fit stay in their files.
    """

    # A tensor or ImageFiles; Any, since most who use a split were given one with a tensor.
    x: Tensor | Any
    y: Tensor
    num_classes: int
    augmentation: Augmentation | None = None
    trusted: Tensor | None = None
    """(N,) bool: labels that a person decided on, which no method may change; None: none."""

    def __post_init__(self) -> None:
        check_fields(self)
        dtype, shape = (getattr(self.x, name, None) for name in ("dtype", "shape"))
        if not isinstance(dtype, torch.dtype) or not shape:
            raise ValueError(
                f"x must be a Tensor or ImageFiles, got {shown(self.x)}; torch.as_tensor(values) "
                "makes one"
            )
        check_labels(self.y, num_classes=self.num_classes, length=len(self.x), name="y")
        check_inputs(self.x.dtype, tuple(self.x.shape), self.augmentation)
        if self.trusted is not None:
            check_mask(self.trusted, length=len(self.x), name="trusted")

    def __len__(self) -> int:
        return len(self.x)

    def subset(self, idx: Tensor) -> "Split":
        """The examples at the given positions, numbered anew from zero."""
        x = self.x[idx] if isinstance(self.x, Tensor) else self.x.subset(idx)
        trusted = None if self.trusted is None else self.trusted[idx]
        return replace(self, x=x, y=self.y[idx], trusted=trusted)

    @property
    def judged(self) -> Tensor:
        """(N,) bool: the labels that are asked about, those that are not trusted; else all."""
        if self.trusted is None or bool(self.trusted.all()):
            return torch.ones(len(self), dtype=torch.bool)
        return ~self.trusted

    @cached_property
    def copied(self) -> Tensor | None:
        """(N,): the example that each is a copy of, itself if of none; None if there are none."""
        return first_copied(self.x, self.y.cpu(), self.judged.cpu())

    @property
    def counted(self) -> Tensor:
        """(N,) bool: the labels that say how often labels are wrong.

        Those that are asked about, and of copies one: the others say nothing new.
        """
        judged, copied = self.judged, self.copied
        if copied is None:
            return judged
        place = torch.arange(len(self))
        first = torch.full_like(place, len(self))
        first.scatter_reduce_(0, copied[judged], place[judged], "amin")
        return judged & (first[copied] == place)

    def whole(self, purpose: str) -> Tensor:
        """All inputs at once, for a purpose that needs them; not of images that stay in files."""
        if isinstance(self.x, Tensor):
            return self.x
        raise ValueError(
            f"{purpose} needs all inputs at once, and these {len(self):,} images stay in their "
            "files because they do not fit"
        )


class Batches(Protocol):
    """An endless supply of epochs; epoch e is the same however often it is asked for."""

    num_classes: int
    batch_size: int
    device: torch.device

    def __len__(self) -> int:
        """The number of examples."""
        ...

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch in order, this process's share of each; the last is smaller."""
        ...


class _Batches(ABC):
    """Order, shares and mixtures; how inputs are read is left to the two implementations."""

    @checked
    def __init__(
        self,
        y: Tensor,
        num_classes: int,
        augmentation: Augmentation | None,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        mixup: bool = False,
        balanced_batches: int | None = None,
        taking_part: Tensor | None = None,
        device: torch.device | str = "cpu",
        process: int = 0,
        num_processes: int = 1,
    ) -> None:
        if batch_size < 1 or batch_size % num_processes:
            raise ValueError(
                f"batch_size must be positive and divide by the number of processes, "
                f"{num_processes}, got {batch_size}"
            )
        rest = len(y) % batch_size
        if balanced_batches is None and 0 < rest < num_processes:
            raise ValueError(
                f"the last batch must have an example for each of {num_processes} processes, got "
                f"{rest} of {len(y)} examples in batches of {batch_size}; choose another batch_size"
            )
        if balanced_batches is not None and (not shuffle or balanced_batches < 1):
            raise ValueError(
                f"balanced_batches must be positive and needs shuffle, got {balanced_batches}"
            )
        self.device = check_device(device) or torch.device("cpu")
        self.y = y.long().to(self.device)
        self.num_classes = num_classes
        self.augmentation = augmentation if shuffle or augmentation is None else augmentation.still
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.mixup = mixup
        self.balanced_batches = balanced_batches
        # Of which examples (N,) balanced batches are made; other batches have them all.
        self.taking_part = None if taking_part is None else taking_part.to(self.device)
        self.process = process
        self.num_processes = num_processes

    def __len__(self) -> int:
        return len(self.y)

    def close(self) -> None:  # noqa: B027  there may be nothing to give back
        """Gives back what is held between epochs; they can be asked for again all the same."""

    def order(self, epoch: int) -> Tensor:
        """The positions of an epoch, one after the other, for all processes together."""
        if not self.shuffle:
            return torch.arange(len(self.y), device=self.device)
        key = self.key(epoch)
        order = counter.permutation(key, len(self.y))
        if self.balanced_batches is None:
            return order
        return self._balanced(order, key, self.balanced_batches * self.batch_size)

    def key(self, epoch: int) -> Tensor:
        """The number that all random choices of an epoch start from."""
        return counter.key(self.seed, epoch).to(self.device)

    @abstractmethod
    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch in order, this process's share of each; the last is smaller."""

    def _request(self, whole: Tensor, key: Tensor) -> Tensor:
        """What to read for this process's share of a batch: its examples, then their partners."""
        idx = whole if self.num_processes == 1 else whole[self.process :: self.num_processes]
        if not self.mixup:
            return idx
        partner = whole[counter.bits(key, whole, counter.PARTNER).argsort()]
        return torch.cat([idx, partner[self.process :: self.num_processes]])

    def of_raw(self, raw: Raw, key: Tensor) -> Batch:
        """A batch of inputs as they were read, as tensor operations alone."""
        x = prepare(raw.x, raw.request, key, self.augmentation)
        return self._batch(raw.whole, raw.request, x, key)

    def _batch(self, whole: Tensor, request: Tensor, x: Tensor, key: Tensor) -> Batch:
        if not self.mixup:
            return Batch(x, self.y[request], request)
        idx, partner = request.chunk(2)
        own, other = x.chunk(2)
        # Beta(½, ½) is the arcsine law; the larger share stays with the example itself.
        share = (0.5 * math.pi * counter.uniform(key, whole[:1], counter.MIX)).sin() ** 2
        share = torch.maximum(share, 1 - share)
        mixed = share * own + (1 - share) * other
        return Batch(own, self.y[idx], idx, Mix(mixed, self.y[partner], share, partner))

    def _balanced(self, order: Tensor, key: Tensor, total: int) -> Tensor:
        """``total`` positions with every class as often as any other, in random order."""
        if self.taking_part is not None:
            order = order[self.taking_part[order]]
        by_class = order[self.y[order].argsort(stable=True)]
        count = torch.bincount(self.y[order], minlength=self.num_classes)
        if bool((count == 0).any()):
            raise ValueError(
                f"balanced batches need an example of each class, class {int(count.argmin())} has "
                f"none among the {len(order)} that take part; leave balanced_batches out"
            )
        each = -(-total // self.num_classes)
        # A class that is smaller than its share comes round again.
        turn = torch.arange(each, device=self.device).unsqueeze(0) % count.unsqueeze(1)
        drawn = by_class[(count.cumsum(0) - count).unsqueeze(1) + turn].flatten()
        place = torch.arange(len(drawn), device=self.device)
        return drawn[counter.bits(key, place, counter.BALANCE).argsort()][:total]


class Resident(_Batches):
    """The whole split on the device: nothing is copied from the host within an epoch."""

    @checked
    def __init__(self, split: Split, **options: Any) -> None:
        super().__init__(split.y, split.num_classes, split.augmentation, **options)
        self.x = split.whole("keeping a split on the device").to(self.device)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch in order, this process's share of each; the last is smaller."""
        key = self.key(epoch)
        for whole in self.order(epoch).split(self.batch_size):
            request = self._request(whole, key)
            yield self.of_raw(Raw(whole, request, self.x[request]), key)

    def gather(self, idx: Tensor, key: Tensor) -> Batch:
        """One batch as tensor operations alone, for a step that is captured."""
        request = self._request(idx, key)
        how = self.augmentation
        x = self.x[request] if how is None else gathered(self.x, request, key, how)
        return self._batch(idx, request, x, key)


def prepare(raw: Tensor, idx: Tensor, key: Tensor, augmentation: Augmentation | None) -> Tensor:
    """Raw inputs as a network takes them."""
    return raw if augmentation is None else augment(raw, idx, key, augmentation)
