"""Second-order statistics and the covariance term of CAL (paper, Sec. 4).

With D̂'s label ŷ of each example, T̂_ij = P̂(ỹ = j | ŷ = i) and P_i = P̂(ŷ = i), the covariance
between the noise rates and the losses is estimated by what each example adds to it:

    c_n = Σ_j (1{ỹ_n = j} − T̂_{ŷ_n j}) ℓ_j(x_n)

Subtracting it from the mean of *any* loss leaves the risk under class-dependent noise T̂. No K×K×N
array is ever formed: a batch costs O(B·K) and the statistics O(N + K²).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor, nn

from covlearn.checks import (
    Array,
    as_tensor,
    check_idx,
    check_labels,
    check_prior,
    check_scores,
    check_weight,
    readable,
)
from covlearn.losses import per_class, pick
from covlearn.transition import EmptyClass, count_transition

Weighting = Literal["class", "sample"]


@dataclass(frozen=True)
class SecondOrder:
    """What the covariance term needs to know of the whole training set.

    ``transition`` is T̂ (K×K), ``class_weight`` is P (K), and ``kept_share`` is Σ_n γ_n / N: the
    share of examples in D̂ when all weights are one.
    """

    transition: Tensor
    class_weight: Tensor
    kept_share: float

    @classmethod
    def from_labels(
        cls,
        noisy: Array,
        refined: Array,
        num_classes: int,
        *,
        weight: Array | None = None,
        empty_class: EmptyClass = "error",
    ) -> Self:
        """Counts T̂ and P over D̂: examples with refined −1 carry no weight, others γ (or one).

        >>> SecondOrder.from_labels([0, 1, 1, 1], [0, 0, 1, -1], 2).transition
        tensor([[0.5000, 0.5000],
                [0.0000, 1.0000]])
        """
        noisy = check_labels(noisy, num_classes=num_classes, name="noisy")
        refined = check_labels(
            refined, num_classes=num_classes, length=len(noisy), name="refined", dropped=True
        )
        if weight is not None:
            weight = check_weight(weight, length=len(noisy))
        transition = count_transition(
            refined, noisy, num_classes=num_classes, weight=weight, empty_class=empty_class
        )
        mass_K = _class_mass(refined, _gamma(refined, weight, torch.float64), num_classes)
        total = float(mass_K.sum())
        if total == 0:
            raise ValueError("refined must keep some example with a positive weight, got none")
        return cls(
            transition=transition.float(),
            class_weight=(mass_K / total).float(),
            kept_share=total / len(noisy),
        )

    def to(self, device: torch.device | str) -> Self:
        """The same statistics on another device."""
        return replace(
            self,
            transition=self.transition.to(device),
            class_weight=self.class_weight.to(device),
        )


def covariance_term(
    logits: Tensor,
    y: Tensor,
    refined: Tensor,
    stats: SecondOrder,
    *,
    weighting: Weighting = "class",
    mean_loss: Tensor | None = None,
    weight: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The batch's estimate of Σ_j E_ŷ[Cov(T_ŷj(X), ℓ_j(X) | ŷ)], a scalar.

    ``"sample"`` is the paper's formula: the mean of c_n over the batch (divided by the share of
    examples in D̂ where some were dropped, so that it stays unbiased). ``"class"`` is the published
    code's: Σ_i P_i times the mean of c_n over the batch's examples of class i. ``mean_loss`` (K×K)
    centres ℓ_j on its mean over class i; it changes the value, not the gradient. ``weight`` is γ(x)
    of the batch's examples; those with refined −1 add nothing.
    """
    logits, y, refined, weight = _check_batch(logits, y, refined, stats, weight, mean_loss)
    loss_BK = -(logits.softmax(dim=1) + eps).log()
    share_B = _share(refined, stats, weighting, weight, loss_BK.dtype)
    return (share_B * _deviation(loss_BK, y, refined, stats, mean_loss)).mean()


def cal(
    logits: Tensor,
    y: Tensor,
    refined: Tensor,
    stats: SecondOrder,
    *,
    prior: Tensor,
    beta: float | Tensor,
    weighting: Weighting = "class",
    mean_loss: Tensor | None = None,
    weight: Tensor | None = None,
    eps: float = 1e-8,
    regularizer_eps: float = 1e-5,
) -> Tensor:
    """ℓ_y − β Σ_k π_k ℓ_k − Cov, one value an example (paper, Eq. cov_def).

    The mean over the batch is mean(cores) − covariance_term; softmax and logarithm are taken once.
    """
    logits, y, refined, weight = _check_batch(logits, y, refined, stats, weight, mean_loss)
    prior = check_prior(prior, num_classes=logits.shape[1]).to(logits.dtype)
    probs = logits.softmax(dim=1)
    log_BK = (probs + regularizer_eps).log()
    share_B = _share(refined, stats, weighting, weight, log_BK.dtype).unsqueeze(1)
    # All that multiplies ℓ_j in the regulariser and the covariance, gathered before the one
    # product that needs a gradient.
    row_BK = stats.transition[refined.clamp(min=0)].to(log_BK.dtype)
    factor_BK = (share_B * row_BK - beta * prior).scatter_add_(1, y.unsqueeze(1), -share_B)
    loss = -(pick(probs, y) + eps).log() - (factor_BK * log_BK).sum(dim=1)
    if mean_loss is not None:
        centre_BK = mean_loss[refined.clamp(min=0)].to(log_BK.dtype)
        loss = loss + share_B.squeeze(1) * (pick(centre_BK, y) - (row_BK * centre_BK).sum(dim=1))
    return loss


def with_covariance(base_loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """``base_loss`` with its own covariance subtracted: CAL's correction for any loss.

    ``base_loss(logits, y) -> (B,)`` must also take y of shape (B, K), as all of
    :mod:`covlearn.losses` do (options are bound with ``functools.partial``). The result is called
    with ``(logits, y, refined, stats, *, weighting, mean_loss, weight)`` and returns (B,).

    For every T(x) and every loss, E[base] − Cov = Σ_i P_i Σ_j T_ij E[ℓ_j | ŷ = i]: the risk if the
    noise depended on the class alone.
    """

    def corrected(
        logits: Tensor,
        y: Tensor,
        refined: Tensor,
        stats: SecondOrder,
        *,
        weighting: Weighting = "class",
        mean_loss: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        logits, y, refined, weight = _check_batch(logits, y, refined, stats, weight, mean_loss)
        loss_BK = per_class(base_loss, logits)
        share_B = _share(refined, stats, weighting, weight, loss_BK.dtype)
        return pick(loss_BK, y) - share_B * _deviation(loss_BK, y, refined, stats, mean_loss)

    return corrected


@torch.no_grad()
def covariance_table(
    logits: Tensor,
    noisy: Tensor,
    refined: Tensor,
    stats: SecondOrder,
    *,
    weight: Tensor | None = None,
    eps: float = 1e-5,
    block_size: int = 8192,
) -> Tensor:
    """Cov(T_ij(X), ℓ_j(X) | ŷ = i) over the whole training set: a K×K table, NaN for absent i.

    Σ_ij P_i · table_ij is the covariance term of the full data. It is summed in float64 over
    blocks of examples, so that only ``block_size``×K values are formed at a time.
    """
    num_classes = len(stats.class_weight)
    moved_KK = torch.zeros(num_classes, num_classes, dtype=torch.float64, device=logits.device)
    total_KK = moved_KK.clone()
    mass_K = moved_KK[0].clone()
    for start in range(0, len(logits), block_size):
        rows = slice(start, start + block_size)
        batch_logits, y, refined_B, weight_B = _check_batch(
            logits[rows],
            noisy[rows],
            refined[rows],
            stats,
            None if weight is None else weight[rows],
        )
        loss_BK = -(batch_logits.double().softmax(dim=1) + eps).log()
        gamma_B = _gamma(refined_B, weight_B, torch.float64)
        row = refined_B.clamp(min=0)
        moved_KK.index_put_((row, y), gamma_B * pick(loss_BK, y), accumulate=True)
        total_KK.index_add_(0, row, gamma_B.unsqueeze(1) * loss_BK)
        mass_K.index_add_(0, row, gamma_B)
    return ((moved_KK - stats.transition * total_KK) / mass_K.unsqueeze(1)).float()


class CALLoss(nn.Module):
    """CAL for a training loop of your own: ``loss = criterion(logits, y, idx)``.

    ``noisy`` are the labels of the whole training set, ``refined`` their estimate D̂ (−1: dropped),
    ``idx`` the positions of the batch in that set. ``beta`` may be changed between epochs; the
    published schedule is 0 for 10 epochs, then rising linearly for 30, with the learning rate
    divided by 1 + β.

    >>> noisy, refined = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 1])
    >>> criterion = CALLoss(noisy, refined, num_classes=2, beta=1.0)
    >>> idx = torch.tensor([0, 2])
    >>> criterion(torch.zeros(2, 2), noisy[idx], idx)
    tensor(2.0027e-05)
    """

    def __init__(
        self,
        noisy: Array,
        refined: Array | None,
        num_classes: int,
        beta: float = 1.0,
        *,
        prior: Array | None = None,
        weight: Array | None = None,
        weighting: Weighting = "class",
        reduction: Literal["mean", "none"] = "mean",
        empty_class: EmptyClass = "error",
    ) -> None:
        super().__init__()
        if refined is None:
            raise ValueError(
                "CALLoss needs refined labels D̂, got None; build them with SieveRecorder in the "
                "same loop, or from any model's probabilities with covlearn.sieve.refine"
            )
        if reduction not in ("mean", "none"):
            raise ValueError(f"reduction must be 'mean' or 'none', got {reduction!r}")
        _check_weighting(weighting)
        labels = check_labels(noisy, num_classes=num_classes, name="noisy")
        stats = SecondOrder.from_labels(
            labels, refined, num_classes, weight=weight, empty_class=empty_class
        )
        if prior is None:
            prior = labels.bincount(minlength=num_classes) / len(labels)
        self.beta = beta
        self.weighting: Weighting = weighting
        self.reduction = reduction
        self.kept_share = stats.kept_share
        # Labels in 4 bytes: with N in the millions they are what this module weighs.
        self.register_buffer("noisy", labels.int())
        self.register_buffer("refined", as_tensor(refined).int())
        self.register_buffer("weight", None if weight is None else as_tensor(weight))
        self.register_buffer("transition", stats.transition)
        self.register_buffer("class_weight", stats.class_weight)
        self.register_buffer("prior", check_prior(prior, num_classes=num_classes))

    noisy: Tensor
    refined: Tensor
    weight: Tensor | None
    transition: Tensor
    class_weight: Tensor
    prior: Tensor

    def forward(self, logits: Tensor, y: Tensor, idx: Tensor) -> Tensor:
        """The mean loss of the batch, or one value an example with ``reduction="none"``."""
        idx = check_idx(idx, num_examples=len(self.noisy), length=len(logits))
        if readable(y) and not torch.equal(y.long(), self.noisy[idx].long()):
            raise ValueError(
                "y must be the noisy labels of the examples at idx, got others; idx must count in "
                "the order of the labels given to CALLoss, however the loader shuffles"
            )
        loss = cal(
            logits,
            y,
            self.refined[idx].long(),
            SecondOrder(self.transition, self.class_weight, self.kept_share),
            prior=self.prior,
            beta=self.beta,
            weighting=self.weighting,
            weight=None if self.weight is None else self.weight[idx],
        )
        return loss.mean() if self.reduction == "mean" else loss


def _check_weighting(weighting: str) -> None:
    if weighting not in ("class", "sample"):
        raise ValueError(f"weighting must be 'class' or 'sample', got {weighting!r}")


def _check_batch(
    logits: Tensor,
    y: Tensor,
    refined: Tensor,
    stats: SecondOrder,
    weight: Tensor | None,
    mean_loss: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    num_classes = len(stats.class_weight)
    if mean_loss is not None and mean_loss.shape != (num_classes, num_classes):
        raise ValueError(
            f"mean_loss must be {num_classes}×{num_classes}, the mean of ℓ_j over refined class i, "
            f"got {tuple(mean_loss.shape)}"
        )
    logits = check_scores(logits, num_classes=num_classes)
    size = len(logits)
    y = check_labels(y, num_classes=num_classes, length=size, name="y")
    refined = check_labels(
        refined, num_classes=num_classes, length=size, name="refined", dropped=True
    )
    return logits, y, refined, None if weight is None else check_weight(weight, length=size)


def _gamma(refined: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
    """γ_n of each example: the weight it was given, or one; zero if it was dropped."""
    kept = refined >= 0
    return kept.to(dtype) if weight is None else weight.to(dtype) * kept


def _class_mass(refined: Tensor, gamma_B: Tensor, num_classes: int) -> Tensor:
    """Σ_n γ_n 1{ŷ_n = i}, shape (K,)."""
    return gamma_B.new_zeros(num_classes).index_add_(0, refined.clamp(min=0), gamma_B)


def _share(
    refined: Tensor,
    stats: SecondOrder,
    weighting: Weighting,
    weight: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """The weight of each example's c_n such that the *mean* over the batch is the term."""
    _check_weighting(weighting)
    gamma_B = _gamma(refined, weight, dtype)
    if weighting == "sample":
        return gamma_B / stats.kept_share
    mass_K = _class_mass(refined, gamma_B, len(stats.class_weight))
    # A class without mass in the batch has no γ to divide either; the bound keeps 0/0 out.
    scale_K = len(refined) * stats.class_weight.to(dtype) / mass_K.clamp_(min=1e-30)
    return scale_K[refined.clamp(min=0)] * gamma_B


def _deviation(
    loss_BK: Tensor, y: Tensor, refined: Tensor, stats: SecondOrder, mean_loss: Tensor | None
) -> Tensor:
    """c_n = Σ_j (1{ỹ_n = j} − T̂_{ŷ_n j}) ℓ_j(x_n)."""
    row = refined.clamp(min=0)
    if mean_loss is not None:
        loss_BK = loss_BK - mean_loss[row].to(loss_BK.dtype)
    return pick(loss_BK, y) - (stats.transition[row].to(loss_BK.dtype) * loss_BK).sum(dim=1)
