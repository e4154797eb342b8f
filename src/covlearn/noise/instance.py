"""Instance-dependent noise: which class an example flips to depends on its features.

At least seven generators go by that name. Each variant here has a name and a version, and numbers
measured under different variants are not comparable.
"""

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import NDArray
from scipy.stats import norm, truncnorm

from covlearn.checks import Array, check_num_classes, check_rate
from covlearn.kinds import checked
from covlearn.noise.calibration import calibrated
from covlearn.noise.card import NoisyLabels, with_card
from covlearn.noise.inputs import check_seed, clean_labels, features, positions_by_value

Floats: TypeAlias = NDArray[np.float64]
Cap: TypeAlias = Literal["paper", "published", "none"]

BLOCK_ROWS = 1024  # so many examples at a time are float64
DRAWS = 1_000_000  # of the published generator; the size decides what it draws next
LEAST_HELD = 1e-3  # of the normal inside the bounds: below, q has little to do with the rate
CAP = 0.9
CAP_ABOVE: dict[str, float] = {"paper": CAP, "published": 1.0}


@dataclass(frozen=True)
class _Variant:
    version: int
    weight_per_class: bool  # one W for each clean class, else one for all
    rejection: bool  # q by rejection from a normal, else by its inverse distribution function
    highest: float = 1.0  # q lies below
    calibrated: bool = False


_VARIANTS = {
    "cal": _Variant(1, weight_per_class=False, rejection=True),
    "ptd": _Variant(1, weight_per_class=True, rejection=False),
    "simifeat": _Variant(1, weight_per_class=True, rejection=True),
    "bltm": _Variant(1, weight_per_class=True, rejection=False, highest=0.6),
    "calibrated": _Variant(1, weight_per_class=False, rejection=False, calibrated=True),
}
VARIANTS = tuple(_VARIANTS)
"""The names that ``instance_dependent`` takes."""


def version_of(variant: str) -> int:
    """The version of a variant, which changes when its draws do."""
    return _lookup(variant).version


@checked
def instance_dependent(
    x: Array,
    y: Array,
    *,
    rate: float,
    num_classes: int,
    variant: str,
    std: float = 0.1,
    seed: int,
    cap: Cap | None = None,
    bounds: tuple[float, float] | None = None,
    scale: float = 1.0,
) -> NoisyLabels:
    """Flip example n with its own rate q_n, to class j with probability q_n·softmax_{j≠y}(x_n·W)_j.

    q_n is normal with mean ``rate`` and deviation ``std``, truncated. Truncation moves the mean
    when ``rate`` is near an end (rate 0 gives 0.08): the card shows the rate asked for, the
    expected and the actual one. ``x`` has shape (N, …), is flattened in the order given, and
    divided by ``scale`` without a copy of the whole.

    - ``cal``: one W for all classes. Paper: Alg. 2. q by rejection, capped for rate > 0.5 (below).
    - ``ptd``: one W for each clean class (Xia et al. 2020), q truncated to [0, 1].
    - ``simifeat``: one W for each clean class, q by rejection (Zhu et al. 2022).
    - ``bltm``: ``ptd`` with q truncated to [0, 0.6] (Yang et al. 2022).
    - ``calibrated``, ours: one W; x·W is standardised for each class and divided by a temperature,
      the lowest for which the expected T keeps its diagonal the largest and no class is a sink (see
      `covlearn.noise.calibration`). q truncated to [0, 1 − 1/K].

    Beside ``x``, a million draws of q and some numbers an example, ``cal`` holds 1,024 rows of x·W
    at a time; those with one W a class hold all of x·W, 8·N·K bytes, since what decides the labels
    is drawn after the last W; ``calibrated`` twice as much, as it looks at all examples first.

    Numbers measured under different variants are not comparable. All but the last draw from NumPy's
    legacy ``RandomState(seed)`` in the published order (q, W, labels), the last from PCG64. With
    raw 0–255 pixels the softmax of the published ones saturates: nearly all flips of a class go to
    one class, under ``cal`` to the same one for all classes.

    ``cap`` and ``bounds`` are for ``cal`` alone. The cap keeps T_ij(x) ≤ 0.9·T_ii(x): where an
    entry is higher, q_n is handed out again in order of falling x·W, 0.9·T_ii to each class until
    it is used up. No q above 0.9(K−1)/(1 + 0.9(K−1)) leaves room for that: a higher ``rate`` is
    refused, a higher q_n lowered to it, and the card says how often. ``"published"`` does so only
    where an entry exceeds T_ii, ``"none"`` never; the default is ``"paper"`` for rate > 0.5.
    ``bounds`` truncates q, by default to (0, 1).

    Published label files that come out bit for bit from CIFAR's uint8 pixels in channel-height-
    width order, seed 0, the rest as default: IDN_0.2_C10, IDN_0.4_C10; IDN_0.6_C100 with
    ``cap="none"``; IDN_0.6_C10 with ``scale=255, cap="published", bounds=(0.3022, 0.8978)``.

    >>> x = np.random.default_rng(0).normal(size=(1000, 5))
    >>> noisy = instance_dependent(x, np.arange(1000) % 4, rate=0.3, num_classes=4,
    ...                            variant="calibrated", seed=0)
    >>> noisy.card.num_dominant, noisy.card.warnings
    (4, ())
    """
    spec = _lookup(variant)
    rate, num_classes = check_rate(rate), check_num_classes(num_classes)
    clean = clean_labels(y, num_classes=num_classes)
    x = features(x, length=len(clean))
    std, seed = _check_std(std), check_seed(seed)
    if not 0 < scale < math.inf:  # also refuses NaN
        raise ValueError(f"scale must be finite and positive, got {scale}; pixels have 255")
    if variant != "cal" and (cap is not None or bounds is not None):
        raise ValueError(f"cap and bounds belong to variant 'cal', got variant {variant!r}")
    cap = _check_cap(cap, variant=variant, rate=rate, num_classes=num_classes)
    low, high = bounds or (0.0, spec.highest)
    if spec.calibrated:
        high = _even_rate(rate, num_classes)
    _check_bounds(low, high, rate=rate, std=std)

    rng = np.random.default_rng(seed) if spec.calibrated else RandomState(seed)
    draw_rates = _by_rejection if spec.rejection else _by_inverse
    flip_rate = draw_rates(rng, len(clean), rate=rate, std=std, low=low, high=high)
    notes = [f"q from N({rate:g}, {std:g}²) truncated to ({low:g}, {high:g})"]
    scores = _scores(x, clean, rng, num_classes, scale=scale, per_class=spec.weight_per_class)
    if spec.calibrated:
        score_NK, temperature = calibrated(scores(np.arange(len(clean))), clean, flip_rate)
        notes.append(f"temperature {temperature:.4g} of the standardised projections")
        scores = score_NK.__getitem__
    uniform = rng.uniform(size=len(clean))
    noisy, lowered = np.empty(len(clean), np.int64), 0
    for start in range(0, len(clean), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        score_RK = scores(np.arange(len(clean))[rows])
        wrong_RK = _wrong_probability(score_RK, clean[rows], flip_rate[rows])
        if cap != "none":
            lowered += _cap(wrong_RK, score_RK, flip_rate[rows], above=CAP_ABOVE[cap])
        noisy[rows] = _draw(wrong_RK, clean[rows], flip_rate[rows], uniform[rows])
    if cap != "none":
        notes.append(f"cap {cap!r}; q lowered to leave it room: {lowered} examples")
    return with_card(
        clean,
        noisy,
        flip_rate,
        num_classes=num_classes,
        variant=variant,
        version=spec.version,
        seed=seed,
        requested_rate=rate,
        notes=notes,
    )


def _by_rejection(
    rng: RandomState | Generator, count: int, *, rate: float, std: float, low: float, high: float
) -> Floats:
    """The first ``count`` normal draws inside (low, high), out of a million at a time."""
    if std == 0:
        return np.full(count, rate)
    accepted = np.empty(0)
    while len(accepted) < count:
        draws = rng.normal(rate, std, size=DRAWS)
        accepted = np.concatenate([accepted, draws[(draws > low) & (draws < high)]])
    return accepted[:count].copy()  # a view would keep the other draws alive


def _by_inverse(
    rng: RandomState | Generator, count: int, *, rate: float, std: float, low: float, high: float
) -> Floats:
    """Truncated normal draws by the inverse of the distribution function."""
    if std == 0:
        return np.full(count, rate)
    ends = ((low - rate) / std, (high - rate) / std)
    return np.asarray(truncnorm.ppf(rng.uniform(size=count), *ends, loc=rate, scale=std))


def _scores(
    x: NDArray[Any],
    clean: NDArray[np.int64],
    rng: RandomState | Generator,
    num_classes: int,
    *,
    scale: float,
    per_class: bool,
) -> Callable[[NDArray[np.int64]], Floats]:
    """x·W of some examples (R, K), with W standard normal, S × K.

    With one W a class they are computed now, (N, K), as only one W is held at a time, and the next
    thing that is drawn comes after the last of them.
    """
    shape = (math.prod(x.shape[1:]), num_classes)
    if not per_class:
        weight = rng.normal(size=shape)
        return lambda rows: _finite(_project(x, rows, weight, scale), rows)
    score_NK = np.empty((len(clean), num_classes))
    of_class = dict(positions_by_value(clean))
    for k in range(num_classes):
        weight = rng.normal(size=shape)  # drawn for a class without examples too
        rows = of_class.get(k, np.empty(0, np.int64))
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS]
            score_NK[block] = _project(x, block, weight, scale)
    return lambda rows: _finite(score_NK[rows], rows)


def _project(x: NDArray[Any], rows: NDArray[np.int64], weight: Floats, scale: float) -> Floats:
    score_RK = np.empty((len(rows), weight.shape[1]))
    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        with np.errstate(invalid="ignore", over="ignore"):  # the caller reports them by row
            values = x[block].reshape(len(block), -1).astype(np.float64)
            if scale != 1:
                values /= scale
            score_RK[start : start + BLOCK_ROWS] = values @ weight
    return score_RK


def _finite(score_RK: Floats, rows: NDArray[np.int64]) -> Floats:
    finite = np.isfinite(score_RK).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"x must be finite and small enough for x·W to be, got NaN, infinity or overflow first "
            f"in row {rows[finite.argmin()]}; clean or scale the features"
        )
    return score_RK


def _wrong_probability(score_NK: Floats, clean: NDArray[np.int64], flip_rate: Floats) -> Floats:
    """q_n·softmax over the wrong classes, zero at the clean one; ``score_NK`` is −∞ there after."""
    score_NK[np.arange(len(clean)), clean] = -np.inf
    wrong_NK: Floats = np.exp(score_NK - score_NK.max(axis=1, keepdims=True))
    wrong_NK *= (flip_rate / wrong_NK.sum(axis=1))[:, None]
    return wrong_NK


def _cap(wrong_NK: Floats, score_NK: Floats, flip_rate: Floats, *, above: float) -> int:
    """Bound entries by 0.9·T_ii where one exceeds ``above``·T_ii, in place; count of q lowered.

    The classes in order of falling score get min(0.9·T_ii, what is left of q): the entries sum to
    q, because q ≤ (K−1)·0.9·(1−q) once q is lowered to the highest rate that fulfils this.
    """
    num_classes = wrong_NK.shape[1]
    rows = np.flatnonzero(wrong_NK.max(axis=1) > above * (1 - flip_rate))
    highest = _highest_capped_rate(num_classes)
    lowered = int((flip_rate[rows] > highest).sum())
    flip_rate[rows] = np.minimum(flip_rate[rows], highest)

    rate_R1 = flip_rate[rows, None]
    limit_R1 = CAP * (1 - rate_R1)
    by_rank = np.clip(rate_R1 - limit_R1 * np.arange(num_classes), 0, limit_R1)
    order = np.argsort(-score_NK[rows], axis=1, kind="stable")  # the clean class, −∞, comes last
    by_class = np.empty_like(by_rank)
    np.put_along_axis(by_class, order, by_rank, axis=1)
    wrong_NK[rows] = by_class
    return lowered


def _draw(
    wrong_NK: Floats, clean: NDArray[np.int64], flip_rate: Floats, uniform: Floats
) -> NDArray[np.int64]:
    """One class an example; the same arithmetic as ``RandomState.choice(K, p=…)`` row by row."""
    wrong_NK[np.arange(len(clean)), clean] = 1 - flip_rate
    cumulative = np.cumsum(wrong_NK, axis=1, out=wrong_NK)
    cumulative /= cumulative[:, -1:].copy()
    label: NDArray[np.int64] = (cumulative <= uniform[:, None]).sum(axis=1)
    return label


def _highest_capped_rate(num_classes: int) -> float:
    return CAP * (num_classes - 1) / (1 + CAP * (num_classes - 1))


def _even_rate(rate: float, num_classes: int) -> float:
    """1 − 1/K: above, even noise that is spread evenly takes the lead from the diagonal."""
    even = 1 - 1 / num_classes
    if rate >= even:
        raise ValueError(
            f"rate must be below 1 − 1/K = {even:.4g} for variant 'calibrated', got {rate}; above, "
            "no temperature keeps the diagonal of T the largest"
        )
    return even


def _lookup(variant: str) -> _Variant:
    if variant not in _VARIANTS:
        nearest = difflib.get_close_matches(str(variant), VARIANTS, n=1, cutoff=0)[0]
        raise ValueError(
            f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}; "
            f"did you mean {nearest!r}?"
        )
    return _VARIANTS[variant]


def _check_std(std: float) -> float:
    if not 0 <= std < math.inf:  # also refuses NaN
        raise ValueError(f"std must be finite and not negative, got {std}; the papers use 0.1")
    return float(std)


def _check_cap(cap: Cap | None, *, variant: str, rate: float, num_classes: int) -> Cap:
    if cap is None:
        cap = "paper" if variant == "cal" and rate > 0.5 else "none"
    highest = _highest_capped_rate(num_classes)
    if cap != "none" and rate > highest:
        raise ValueError(
            f"rate must be at most {highest:.4g} with {num_classes} classes for the cap "
            f"T_ij ≤ 0.9·T_ii, got {rate}; lower it or pass cap='none'"
        )
    return cap


def _check_bounds(low: float, high: float, *, rate: float, std: float) -> None:
    if not 0 <= low < high <= 1:
        raise ValueError(f"bounds must satisfy 0 ≤ low < high ≤ 1, got {(low, high)}")
    if std == 0:
        held = float(low <= rate <= high)
    else:
        held = float(norm.cdf((high - rate) / std) - norm.cdf((low - rate) / std))
    if held < LEAST_HELD:
        raise ValueError(
            f"q lies in ({low:g}, {high:g}), which must hold at least {LEAST_HELD:g} of "
            f"N({rate:g}, {std:g}²), got {held:.2g}; choose a rate nearer to it or a larger std"
        )
