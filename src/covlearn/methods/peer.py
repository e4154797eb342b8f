"""Peer loss (Liu & Guo 2020): each example's loss less that of inputs and labels torn apart."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from covlearn.data import Batch, counter
from covlearn.engine import Objective, Outputs, Plan
from covlearn.kinds import check_fields
from covlearn.ledger import Ledger
from covlearn.losses import peer
from covlearn.methods.base import Run
from covlearn.schedules import Ramp


@dataclass(frozen=True)
class Peer:
    """Minimises ℓ(f(x_n), ỹ_n) − α ℓ(f(x_n1), ỹ_n2) with n1, n2 drawn independently.

    α rises from 0 and the learning rate is divided by 1 + α: with the full α from the start the
    peer term, which has no lower bound of its own, drives the network before it has learned.
    The expectation over ỹ_n2 is CORES²'s regulariser Σ_k π_k ℓ_k.
    """

    plan: Plan = Plan(epochs=100, lr_milestones=(60,), divide_lr=True, weight_decay=5e-4)
    """Of the only stage."""
    alpha: Ramp = Ramp(1.0, start=10, end=40)
    """α."""

    def __post_init__(self) -> None:
        check_fields(self)

    def fit(self, run: Run) -> nn.Module:
        """One stage."""
        model = run.net("peer")
        run.train("peer", model, TornApart(run.split.y, self.alpha, seed=run.seed), self.plan)
        return model


class TornApart(Objective):
    """ℓ(f(x_n), ỹ_n) − α ℓ(f(x_n), ỹ_n2), n2 from the whole training set, a new one each epoch.

    Over a batch only the sum of the peer terms matters, and in it only which input meets which
    label. Let n → n1 be a permutation of the batch: its sum then has every input of the batch once,
    with a label drawn independently of it, whatever the permutation was, so that the identity will
    do. Each peer term then needs the logits of its own example alone, and no gradient has to
    travel between processes. And n2 is a function of (seed, epoch, n), not of the batch: any number
    of processes, and a run that was interrupted, draw the same pairs.
    """

    y: Tensor
    alpha: Tensor
    key: Tensor

    def __init__(self, y: Tensor, alpha: Ramp, *, seed: int) -> None:
        super().__init__()
        self.schedule = alpha
        self.seed = seed
        self.register_buffer("y", y, persistent=False)
        self.register_buffer("alpha", torch.zeros(()))
        self.register_buffer("key", counter.key(seed, 0))

    def strength(self, epoch: int) -> float:
        """α of the epoch."""
        return self.schedule(epoch)

    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:  # noqa: ARG002
        """Sets α, and what the epoch's draws start from."""
        self.alpha.fill_(self.schedule(epoch))
        self.key.copy_(counter.key(self.seed, epoch))

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        """(B,)."""
        peer_y = self.y[counter.below(len(self.y), self.key, batch.idx, counter.PEER)]
        return peer(outputs.logits, batch.y, outputs.logits, peer_y, alpha=self.alpha), None
