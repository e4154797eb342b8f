"""CAL in Lightning: ``python -m examples.lightning_loop``, with pip install 'covlearn[lightning]'.

No callback is needed: CALLoss is a module like others, which Lightning moves to the device and
keeps in checkpoints, and the sieve is read off ``trainer.predict``.
"""

import math
from typing import Any

import lightning as L
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


class Classifier(L.LightningModule):
    """The module that you have; batches now end with the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_net()

    def loss(self, logits: Tensor, y: Tensor, idx: Tensor) -> Tensor:
        """Plain cross-entropy, which looks at no position."""
        return nn.functional.cross_entropy(logits, y)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """One batch."""
        x, y, idx = batch
        return self.loss(self.net(x), y, idx)

    def predict_step(self, batch: list[Tensor], batch_idx: int) -> tuple[Tensor, Tensor]:
        """Positions and logits, for the recorder."""
        x, _, idx = batch
        return idx, self.net(x)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One for all parameters."""
        return make_optimizer(self.net)


class Sieve(Classifier):
    """Stage 1: CORES², whose second part keeps it from learning wrong labels by heart."""

    prior: Tensor

    def __init__(self, noisy: Tensor) -> None:
        super().__init__()
        self.register_buffer("prior", noisy.bincount(minlength=NUM_CLASSES) / len(noisy))

    def loss(self, logits: Tensor, y: Tensor, idx: Tensor) -> Tensor:
        """ℓ_CORES², averaged."""
        return cores(logits, y, prior=self.prior, beta=BETA(self.current_epoch)).mean()


class CAL(Classifier):
    """Stage 2: the covariance term."""

    def __init__(self, noisy: Tensor, refined: Tensor) -> None:
        super().__init__()
        self.criterion = CALLoss(noisy, refined, NUM_CLASSES)

    def loss(self, logits: Tensor, y: Tensor, idx: Tensor) -> Tensor:
        """CAL with the β of the epoch."""
        self.criterion.beta = BETA(self.current_epoch)
        loss: Tensor = self.criterion(logits, y, idx)
        return loss


def make_trainer() -> Any:
    """Quiet, and without files."""
    return L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def train_cal(digits: Digits) -> nn.Module:
    """Both stages of CAL."""
    dataset = IndexedDataset(digits.train)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    sieve, trainer = Sieve(digits.noisy), make_trainer()
    trainer.fit(sieve, loader)

    recorder = SieveRecorder(digits.noisy, NUM_CLASSES)
    for idx, logits in trainer.predict(sieve, DataLoader(dataset, batch_size=1024)):
        recorder.update(idx, logits)
    refined = recorder.refine(lower=-math.inf)  # believe the sieve everywhere

    module = CAL(digits.noisy, refined.label)
    make_trainer().fit(module, loader)
    return module.net


def run(seed: int = 0) -> dict[str, float]:
    """Test accuracy of cross-entropy and CAL."""
    digits = noisy_digits(seed)
    torch.manual_seed(seed)
    module = Classifier()
    loader = DataLoader(IndexedDataset(digits.train), batch_size=BATCH, shuffle=True)
    make_trainer().fit(module, loader)
    return {"CE": digits.accuracy(module.net), "CAL": digits.accuracy(train_cal(digits))}


if __name__ == "__main__":
    report("Lightning", run())
