"""Generalised cross-entropy L_q (Zhang & Sabuncu 2018), plain and truncated."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from covlearn.data import Batch
from covlearn.engine import Objective, Outputs, Plan
from covlearn.kinds import check_fields
from covlearn.ledger import Ledger
from covlearn.losses import generalized_cross_entropy
from covlearn.methods.base import Run


@dataclass(frozen=True)
class GCE:
    """Minimises (1 − p_ỹ^q)/q; if ``truncate``, examples with p_ỹ ≤ k are pruned now and then.

    What is pruned follows from the network in training, each example's last pass: a public
    implementation asks the checkpoint of the best *test* accuracy instead. An example that was
    pruned comes back when p_ỹ > k the next time.
    """

    plan: Plan = Plan(epochs=100, lr_milestones=(60,), weight_decay=5e-4)
    """Of the only stage."""
    q: float = 0.7
    """Towards 0 it is cross-entropy, at 1 the mean absolute error."""
    truncate: bool = False
    """Prune examples."""
    k: float = 0.5
    """An example with p_ỹ ≤ k is pruned."""
    prune_from: int = 40
    """The first epoch that begins with pruning."""
    prune_every: int = 10
    """Epochs from one pruning to the next."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not (0 < self.q <= 1 and 0 < self.k < 1):
            raise ValueError(f"expected q in (0, 1] and k in (0, 1), got q={self.q}, k={self.k}")
        if self.prune_from < 1 or self.prune_every < 1:
            raise ValueError(
                "expected prune_from ≥ 1 (pruning needs an epoch to go by) and prune_every ≥ 1, "
                f"got {self.prune_from} and {self.prune_every}"
            )

    def fit(self, run: Run) -> nn.Module:
        """One stage."""
        model = run.net("gce")
        objective = Generalized(len(run.split), self)
        run.train("gce", model, objective, self.plan)
        if self.truncate:
            run.note(kept_share=float(objective.keep.mean()))
        return model


class Generalized(Objective):
    """L_q of the examples that are kept and the constant L_q(k) of the others.

    That is w L_q + (1 − w) L_q(k) with w 0 or 1, the paper's truncated loss for given w. Its mean
    is over the whole batch, so that pruning leaves the weight of what is kept as it was.
    """

    keep: Tensor

    def __init__(self, num_examples: int, method: GCE) -> None:
        super().__init__()
        self.method = method
        self.register_buffer("keep", torch.ones(num_examples))

    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:
        """Prunes, when it is time, by what the last pass said of each example."""
        since = epoch - self.method.prune_from
        if not self.method.truncate or since < 0 or since % self.method.prune_every:
            return
        prob = (-ledger.loss).exp() - 1e-8  # the ledger's loss is −ln(p + 1e-8)
        self.keep.copy_((prob > self.method.k).float())
        if not bool(self.keep.any()):
            raise ValueError(
                f"epoch {epoch}: no example has p > k = {self.method.k}, so that pruning would "
                "leave nothing to learn from; lower k, or raise prune_from"
            )

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        """(B,)."""
        loss = generalized_cross_entropy(outputs.logits, batch.y, q=self.method.q)
        cut_off = (1 - self.method.k**self.method.q) / self.method.q
        keep = self.keep[batch.idx]
        return keep * loss + (1 - keep) * cut_off, None
