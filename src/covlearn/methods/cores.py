"""CORES² (Cheng et al. 2021): cross-entropy with a confidence regulariser and a dynamic sieve."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from covlearn.data import Batch
from covlearn.engine import Outputs, Plan
from covlearn.kinds import check_fields
from covlearn.ledger import Ledger
from covlearn.losses import confidence, cores
from covlearn.methods.base import Regularised, Run, noisy_prior
from covlearn.methods.ce import supervised
from covlearn.schedules import Ramp


@dataclass(frozen=True)
class CORES:
    """ℓ_ỹ − β Σ_k π_k ℓ_k; from ``sieve_from`` on, over examples with ℓ_ỹ ≤ mean_k ℓ_k only."""

    plan: Plan = Plan(epochs=100, lr_milestones=(60,), divide_lr=True, weight_decay=5e-4)
    """Of the only stage."""
    beta: Ramp = Ramp(2.0, start=10, end=40)
    """β."""
    sieve_from: int | None = 30
    """The first epoch in which the sieve drops examples; None: never, as in CAL's first stage."""
    prior_scale: float = 1.0
    """A factor on π, 10 in CAL's published CIFAR-100 code. Since β, not βπ, divides the learning
    rate, it is not the same as a larger β."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.prior_scale < 0:
            raise ValueError(f"prior_scale must be finite and ≥ 0, got {self.prior_scale}")
        if self.sieve_from is not None and self.sieve_from < 0:
            raise ValueError(
                f"sieve_from must be an epoch, which count from 0, got {self.sieve_from}; none is "
                "never"
            )

    def fit(self, run: Run) -> nn.Module:
        """One stage."""
        model = run.net("cores")
        objective = Confident(
            run.split.y,
            noisy_prior(run.split),
            self.beta,
            self.sieve_from,
            prior_scale=self.prior_scale,
        )
        run.train("cores", model, objective, self.plan)
        return model


class Confident(Regularised):
    """The regularised loss. The sieve looks at each example's last pass, the prior at what is kept.

    Scores come from the ledger, those of the pass before this one: the paper's sieve, too, is set
    at the start of an epoch.
    """

    prior: Tensor
    keep: Tensor

    def __init__(
        self,
        y: Tensor,
        prior: Tensor,
        beta: Ramp,
        sieve_from: int | None = None,
        *,
        prior_scale: float = 1.0,
        regularizer_eps: float = 1e-5,
    ) -> None:
        super().__init__(beta)
        self.regularizer_eps = regularizer_eps
        self.sieve_from = sieve_from
        self.num_classes = len(prior)
        self.register_buffer("y", y, persistent=False)
        self.prior_scale = prior_scale
        self.register_buffer("prior", prior_scale * prior)
        self.register_buffer("keep", torch.ones(len(y)))

    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:
        """Sets β, and when the sieve is on, what is kept and the prior of that."""
        super().begin_epoch(epoch, ledger)
        if self.sieve_from is None or epoch < max(self.sieve_from, 1):
            return
        self.keep.copy_((ledger.score <= 0).float())
        count = torch.zeros_like(self.prior).index_add_(0, self.y, self.keep)  # type: ignore[arg-type]
        if float(count.sum()) == 0:
            raise ValueError(
                "the sieve must keep some examples, got none with ℓ_ỹ ≤ mean_k ℓ_k; lower the "
                "learning rate, or let sieve_from come later"
            )
        self.prior.copy_(self.prior_scale * count / count.sum())

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor]:
        """(B,) with the sieve as a weight."""
        if outputs.plain is None and outputs.logits.ndim == 2:
            loss = cores(
                outputs.logits,
                batch.y,
                prior=self.prior,
                beta=self.beta,
                confidence_eps=self.regularizer_eps,
            )
            return loss, self.keep[batch.idx]
        plain = outputs.logits if outputs.plain is None else outputs.plain
        regulariser = confidence(plain, prior=self.prior, eps=self.regularizer_eps)
        return supervised(outputs, batch) - self.beta * regulariser, self.keep[batch.idx]
