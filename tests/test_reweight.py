"""Kernel mean matching: the problem it says it solves, the ratio it should find, what it refuses."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, minimize
from torch import Tensor

from covlearn.reweight import (
    MeanMatching,
    kernel_mean_matching,
    median_bandwidth,
    project_weights,
)
from covlearn.transition import count_transition
from tests.reference import reweight as reference

Floats = NDArray[np.float64]


def draw(seed: int, num_examples: int = 14, dimensions: int = 2) -> tuple[Floats, NDArray[Any]]:
    """Features, and a mask that keeps more where the first feature is large."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_examples, dimensions))
    kept = rng.random(num_examples) < 1 / (1 + np.exp(-0.5 - 1.5 * features[:, 0]))
    kept[:2] = True
    return features, kept


def gaussian(num_examples: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A Gaussian of two dimensions, kept with a known probability, and γ* at the kept."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(num_examples, 2, generator=generator, dtype=torch.float64)
    keep_rate = torch.sigmoid(1 + features[:, 0])
    kept = torch.rand(num_examples, generator=generator, dtype=torch.float64) < keep_rate
    ratio = 1 / keep_rate[kept]
    return features, kept, ratio / ratio.mean()


def rbf(x: Tensor, z: Tensor, *, bandwidth: float = 1.0) -> Tensor:
    return torch.exp(-(torch.cdist(x, z) ** 2) / (2 * bandwidth**2))


def kernel_matrix(features: Floats, bandwidth: float) -> Floats:
    return reference.kernel_matrix(features, partial(reference.rbf, bandwidth=bandwidth))


# -------------------------------------------------------------------------- the problem itself


@given(
    st.integers(0, 999),
    st.integers(3, 20),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.03, 1.0]),
    st.sampled_from([None, 512]),
    st.sampled_from([1.2, 4.0]),
)
def test_weights_solve_the_stated_problem(
    seed: int, n: int, d: int, ridge: float, landmarks: int | None, upper: float
) -> None:
    features, kept = draw(seed, n, d)
    found = kernel_mean_matching(
        features,
        kept,
        ridge=ridge,
        upper=upper,
        lower=0.1,
        landmarks=landmarks,
        tol=1e-9 if ridge else 1e-2,  # without a ridge the problem is ill-conditioned
    )
    gamma = found.gamma.numpy()
    assert found.converged
    assert (gamma[~kept] == 0).all()
    assert ((gamma[kept] >= 0.1) & (gamma[kept] <= upper)).all()
    assert gamma[kept].mean() == pytest.approx(1, abs=1e-13)

    assert found.bandwidth is not None
    matrix = kernel_matrix(features, found.bandwidth)
    assert found.bandwidth == pytest.approx(reference.median_distance(features))
    value = reference.objective(matrix, kept, gamma, ridge)
    assert found.objective == pytest.approx(value, rel=1e-5, abs=1e-10)
    ones = np.ones(len(kept))
    assert found.unweighted == pytest.approx(
        reference.objective(matrix, kept, ones, ridge), rel=1e-5, abs=1e-10
    )
    # The gap bounds what any other feasible weights could gain: here, the linearised best.
    slope = reference.gradient(matrix, kept, gamma, ridge)
    start, best, room = np.full(kept.sum(), 0.1), np.argsort(slope), 0.9 * kept.sum()
    for k in best:
        start[k] += min(upper - 0.1, room)
        room -= min(upper - 0.1, room)
    assert found.gap == pytest.approx(float(slope @ (gamma[kept] - start)), rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("ridge", [0.05, 1.0])
@pytest.mark.parametrize("upper", [1.3, 5.0])
def test_weights_meet_the_kkt_conditions(ridge: float, upper: float) -> None:
    features, kept = draw(3, 40)
    found = kernel_mean_matching(
        features, kept, ridge=ridge, lower=0.5, upper=upper, tol=1e-10, landmarks=None
    )
    assert found.bandwidth is not None
    matrix = kernel_matrix(features, found.bandwidth)
    slope = reference.gradient(matrix, kept, found.gamma.numpy(), ridge)
    gamma = found.gamma.numpy()[kept]
    at_lower, at_upper = gamma < 0.5 + 1e-7, gamma > upper - 1e-7
    free = ~at_lower & ~at_upper
    assert free.any()
    multiplier = slope[free].mean()
    np.testing.assert_allclose(slope[free], multiplier, atol=1e-7)
    assert (slope[at_lower] >= multiplier - 1e-7).all()
    assert (slope[at_upper] <= multiplier + 1e-7).all()
    if upper == 1.3:
        assert at_lower.any()
        assert at_upper.any()


@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_weights_agree_with_scipy(ridge: float) -> None:
    features, kept = draw(5, 16)
    found = kernel_mean_matching(features, kept, ridge=ridge, bandwidth=1.0, tol=1e-9)
    matrix = kernel_matrix(features, 1.0)
    num_kept = int(kept.sum())

    def objective_and_gradient(gamma: Floats) -> tuple[float, Floats]:
        weights = np.zeros(len(kept))
        weights[kept] = gamma
        value = reference.objective(matrix, kept, weights, ridge)
        return 1e3 * value, 1e3 * reference.gradient(matrix, kept, weights, ridge)

    other = minimize(
        objective_and_gradient,
        np.ones(num_kept),
        jac=True,
        bounds=[(1e-3, 10.0)] * num_kept,
        constraints=LinearConstraint(np.ones((1, num_kept)), num_kept, num_kept),
        method="SLSQP",
        tol=1e-14,
        options={"maxiter": 500},
    )
    assert found.objective == pytest.approx(other.fun / 1e3, rel=1e-4)
    if ridge > 0:  # the solution is unique
        np.testing.assert_allclose(found.gamma.numpy()[kept], other.x, atol=1e-3)


def test_an_unfinished_run_says_so_and_its_gap_still_holds() -> None:
    features, kept = draw(7, 60)
    run = partial(kernel_mean_matching, features, kept, bandwidth=0.7)
    best = run(tol=1e-9, max_iter=5000)
    with pytest.warns(RuntimeWarning, match="stopped after max_iter=2 iterations.*raise max_iter"):
        early = run(tol=1e-9, max_iter=2)
    assert not early.converged
    assert early.iterations == 2
    assert best.objective < early.objective < early.unweighted
    assert early.objective - early.gap <= best.objective
    assert float(early.gamma[torch.from_numpy(kept)].mean()) == pytest.approx(1, abs=1e-13)


@pytest.mark.filterwarnings("ignore:kernel mean matching stopped")
@pytest.mark.parametrize("max_iter", range(1, 5))
def test_an_unfinished_run_is_never_worse_than_no_weights(max_iter: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        features, kept = rng.normal(size=(40, 1)), rng.random(40) < 0.5
        early = kernel_mean_matching(features, kept, ridge=10.0, max_iter=max_iter, tol=0)
        assert early.objective <= early.unweighted


def test_a_small_ridge_and_tight_bounds_are_solved_to_rounding() -> None:
    for seed in range(30):
        features, kept = draw(seed, 10 + seed, 1 + seed % 3)
        found = kernel_mean_matching(features, kept, ridge=0.02, upper=1.2, tol=1e-10)
        assert found.converged  # and no warning


@pytest.mark.parametrize("landmarks", [None, 8, 512])
@pytest.mark.parametrize("kernel", ["rbf", rbf, lambda x, z: x @ z.T])
@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_nothing_dropped_gives_weights_of_exactly_one(
    kernel: Any, landmarks: int | None, ridge: float
) -> None:
    # L_min = L_max: the paper's Strategy 2.
    features = np.random.default_rng(0).normal(size=(50, 3))
    found = kernel_mean_matching(
        features, np.ones(50, dtype=bool), kernel=kernel, landmarks=landmarks, ridge=ridge
    )
    assert found.gamma.tolist() == [1.0] * 50
    assert found.iterations == 0
    assert found.converged
    assert found.objective < 1e-12


# ------------------------------------------------------------------------- the density ratio


@pytest.mark.parametrize("landmarks", [None, 512])
def test_weights_are_the_density_ratio_on_a_finite_support(landmarks: int | None) -> None:
    point = np.repeat(np.arange(4), [30, 20, 40, 10])
    kept = np.concatenate([np.arange(n) < k for n, k in [(30, 15), (20, 20), (40, 8), (10, 10)]])
    ratio = np.array([0.30 / 15, 0.20 / 20, 0.40 / 8, 0.10 / 10]) * kept.sum()
    found = kernel_mean_matching(
        point[:, None] * 1.0, kept, ridge=0, tol=1e-9, landmarks=landmarks, max_iter=5000
    )
    np.testing.assert_allclose(found.gamma.numpy(), np.where(kept, ratio[point], 0), atol=1e-3)
    assert found.objective < 1e-9


def test_weights_approach_the_density_ratio_as_examples_grow() -> None:
    error = {}
    for num_examples in (300, 3000):
        features, kept, ratio = gaussian(num_examples)
        found = kernel_mean_matching(features, kept, landmarks=128)
        error[num_examples] = float((found.gamma[kept] - ratio).square().mean().sqrt())
    without = float((1 - ratio).square().mean().sqrt())
    assert error[3000] < 0.65 * error[300]
    assert error[3000] < 0.4 * without


def test_the_ridge_is_what_brings_weights_near_the_ratio() -> None:
    features, kept, ratio = gaussian(500, seed=1)
    error = {}
    for ridge in (0.0, 1.0):
        found = kernel_mean_matching(features, kept, ridge=ridge, tol=1e-4, max_iter=5000)
        error[ridge] = float((found.gamma[kept] - ratio).square().mean().sqrt())
    assert error[1.0] < 0.75 * error[0.0]


# ------------------------------------------------- what the weights are for: the covariance

# Four points of equal mass; rows count the noisy labels 0 and 1 at a point, and those kept.
COUNT = np.array([[6, 2], [2, 6], [4, 4], [0, 8]])
KEPT = np.array([[3, 1], [2, 6], [1, 1], [0, 4]])  # the same share of both labels at each point
REFINED = np.array([0, 0, 1, 1])
LOSS = np.array([[0.2, 1.7], [1.1, 0.4], [2.3, 0.1], [0.6, 0.8]])


def finite_population() -> tuple[Any, Any, Any]:
    """One row an example: its point, its noisy label, whether it is kept."""
    cells = [(x, y, n < KEPT[x, y]) for x in range(4) for y in range(2) for n in range(COUNT[x, y])]
    point, noisy, kept = zip(*cells, strict=True)
    return np.array(point), np.array(noisy), np.array(kept)


def test_known_weights_undo_dropping_exactly() -> None:
    point, noisy, kept = finite_population()
    gamma = np.where(kept, 8 / 32 / (KEPT.sum(axis=1) / KEPT.sum())[point], 0)
    assert gamma[kept].mean() == pytest.approx(1)
    refined, ones = REFINED[point], np.ones(len(point))
    table = partial(reference.covariance_table, refined, noisy, LOSS[point])
    np.testing.assert_allclose(table(gamma), table(ones), atol=1e-14)
    assert np.abs(table(kept * 1.0) - table(ones)).max() > 0.01  # dropping did bias it

    dropped = np.where(kept, refined, -1)
    full = count_transition(refined, noisy, num_classes=2)
    weighted = count_transition(dropped, noisy, num_classes=2, weight=gamma)
    torch.testing.assert_close(weighted, full, atol=1e-14, rtol=0)
    assert not torch.allclose(count_transition(dropped, noisy, num_classes=2), full, atol=0.01)


def test_found_weights_undo_dropping() -> None:
    point, noisy, kept = finite_population()
    found = kernel_mean_matching(point[:, None] * 1.0, kept, ridge=0, tol=1e-9, max_iter=5000)
    refined = REFINED[point]
    full = count_transition(refined, noisy, num_classes=2)
    dropped = np.where(kept, refined, -1)
    weighted = count_transition(dropped, noisy, num_classes=2, weight=found.gamma)
    torch.testing.assert_close(weighted, full, atol=1e-3, rtol=0)


def test_the_covariance_under_random_dropping_is_unbiased_with_the_known_ratio() -> None:
    rng = np.random.default_rng(0)
    point, noisy, _ = finite_population()
    keep_rate = np.array([0.9, 0.3, 0.5, 0.8])
    gamma_star = keep_rate.mean() / keep_rate
    refined, loss = np.tile(REFINED[point], 20), np.tile(LOSS[point], (20, 1))
    point, noisy = np.tile(point, 20), np.tile(noisy, 20)
    full = reference.covariance_table(refined, noisy, loss, np.ones(len(point)))
    draws, biased = [], []
    for _ in range(60):
        kept = rng.random(len(point)) < keep_rate[point]
        weight = np.where(kept, gamma_star[point], 0)
        draws.append(reference.covariance_table(refined, noisy, loss, weight))
        biased.append(reference.covariance_table(refined, noisy, loss, kept * 1.0))
    standard_error = np.std(draws, axis=0) / np.sqrt(60)
    assert (np.abs(np.mean(draws, axis=0) - full) < 3.5 * standard_error).all()
    assert (np.abs(np.mean(biased, axis=0) - full) > 5 * standard_error).any()


def test_no_weight_of_x_alone_repairs_dropping_by_the_noisy_label() -> None:
    # One point of each class loses only examples that are labelled 1, as a sieve may do.
    point, noisy, _ = finite_population()
    kept = ~((point == 1) & (noisy == 1) & (np.arange(len(point)) % 2 == 0))
    refined = np.where(kept, REFINED[point], -1)
    full = count_transition(REFINED[point], noisy, num_classes=2)
    mass = np.bincount(point[kept]) / kept.sum()
    gamma = np.where(kept, 0.25 / mass[point], 0)
    weighted = count_transition(refined, noisy, num_classes=2, weight=gamma)
    assert float((weighted - full).abs().max()) > 0.05


# ----------------------------------------------------- forms, kernels, order, dtypes, randomness


def test_tiles_equal_the_kernel_held_in_memory() -> None:
    features, kept = draw(9, 70)
    held = kernel_mean_matching(features, kept, landmarks=None)
    tiled = kernel_mean_matching(features, kept, landmarks=None, block_size=16)
    torch.testing.assert_close(tiled.gamma, held.gamma, rtol=1e-9, atol=1e-9)
    assert tiled.objective == pytest.approx(held.objective, rel=1e-9)


def test_blocks_do_not_change_the_projected_form() -> None:
    features, kept = draw(9, 70)
    whole = kernel_mean_matching(features, kept, landmarks=20)
    blocks = kernel_mean_matching(features, kept, landmarks=20, block_size=9)
    torch.testing.assert_close(blocks.gamma, whole.gamma, rtol=1e-9, atol=1e-9)


def test_as_many_landmarks_as_examples_are_exact_and_fewer_come_near() -> None:
    features, kept, _ = gaussian(400)
    exact = kernel_mean_matching(features, kept, landmarks=None, tol=1e-6)
    assert exact.unexplained == 0
    runs = {n: kernel_mean_matching(features, kept, landmarks=n, tol=1e-6) for n in (4, 30, 400)}
    torch.testing.assert_close(runs[400].gamma, exact.gamma, atol=2e-3, rtol=0)
    assert runs[400].unexplained < 1e-8 < runs[30].unexplained < runs[4].unexplained < 1
    distance = {n: float((run.gamma - exact.gamma).norm()) for n, run in runs.items()}
    assert distance[30] < 0.25 * distance[4]
    assert distance[30] < 0.1 * float((kept.double() - exact.gamma).norm())


def test_unexplained_is_the_share_outside_the_landmarks_span() -> None:
    # One landmark z: the share of k(x, x) = 1 it explains is k(x, z)², mean over x.
    features = np.array([[0.0], [1.0], [3.0]])
    found = kernel_mean_matching(
        features, np.array([True, True, False]), bandwidth=1.0, landmarks=1, ridge=1.0
    )
    z = features[1]  # the middle rank along any direction
    explained = np.mean([reference.rbf(x, z, 1.0) ** 2 for x in features])
    assert found.unexplained == pytest.approx(1 - explained)


@pytest.mark.parametrize("landmarks", [None, 25, 512])
def test_weights_go_with_the_examples_whatever_their_order(landmarks: int | None) -> None:
    features, kept, _ = gaussian(200)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(2))
    first = kernel_mean_matching(features, kept, landmarks=landmarks)
    second = kernel_mean_matching(features[order], kept[order], landmarks=landmarks)
    assert first.bandwidth == second.bandwidth
    torch.testing.assert_close(second.gamma, first.gamma[order], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("landmarks", [None, 30])
def test_a_callers_kernel_is_used(landmarks: int | None) -> None:
    features, kept = draw(11, 60)
    run = partial(kernel_mean_matching, features, kept, landmarks=landmarks)
    built_in = run(bandwidth=1.5)
    by_hand = run(kernel=partial(rbf, bandwidth=1.5))
    torch.testing.assert_close(by_hand.gamma, built_in.gamma, rtol=1e-7, atol=1e-7)
    assert by_hand.bandwidth is None
    in_numpy = run(kernel=lambda x, z: rbf(x, z, bandwidth=1.5).numpy())
    assert torch.equal(in_numpy.gamma, by_hand.gamma)
    scaled = run(kernel=lambda x, z: 100 * rbf(x, z, bandwidth=1.5))
    torch.testing.assert_close(scaled.gamma, built_in.gamma, rtol=1e-7, atol=1e-7)
    other = run(bandwidth=0.2)
    assert float((other.gamma - built_in.gamma).abs().max()) > 0.05


def test_a_linear_kernel_matches_the_mean_of_the_features() -> None:
    features, kept = draw(13, 80, 3)
    found = kernel_mean_matching(features, kept, kernel=lambda x, z: x @ z.T, ridge=0, tol=1e-10)
    gamma = found.gamma.numpy()
    got = (gamma[kept, None] * features[kept]).mean(axis=0)
    np.testing.assert_allclose(got, features.mean(axis=0), atol=1e-4)
    assert np.abs(features[kept].mean(axis=0) - features.mean(axis=0)).max() > 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_over_dtypes(dtype: torch.dtype) -> None:
    features, kept = draw(15, 60)
    coarse = torch.tensor(np.round(features * 8) / 8)  # exact in every dtype
    expected = kernel_mean_matching(coarse, kept)
    found = kernel_mean_matching(coarse.to(dtype), kept)
    assert found.gamma.dtype == torch.float64
    torch.testing.assert_close(found.gamma, expected.gamma, rtol=1e-6, atol=1e-6)


def test_the_seed_decides_and_the_global_state_and_the_input_stay() -> None:
    features, kept, _ = gaussian(300)
    before, state = features.clone(), torch.get_rng_state()
    first, again, other = (
        kernel_mean_matching(features, kept, landmarks=10, bandwidth=1.0, seed=s) for s in (0, 0, 1)
    )
    assert torch.equal(first.gamma, again.gamma)
    assert not torch.equal(first.gamma, other.gamma)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(features, before)


def test_weights_are_plain_values_whatever_had_a_gradient() -> None:
    features, kept, _ = gaussian(50)
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    found = kernel_mean_matching(
        features.requires_grad_(), kept, kernel=lambda x, z: scale * rbf(x, z)
    )
    assert not found.gamma.requires_grad


def test_one_kept_example_and_tight_bounds_leave_no_choice() -> None:
    features = np.array([[0.0], [1.0], [2.0]])
    only = kernel_mean_matching(features, np.array([False, True, False]))
    assert only.gamma.tolist() == [0, 1, 0]
    tight = kernel_mean_matching(features, np.array([True, True, False]), upper=1.0)
    assert tight.gamma.tolist() == pytest.approx([1, 1, 0])


# ---------------------------------------------------------------------------------- projection


@given(
    st.lists(st.floats(-20, 20), min_size=1, max_size=30),
    st.sampled_from([1e-3, 0.5, 1.0]),
    st.sampled_from([1.0, 1.01, 3.0, 100.0]),
)
def test_projection_equals_bisection(values: list[float], lower: float, upper: float) -> None:
    vector = np.array(values)
    got = project_weights(torch.tensor(vector), lower=lower, upper=upper).numpy()
    np.testing.assert_allclose(
        got, reference.project_weights(vector, lower, upper), atol=1e-9, rtol=0
    )
    assert ((got >= lower) & (got <= upper)).all()
    assert got.mean() == pytest.approx(1, abs=1e-12)


def test_projection_keeps_weights_that_are_feasible() -> None:
    weights = torch.tensor([0.5, 1.5, 1.0, 0.2, 1.8], dtype=torch.float64)
    torch.testing.assert_close(project_weights(weights, lower=0.1, upper=2.0), weights)


# ----------------------------------------------------------------------------------- bandwidth


@settings(max_examples=20)
@given(st.integers(0, 99), st.integers(2, 25), st.integers(1, 4))
def test_median_bandwidth_equals_the_loop(seed: int, n: int, d: int) -> None:
    features = np.random.default_rng(seed).normal(size=(n, d))
    assert median_bandwidth(features) == pytest.approx(reference.median_distance(features))


def test_median_bandwidth_samples_and_ignores_equal_rows() -> None:
    features = np.random.default_rng(0).normal(size=(4000, 5))
    whole = float(torch.pdist(torch.from_numpy(features)).median())
    assert median_bandwidth(features, sample=500) == pytest.approx(whole, rel=0.03)
    assert median_bandwidth(np.array([[0.0]] * 9 + [[2.0]])) == 2
    with pytest.raises(ValueError, match="all sampled rows are equal; pass bandwidth"):
        median_bandwidth(np.ones((5, 2)))
    with pytest.raises(ValueError, match="sample must be finite and at least 2, got 1"):
        median_bandwidth(features, sample=1)


# ----------------------------------------------------------------------------------- bad input


def run(**change: Any) -> MeanMatching:
    features, kept = draw(0)
    return kernel_mean_matching(**({"features": features, "kept": kept} | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kept": np.zeros(14, dtype=bool)}, "kept must have at least one example, got none"),
        ({"kept": np.ones(13, dtype=bool)}, r"kept must be a boolean mask .*14, got .*\(13,\)"),
        ({"kept": np.ones(14)}, "kept must be a boolean mask .*float64"),
        (
            {"features": np.full((14, 2), np.nan)},
            "NaN or infinity in 14 of 14 rows, first in row 0",
        ),
        (
            {"features": np.ones((14, 2), dtype=int)},
            "features must be floating point .*got torch.int",
        ),
        ({"features": np.ones(14)}, r"shape \(examples, dimensions\).*got .*\(14,\)"),
        ({"features": np.ones((14, 0))}, "both at least 1"),
        ({"bandwidth": 0.0}, "bandwidth must be positive and finite, got 0.0"),
        ({"bandwidth": -1.0}, "bandwidth must be positive"),
        ({"bandwidth": float("nan")}, "bandwidth must be positive"),
        ({"kernel": "linear"}, "kernel must be .rbf. or a callable .*got 'linear'"),
        ({"kernel": rbf, "bandwidth": 1.0}, "bandwidth is for kernel=.rbf."),
        (
            {"kernel": lambda x, z: x @ x.T[:, :1]},
            r"each pair of rows, \(14, 14\), got .*\(14, 1\)",
        ),
        ({"kernel": lambda x, z: rbf(x, z) / 0}, "kernel must return finite values"),
        ({"kernel": torch.cdist}, "symmetric and positive semi-definite.*similarity"),
        ({"kernel": lambda x, z: x[:, :1] - z[:, 0]}, "symmetric and positive semi-definite"),
        ({"upper": 0.9}, "0 < lower ≤ 1 ≤ upper, got lower=0.001 and upper=0.9"),
        ({"lower": 0.0}, "0 < lower"),
        ({"lower": 1.1}, "0 < lower"),
        ({"upper": float("inf")}, "0 < lower"),
        ({"ridge": -1.0}, "ridge must be finite and at least 0, got -1.0"),
        ({"tol": float("nan")}, "tol must be finite and at least 0"),
        ({"max_iter": 0}, "max_iter must be finite and at least 1, got 0"),
        ({"block_size": 0}, "block_size must be finite and at least 1, got 0"),
        ({"landmarks": 0}, "landmarks must be finite and at least 1, got 0"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(**change)


def test_a_kernel_that_is_none_is_refused_in_the_exact_form_too() -> None:
    with pytest.raises(ValueError, match="symmetric and positive semi-definite"):
        run(kernel=torch.cdist, landmarks=None)
