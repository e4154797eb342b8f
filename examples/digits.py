"""What the examples share: digits of which about 40 % are mislabelled, a network, and its judge."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from covlearn.data.sources import load_data, with_noise
from covlearn.schedules import Ramp

NUM_CLASSES = 10
EPOCHS = 30
BATCH = 64
BETA = Ramp(2.0, start=0, end=EPOCHS // 2)
"""Of both stages. With 1, as the paper's second stage has it on CIFAR-10, CAL is behind its own
sieve here (results/beyond/beta_digits)."""


@dataclass(frozen=True)
class Digits:
    """1,297 digits with noisy labels to learn from, and 500 with right ones to judge by."""

    train: TensorDataset
    noisy: Tensor
    test_x: Tensor
    test_y: Tensor

    @torch.no_grad()
    def accuracy(self, net: nn.Module) -> float:
        """In percent, on the clean test labels."""
        predicted = net.cpu().eval()(self.test_x).argmax(dim=1)
        return 100 * float((predicted == self.test_y).float().mean())


def noisy_digits(seed: int) -> Digits:
    """Instance-dependent noise by the paper's generator, another draw for each seed."""
    source, _ = with_noise(load_data("digits"), "cal:0.4", seed=seed)
    x, noisy = source.train.x.flatten(1), source.train.y
    return Digits(TensorDataset(x, noisy), noisy, source.test.x.flatten(1), source.test.y)


def make_net() -> nn.Module:
    """A network of your own would stand here."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, NUM_CLASSES))


def make_optimizer(net: nn.Module) -> torch.optim.Optimizer:
    """So would your optimizer."""
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def report(name: str, accuracy: dict[str, float]) -> None:
    """One line: cross-entropy beside CAL."""
    figures = ", ".join(f"{method} {value:.1f} %" for method, value in accuracy.items())
    print(f"{name}: test accuracy on digits with cal:0.4 noise: {figures}")
