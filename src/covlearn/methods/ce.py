"""Plain cross-entropy, the baseline of every table."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from covlearn.data import Batch
from covlearn.engine import Objective, Outputs, Plan
from covlearn.kinds import check_fields
from covlearn.losses import cross_entropy
from covlearn.methods.base import Run


@dataclass(frozen=True)
class CE:
    """Minimises −ln(p_ỹ + 1e-8) on the noisy labels."""

    plan: Plan = Plan(epochs=100, lr_milestones=(60,), weight_decay=5e-4)
    """Of the only stage."""

    def __post_init__(self) -> None:
        check_fields(self)

    def fit(self, run: Run) -> nn.Module:
        """One stage."""
        model = run.net("ce")
        run.train("ce", model, CrossEntropy(), self.plan)
        return model


class CrossEntropy(Objective):
    """−ln(p_y + 1e-8); of mixed inputs, of both labels by their shares."""

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        """(B,), or (M, B) of a committee."""
        return supervised(outputs, batch), None


def supervised(outputs: Outputs, batch: Batch) -> Tensor:
    """Cross-entropy of a batch, mixed or not; (M, B) of a committee."""
    if outputs.logits.ndim == 3:
        members = outputs.logits.unbind()
        return torch.stack([supervised(Outputs(logits), batch) for logits in members])
    loss = cross_entropy(outputs.logits, batch.y)
    if batch.mix is None:
        return loss
    share = batch.mix.share
    return share * loss + (1 - share) * cross_entropy(outputs.logits, batch.mix.y)
