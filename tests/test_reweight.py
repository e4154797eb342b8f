"""Kernel mean matching: the problem it says it solves, and what it refuses."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize

from covlearn.reweight import (
    MeanMatching,
    kernel_mean_matching,
    median_bandwidth,
    project_weights,
)
from tests.reference import reweight as reference
from tests.reweight_cases import Floats, draw, rbf


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
        ({"kernel": "linear"}, "kernel must be .rbf. or a function, got 'linear'"),
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
