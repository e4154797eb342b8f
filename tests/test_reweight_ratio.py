"""Kernel mean matching: the density ratio, and what it is for."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from covlearn.reweight import (
    kernel_mean_matching,
)
from covlearn.transition import count_transition
from tests.reference import reweight as reference
from tests.reweight_cases import gaussian

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
