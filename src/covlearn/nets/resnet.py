"""Residual networks (He et al., 2016), with a stem for small images and one for ImageNet's.

Parameters and buffers have the names and shapes of torchvision's models, so that a pre-trained
file made for those loads here. Weights start as PyTorch draws them, uniform in ±1/√fan_in, which
is what the published code of the paper trains from; torchvision's own start is another (normal,
by fan-out).
"""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from covlearn.nets.fused import Twice, norm_only, norm_relu, norm_relu_twice
from covlearn.nets.small import image_channels


class BasicBlock(nn.Module):
    """relu(x + 3×3(3×3(x))), the block of ResNet-18 and ResNet-34."""

    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _downsample(in_channels, width, stride)

    def forward(self, maps: Twice) -> Twice:
        """The block's output, (B, width, H/stride, W/stride), for the next block's branches."""
        x, shortcut = maps
        hidden = norm_relu(self.bn1, self.conv1(x))
        return norm_relu_twice(self.bn2, self.conv2(hidden), self.downsample(shortcut))


class Bottleneck(nn.Module):
    """relu(x + 1×1(3×3(1×1(x)))), the block of ResNet-50, with the stride on the 3×3."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = self.expansion * width
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample = _downsample(in_channels, out_channels, stride)

    def forward(self, maps: Twice) -> Twice:
        """The block's output, (B, 4·width, H/stride, W/stride), for the next block's branches."""
        x, shortcut = maps
        hidden = norm_relu(self.bn1, self.conv1(x))
        hidden = norm_relu(self.bn2, self.conv2(hidden))
        return norm_relu_twice(self.bn3, self.conv3(hidden), self.downsample(shortcut))


class ResNet(nn.Module):
    """Stem, four stages of ``blocks`` residual blocks, mean over the image, linear head ``fc``.

    ``stem="cifar"`` is one 3×3 convolution that keeps the image's size; ``stem="imagenet"`` is a
    7×7 convolution of stride 2 and a 3×3 max-pool of stride 2.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: tuple[int, int, int, int],
        stem: Literal["cifar", "imagenet"],
        /,
        *,
        num_classes: int,
        input_shape: Sequence[int],
    ) -> None:
        super().__init__()
        channels = image_channels(input_shape)
        if stem == "cifar":
            self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
            self.maxpool: nn.Module = nn.Identity()
        else:
            self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
            self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(block, blocks[0], 64, 64, stride=1)
        self.layer2 = _stage(block, blocks[1], 64 * block.expansion, 128, stride=2)
        self.layer3 = _stage(block, blocks[2], 128 * block.expansion, 256, stride=2)
        self.layer4 = _stage(block, blocks[3], 256 * block.expansion, 512, stride=2)
        self.fc = nn.Linear(512 * block.expansion, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """What the head sees, (B, 512) or, of bottlenecks, (B, 2048)."""
        stem = norm_relu_twice(self.bn1, self.conv1(x))
        if not isinstance(self.maxpool, nn.Identity):
            stem = (self.maxpool(stem[0]),) * 2
        maps, _ = self.layer4(self.layer3(self.layer2(self.layer1(stem))))
        # Not AdaptiveAvgPool2d, whose gradient on a GPU has no deterministic implementation.
        means: Tensor = maps.mean(dim=(2, 3))
        return means

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, K)."""
        logits: Tensor = self.fc(self.features(x))
        return logits


def _stage(
    block: type[BasicBlock] | type[Bottleneck],
    num_blocks: int,
    in_channels: int,
    width: int,
    *,
    stride: int,
) -> nn.Sequential:
    first = block(in_channels, width, stride)
    rest = [block(width * block.expansion, width, 1) for _ in range(num_blocks - 1)]
    return nn.Sequential(first, *rest)


def _downsample(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """The shortcut: nothing where shapes agree, else a 1×1 convolution that makes them agree."""
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    return Projection(
        nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
    )


class Projection(nn.Sequential):
    """A convolution and its batch norm."""

    def forward(self, x: Tensor) -> Tensor:
        """norm(conv(x))."""
        conv, norm = self
        return norm_only(norm, conv(x))
