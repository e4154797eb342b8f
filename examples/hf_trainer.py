"""CAL with Hugging Face's Trainer: ``python -m examples.hf_trainer``.

Needs pip install 'covlearn[transformers]'.
"""

import math
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, default_data_collator
from transformers.modeling_outputs import ImageClassifierOutput

from covlearn.covariance import CALLoss
from covlearn.data import IndexedDataset
from covlearn.integrations.transformers import IndexCollator
from covlearn.losses import cores
from covlearn.sieve import refine
from examples.digits import (
    BATCH,
    BETA,
    EPOCHS,
    NUM_CLASSES,
    make_net,
    make_optimizer,
    noisy_digits,
    report,
)


class Images(Dataset[dict[str, Tensor]]):
    """Digits under the names that image models take."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, position: int) -> dict[str, Tensor]:
        return {"pixel_values": self.x[position], "labels": self.y[position]}


class Model(nn.Module):
    """Your AutoModelForImageClassification.from_pretrained(…) would stand here."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_net()

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None, **others: Any) -> Any:
        """Logits and, as such models do, the cross-entropy where labels are given."""
        logits = self.net(pixel_values)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return ImageClassifierOutput(loss=loss, logits=logits)


class SieveTrainer(Trainer):
    """Stage 1: CORES², whose second part keeps it from learning wrong labels by heart."""

    # Where gradients are accumulated the Trainer must divide: this is the mean of a batch.
    loss_is_scaled_for_ga = False
    prior: Tensor

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **others: Any
    ) -> Any:
        """ℓ_CORES², averaged."""
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        beta = BETA(int(self.state.epoch or 0))
        loss = cores(outputs.logits, labels, prior=self.prior, beta=beta).mean()
        return (loss, outputs) if return_outputs else loss


class CALTrainer(Trainer):
    """Stage 2: CAL, which looks at positions."""

    loss_is_scaled_for_ga = False
    criterion: CALLoss

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **others: Any
    ) -> Any:
        """CAL in training, which needs positions; in evaluation the model's own loss."""
        if not model.training:
            inputs.pop("idx", None)
            return super().compute_loss(model, inputs, return_outputs, **others)
        idx, labels = inputs.pop("idx"), inputs.pop("labels")
        outputs = model(**inputs)
        self.criterion.beta = BETA(int(self.state.epoch or 0))
        loss = self.criterion(outputs.logits, labels, idx)
        return (loss, outputs) if return_outputs else loss


def train(
    kind: Any, dataset: Any, folder: str, seed: int, *, accumulated: int = 1, **parts: Any
) -> Any:
    """A trainer of a kind that has trained; quiet, and without files."""
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH // accumulated,
        gradient_accumulation_steps=accumulated,
        per_device_eval_batch_size=1024,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        remove_unused_columns=False,  # or the Trainer takes idx away
        seed=seed,
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    model = Model()
    trainer = kind(
        model,
        arguments,
        train_dataset=dataset,
        data_collator=IndexCollator(default_data_collator),
        optimizers=(make_optimizer(model), None),
    )
    for name, part in parts.items():
        setattr(trainer, name, part)
    trainer.train()
    return trainer


def run(seed: int = 0) -> dict[str, float]:
    """Test accuracy of cross-entropy and CAL."""
    digits = noisy_digits(seed)
    torch.manual_seed(seed)
    noisy, x = digits.noisy, digits.train.tensors[0]
    images, test = Images(x, noisy), Images(digits.test_x, digits.test_y)
    with tempfile.TemporaryDirectory() as folder:
        plain = train(Trainer, images, folder, seed)

        # Stage 1; predictions come in the order of the data, so that no recorder is needed.
        prior = noisy.bincount(minlength=NUM_CLASSES) / len(noisy)
        sieve = train(SieveTrainer, images, folder, seed, prior=prior)
        probs = torch.from_numpy(sieve.predict(images).predictions).softmax(dim=1)
        refined = refine(probs, noisy, lower=-math.inf)  # believe the sieve everywhere

        # Stage 2: the same images with positions.
        criterion = CALLoss(noisy, refined.label, NUM_CLASSES)
        trainer = train(CALTrainer, IndexedDataset(images), folder, seed, criterion=criterion)
        return {"CE": accuracy(plain, test), "CAL": accuracy(trainer, test)}


def accuracy(trainer: Any, test: Images) -> float:
    """In percent, on the clean test labels."""
    predicted = trainer.predict(test).predictions.argmax(axis=1)
    return 100 * float((predicted == test.y.numpy()).mean())


if __name__ == "__main__":
    report("Hugging Face Trainer", run())
