"""CAL in a plain PyTorch loop: ``python -m examples.plain_loop``."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from covlearn.covariance import CALLoss
from covlearn.data import IndexedDataset
from covlearn.losses import cores
from covlearn.sieve import SieveRecorder
from examples.digits import (
    BATCH,
    BETA,
    EPOCHS,
    NUM_CLASSES,
    Digits,
    make_net,
    make_optimizer,
    noisy_digits,
    report,
)

LossOf = Callable[[Tensor, Tensor, Tensor, int], Tensor]


def train(loader: DataLoader[Any], loss_of: LossOf) -> nn.Module:
    """The loop that you have, with a loss that is told positions and epoch."""
    net = make_net()
    optimizer = make_optimizer(net)
    for epoch in range(EPOCHS):
        for x, y, idx in loader:
            optimizer.zero_grad()
            loss_of(net(x), y, idx, epoch).backward()
            optimizer.step()
    return net.eval()


def train_cal(digits: Digits) -> tuple[nn.Module, nn.Module]:
    """Both stages of CAL: a sieve that refines the labels, then the covariance term."""
    noisy = digits.noisy
    loader = DataLoader(IndexedDataset(digits.train), batch_size=BATCH, shuffle=True)

    # Stage 1: CORES², whose second part keeps the network from learning wrong labels by heart.
    prior = noisy.bincount(minlength=NUM_CLASSES) / len(noisy)
    sieve = train(
        loader,
        lambda logits, y, idx, epoch: cores(logits, y, prior=prior, beta=BETA(epoch)).mean(),
    )
    recorder = SieveRecorder(noisy, NUM_CLASSES)
    with torch.no_grad():  # and sieve.eval(), as `train` leaves it
        for x, _, idx in loader:
            recorder.update(idx, sieve(x))
    refined = recorder.refine(lower=-math.inf)  # believe the sieve everywhere

    # Stage 2: a new network on the noisy labels, with CAL as its criterion.
    criterion = CALLoss(noisy, refined.label, NUM_CLASSES)

    def cal(logits: Tensor, y: Tensor, idx: Tensor, epoch: int) -> Tensor:
        criterion.beta = BETA(epoch)
        loss: Tensor = criterion(logits, y, idx)
        return loss

    return sieve, train(loader, cal)


def train_ce(digits: Digits) -> nn.Module:
    """The same loop with cross-entropy, to compare with."""
    loader = DataLoader(IndexedDataset(digits.train), batch_size=BATCH, shuffle=True)
    return train(loader, lambda logits, y, idx, epoch: nn.functional.cross_entropy(logits, y))


def run(seed: int = 0) -> dict[str, float]:
    """Test accuracy of cross-entropy, of the sieve, which may be the better network, and of CAL."""
    digits = noisy_digits(seed)
    torch.manual_seed(seed)
    plain = train_ce(digits)
    sieve, net = train_cal(digits)
    return {
        "CE": digits.accuracy(plain),
        "sieve": digits.accuracy(sieve),
        "CAL": digits.accuracy(net),
    }


if __name__ == "__main__":
    report("plain loop", run())
