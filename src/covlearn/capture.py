"""An epoch on CUDA as replays of one graph a step: gather, augment, forward, backward, update.

Order, position and the epoch's key live on the device, so that a step takes nothing from the host
and an epoch waits for the device once, at its end.
"""

import copy
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from covlearn.average import Average
from covlearn.data import Batch
from covlearn.data.batches import Raw

WARM_UP = 3  # steps before the capture, for libraries that set themselves up on first use


class CapturedEpoch:
    """Runs epochs by replaying captured steps; a smaller last batch has a graph of its own."""

    def __init__(
        self,
        step: Callable[[Batch], tuple[Tensor, Tensor | None]],
        parts: dict[str, Any],
        data: Any,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        """``refresh`` is called after the parts' state was changed by anything but a step.

        ``data`` is Resident, or Loaded in :class:`CapturedFiles`.
        """
        self.step = step
        self.parts = parts
        self.data = data
        self.refresh = refresh
        self.order = data.order(0)
        self.key = data.key(0)
        self.position = torch.zeros(1, dtype=torch.long, device=data.device)
        self.sizes = [len(idx) for idx in self.order.split(data.batch_size)]
        # Wide enough for every loss: L_DMI is computed in float64.
        self.losses = torch.zeros(len(self.sizes), dtype=torch.float64, device=data.device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.average: Average | None = parts.get("average")
        self.averaging: dict[int, torch.cuda.CUDAGraph] = {}

    def __call__(self, epoch: int) -> Tensor:
        """The losses of the epoch's steps, still on the device."""
        self.begin(epoch)
        self.replay()
        return self.losses

    def begin(self, epoch: int) -> None:
        """Puts the epoch's order and key where the steps read them."""
        self.order.copy_(self.data.order(epoch))
        self.key.copy_(self.data.key(epoch))
        if not self.graphs:
            self._capture()
        if self.refresh is not None:
            self.refresh()
        self.position.zero_()

    def replay(self) -> None:
        """All steps of the epoch, one launch each; nothing here waits, but for what is read."""
        every = None if self.average is None else self.average.every
        for number, size in enumerate(self.sizes, start=1):
            self._feed(size)
            self.graphs[size].replay()
            if every is not None and (number % every == 0 or number == len(self.sizes)):
                self.averaging[(number - 1) % every + 1].replay()

    def _feed(self, size: int) -> None:
        """Puts what the next step reads where it reads it; here it is there."""

    def _gather(self, size: int) -> Batch:
        place = self.position * self.data.batch_size + torch.arange(size, device=self.data.device)
        batch: Batch = self.data.gather(self.order[place], self.key)
        return batch

    def _one(self, size: int) -> None:
        batch = self._gather(size)
        loss, logits = self.step(batch)
        if logits is not None:
            self.parts["ledger"].write(batch.idx, logits, batch.y)
        self.losses.index_copy_(0, self.position, loss.view(1).to(self.losses.dtype))
        self.position += 1

    def _capture(self) -> None:
        before = copy.deepcopy({name: part.state_dict() for name, part in self.parts.items()})
        # The warm-up draws, too, and an epoch that is resumed at must have the same dropout.
        random_state = torch.cuda.get_rng_state(self.data.device)
        sizes = sorted(set(self.sizes), reverse=True)
        # What a step does beside its main stream comes second.
        side = torch.cuda.Stream(device=self.data.device, priority=-1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for size in sizes:
                for _ in range(WARM_UP):
                    self.position.zero_()
                    self._one(size)
            if self.average is not None:
                self.average.update()
        torch.cuda.current_stream().wait_stream(side)
        self._rewind(before)
        for size in sizes:
            graph = torch.cuda.CUDAGraph()
            self.parts["optimizer"].zero_grad(set_to_none=True)
            with torch.cuda.graph(graph, stream=side):
                self._one(size)
            self.graphs[size] = graph
        if self.average is not None:
            for steps in {self.average.every, len(self.sizes) % self.average.every} - {0}:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=side):
                    self.average.update(steps)
                self.averaging[steps] = graph
        torch.cuda.set_rng_state(random_state, self.data.device)

    def _rewind(self, before: dict[str, Any]) -> None:
        """Undoes the warm-up in place: the graphs will read and write these very tensors."""
        for name, part in self.parts.items():
            if name != "optimizer":
                part.load_state_dict(before[name])
        optimizer = self.parts["optimizer"]
        saved = before["optimizer"]["state"]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for number, parameter in enumerate(parameters):
            for name, value in optimizer.state[parameter].items():
                if not isinstance(value, Tensor):
                    continue
                # No state yet is the same as zeros: the first update then starts from them.
                earlier = saved.get(number, {}).get(name)
                value.copy_(earlier) if earlier is not None else value.zero_()


class CapturedFiles(CapturedEpoch):
    """The same of inputs that are read: the host puts each batch in its place, then replays."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.places: dict[int, Raw] = {}
        self.reading: Iterator[Raw] = iter(())

    def begin(self, epoch: int) -> None:
        """Starts to read."""
        reading = self.data.raw(epoch)
        first = next(reading)
        if not self.places:
            self.places = {size: _smaller(first, size) for size in set(self.sizes)}
        self.reading = chain([first], reading)
        super().begin(epoch)

    def replay(self) -> None:
        """All steps of the epoch; the host is a few of them ahead of the device."""
        super().replay()
        # To its end, or the readers would still be at work for it when the next epoch begins.
        if next(self.reading, None) is not None:
            raise RuntimeError("an epoch has more batches than steps")

    def _feed(self, size: int) -> None:
        for place, value in zip(self.places[size], next(self.reading), strict=True):
            place.copy_(value)

    def _gather(self, size: int) -> Batch:
        batch: Batch = self.data.of_raw(self.places[size], self.key)
        return batch


def _smaller(raw: Raw, size: int) -> Raw:
    """Room for a batch of a size, with the beginning of a larger one in it."""
    halves = len(raw.request) // len(raw.whole)  # two with mixup
    parts = (torch.cat([half[:size] for half in each.chunk(halves)]) for each in raw[1:])
    return Raw(raw.whole[:size].clone(), *parts)
