"""CAL over a loss of your own: its sieve and D̂, and another second stage."""

from dataclasses import dataclass

from torch import Tensor

from covlearn.covariance import SecondOrder, with_covariance
from covlearn.data import Batch
from covlearn.engine import Objective, Outputs
from covlearn.losses import cross_entropy
from covlearn.methods import CAL
from covlearn.sieve import Refined


@dataclass(frozen=True)
class SymmetricCAL(CAL):
    """CAL whose second stage corrects α ℓ_ỹ + (1 − p_ỹ)."""

    alpha: float = 0.1

    def objective(
        self,
        refined: Refined,
        stats: SecondOrder,
        weight: Tensor | None,
        prior: Tensor,
    ) -> Objective:
        """Of the second stage; there is no peer term, and so no prior."""
        return Corrected(self.alpha, refined, stats, weight)


class Corrected(Objective):
    """The loss less its covariance; what that knows is in buffers, for a GPU."""

    refined: Tensor
    transition: Tensor
    class_weight: Tensor
    weight: Tensor | None

    def __init__(
        self,
        alpha: float,
        refined: Refined,
        stats: SecondOrder,
        weight: Tensor | None,
    ) -> None:
        super().__init__()
        self.alpha = alpha
        self.kept_share = stats.kept_share
        self.register_buffer("refined", refined.label)
        self.register_buffer("transition", stats.transition)
        self.register_buffer("class_weight", stats.class_weight)
        self.register_buffer("weight", weight)

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        """(B,); by "sample" it is the same however processes share the batch."""
        loss = with_covariance(self.symmetric)(
            outputs.logits,
            batch.y,
            self.refined[batch.idx],
            SecondOrder(self.transition, self.class_weight, self.kept_share),
            weighting="sample",
            weight=None if self.weight is None else self.weight[batch.idx],
        )
        return loss, None

    def symmetric(self, logits: Tensor, y: Tensor) -> Tensor:
        """For y (B,), and for y (B, K), as cross_entropy takes both."""
        loss = cross_entropy(logits, y)
        return self.alpha * loss + 1 - (-loss).exp()
