"""Small networks for small data: a plain convolutional one, the multilayer perceptron, linear.

Linear layers start as PyTorch draws them, weights and biases uniform in ±1/√fan_in. Convolutions
start as He et al. (2015) draw them, normal with variance 2/fan_in, biases zero: from PyTorch's own
start the CNN without BatchNorm, where the signal shrinks at every layer, hardly learns.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn


class CNN(nn.Module):
    """Stages of two 3×3 convolutions, the second of which halves the image, then the mean.

    For images of any size and any number of channels; ``widths`` are the channels of the stages.
    With ``batch_norm=False`` no example's logits depend on its batch, so that two processes
    train as one does.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        input_shape: Sequence[int],
        widths: Sequence[int] = (32, 64, 128),
        batch_norm: bool = True,
    ) -> None:
        super().__init__()
        channels = image_channels(input_shape)
        if not isinstance(batch_norm, bool):
            raise ValueError(f"batch_norm must be True or False, got {batch_norm!r}")
        layers: list[nn.Module] = []
        for width in check_sizes(widths, name="widths"):
            for stride in (1, 2):
                conv = nn.Conv2d(channels, width, 3, stride, padding=1, bias=not batch_norm)
                nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
                if conv.bias is not None:
                    nn.init.zeros_(conv.bias)
                layers.append(conv)
                if batch_norm:
                    layers.append(nn.BatchNorm2d(width))
                layers.append(nn.ReLU())
                channels = width
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """What the head sees, (B, last width)."""
        maps: Tensor = self.layers(x)
        return maps.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, K)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


class MLP(nn.Module):
    """Linear layers with ReLUs between them, on the flattened input; no BatchNorm.

    With a ``shortcut`` the head sees the input, too: what a linear function of it can tell need
    not pass the hidden layers, which under noise must be held back by much weight decay.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        input_shape: Sequence[int],
        hidden: Sequence[int] = (256, 256),
        shortcut: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(shortcut, bool):
            raise ValueError(f"shortcut must be true or false, got {shortcut!r}")
        self.shortcut = shortcut
        inputs = width = int(np.prod(input_shape))
        layers: list[nn.Module] = []
        for hidden_width in check_sizes(hidden, name="hidden"):
            layers += [nn.Linear(width, hidden_width), nn.ReLU()]
            width = hidden_width
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(width + inputs if shortcut else width, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """What the head sees, (B, last hidden width), with a shortcut (B, that + D)."""
        x = x.flatten(1)
        features: Tensor = self.layers(x)
        return torch.cat([features, x], dim=1) if self.shortcut else features

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, K)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


class Linear(nn.Module):
    """Multinomial logistic regression; its features are the flattened input."""

    def __init__(self, *, num_classes: int, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.fc = nn.Linear(int(np.prod(input_shape)), num_classes)

    def features(self, x: Tensor) -> Tensor:
        """What the head sees, (B, D)."""
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, K)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


def check_sizes(sizes: Sequence[int], *, name: str) -> tuple[int, ...]:
    """One positive integer or more."""
    if (
        not isinstance(sizes, Sequence)
        or not sizes
        or any(
            isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1
            for size in sizes
        )
    ):
        raise ValueError(
            f"{name} must be a sequence of positive integers, such as [64, 32], got {sizes!r}"
        )
    return tuple(int(size) for size in sizes)


def image_channels(input_shape: Sequence[int]) -> int:
    """C of an image's shape (C, H, W)."""
    if len(input_shape) != 3:
        raise ValueError(
            f"a convolutional net needs images, input_shape (C, H, W), got {tuple(input_shape)}; "
            "use mlp or linear for feature vectors"
        )
    return input_shape[0]
