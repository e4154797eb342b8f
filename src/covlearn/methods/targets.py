"""Cross-entropy against a target distribution of each example, less β Σ_k π_k ℓ_k.

Given D̂, CAL's loss of an example is, whatever its noisy label,

    ℓ_ỹ − Σ_j (1{ỹ = j} − T̂_ŷj) ℓ_j = Σ_j T̂_ŷj ℓ_j,

cross-entropy against the row T̂[ŷ]. With a posterior q(x) in place of ŷ, and T̂ counted with q as
weights, the same computation gives the target q(x) T̂ (docs/theory.md, Section 13).
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from covlearn.data import Batch
from covlearn.engine import Outputs
from covlearn.methods.base import Regularised
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
    """−Σ_j t_j(x) ln(p_j + ε) − β Σ_k π_k ℓ_k; examples that D̂ dropped have no weight.

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
    ) -> None:
        super().__init__(beta)
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
        log_p = outputs.logits.float().softmax(dim=1).add(EPS).log()
        loss = ((self.beta * self.prior - target) * log_p).sum(dim=1)
        return loss, kept.to(loss.dtype)

    def target_of(self, idx: Tensor) -> tuple[Tensor, Tensor]:
        """The targets (B, K) of the examples at ``idx``, and which of them D̂ has a label of."""
        refined = self.refined[idx]
        if self.posterior is not None:
            return self.posterior[idx] @ self.of_class, refined >= 0
        return self.of_class[refined.clamp(min=0)], refined >= 0


class Renewed(Targeted):
    """Cross-entropy on a D̂ that is made anew as training goes on, less β Σ_k π_k ℓ_k.

    D̂ is the most probable class of ``said`` (N, K), which starts as the posterior. Where that is
    not the ``given`` label, and less than ``sure``, an example is left out: neither of the two can
    be believed. After every few epochs, from one on, what the network says is averaged in.
    """

    said: Tensor
    given: Tensor
    trusted: Tensor | None

    def __init__(
        self,
        posterior: Tensor,
        given: Tensor,
        *,
        trusted: Tensor | None,
        every: int,
        start: int,
        sure: float,
        decay: float,
        prior: Tensor,
        beta: Ramp,
    ) -> None:
        first = believed(posterior, given, sure)
        super().__init__(first, torch.eye(posterior.shape[1]), prior=prior, beta=beta)
        self.every = every
        self.start = start
        self.sure = sure
        self.decay = decay
        self.register_buffer("said", posterior.float().clone())
        self.register_buffer("given", given.clone())
        self.register_buffer("trusted", trusted)

    def asks_after(self, epoch: int) -> bool:
        """After every few epochs, from one on."""
        return self.every > 0 and epoch + 1 >= self.start and (epoch + 1) % self.every == 0

    def told(self, logits: Tensor) -> None:
        """D̂ of what was said before and is said now; in place, where a captured step reads it."""
        probs = logits.to(self.said).softmax(dim=1)
        renewed = self.decay * self.said + (1 - self.decay) * probs
        if self.trusted is not None:
            renewed = self.said.where(self.trusted.unsqueeze(1), renewed)
        self.said.copy_(renewed)
        self.refined.copy_(believed(renewed, self.given, self.sure))


def believed(posterior: Tensor, given: Tensor, sure: float) -> Tensor:
    """The most probable class (N,), −1 where it is neither the given label nor sure enough.

    >>> q = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.1, 0.9]])
    >>> believed(q, torch.tensor([0, 1, 0]), 0.8)
    tensor([ 0, -1,  1])
    """
    most, label = posterior.max(dim=1)
    return label.where((label == given) | (most >= sure), -1)
