"""Batches of inputs that are read when they are needed."""

from collections import deque
from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from covlearn.checks import check_labels
from covlearn.data import counter
from covlearn.data.augment import Augmentation, check_inputs
from covlearn.data.batches import Batch, Raw, Resident, Split, _Batches
from covlearn.data.readers import Readers, can_fork
from covlearn.kinds import checked

WORKER_SECONDS = 120.0
STEPS_AHEAD = 4  # of the device: the host's batches beyond that only hold pinned memory


class Loaded(_Batches):
    """Inputs from a map-style dataset, read by worker processes; for what does not fit.

    ``dataset[i]`` is the input of example i: a uint8 image (H, W, C) or float features, all of one
    shape. Batches do not depend on ``num_workers``. A worker that ends, or needs longer than
    ``worker_seconds`` for a batch, is reported and replaced.
    """

    @checked
    def __init__(
        self,
        dataset: Dataset[Tensor],
        y: Tensor,
        num_classes: int,
        *,
        augmentation: Augmentation | None = None,
        num_workers: int = 0,
        worker_seconds: float = WORKER_SECONDS,
        **options: Any,
    ) -> None:
        length = len(dataset) if isinstance(dataset, Sized) else None
        check_labels(y, num_classes=num_classes, length=length, name="y")
        first = dataset[0]
        check_inputs(first.dtype, (1, *first.shape), augmentation)
        super().__init__(y, num_classes, augmentation, **options)
        if num_workers < 0 or not worker_seconds > 0:
            raise ValueError(
                f"expected num_workers ≥ 0 and worker_seconds > 0, got {num_workers} and "
                f"{worker_seconds}"
            )
        self.dataset = dataset
        self.num_workers = num_workers if can_fork() else 0
        self.worker_seconds = worker_seconds
        self.readers: Readers | None = None

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch in order, this process's share of each; the last is smaller."""
        key = self.key(epoch)
        for raw in self.raw(epoch):
            yield self.of_raw(raw, key)

    def raw(self, epoch: int) -> Iterator[Raw]:
        """What the batches of an epoch are made of, on the device."""
        host_key = counter.key(self.seed, epoch)
        asked: deque[tuple[Tensor, Tensor, Tensor | None]] = deque()
        launched: deque[torch.cuda.Event] = deque()

        def requests() -> Iterator[list[int]]:
            # On the host: a list of positions on a GPU would have to wait for the step before.
            for whole in self.order(epoch).cpu().split(self.batch_size):
                request = self._request(whole, host_key)
                # A partner of mixup is in the batch itself, and is read once.
                once, where = request.unique(return_inverse=True)
                twice = len(once) < len(request)
                asked.append((whole, request, where if twice else None))
                yield (once if twice else request).tolist()

        for read in self._read(requests()):
            whole, request, where = asked.popleft()
            raw = self._on_device(read)
            if where is not None:
                raw = raw[self._on_device(where)]
            elif self.augmentation is None:
                raw = raw.clone()  # what was read is overwritten by the next
            yield Raw(self._on_device(whole), self._on_device(request), raw)
            if self.device.type == "cuda":
                launched.append(torch.cuda.current_stream(self.device).record_event())
                if len(launched) > STEPS_AHEAD:
                    launched.popleft().synchronize()

    def _on_device(self, values: Tensor) -> Tensor:
        if self.device.type != "cuda":
            return values
        # From pinned memory, so that the copy waits for no step.
        return values.pin_memory().to(self.device, non_blocking=True)

    def close(self) -> None:
        """Ends the workers; another epoch starts new ones."""
        if self.readers is not None:
            self.readers.close()
            self.readers = None

    def _read(self, requests: Iterator[list[int]]) -> Iterator[Tensor]:
        """The raw inputs at each list of positions; good until the next ones are asked for."""
        if self.num_workers == 0:
            for positions in requests:
                yield torch.stack([self.dataset[position] for position in positions])
            return
        if self.readers is None:
            share = -(-self.batch_size // self.num_processes)
            self.readers = Readers(
                self.dataset,
                workers=self.num_workers,
                rows=2 * share if self.mixup else share,
                seconds=self.worker_seconds,
            )
        whole = False
        try:
            yield from self.readers.read(requests)
            whole = True
        finally:
            # What was asked for and not fetched would come first in the next epoch; and evaluation
            # comes seldom, so that its workers do not wait for it.
            if not (whole and self.shuffle):
                self.close()


@checked
def batches_of(split: Split, *, num_workers: int = 0, **options: Any) -> Resident | Loaded:
    """The batches of a split: from the device, or from files where it does not fit there."""
    if isinstance(split.x, Tensor):
        return Resident(split, **options)
    return Loaded(
        split.x,
        split.y,
        split.num_classes,
        augmentation=split.augmentation,
        num_workers=num_workers,
        **options,
    )
