"""The covariances of the whole training set, one for each pair of classes."""

import torch
from torch import Tensor

from covlearn.checks import check_eps
from covlearn.covariance.term import SecondOrder, check_batch, class_mass, gamma
from covlearn.kinds import check_kind
from covlearn.losses import pick


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
    moved_KK, total_KK, mass_K = _class_sums(logits, noisy, refined, stats, weight, eps, block_size)
    return ((moved_KK - stats.transition * total_KK) / mass_K.unsqueeze(1)).float()


def class_mean_loss(
    logits: Tensor,
    noisy: Tensor,
    refined: Tensor,
    stats: SecondOrder,
    *,
    weight: Tensor | None = None,
    eps: float = 1e-5,
    block_size: int = 8192,
) -> Tensor:
    """m_ij = E[ℓ_j | ŷ = i] over the whole training set, K×K: the ``mean_loss`` of the term.

    The rows of classes that D̂ lacks are zero: nothing reads them.
    """
    _, total_KK, mass_K = _class_sums(logits, noisy, refined, stats, weight, eps, block_size)
    present = mass_K.unsqueeze(1) > 0
    return torch.where(present, total_KK / mass_K.unsqueeze(1), 0).float()


@torch.no_grad()
def _class_sums(
    logits: Tensor,
    noisy: Tensor,
    refined: Tensor,
    stats: SecondOrder,
    weight: Tensor | None,
    eps: float,
    block_size: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Σ γ 1{ŷ=i, ỹ=j} ℓ_j and Σ γ 1{ŷ=i} ℓ_j (K×K), and Σ γ 1{ŷ=i} (K), in float64."""
    check_eps(eps)
    check_kind(block_size, int, name="block_size")
    if block_size < 1:
        raise ValueError(f"block_size must be positive, got {block_size}; 8192 is a good size")
    logits, noisy, refined, weight = check_batch(
        logits, noisy, refined, stats, weight, name="noisy"
    )
    gamma_N = gamma(refined, weight, torch.float64)
    num_classes = len(stats.class_weight)
    moved_KK = torch.zeros(num_classes, num_classes, dtype=torch.float64, device=logits.device)
    total_KK = moved_KK.clone()
    for rows in torch.arange(len(logits), device=logits.device).split(block_size):
        loss_BK = -(logits[rows].double().softmax(dim=1) + eps).log()
        row, y, gamma_B = refined[rows].clamp(min=0), noisy[rows], gamma_N[rows]
        moved_KK.index_put_((row, y), gamma_B * pick(loss_BK, y), accumulate=True)
        total_KK.index_add_(0, row, gamma_B.unsqueeze(1) * loss_BK)
    return moved_KK, total_KK, class_mass(refined, gamma_N, num_classes)
