"""The covariances of the whole training set."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covlearn.covariance import (
    SecondOrder,
    class_mean_loss,
    covariance_table,
    covariance_term,
)
from tests.covariance.examples import WEIGHTINGS, draw_labels, draw_logits
from tests.reference import covariance as reference


def test_class_mean_loss_centres_the_losses_of_each_class() -> None:
    noisy, refined = draw_labels(14, 50, 4, dropped=0.2)
    stats = SecondOrder.from_labels(noisy, refined, 4)
    logits = draw_logits(14, 50, 4)
    mean_loss = class_mean_loss(logits, noisy, refined, stats, block_size=7)
    loss = reference.losses(logits.numpy())
    for i in range(4):
        members = [n for n in range(50) if refined[n] == i]
        np.testing.assert_allclose(mean_loss[i], loss[members].mean(axis=0), rtol=1e-6)


@given(seed=st.integers(0, 999), num_classes=st.integers(2, 5), weighted=st.booleans())
def test_table_agrees_with_the_definition_and_sums_to_the_term(
    seed: int, num_classes: int, weighted: bool
) -> None:
    size = 40
    noisy, refined = draw_labels(seed, size, num_classes, dropped=0.2)
    weight = torch.ones(size, dtype=torch.float64)
    if weighted:
        weight = torch.rand(size, generator=torch.Generator().manual_seed(seed)).double() + 0.1
    stats = SecondOrder.from_labels(noisy, refined, num_classes, weight=weight)
    logits = draw_logits(seed, size, num_classes)
    table = covariance_table(logits, noisy, refined, stats, weight=weight, block_size=7)
    expected = reference.table(
        reference.losses(logits.numpy()),
        noisy.numpy(),
        refined.numpy(),
        num_classes,
        weight.numpy(),
    )
    np.testing.assert_allclose(table, expected, atol=2e-6)
    for weighting in WEIGHTINGS:
        term = covariance_term(logits, noisy, refined, stats, weighting=weighting, weight=weight)
        total = (stats.class_weight.unsqueeze(1) * table).sum().item()
        assert total == pytest.approx(term.item(), abs=2e-6)


def test_the_dense_construction_gives_the_same_number() -> None:
    noisy, refined = draw_labels(6, 200, 5)
    stats = SecondOrder.from_labels(noisy, refined, 5)
    logits = draw_logits(6, 200, 5)
    dense = reference.dense_term(reference.losses(logits.numpy()), noisy.numpy(), refined.numpy())
    assert covariance_term(logits, noisy, refined, stats).item() == pytest.approx(dense, abs=1e-6)
