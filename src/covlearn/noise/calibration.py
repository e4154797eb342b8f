"""How the variant ``calibrated`` chooses its temperature.

Raw projections x·W differ between classes by their mean and spread, so that a few classes win
everywhere. Here they are standardised, each class over all examples, and divided by a temperature τ
before the softmax over the wrong classes. A low τ makes noise that depends much on the instance, a
high τ spreads it evenly. Of a grid from 1/4 (nearly one class an example) to 64 (nearly even) the
lowest τ is taken for which, and for all higher ones,

- expected T_ij ≤ (T_ii + T̄_i)/2 for all j ≠ i, T̄_i = mean_{j≠i} T_ij: halfway between even noise
  and a diagonal that is no longer the largest;
- no class expects more than 1.5 times the wrong labels that even noise would give it (the card
  calls twice as many a sink).

With q ≤ 1 − 1/K, τ = ∞ fulfils both, so there is always one. They hold for expectations: a draw of
few examples can miss them, and its card says so.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from covlearn.noise.card import even_share
from covlearn.noise.inputs import positions_by_value

Floats: TypeAlias = NDArray[np.float64]

TEMPERATURES = 2.0 ** np.arange(6, -2.5, -0.5)
FAVOUR = 1.5
CONSTANT = 1e-9  # a spread this small beside the values is rounding


def calibrated(
    score_NK: Floats, clean: NDArray[np.int64], flip_rate: Floats
) -> tuple[Floats, float]:
    """Standardised scores over the chosen temperature, in place, and the temperature."""
    magnitude_K = np.maximum(score_NK.max(axis=0), -score_NK.min(axis=0))
    score_NK -= score_NK.mean(axis=0)
    spread_K = score_NK.std(axis=0)
    score_NK /= np.where(spread_K > CONSTANT * magnitude_K, spread_K, np.inf)

    chosen = np.inf
    for temperature in TEMPERATURES:
        if not _harmless(_expected(score_NK, temperature, clean, flip_rate)):
            break
        chosen = float(temperature)
    score_NK /= chosen
    return score_NK, chosen


def _expected(
    score_NK: Floats, temperature: float, clean: NDArray[np.int64], flip_rate: Floats
) -> Floats:
    """Expected number of examples of class i (rows) that end as class j."""
    num_classes = score_NK.shape[1]
    count_KK = np.zeros((num_classes, num_classes))
    for i, rows in positions_by_value(clean):
        score_RK = score_NK[rows] / temperature
        score_RK[:, i] = -np.inf
        share_RK = np.exp(score_RK - score_RK.max(axis=1, keepdims=True))
        count_KK[i] = (flip_rate[rows] / share_RK.sum(axis=1)) @ share_RK
        count_KK[i, i] = (1 - flip_rate[rows]).sum()
    return count_KK


def _harmless(count_KK: Floats) -> bool:
    kept_K = count_KK.diagonal()
    wrong_KK = count_KK - np.diag(kept_K)
    wrong_K = wrong_KK.sum(axis=1)
    halfway_K = (kept_K + wrong_K / (len(kept_K) - 1)) / 2
    dominant = (wrong_KK.max(axis=1) <= halfway_K).all()
    favoured = (wrong_KK.sum(axis=0) > FAVOUR * even_share(wrong_K)).any()
    return bool(dominant and not favoured)
