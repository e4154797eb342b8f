"""A running average of what a network said of each example, over the passes of its training.

One pass sees an example under one crop, with the weights of one step; over epochs such accidents
average out, and what is left is what the network has learned of the example from the others.

Bytes an example: 4·K with all classes, 8 a class with the largest few. A million examples of a
thousand classes take 4 GB whole and 64 MB with the largest eight.
"""

import torch
from torch import Tensor, nn

from covlearn import distributed

ROWS = 1 << 16  # examples of which all classes are written out at a time


class Memory(nn.Module):
    """p̄_n ← d · p̄_n + (1 − d) · p_n at each pass over example n, from zero on.

    After t passes p̄_n sums to 1 − dᵗ, so that divided by its sum it is the weighted mean of the t
    passes. With ``largest`` classes an example the rest of an average is forgotten at each pass.
    """

    value: Tensor
    label: Tensor | None

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        *,
        decay: float,
        largest: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        if largest is not None and not 1 <= largest <= num_classes:
            raise ValueError(
                f"largest must lie between 1 and the {num_classes} classes, got {largest}"
            )
        self.num_classes = num_classes
        self.decay = decay
        columns = num_classes if largest is None else largest
        self.register_buffer("value", torch.zeros(num_examples, columns, device=device))
        self.register_buffer(
            "label",
            None
            if largest is None
            else torch.zeros(num_examples, columns, dtype=torch.int32, device=device),
        )

    @torch.no_grad()
    def write(self, idx: Tensor, logits: Tensor) -> None:
        """Takes in a pass over the examples at ``idx``, logits (B, K)."""
        new = self.decay * self._whole(idx) + (1 - self.decay) * logits.float().softmax(dim=1)
        if self.label is not None:
            new, label = new.topk(self.label.shape[1], dim=1)
            self.label.index_copy_(0, idx, label.int())
        self.value.index_copy_(0, idx, new)

    @property
    def seen(self) -> Tensor:
        """Which examples (N,) were passed over at least once."""
        return self.value.sum(dim=1) > 0

    def probs(self, idx: Tensor) -> Tensor:
        """The averages (B, K) of the examples at ``idx``, rows that sum to one; NaN if unseen."""
        whole = self._whole(idx)
        return whole / whole.sum(dim=1, keepdim=True)

    def predictions(self) -> Tensor:
        """The class of the largest average of each example (N,); −1 if unseen."""
        top = self.value.argmax(dim=1)
        if self.label is not None:
            top = self.label.gather(1, top.unsqueeze(1)).squeeze(1).long()
        return torch.where(self.seen, top, -1)

    def chunks(self) -> list[Tensor]:
        """All positions in parts that are small enough to write out whole."""
        return list(torch.arange(len(self.value), device=self.value.device).split(ROWS))

    def merge(self, mine: Tensor, written: Tensor) -> None:
        """After an epoch of several processes: each row from the one process that has it."""
        for idx in self.chunks():  # a second copy of all classes of all examples may not fit
            for rows in (self.value, self.label):
                if rows is not None:
                    total = distributed.sum_of(torch.where(mine[idx, None], rows[idx], 0))
                    rows[idx] = torch.where(written[idx, None], total, rows[idx])

    def _whole(self, idx: Tensor) -> Tensor:
        value = self.value[idx]
        if self.label is None:
            return value
        # Before the first pass all labels are 0 and all values too: they may lie on each other.
        whole = value.new_zeros(len(idx), self.num_classes)
        return whole.scatter_(1, self.label[idx].long(), value)
