"""CAL on the labels that are believed, and agreement of two views of all images beside it.

A strong view must be called what the averaged and the present prediction of its image say, where
these are sure. So an image whose label is not believed still teaches what it looks like.
"""

from typing import Literal

import torch
from torch import Tensor

from covlearn import distributed
from covlearn.checks import check_scores
from covlearn.data import Batch
from covlearn.engine import Objective, Outputs, Record
from covlearn.ledger import Ledger
from covlearn.losses import cross_entropy
from covlearn.schedules import Ramp

Labelled = Literal["agreed", "all"]
RISE = 0.1
"""The share of a stage's epochs over which λ rises from zero."""


def rising(value: float, epochs: int) -> Ramp:
    """λ as a function of the epoch.

    >>> rising(1.0, epochs=100)
    Ramp(value=1.0, start=0, end=10)
    """
    return Ramp(value, end=round(RISE * epochs))


class Consistent(Objective):
    """L + λ (1/B) Σ_n 1{max t_n ≥ threshold} ℓ(strong view n, argmax t_n).

    L is the mean loss of what is ``labelled``. The teacher t_n is the mean of the example's
    averaged prediction, which starts from ``posterior`` (N, K), and of the present one; it has no
    gradient.
    """

    needs_strong = True
    needs_averaged = True
    posterior: Tensor
    factor: Tensor

    def __init__(
        self, labelled: Objective, posterior: Tensor, *, schedule: Ramp, threshold: float
    ) -> None:
        super().__init__()
        self.labelled = labelled
        self.capturable = labelled.capturable
        self.needs_features = labelled.needs_features
        self.schedule = schedule
        self.threshold = threshold
        self.register_buffer("posterior", posterior.float())
        self.register_buffer("factor", torch.zeros(()))

    def strength(self, epoch: int) -> float:
        """β of what is labelled."""
        return self.labelled.strength(epoch)

    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:
        """Sets λ and β; the averages go on from the posterior."""
        self.labelled.begin_epoch(epoch, ledger)
        self.factor.fill_(self.schedule(epoch))
        if epoch == 0:
            assert ledger.memory is not None
            ledger.memory.start(self.posterior)

    def end_epoch(self, ledger: Ledger) -> Record:
        """The share of examples whose average alone would reach the threshold."""
        assert ledger.memory is not None
        sure = [
            (ledger.memory.probs(idx).amax(dim=1) >= self.threshold).sum()
            for idx in ledger.memory.chunks()
        ]
        share = float(torch.stack(sure).sum()) / len(self.posterior)
        return self.labelled.end_epoch(ledger) | {"average_sure": share}

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        """(B,), whose mean over all processes is the loss."""
        assert outputs.strong is not None
        assert outputs.averaged is not None
        result = self.labelled(outputs, batch)
        assert not isinstance(result, Tensor)
        loss, weight = result
        if weight is not None:
            # Divided by all weights, as it would be alone, and not by the size of the batch.
            size = distributed.sum_of(torch.ones_like(weight).sum())
            loss = weight * loss * (size / distributed.sum_of(weight.sum()).clamp(min=1e-30))
        present = check_scores(outputs.logits.detach()).softmax(dim=1)
        sure, label = ((outputs.averaged + present) / 2).max(dim=1)
        unlabelled = cross_entropy(outputs.strong, label) * (sure >= self.threshold)
        return loss + self.factor * unlabelled, None
