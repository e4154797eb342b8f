"""A loss against a target distribution of each example, less β Σ_k π_k ℓ_k.

Given D̂, CAL's loss of an example is, whatever its noisy label and the base loss ℓ,

    ℓ_ỹ − Σ_j (1{ỹ = j} − T̂_ŷj) ℓ_j = Σ_j T̂_ŷj ℓ_j,

for cross-entropy that against the row T̂[ŷ]. With a posterior q(x) in place of ŷ, and T̂ counted
with q as weights, the same computation gives the target q(x) T̂ (docs/theory.md, Section 13).
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from covlearn.data import Batch
from covlearn.engine import Outputs
from covlearn.losses import generalized_cross_entropy, per_class
from covlearn.methods.base import Regularised
from covlearn.methods.cal_loss import Base
from covlearn.schedules import Ramp

Target = Literal["noisy", "refined", "rows", "posterior", "posterior_rows"]
TARGETS = get_args(Target)
EPS = 1e-5  # of the regulariser and the covariance term, so that rows are CAL's own


def soft_transition(posterior: Tensor, noisy: Tensor) -> Tensor:
    """T̂_ij = Σ_n q_i(x_n) 1{ỹ_n = j} / Σ_n q_i(x_n), (K, K); a class without weight stays itself.

    >>> soft_transition(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([0, 1]))
    tensor([[0.6667, 0.3333],
            [0.0000, 1.0000]])
    """
    num_classes = posterior.shape[1]
    joint = torch.zeros(num_classes, num_classes, dtype=torch.float64)
    joint.index_add_(0, noisy.cpu(), posterior.cpu().double())
    mass = joint.sum(dim=0)
    rows = joint.T / mass.clamp(min=1e-300).unsqueeze(1)
    return torch.where(mass.unsqueeze(1) > 0, rows, torch.eye(num_classes).double()).float()


class Targeted(Regularised):
    """Σ_j t_j(x) ℓ_j − β Σ_k π_k ℓ_k; examples that D̂ dropped have no weight.

    ℓ_j is −ln(p_j + ε), or generalised cross-entropy, which is bounded: a wrong target pulls the
    less, the surer the network is of another class.

    ``of_class`` (K, K) has the target of each refined label; ``posterior`` (N, K), if there is one,
    mixes them: t(x) = Σ_i q_i(x) of_class[i].
    """

    needs_plain = False

    refined: Tensor
    of_class: Tensor
    posterior: Tensor | None
    prior: Tensor

    def __init__(
        self,
        refined: Tensor,
        of_class: Tensor,
        *,
        prior: Tensor,
        beta: Ramp,
        posterior: Tensor | None = None,
        base: Base = "ce",
    ) -> None:
        super().__init__(beta)
        if base not in ("ce", "gce"):
            raise ValueError(f"base must be ce or gce, got {base!r}")
        self.base = base
        self.register_buffer("refined", refined)
        self.register_buffer("of_class", of_class)
        self.register_buffer("posterior", posterior)
        self.register_buffer("prior", prior)

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor]:
        """(B,) each."""
        target, kept = self.target_of(batch.idx)
        if batch.mix is not None:
            partners, theirs = self.target_of(batch.mix.idx)
            target = batch.mix.share * target + (1 - batch.mix.share) * partners
            kept = kept & theirs
        logits = outputs.logits.float()
        if self.base == "gce":
            loss_BK = per_class(generalized_cross_entropy, logits)
        else:
            loss_BK = -logits.softmax(dim=1).add(EPS).log()
        loss = ((target - self.beta * self.prior) * loss_BK).sum(dim=1)
        return loss, kept.to(loss.dtype)

    def target_of(self, idx: Tensor) -> tuple[Tensor, Tensor]:
        """The targets (B, K) of the examples at ``idx``, and which of them D̂ has a label of."""
        refined = self.refined[idx]
        if self.posterior is not None:
            return self.posterior[idx] @ self.of_class, refined >= 0
        return self.of_class[refined.clamp(min=0)], refined >= 0
