"""Kernel mean matching: landmarks, tiles, kernels, order, dtypes and randomness."""

from functools import partial

import numpy as np
import pytest
import torch

from covlearn.reweight import (
    kernel_mean_matching,
)
from tests.reference import reweight as reference
from tests.reweight_cases import draw, gaussian, rbf


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
