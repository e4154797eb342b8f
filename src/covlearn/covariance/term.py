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
from torch import Tensor

from covlearn.checks import (
    Array,
    as_tensor,
    at_least_float32,
    check_eps,
    check_labels,
    check_prior,
    check_scores,
    check_strength,
    check_weight,
)
from covlearn.kinds import checked, shown
from covlearn.losses import Rows, per_class, pick, weighted_logs
from covlearn.sieve import Refined
from covlearn.transition import EmptyClass, count_transition

Weighting = Literal["class", "sample"]
"""How the covariance is averaged: by class, as published, or by sample, the paper's."""


@dataclass(frozen=True)
class SecondOrder:
    """What the covariance term needs to know of the whole training set.

    ``transition`` is T̂ (K×K), ``class_weight`` is P (K), and ``kept_share`` is Σ_n γ_n / N: the
    share of examples in D̂ when all weights are one.
    """

    transition: Tensor
    class_weight: Tensor
    kept_share: float | Tensor

    @classmethod
    def from_labels(
        cls,
        noisy: Array,
        refined: Array | Refined,
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
        if refined is None:
            raise ValueError(
                "refined must be the labels D̂, got None; covlearn.sieve.refine(probs, noisy, …) "
                "makes them, and clean labels never stand in for them"
            )
        noisy = check_labels(noisy, num_classes=num_classes, name="noisy")
        refined = check_labels(
            refined.label if isinstance(refined, Refined) else refined,
            num_classes=num_classes,
            length=len(noisy),
            name="refined",
            dropped=True,
        )
        if weight is not None:
            weight = check_weight(weight, length=len(noisy)).detach()
        transition = count_transition(
            refined, noisy, num_classes=num_classes, weight=weight, empty_class=empty_class
        )
        mass_K = class_mass(refined, gamma(refined, weight, torch.float64), num_classes)
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
    mass: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The batch's estimate of Σ_j E_ŷ[Cov(T_ŷj(X), ℓ_j(X) | ŷ)], a scalar.

    ``"sample"`` is the paper's formula: the mean of c_n over the batch (divided by the share of
    examples in D̂ where some were dropped, so that it stays unbiased). ``"class"`` is the published
    code's: Σ_i P_i times the mean of c_n over the batch's examples of class i. A class that a batch
    of B misses adds nothing to it, so that its mean is Σ_i P_i (1 − (1 − P_i)^B) Cov_i: no matter
    at K = 10 and B = 128, but a quarter of the term is missing at K = 100.

    ``mean_loss`` (K×K, :func:`class_mean_loss`) centres ℓ_j on its mean over class i, as published;
    it changes the value, not the gradient. ``weight`` is γ(x) of the batch's examples; those with
    refined −1 add nothing. ``mass`` is :func:`batch_mass` summed over processes that share a
    batch; the mean over all their examples is then the term.
    """
    logits, y, refined, weight = check_batch(logits, y, refined, stats, weight, mean_loss)
    loss_BK = -(logits.softmax(dim=1) + check_eps(eps)).log()
    share_B = example_share(refined, stats, weighting, weight, mass, loss_BK.dtype)
    return (share_B * deviation(loss_BK, y, refined, stats, mean_loss)).mean()


def batch_mass(refined: Array, num_classes: int, *, weight: Array | None = None) -> Tensor:
    """Σ_n γ_n 1{ŷ_n = i} of a batch and its size, shape (K + 1,): what processes have to sum."""
    refined = check_labels(refined, num_classes=num_classes, name="refined", dropped=True)
    weight = None if weight is None else check_weight(weight, length=len(refined))
    return mass_of(refined, num_classes, weight)


def mass_of(refined: Tensor, num_classes: int, weight: Tensor | None) -> Tensor:
    """The same of labels that were checked when they came."""
    gamma_B = gamma(refined, weight, torch.float32)
    size = torch.full_like(gamma_B[:1], len(gamma_B))
    return torch.cat([in_fixed_order(refined, gamma_B, num_classes), size])


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
    mass: Tensor | None = None,
    eps: float = 1e-8,
    regularizer_eps: float = 1e-5,
) -> Tensor:
    """ℓ_y − β Σ_k π_k ℓ_k − Cov, one value per example (paper, Eq. cov_def).

    The mean over the batch is mean(cores) − covariance_term; softmax and logarithm are taken once.
    """
    logits, y, refined, weight = check_batch(logits, y, refined, stats, weight, mean_loss)
    prior = check_prior(prior, num_classes=logits.shape[1])
    check_strength(beta, name="beta")
    check_eps(eps)
    check_eps(regularizer_eps, name="regularizer_eps")
    share_B = example_share(refined, stats, weighting, weight, mass, logits.dtype)
    loss = cal_of(logits, y, refined, stats.transition, share_B, prior, beta, eps, regularizer_eps)
    if mean_loss is not None:
        centre_BK = as_tensor(mean_loss)[refined.clamp(min=0)].to(logits.dtype)
        loss = loss + share_B * deviation(centre_BK, y, refined, stats, None)
    return loss


@checked
def with_covariance(base_loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """``base_loss`` with its own covariance subtracted: CAL's correction for any loss.

    ``base_loss(logits, y) -> (B,)`` must also take y of shape (B, K), as those of
    :mod:`covlearn.losses` do (all but ``dmi`` and ``peer``; options are bound with
    ``functools.partial``). The result is called
    with ``(logits, y, refined, stats, *, weighting, mean_loss, weight, mass)`` and returns (B,).

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
        mass: Tensor | None = None,
    ) -> Tensor:
        logits, y, refined, weight = check_batch(logits, y, refined, stats, weight, mean_loss)
        # A term of half-precision losses would be mostly rounding, each a difference of two.
        loss_BK = at_least_float32(per_class(base_loss, logits))
        share_B = example_share(refined, stats, weighting, weight, mass, loss_BK.dtype)
        return pick(loss_BK, y) - share_B * deviation(loss_BK, y, refined, stats, mean_loss)

    return corrected


def check_weighting(weighting: str) -> None:
    """One of the two ways to weigh examples."""
    if weighting not in ("class", "sample"):
        raise ValueError(
            "weighting must be 'class' (as published) or 'sample' (the paper's), got "
            f"{shown(weighting)}"
        )


def check_batch(
    logits: Tensor,
    y: Tensor,
    refined: Tensor,
    stats: SecondOrder,
    weight: Tensor | None,
    mean_loss: Tensor | None = None,
    *,
    name: str = "y",
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Logits in float32 at least, labels and refined labels as int64, weights, all of one batch."""
    if not isinstance(stats, SecondOrder):
        raise ValueError(
            f"stats must be a SecondOrder, got {shown(stats)}; SecondOrder.from_labels(…) makes one"
        )
    num_classes = len(stats.class_weight)
    square = (num_classes, num_classes)
    tensors = (stats.transition, stats.class_weight)
    if not all(isinstance(each, Tensor) for each in tensors) or stats.transition.shape != square:
        raise ValueError(
            f"stats must hold tensors, K×K and K, got transition {shown(stats.transition)} and "
            f"class_weight {shown(stats.class_weight)}; SecondOrder.from_labels(…) counts both"
        )
    if mean_loss is not None and as_tensor(mean_loss, name="mean_loss").shape != square:
        raise ValueError(
            f"mean_loss must be {num_classes}×{num_classes}, the mean of ℓ_j over refined class i, "
            f"got {shown(mean_loss)}"
        )
    logits = check_scores(logits, num_classes=num_classes)
    size = len(logits)
    y = check_labels(y, num_classes=num_classes, length=size, name=name)
    refined = check_labels(
        refined, num_classes=num_classes, length=size, name="refined", dropped=True
    )
    return logits, y, refined, None if weight is None else check_weight(weight, length=size)


def gamma(refined: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
    """γ_n of each example: the weight it was given, or one; zero if it was dropped."""
    kept = refined >= 0
    return kept.to(dtype) if weight is None else weight.to(dtype) * kept


def class_mass(refined: Tensor, gamma_B: Tensor, num_classes: int) -> Tensor:
    """Σ_n γ_n 1{ŷ_n = i}, shape (K,)."""
    return gamma_B.new_zeros(num_classes).index_add_(0, refined.clamp(min=0), gamma_B)


def in_fixed_order(refined: Tensor, gamma_B: Tensor, num_classes: int) -> Tensor:
    """The same of a batch, with the same bits each time on an accelerator, too.

    There ``index_add_`` adds up in no fixed order, and the sum of a column in one. On the CPU both
    have one, and ``index_add_`` costs a third.
    """
    add_up = class_mass if gamma_B.device.type == "cpu" else column_mass
    return add_up(refined, gamma_B, num_classes)


def column_mass(refined: Tensor, gamma_B: Tensor, num_classes: int) -> Tensor:
    """Σ_n γ_n 1{ŷ_n = i} as sums of columns: B×K values, so for batches alone."""
    own_BK = gamma_B.new_zeros(len(gamma_B), num_classes)
    return own_BK.scatter_(1, refined.clamp(min=0).unsqueeze(1), gamma_B.unsqueeze(1)).sum(dim=0)


def example_share(
    refined: Tensor,
    stats: SecondOrder,
    weighting: Weighting,
    weight: Tensor | None,
    mass: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """The weight of each example's c_n such that the *mean* over the batch is the term."""
    check_weighting(weighting)
    gamma_B = gamma(refined, weight, dtype)
    if weighting == "sample":
        return gamma_B / stats.kept_share
    row = refined.clamp(min=0)
    size: int | Tensor = len(refined)
    if mass is None:
        mass_K = in_fixed_order(refined, gamma_B, len(stats.class_weight))
    else:
        mass = as_tensor(mass, name="mass")
        if mass.shape != (len(stats.class_weight) + 1,):
            raise ValueError(f"mass must be what batch_mass gives, got shape {tuple(mass.shape)}")
        mass_K, size = mass[:-1].to(dtype), mass[-1].to(dtype)
    # A class without mass in the batch has examples with γ = 0 at most: the bound keeps 0/0 out.
    scale_K = stats.class_weight.to(dtype) / mass_K.clamp(min=1e-30)
    return scale_K.index_select(0, row).mul_(gamma_B).mul_(size)


def cal_of(
    logits: Tensor,
    y: Tensor,
    refined: Tensor,
    transition: Tensor,
    share_B: Tensor,
    prior: Tensor,
    beta: float | Tensor,
    eps: float,
    regularizer_eps: float,
) -> Tensor:
    """The loss of inputs that were checked, given each example's share in the covariance."""
    # In the factor of ln(p_j + ε), βπ_j + share·(1{ỹ = j} − T̂_ŷj), regulariser and covariance meet.
    rows = Rows(transition, refined.clamp(min=0), share_B)
    factor_K = (beta * prior).to(logits.dtype)
    return weighted_logs(logits, y, factor_K, eps=eps, all_eps=regularizer_eps, rows=rows)


def deviation(
    loss_BK: Tensor, y: Tensor, refined: Tensor, stats: SecondOrder, mean_loss: Tensor | None
) -> Tensor:
    """c_n = Σ_j (1{ỹ_n = j} − T̂_{ŷ_n j}) ℓ_j(x_n)."""
    row = refined.clamp(min=0)
    if mean_loss is not None:
        loss_BK = loss_BK - as_tensor(mean_loss)[row].to(loss_BK.dtype)
    return pick(loss_BK, y) - (stats.transition[row].to(loss_BK.dtype) * loss_BK).sum(dim=1)
