"""The loss of CAL's second stage (paper, Eq. cov_def), over any base loss."""

from functools import partial
from typing import Literal

from torch import Tensor

from covlearn import distributed
from covlearn.checks import check_scores
from covlearn.covariance import SecondOrder, Weighting, with_covariance
from covlearn.covariance.term import cal_of, example_share, mass_of
from covlearn.data import Batch
from covlearn.engine import Outputs
from covlearn.losses import (
    confidence,
    cross_entropy,
    forward_corrected,
    generalized_cross_entropy,
    per_class,
    pick,
    reweighted,
)
from covlearn.methods.base import Regularised
from covlearn.schedules import Ramp

Base = Literal["ce", "gce", "forward", "reweight"]


class CovarianceAssisted(Regularised):
    """ℓ_ỹ − β Σ_k π_k ℓ_k − Cov(ℓ) of the base loss ℓ, each example with refined label and γ(x)."""

    refined: Tensor
    weight: Tensor | None
    transition: Tensor
    class_weight: Tensor
    prior: Tensor

    def __init__(
        self,
        refined: Tensor,
        stats: SecondOrder,
        weight: Tensor | None,
        *,
        prior: Tensor,
        beta: Ramp,
        covariance: bool = True,
        base: Base = "ce",
        weighting: Weighting = "class",
    ) -> None:
        super().__init__(beta)
        self.covariance = covariance
        self.base = base
        self.weighting: Weighting = weighting
        self.kept_share = stats.kept_share
        self.register_buffer("refined", refined)
        self.register_buffer("weight", weight)
        self.register_buffer("transition", stats.transition)
        self.register_buffer("class_weight", stats.class_weight)
        self.register_buffer("prior", prior)

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        """(B,)."""
        logits, y = outputs.logits, batch.y
        if not self.covariance:
            if self.base == "ce":
                peer = confidence(logits, prior=self.prior)
                return cross_entropy(logits, y) - self.beta * peer, None
            loss_BK = per_class(self.base_loss(), logits)
            return pick(loss_BK, y) - self.beta * (self.prior * loss_BK).sum(dim=1), None
        refined = self.refined[batch.idx]
        weight = None if self.weight is None else self.weight[batch.idx]
        mass = None  # of all processes, where there are others
        if distributed.active():
            mass = distributed.sum_of(mass_of(refined, len(self.prior), weight))
        stats = SecondOrder(self.transition, self.class_weight, self.kept_share)
        if self.base == "ce":
            # Labels were checked when they came, once: of a step they would be a good part.
            logits = check_scores(logits)
            share = example_share(refined, stats, self.weighting, weight, mass, logits.dtype)
            return cal_of(
                logits, y, refined, self.transition, share, self.prior, self.beta, 1e-8, 1e-5
            ), None
        options = {"weighting": self.weighting, "weight": weight, "mass": mass}
        loss_BK = per_class(self.base_loss(), logits)
        # Each class's loss is there already: the base loss to correct only picks from them.
        corrected = with_covariance(lambda _, classes: pick(loss_BK, classes))
        loss_B = corrected(logits, y, refined, stats, **options)
        return loss_B - self.beta * (self.prior * loss_BK).sum(dim=1), None

    def base_loss(self) -> partial[Tensor]:
        """The loss that the covariance corrects, if it is not cross-entropy."""
        if self.base == "forward":
            return partial(forward_corrected, transition=self.transition)
        if self.base == "reweight":
            # Else the network would lower its loss by lowering the weights.
            return partial(reweighted, transition=self.transition, constant_weight=True)
        return partial(generalized_cross_entropy)
