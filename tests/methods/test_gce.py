"""Generalised cross-entropy: what truncation prunes."""

import numpy as np
import pytest
import torch

from covlearn.ledger import Ledger
from covlearn.methods.gce import GCE, Generalized
from tests.methods.loss_cases import TINY, batch_of, tiny_run, values
from tests.reference import losses as reference


def ledger_of(prob: list[float]) -> Ledger:
    """What the ledger holds after a pass in which the noisy labels had these probabilities."""
    ledger = Ledger(len(prob))
    ledger.write(
        torch.arange(len(prob)),
        torch.tensor([[p, 1 - p] for p in prob]).log(),
        torch.zeros(len(prob), dtype=torch.long),
    )
    return ledger


def test_truncation_prunes_what_the_last_pass_found_unlikely_and_takes_it_back() -> None:
    method = GCE(truncate=True, k=0.5, prune_from=4, prune_every=3)
    objective = Generalized(4, method)
    first, second = ledger_of([0.2, 0.49, 0.51, 0.9]), ledger_of([0.6, 0.1, 0.9, 0.4])
    kept = {}
    for epoch in range(9):
        objective.begin_epoch(epoch, first if epoch < 6 else second)
        kept[epoch] = objective.keep.tolist()
    early, middle, late = [1.0] * 4, [0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0]
    assert kept == {**dict.fromkeys(range(4), early), 4: middle, 5: middle, 6: middle, 7: late, 8: late}  # fmt: skip


def test_truncation_is_off_unless_asked_for() -> None:
    objective = Generalized(2, GCE(prune_from=1, prune_every=1))
    objective.begin_epoch(5, ledger_of([0.1, 0.9]))
    assert objective.keep.tolist() == [1.0, 1.0]


def test_pruned_examples_have_the_constant_loss_and_no_gradient() -> None:
    outputs, batch = batch_of(4, 20, 3)
    z, y = outputs.logits.detach(), batch.y
    prob = torch.ones(60)
    prob[batch.idx] = z.softmax(dim=1)[torch.arange(20), y]
    pruned = prob[batch.idx] <= 0.4
    assert 0 < int(pruned.sum()) < 20
    objective = Generalized(60, GCE(truncate=True, q=0.8, k=0.4, prune_from=1))
    ledger = Ledger(60)
    ledger.write(batch.idx, z, y)
    objective.begin_epoch(1, ledger)
    assert int(objective.keep.sum()) == 60 - int(pruned.sum())  # rows without a pass stay
    loss = values(objective, outputs, batch)
    expected = reference.truncated_generalized_cross_entropy(
        z.double().numpy(), y.numpy(), 0.8, 0.4
    )
    np.testing.assert_allclose(loss.detach().numpy(), expected, rtol=1e-5)
    loss.mean().backward()
    assert outputs.logits.grad is not None
    assert torch.equal(outputs.logits.grad.abs().sum(dim=1) > 0, ~pruned)


def test_pruning_everything_is_refused() -> None:
    objective = Generalized(2, GCE(truncate=True, prune_from=1))
    with pytest.raises(ValueError, match=r"epoch 1: no example has p > k = 0.5.*lower k"):
        objective.begin_epoch(1, ledger_of([0.1, 0.2]))


def test_truncation_records_how_much_is_kept() -> None:
    run = tiny_run()
    TINY["gce truncated"].fit(run)
    assert 0 < run.facts["kept_share"] < 1
