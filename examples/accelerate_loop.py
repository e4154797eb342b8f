"""CAL with Accelerate: ``python -m examples.accelerate_loop``.

With several processes: ``accelerate launch --num_processes 2 -m examples.accelerate_loop``.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from accelerate import Accelerator
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


def train(accelerator: Any, loader: Any, loss_of: LossOf) -> Any:
    """The loop that you have; ``loader`` is prepared already."""
    net = make_net()
    net, optimizer = accelerator.prepare(net, make_optimizer(net))
    for epoch in range(EPOCHS):
        for x, y, idx in loader:
            optimizer.zero_grad()
            accelerator.backward(loss_of(net(x), y, idx, epoch))
            optimizer.step()
    return net.eval()


def train_cal(accelerator: Any, digits: Digits) -> nn.Module:
    """Both stages of CAL."""
    noisy, device = digits.noisy, accelerator.device
    loader = accelerator.prepare(
        # A batch is shared out, so that its size does not depend on the number of processes.
        DataLoader(
            IndexedDataset(digits.train),
            batch_size=BATCH // accelerator.num_processes,
            shuffle=True,
        )
    )

    # Stage 1: CORES², whose second part keeps the network from learning wrong labels by heart.
    prior = (noisy.bincount(minlength=NUM_CLASSES) / len(noisy)).to(device)
    sieve = train(
        accelerator,
        loader,
        lambda logits, y, idx, epoch: cores(logits, y, prior=prior, beta=BETA(epoch)).mean(),
    )
    recorder = SieveRecorder(noisy, NUM_CLASSES, device=device)
    with torch.no_grad():
        for x, _, idx in loader:
            recorder.update(*accelerator.gather((idx, sieve(x))))  # what all processes saw
    refined = recorder.refine(lower=-math.inf)  # believe the sieve everywhere

    # Stage 2. "sample": of the two weightings, the one whose mean does not depend on how a batch
    # is shared out.
    criterion = CALLoss(noisy, refined.label.cpu(), NUM_CLASSES, weighting="sample").to(device)

    def cal(logits: Tensor, y: Tensor, idx: Tensor, epoch: int) -> Tensor:
        criterion.beta = BETA(epoch)
        loss: Tensor = criterion(logits, y, idx)
        return loss

    net: nn.Module = accelerator.unwrap_model(train(accelerator, loader, cal))
    return net


def run(seed: int = 0) -> dict[str, float]:
    """Test accuracy of cross-entropy and CAL."""
    accelerator = Accelerator(cpu=True)
    digits = noisy_digits(seed)
    torch.manual_seed(seed)
    loader = accelerator.prepare(
        DataLoader(
            IndexedDataset(digits.train),
            batch_size=BATCH // accelerator.num_processes,
            shuffle=True,
        )
    )
    plain = train(
        accelerator,
        loader,
        lambda logits, y, idx, epoch: nn.functional.cross_entropy(logits, y),
    )
    return {
        "CE": digits.accuracy(accelerator.unwrap_model(plain)),
        "CAL": digits.accuracy(train_cal(accelerator, digits)),
    }


if __name__ == "__main__":
    accuracy = run()
    if Accelerator(cpu=True).is_main_process:
        report("Accelerate", accuracy)
