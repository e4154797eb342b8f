"""PTD: parts, and their matrices."""

import numpy as np
import pytest
import torch

from covlearn.methods.ptd import (
    anchor_points,
    fit_parts,
    part_mixture,
)
from covlearn.transition import anchor_transition
from tests.reference.transition import project_row


def test_parts_of_a_known_factorisation_are_found() -> None:
    rng = np.random.default_rng(0)
    # Each part has features of its own, and examples that consist of it alone.
    parts = np.kron(np.eye(3), np.ones(4)) * rng.uniform(0.5, 2, size=12)
    share = rng.dirichlet(np.full(3, 0.2), size=200)
    mass = rng.uniform(1, 5, size=(200, 1))
    features = mass * share @ (parts / parts.sum(axis=1, keepdims=True))
    found = part_mixture(torch.from_numpy(features), 3, seed=0).numpy()
    np.testing.assert_allclose(found.sum(axis=1), 1)
    order = [int(np.argmax(found[np.argmax(share[:, k])])) for k in range(3)]
    np.testing.assert_allclose(found[:, order], share, atol=0.02)


def test_mixtures_are_on_the_simplex_whatever_the_features() -> None:
    features = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))  # half are negative
    features[3] = 0
    features[4] = -1
    mixture = part_mixture(features, 4, seed=0)
    assert mixture.shape == (40, 4)
    assert float(mixture.min()) >= 0
    torch.testing.assert_close(mixture.sum(dim=1), torch.ones(40, dtype=torch.float64))
    assert mixture[3].tolist() == mixture[4].tolist() == [0.25] * 4
    assert torch.equal(mixture, part_mixture(features, 4, seed=0))


def test_more_parts_than_features_are_refused() -> None:
    with pytest.raises(ValueError, match=r"at most .* = 6 parts, got parts=7"):
        part_mixture(torch.rand(40, 6), 7, seed=0)


def test_anchors_are_those_of_the_class_dependent_estimate() -> None:
    probs = np.random.default_rng(0).dirichlet(np.full(4, 0.3), size=300)
    percentiles = np.linspace(90, 100, 7)
    anchors = anchor_points(torch.from_numpy(probs), percentiles)
    assert anchors.shape == (4, 7)
    for a, percentile in enumerate(percentiles):
        expected = anchor_transition(probs, percentile=float(percentile))
        np.testing.assert_allclose(probs[anchors[:, a]], expected, rtol=1e-12)


def test_a_planted_mixture_is_recovered() -> None:
    rng = np.random.default_rng(1)
    planted = rng.dirichlet(np.full(5, 0.5), size=(3, 5))
    mixture = rng.dirichlet(np.ones(3), size=(5, 15))  # of each class's anchors
    posterior = np.stack([mixture[i] @ planted[:, i] for i in range(5)])
    found = fit_parts(torch.from_numpy(mixture), torch.from_numpy(posterior), steps=2000)
    np.testing.assert_allclose(found, planted, atol=1e-5)
    pulled = fit_parts(torch.from_numpy(mixture), torch.from_numpy(posterior), ridge=1e6)
    mean = posterior.mean(axis=1)
    np.testing.assert_allclose(pulled, np.broadcast_to(mean, pulled.shape), atol=1e-5)


@pytest.mark.parametrize("ridge", [0.01, 0.1])
@pytest.mark.parametrize(
    ("seed", "num_classes", "num_parts"), [(0, 2, 3), (1, 4, 2), (2, 3, 1), (3, 5, 4)]
)
def test_the_fit_cannot_be_bettered(
    seed: int, num_classes: int, num_parts: int, ridge: float
) -> None:
    rng = np.random.default_rng(seed)
    mixture = rng.dirichlet(np.ones(num_parts), size=(num_classes, 6))
    posterior = rng.dirichlet(np.full(num_classes, 0.5), size=(num_classes, 6))
    found = fit_parts(torch.from_numpy(mixture), torch.from_numpy(posterior), ridge=ridge).numpy()
    # A convex problem: a point is the minimum where a step downhill is projected back onto it.
    for i in range(num_classes):
        mean = posterior[i].mean(axis=0)
        slope = 2 * ridge * (found[:, i] - mean)
        for a in range(6):
            error = mixture[i, a] @ found[:, i] - posterior[i, a]
            for k in range(num_parts):
                slope[k] += 2 / 6 * mixture[i, a, k] * error
        for k in range(num_parts):
            back = project_row(found[k, i] - slope[k])
            np.testing.assert_allclose(back, found[k, i], atol=1e-6)


def test_parts_that_no_anchor_tells_apart_get_the_same_matrix() -> None:
    posterior = np.random.default_rng(0).dirichlet(np.ones(3), size=(3, 8))
    same = torch.full((3, 8, 2), 0.5)
    found = fit_parts(same, torch.from_numpy(posterior))
    for k in range(2):
        np.testing.assert_allclose(found[k], posterior.mean(axis=1), atol=1e-9)
