"""Weights γ(x) that make up for dropped examples, by kernel mean matching.

Paper: App. "Setting thresholds L_min and L_max", Eq. (opt_gamma). Dropping examples moves the
distribution of X from D to D̂; γ* = P_D / P_D̂ moves it back. γ is a function of x alone, so that γ*
repairs dropping that was decided by x. The sieve decides by x *and* the noisy label: what this does
to P(noisy | x) among the kept, no γ(x) can undo.
"""

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from covlearn.checks import Array, as_tensor, at_least_float32
from covlearn.kinds import checked

Kernel: TypeAlias = Callable[[Tensor, Tensor], Array]
"""Rows (n, d) and (m, d) to the n×m values k(x, z), symmetric and positive semi-definite."""
_Kernel: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # checked, float64

_ROUNDING = 1e-14  # of a weighted mean of float64 kernel values, relative to k(x, x)
_DIAGONAL_ROWS = 64  # k(x, x) is read from square tiles: small ones waste less


@dataclass(frozen=True)
class MeanMatching:
    """The weights, and how well they were found.

    ``gamma`` has one value per example: 0 if dropped, otherwise in [lower, upper] with mean one
    over the kept. No weights have an objective below ``objective − gap``; ``unweighted`` is the
    objective of γ = 1, what dropping cost. ``unexplained`` is the share of k(x, x) outside the span
    of the landmarks, over all examples: 0 if exact. ``bandwidth`` is None for a caller's kernel.
    """

    gamma: Tensor
    objective: float
    gap: float
    unweighted: float
    iterations: int
    converged: bool
    unexplained: float
    bandwidth: float | None


@checked
def kernel_mean_matching(
    features: Array,
    kept: Array,
    *,
    kernel: Literal["rbf"] | Kernel = "rbf",
    bandwidth: float | None = None,
    ridge: float = 1.0,
    lower: float = 1e-3,
    upper: float = 10.0,
    landmarks: int | None = 512,
    tol: float = 1e-3,
    max_iter: int = 1000,
    block_size: int = 2048,
    seed: int = 0,
) -> MeanMatching:
    """The γ that brings the mean of γΦ over the kept to the mean of Φ over all N examples::

        minimise ‖1/N Σ_n Φ(x_n) − 1/m Σ_kept γ_k Φ(x_k)‖² + ridge · k̄/m² Σ_kept (γ_k − 1)²
        subject to lower ≤ γ_k ≤ upper, 1/m Σ_kept γ_k = 1

    with Φ the feature map of the kernel, m the number of kept examples, k̄ the mean of k(x, x).
    ``kernel="rbf"`` is exp(−‖x − z‖² / 2 bandwidth²), with ``median_bandwidth`` by default; a
    callable is given float64 rows.

    What departs from Eq. (opt_gamma), and how to get it as printed:

    - ``ridge=0`` leaves out the second term, the variance that m random examples give a weighted
      mean. Without it γ follows the noise of the sample, with it the ratio of the densities. It
      vanishes as m grows and costs γ = 1 nothing.
    - ``landmarks=None`` uses Φ itself. The kernel is then recomputed in each iteration, in tiles of
      ``block_size``², and held only if N ≤ ``block_size``. A number replaces Φ by its projection on
      the span of Φ at so many examples, m × landmarks float64 values in memory; one of N or more is
      exact again.
    - γ > 0 becomes γ ≥ ``lower``, and ``upper`` bounds what one example may weigh.

    It stops when the objective is proved to be within ``tol`` · ``unweighted`` of the least, and
    warns if ``max_iter`` comes first. The weights go with the examples, whatever their order;
    ``seed`` is for the choice of landmarks and of the sample behind the bandwidth.

    >>> x = torch.tensor([[0.0], [0.0], [1.0], [1.0]])
    >>> kept = torch.tensor([True, False, True, True])  # half of the examples at 0 are dropped
    >>> kernel_mean_matching(x, kept, ridge=0, tol=1e-9).gamma
    tensor([1.5000, 0.0000, 0.7500, 0.7500], dtype=torch.float64)
    """
    features = _check_features(features)
    kept = _check_kept(kept, features)
    if not 0 < lower <= 1 <= upper < math.inf:
        raise ValueError(
            f"bounds must satisfy 0 < lower ≤ 1 ≤ upper, got lower={lower} and upper={upper}; "
            "weights are positive with mean one"
        )
    _check_at_least(0, ridge=ridge, tol=tol)
    _check_at_least(1, max_iter=max_iter, block_size=block_size, landmarks=landmarks)
    if kernel == "rbf":
        bandwidth = median_bandwidth(features, seed=seed) if bandwidth is None else bandwidth
        evaluate = _rbf(bandwidth)
    else:
        if bandwidth is not None:
            raise ValueError(f'bandwidth is for kernel="rbf", got {bandwidth} with a callable')
        evaluate = _checked(kernel)

    if landmarks is None:
        moments = _exact_moments(features, kept, evaluate, block_size)
    else:
        rows = _spread_rows(features, landmarks, seed)
        moments = _projected_moments(features, kept, evaluate, rows, block_size)
    found = _minimise(moments, ridge, lower, upper, tol, max_iter)
    if not found.converged:
        warnings.warn(
            f"kernel mean matching stopped after max_iter={max_iter} iterations: its objective "
            f"{found.objective:.3g} is within {found.gap:.3g} of the least, wanted "
            f"{tol} · {found.unweighted:.3g}; raise max_iter, tol or ridge",
            RuntimeWarning,
            stacklevel=3,  # past the check of its arguments
        )
    gamma_N = features.new_zeros(len(kept), dtype=torch.float64).masked_scatter(kept, found.gamma)
    return replace(found, gamma=gamma_N, bandwidth=bandwidth)


@checked
def median_bandwidth(features: Array, *, sample: int = 1000, seed: int = 0) -> float:
    """The median of the positive distances between ``sample`` examples: the RBF's usual width."""
    features = _check_features(features)
    _check_at_least(2, sample=sample)
    distance = torch.pdist(features[_spread_rows(features, sample, seed)].double())
    positive = distance[distance > 0]
    if not positive.numel():
        raise ValueError(
            "features must differ between examples for the median heuristic, but all sampled rows "
            "are equal; pass bandwidth"
        )
    return float(positive.median())


def project_weights(values: Tensor, *, lower: float, upper: float) -> Tensor:
    """The nearest weights in [lower, upper] with mean one: w = clip(v − τ, lower, upper).

    The sum of w falls as τ grows, linearly between the knots where an entry leaves ``upper`` or
    meets ``lower``: sorting the knots tells which entries are between the bounds at the solution,
    and these give τ exactly.
    """
    num_weights = len(values)
    knots, order = torch.cat([values - upper, values - lower]).sort()
    num_inside = torch.where(order < num_weights, 1, -1).cumsum(dim=0)
    fallen = (knots.diff() * num_inside[:-1]).cumsum(dim=0)
    found = int(torch.searchsorted(fallen, num_weights * (upper - 1)))
    found = min(found, len(fallen) - 1)  # rounding, where every weight is at the lower bound
    shifted = values - (knots[found] + knots[found + 1]) / 2
    inside = (lower < shifted) & (shifted < upper)
    surplus = shifted.clamp(lower, upper).sum() - num_weights
    return (shifted - surplus / inside.sum().clamp(min=1)).clamp(lower, upper)


class _Moments(NamedTuple):
    """What the objective needs: γᵀKγ/m² − 2 tᵀγ/m + c, the squared distance of the two means."""

    product: Callable[[Tensor], Tensor]  # v ↦ K v, K the kernel among the m kept
    target: Tensor  # t_k = 1/N Σ_n k(x_k, x_n)
    constant: float  # c = 1/N² Σ_nn' k(x_n, x_n')
    scale: float  # k̄
    unexplained: float


def _exact_moments(features: Tensor, kept: Tensor, kernel: _Kernel, block_size: int) -> _Moments:
    _spectrum(kernel, features[:256].double())  # a look at some rows refuses what is no kernel
    uniform_N = torch.ones_like(kept, dtype=torch.float64) / len(features)
    target_N = _multiplier(features, kernel, block_size)(uniform_N)
    return _Moments(
        product=_multiplier(features[kept], kernel, block_size),
        target=target_N[kept],
        constant=float(target_N.mean()),
        scale=_mean_diagonal(features, kernel),
        unexplained=0.0,
    )


def _multiplier(rows: Tensor, kernel: _Kernel, block_size: int) -> Callable[[Tensor], Tensor]:
    if len(rows) <= block_size:
        matrix = kernel(rows.double(), rows.double())
        return lambda vector: matrix @ vector

    def by_tiles(vector: Tensor) -> Tensor:
        total = torch.zeros_like(vector)
        for here in _blocks(len(rows), block_size):
            for there in _blocks(len(rows), block_size):
                tile = kernel(rows[here].double(), rows[there].double())
                total[here] += tile @ vector[there]
        return total

    return by_tiles


def _projected_moments(
    features: Tensor, kept: Tensor, kernel: _Kernel, landmarks: Tensor, block_size: int
) -> _Moments:
    """The moments of P Φ, P the projection on the span of Φ at the landmarks (Nyström).

    With K_zz = V Λ Vᵀ among the landmarks, φ(x) = Λ^−½ Vᵀ k(z, x) are the coordinates of P Φ(x).
    """
    landmark_features = features[landmarks].double()
    value, vector = _spectrum(kernel, landmark_features)
    seen = value > 1e-10 * value.max()  # smaller ones are rounding
    to_coordinates = vector[:, seen] / value[seen].sqrt()
    total = torch.zeros_like(value[seen])
    squared_norm = 0.0
    kept_coordinates = torch.empty(int(kept.sum()), len(total)).to(total)
    filled = 0
    for rows in _blocks(len(features), block_size):
        coordinates = kernel(features[rows].double(), landmark_features) @ to_coordinates
        total += coordinates.sum(dim=0)
        squared_norm += float(coordinates.square().sum())
        of_kept = coordinates[kept[rows]]
        kept_coordinates[filled : filled + len(of_kept)] = of_kept
        filled += len(of_kept)
    mean = total / len(features)
    scale = _mean_diagonal(features, kernel)
    return _Moments(
        product=lambda vector: kept_coordinates @ (vector @ kept_coordinates),
        target=kept_coordinates @ mean,
        constant=float(mean @ mean),
        scale=scale,
        unexplained=max(1 - squared_norm / len(features) / scale, 0.0) if scale > 0 else 0.0,
    )


def _minimise(
    moments: _Moments, ridge: float, lower: float, upper: float, tol: float, max_iter: int
) -> MeanMatching:
    """Projected gradient with alternating Barzilai–Borwein steps, for an ill-conditioned quadratic.

    One that would end above all of the last ten is cut to the lowest point on its way.
    """
    num_kept = len(moments.target)
    penalty = ridge * moments.scale
    target = moments.target + penalty / num_kept
    constant = moments.constant + penalty / num_kept

    def product(v: Tensor) -> Tensor:
        return (moments.product(v) + penalty * v) / num_kept

    gamma = torch.ones_like(target)
    gradient = product(gamma) - target  # of the objective, times m/2
    unweighted = max(float(gamma @ (gradient - target)) / num_kept + constant, 0.0)
    wanted = tol * unweighted + _ROUNDING * upper * moments.scale
    risen = 0.0  # above γ = 1, in units of 1/m
    recent = deque([risen], maxlen=10)
    step = 1 / max(float(gradient.max() - gradient.min()), 1e-300)
    for iteration in range(max_iter + 1):
        # A direction sums to zero but for rounding, which a constant in the gradient would magnify.
        slope = gradient - gradient.mean()
        gap = _gap(gamma, slope, lower, upper)
        if gap <= wanted or iteration == max_iter:
            break
        # Past this length the projection ends in a corner of the box, whatever the step.
        step = min(step, 100 * upper / float(slope.max() - slope.min()))
        direction = project_weights(gamma - step * slope, lower=lower, upper=upper) - gamma
        change = product(direction)
        descent = -float(direction @ slope)
        curvature = float(direction @ change) + 1e-300  # 0 where the kernel sees no difference
        climbs = risen - 2 * descent + curvature > max(recent)
        length = min(max(descent / curvature, 0.0), 1.0) if climbs else 1.0
        gamma = gamma + length * direction
        gradient = gradient + length * change
        risen += length * (length * curvature - 2 * descent)
        recent.append(risen)
        long_step, changed = float(direction @ direction) / curvature, float(change @ change)
        step = curvature / (changed + 1e-300) if iteration % 2 else long_step
    objective = max(float(gamma @ (gradient - target)) / num_kept + constant, 0.0)
    return MeanMatching(
        gamma=gamma.clamp(lower, upper),  # sums round
        objective=objective,
        gap=gap,
        unweighted=unweighted,
        iterations=iteration,
        converged=gap <= wanted,
        unexplained=moments.unexplained,
        bandwidth=None,
    )


def _gap(gamma: Tensor, gradient: Tensor, lower: float, upper: float) -> float:
    """What the objective could still lose: by convexity at most gradᵀ(γ − s) for the best s.

    The best s fills the entries with the smallest gradient up to the bound, until the mean is one.
    """
    width = upper - lower
    before = width * torch.arange(len(gamma), dtype=gamma.dtype, device=gamma.device)
    filled = lower + (len(gamma) * (1 - lower) - before).clamp(0, width)
    return max(2 * float(gradient @ gamma - gradient.sort().values @ filled) / len(gamma), 0.0)


def _rbf(bandwidth: float) -> _Kernel:
    if not 1e-150 < bandwidth < 1e150:  # its square is a number other than zero
        raise ValueError(
            f"bandwidth must be positive and finite, got {bandwidth}; None is the median distance"
        )

    def evaluate(x: Tensor, z: Tensor) -> Tensor:
        squared = torch.addmm(x.square().sum(dim=1)[:, None], x, z.T, alpha=-2)
        squared += z.square().sum(dim=1)
        return squared.clamp_(min=0).mul_(-0.5 / bandwidth**2).exp_()

    return evaluate


def _checked(kernel: Kernel) -> _Kernel:
    def evaluate(x: Tensor, z: Tensor) -> Tensor:
        values = torch.as_tensor(kernel(x, z)).detach().to(x)
        if values.shape != (len(x), len(z)):
            raise ValueError(
                f"kernel must return one value for each pair of rows, {(len(x), len(z))}, "
                f"got shape {tuple(values.shape)}"
            )
        if not bool(torch.isfinite(values).all()):
            raise ValueError("kernel must return finite values, got NaN or infinity")
        return values

    return evaluate


def _spectrum(kernel: _Kernel, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of the kernel matrix of some rows; refuses one that is none."""
    matrix = kernel(rows, rows)
    asymmetry = float((matrix - matrix.T).abs().max())
    value, vector = torch.linalg.eigh((matrix + matrix.T) / 2)
    largest, smallest = float(value.abs().max()), float(value[0])
    if asymmetry > 1e-6 * largest or smallest < -1e-6 * largest:
        raise ValueError(
            "kernel must be symmetric and positive semi-definite, got k(x, z) − k(z, x) up to "
            f"{asymmetry:.3g}, eigenvalues from {smallest:.3g}; turn a distance into a similarity"
        )
    return value, vector


def _mean_diagonal(features: Tensor, kernel: _Kernel) -> float:
    total = 0.0
    for rows in _blocks(len(features), _DIAGONAL_ROWS):
        block = features[rows].double()
        total += float(kernel(block, block).diagonal().sum())
    return total / len(features)


def _spread_rows(features: Tensor, count: int, seed: int) -> Tensor:
    """``count`` rows at even ranks along a random direction: a sample free of the rows' order."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(features.shape[1], generator=generator, dtype=torch.float64)
    order = (features @ direction.to(features)).argsort()
    count = min(count, len(features))
    rank = ((torch.arange(count, dtype=torch.float64) + 0.5) * len(features) / count).long()
    return order[rank.to(order.device)]


def _blocks(length: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, length, size))


def _check_features(features: Array) -> Tensor:
    features = as_tensor(features).detach()
    if not features.is_floating_point() or features.ndim != 2 or 0 in features.shape:
        raise ValueError(
            "features must be floating point of shape (examples, dimensions), both at least 1, "
            f"got {features.dtype} of shape {tuple(features.shape)}; flatten images first"
        )
    bad = (~torch.isfinite(features).all(dim=1)).nonzero().flatten()
    if bad.numel():
        raise ValueError(
            f"features must be finite, got NaN or infinity in {len(bad)} of {len(features)} rows, "
            f"first in row {int(bad[0])}; leave those examples out"
        )
    return at_least_float32(features)


def _check_kept(kept: Array, features: Tensor) -> Tensor:
    kept = as_tensor(kept)
    if kept.dtype != torch.bool or kept.shape != (len(features),):
        raise ValueError(
            f"kept must be a boolean mask with one entry an example, {len(features)}, "
            f"got {kept.dtype} of shape {tuple(kept.shape)}; refined >= 0 makes one"
        )
    if not bool(kept.any()):
        raise ValueError("kept must have at least one example, got none; loosen the threshold")
    return kept.to(features.device)


def _check_at_least(least: int, **options: float | None) -> None:
    for name, value in options.items():
        if value is not None and not least <= value < math.inf:
            raise ValueError(f"{name} must be finite and at least {least}, got {value}")
