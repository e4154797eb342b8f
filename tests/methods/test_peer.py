"""Peer loss: which labels are paired, and what their expectation is."""

import numpy as np
import pytest
import torch
from torch import Tensor

from covlearn.data import Batch
from covlearn.engine import Outputs
from covlearn.ledger import Ledger
from covlearn.losses import cores
from covlearn.methods.peer import TornApart
from covlearn.schedules import Ramp
from tests.methods.loss_cases import TINY, tiny_run, values
from tests.reference import losses as reference

CLASSES = torch.tensor([0] * 10 + [1] * 50 + [2] * 140)  # of a training set of 200


def peer_labels(objective: TornApart, idx: Tensor) -> Tensor:
    """The labels that were drawn, read off the losses alone."""
    logits = torch.tensor([0.0, 1.0, 3.0]).expand(len(idx), 3)
    loss_B = values(objective, Outputs(logits), Batch(logits, CLASSES[idx], idx))
    loss_K = torch.from_numpy(reference.cross_entropy(logits[:3].double().numpy(), np.arange(3)))
    candidates = loss_K[CLASSES[idx]].unsqueeze(1) - float(objective.alpha) * loss_K
    distance = (loss_B.double().unsqueeze(1) - candidates).abs()
    assert float(distance.min(dim=1).values.max()) < 1e-3
    return distance.argmin(dim=1)


def peer_at(epoch: int, seed: int = 0) -> TornApart:
    objective = TornApart(CLASSES, Ramp(1.0, start=2, end=6), seed=seed)
    objective.begin_epoch(epoch, Ledger(0))
    return objective


def test_peer_loss_agrees_with_the_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(40, 3, generator=generator)
    idx = torch.randperm(200, generator=generator)[:40]
    for epoch, alpha in {0: 0.0, 2: 0.0, 3: 0.25, 6: 1.0, 90: 1.0}.items():
        objective = peer_at(epoch)
        assert objective.strength(epoch) == alpha
        loss = values(objective, Outputs(logits), Batch(logits, CLASSES[idx], idx))
        z = logits.double().numpy()
        drawn = peer_labels(objective, idx) if alpha else torch.zeros(40, dtype=torch.long)
        expected = reference.cross_entropy(z, CLASSES[idx].numpy())
        expected -= alpha * reference.cross_entropy(z, drawn.numpy(), 1e-5)
        np.testing.assert_allclose(loss.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_peer_labels_follow_the_noisy_prior_whatever_the_own_label_is() -> None:
    idx = torch.arange(200)
    drawn = torch.stack([peer_labels(peer_at(epoch), idx) for epoch in range(6, 206)])
    for label in range(3):
        share = torch.bincount(drawn[:, label == CLASSES].flatten(), minlength=3)
        share = share / share.sum()
        # 2,000 draws or more: three standard errors are 0.034 at most.
        torch.testing.assert_close(share, torch.tensor([0.05, 0.25, 0.70]), atol=0.034, rtol=0)


def test_peer_labels_change_with_epoch_and_seed() -> None:
    idx = torch.arange(200)
    draws = [peer_labels(peer_at(e, seed), idx) for e, seed in ((6, 0), (7, 0), (6, 1))]
    assert torch.equal(draws[0], peer_labels(peer_at(6), idx))
    for other in draws[1:]:
        # Independent draws agree with probability 0.05² + 0.25² + 0.7² = 0.555, ± 0.035.
        assert 0.4 < float((draws[0] == other).float().mean()) < 0.7


def test_the_expectation_of_the_peer_term_is_the_confidence_regulariser() -> None:
    idx = torch.arange(200)
    logits = torch.tensor([2.0, 0.0, -1.0]).expand(200, 3)
    batch = Batch(logits, CLASSES, idx)
    mean = torch.stack([values(peer_at(e), Outputs(logits), batch) for e in range(6, 66)]).mean()
    expected = cores(logits, CLASSES, prior=torch.tensor([0.05, 0.25, 0.70]), beta=1.0).mean()
    # 12,000 draws of a loss with a standard deviation of 0.8.
    assert mean.item() == pytest.approx(expected.item(), abs=3 * 0.8 / 12_000**0.5)


def test_peer_pairs_do_not_depend_on_how_a_batch_is_dealt_out() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, idx = (
        torch.randn(9, 3, generator=generator),
        torch.randperm(200, generator=generator)[:9],
    )
    objective = peer_at(8)
    whole = values(objective, Outputs(logits), Batch(logits, CLASSES[idx], idx))
    for process in range(2):
        share = slice(process, None, 2)
        part = values(
            objective, Outputs(logits[share]), Batch(logits, CLASSES[idx[share]], idx[share])
        )
        assert torch.equal(part, whole[share])


def test_peer_divides_the_learning_rate_by_one_plus_alpha() -> None:
    run = tiny_run()
    TINY["peer"].fit(run)
    assert [record["lr"] for record in run.history["peer"]] == pytest.approx(
        [0.1, 0.1 / (4 / 3), 0.1 / (5 / 3), 0.05]
    )
