import random
from functools import lru_cache, partial
from typing import Protocol, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn

from covlearn.nets import NETS, build_net
from covlearn.nets.resnet import BasicBlock, ResNet

BLOCKS = {"18": (2, 2, 2, 2), "34": (3, 4, 6, 3), "50": (3, 4, 6, 3)}
RESNETS = ["resnet18", "resnet34", "resnet50", "resnet50_imagenet"]
IMAGE = {name: (3, 8, 8) for name in NETS} | {"resnet50_imagenet": (3, 32, 32)}
SMALL = ["cnn", "mlp", "linear"]


class Net(Protocol):
    fc: nn.Module

    def features(self, x: Tensor) -> Tensor: ...


@lru_cache
def built(name: str) -> nn.Module:
    """A net in evaluation mode with the statistics of a batch; tests do not change it."""
    net = build_net(name, num_classes=10, input_shape=IMAGE[name], seed=0)
    generator = torch.Generator().manual_seed(1)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the statistics become those of all batches so far
            for values in (module.weight.data, module.bias.data):
                values.copy_(0.5 + torch.rand(values.shape, generator=generator))
    with torch.no_grad():
        net.train()(images(name, size=4))
    return net.eval()


def images(name: str, size: int = 2) -> Tensor:
    return torch.randn(size, *IMAGE[name], generator=torch.Generator().manual_seed(2))


def equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# The standard, by rule: the names and shapes of the original models, and what they compute.


def standard_shapes(name: str, num_classes: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}

    def conv_bn(prefix: str, conv: str, bn: str, shape: tuple[int, int, int, int]) -> None:
        shapes[f"{prefix}{conv}.weight"] = shape
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{prefix}{bn}.{part}"] = shape[:1]
        shapes[f"{prefix}{bn}.num_batches_tracked"] = ()

    kernel = 7 if name.endswith("imagenet") else 3
    conv_bn("", "conv1", "bn1", (64, 3, kernel, kernel))
    channels = 64
    bottleneck = "50" in name
    for stage, count in enumerate(BLOCKS[name[6:8]], start=1):
        width = 32 * 2**stage
        out = 4 * width if bottleneck else width
        for block in range(count):
            prefix = f"layer{stage}.{block}."
            if bottleneck:
                conv_bn(prefix, "conv1", "bn1", (width, channels, 1, 1))
                conv_bn(prefix, "conv2", "bn2", (width, width, 3, 3))
                conv_bn(prefix, "conv3", "bn3", (out, width, 1, 1))
            else:
                conv_bn(prefix, "conv1", "bn1", (width, channels, 3, 3))
                conv_bn(prefix, "conv2", "bn2", (width, width, 3, 3))
            if channels != out:
                conv_bn(prefix, "downsample.0", "downsample.1", (out, channels, 1, 1))
            channels = out
    shapes["fc.weight"] = (num_classes, channels)
    shapes["fc.bias"] = (num_classes,)
    return shapes


def standard_features(weights: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    """The original ResNet in evaluation mode, from a state dict of its names."""

    def conv_bn(x: Tensor, conv: str, bn: str, stride: int = 1) -> Tensor:
        kernel = weights[f"{conv}.weight"]
        x = F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        mean, var, scale, shift = (
            weights[f"{bn}.{part}"].view(1, -1, 1, 1)
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * scale + shift

    if name.endswith("imagenet"):
        x = conv_bn(x, "conv1", "bn1", stride=2).clamp(min=0)
        x = F.max_pool2d(x, 3, stride=2, padding=1)
    else:
        x = conv_bn(x, "conv1", "bn1").clamp(min=0)
    for stage, count in enumerate(BLOCKS[name[6:8]], start=1):
        for block in range(count):
            prefix = f"layer{stage}.{block}."
            stride = 2 if stage > 1 and block == 0 else 1
            shortcut = x
            if f"{prefix}downsample.0.weight" in weights:
                shortcut = conv_bn(x, f"{prefix}downsample.0", f"{prefix}downsample.1", stride)
            if "50" in name:
                x = conv_bn(x, f"{prefix}conv1", f"{prefix}bn1").clamp(min=0)
                x = conv_bn(x, f"{prefix}conv2", f"{prefix}bn2", stride).clamp(min=0)
                x = conv_bn(x, f"{prefix}conv3", f"{prefix}bn3")
            else:
                x = conv_bn(x, f"{prefix}conv1", f"{prefix}bn1", stride).clamp(min=0)
                x = conv_bn(x, f"{prefix}conv2", f"{prefix}bn2")
            x = (x + shortcut).clamp(min=0)
    return x.flatten(2).mean(dim=2)


@pytest.mark.parametrize(
    ("name", "num_classes", "expected"),
    [
        ("resnet18", 10, 11_173_962),
        ("resnet34", 10, 21_282_122),
        ("resnet34", 100, 21_328_292),
        ("resnet50", 10, 23_520_842),
        ("resnet50_imagenet", 1000, 25_557_032),
        ("cnn", 10, 288_746),
        ("mlp", 10, 117_770),
        ("linear", 10, 1930),
    ],
)
def test_parameter_counts(name: str, num_classes: int, expected: int) -> None:
    with torch.device("cpu" if name == "cnn" else "meta"):
        net = NETS[name](num_classes=num_classes, input_shape=(3, 8, 8))
    assert sum(parameter.numel() for parameter in net.parameters()) == expected


@pytest.mark.parametrize("name", RESNETS)
def test_resnets_have_the_standard_names_and_shapes(name: str) -> None:
    with torch.device("meta"):
        net = NETS[name](num_classes=7, input_shape=(3, 8, 8))
    shapes = {name: tuple(values.shape) for name, values in net.state_dict().items()}
    assert shapes == standard_shapes(name, 7)


@pytest.mark.parametrize("name", RESNETS)
def test_resnets_compute_what_the_standard_ones_do(name: str) -> None:
    weights = {part: values.double() for part, values in built(name).state_dict().items()}
    expected = standard_features(weights, name, images(name).double())
    features = cast(Net, built(name)).features(images(name)).double()
    spread = float((expected[0] - expected[1]).abs().mean())
    assert spread > 0.1 * float(expected.mean()) > 0
    torch.testing.assert_close(features, expected, rtol=0, atol=1e-3 * spread)


def test_the_cnn_is_its_convolutions() -> None:
    net = build_net(
        "cnn", num_classes=3, input_shape=(2, 7, 5), seed=0,
        options={"widths": [4, 6], "batch_norm": False},
    )  # fmt: skip
    convs = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert [tuple(conv.weight.shape) for conv in convs] == [
        (4, 2, 3, 3), (4, 4, 3, 3), (6, 4, 3, 3), (6, 6, 3, 3),
    ]  # fmt: skip
    maps = x = torch.randn(2, 2, 7, 5, generator=torch.Generator().manual_seed(0))
    for conv, stride in zip(convs, (1, 2, 1, 2), strict=True):
        maps = F.conv2d(maps, conv.weight, conv.bias, stride=stride, padding=1).clamp(min=0)
    features = cast(Net, net).features(x)
    torch.testing.assert_close(features, maps.flatten(2).mean(dim=2))


@pytest.mark.parametrize("shortcut", [False, True])
def test_the_mlp_is_its_matrices(shortcut: bool) -> None:
    options = {"hidden": [5, 6], "shortcut": shortcut}
    net = build_net("mlp", num_classes=3, input_shape=(2, 2), seed=0, options=options)
    weights = {name: values.double().numpy() for name, values in net.state_dict().items()}
    x = np.random.default_rng(0).standard_normal((4, 4))
    expected = x
    for layer in ("layers.0", "layers.2"):
        expected = expected @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]
        expected = np.maximum(expected, 0)
    if shortcut:
        expected = np.concatenate([expected, x], axis=1)
    expected = expected @ weights["fc.weight"].T + weights["fc.bias"]
    logits = net.double()(torch.tensor(x).view(4, 2, 2))
    np.testing.assert_allclose(logits.detach().numpy(), expected)


def test_linear_is_linear() -> None:
    net = build_net("linear", num_classes=3, input_shape=(2, 3), seed=0).double()
    x = torch.randn(4, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight, bias = net.parameters()
    torch.testing.assert_close(net(x), x.reshape(4, 6) @ weight.T + bias)


@pytest.mark.parametrize("name", NETS)
def test_forward_is_the_head_of_the_features(name: str) -> None:
    net = built(name)
    features = cast(Net, net).features(images(name))
    logits = net(images(name))
    assert features.ndim == 2
    assert logits.shape == (2, 10)
    assert torch.equal(logits, cast(Net, net).fc(features))
    assert not torch.equal(logits[0], logits[1])


@given(
    name=st.sampled_from(SMALL),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 33), st.integers(1, 33)),
    num_classes=st.integers(2, 12),
    size=st.integers(1, 3),
)
@settings(max_examples=30)
def test_small_nets_take_any_image(
    name: str, shape: tuple[int, int, int], num_classes: int, size: int
) -> None:
    net = build_net(name, num_classes=num_classes, input_shape=shape, seed=0).eval()
    assert net(torch.zeros(size, *shape)).shape == (size, num_classes)


@pytest.mark.parametrize("channels", [1, 4])
def test_resnets_take_any_number_of_channels(channels: int) -> None:
    with torch.device("meta"):
        net = NETS["resnet18"](num_classes=2, input_shape=(channels, 9, 7)).eval()
        assert net(torch.zeros(2, channels, 9, 7)).shape == (2, 2)


def test_cnn_and_mlp_without_batch_norm_treat_examples_alone() -> None:
    for name, options in (("cnn", {"batch_norm": False}), ("mlp", {})):
        net = build_net(name, num_classes=4, input_shape=(3, 8, 8), seed=0, options=options)
        x = images(name, size=4)
        assert not list(net.buffers())
        torch.testing.assert_close(net(x)[:1], net(x[:1]))


def test_the_cnn_without_batch_norm_keeps_the_scale_of_its_input() -> None:
    options = {"batch_norm": False}
    net = build_net("cnn", num_classes=4, input_shape=(3, 32, 32), seed=0, options=options)
    # From a start that shrinks the signal at every layer this is below 0.05, and nothing learns.
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        maps = cast(nn.Module, net.layers)(x)
    assert 0.3 < float(maps.square().mean().sqrt()) < 3


def test_resnets_start_as_pytorch_does() -> None:
    net = build_net("resnet18", num_classes=10, input_shape=(3, 8, 8), seed=3)
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            bound = module.weight[0].numel() ** -0.5
            largest = float(module.weight.detach().abs().max())
            assert 0.95 * bound < largest < 1.0001 * bound


# Seeds.


@pytest.mark.parametrize("name", ["resnet18", *SMALL])
def test_the_seed_decides_the_weights(name: str) -> None:
    nets = [
        build_net(name, num_classes=10, input_shape=IMAGE[name], seed=seed) for seed in (5, 5, 6)
    ]
    assert equal(nets[0], nets[1])
    assert not equal(nets[0], nets[2])


def drawing_factory(*, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    net = nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes), nn.Dropout())
    torch.rand(1)
    return net


@pytest.mark.parametrize("name", [*SMALL, f"{__name__}:drawing_factory"])
def test_the_global_random_state_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(seed: int) -> None:
        raise AssertionError("the accelerators' states are global too")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", refuse)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    one = build_net(name, num_classes=3, input_shape=(1, 4, 4), seed=0)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert repr(before[1:]) == repr(after[1:])
    torch.rand(1)  # another state, the same weights
    other = build_net(name, num_classes=3, input_shape=(1, 4, 4), seed=0)
    torch.set_rng_state(before[0])
    assert equal(one, other)


def test_a_default_device_changes_nothing() -> None:
    expected = build_net("mlp", num_classes=3, input_shape=(4,), seed=0)
    with torch.device("meta"):
        assert equal(build_net("mlp", num_classes=3, input_shape=(4,), seed=0), expected)


# How the engine runs nets.


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "cnn"])
def test_channels_last(name: str) -> None:
    options = {} if name != "cnn" else {"widths": [16, 32]}
    net = build_net(name, num_classes=10, input_shape=(3, 8, 8), seed=0, options=options).eval()
    x = images(name)
    expected = net(x)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    logits = net(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


# oneDNN's bfloat16 products end the process on virtual machines that claim AMX and do not have it.
@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN:UserWarning")
@pytest.mark.parametrize("name", ["resnet", *SMALL])
def test_bf16_autocast(name: str) -> None:
    builder = NETS.get(name, partial(ResNet, BasicBlock, (1, 1, 1, 1), "cifar"))
    net = builder(num_classes=10, input_shape=(3, 8, 8))
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.backends.mkldnn.flags(enabled=False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = net(x)
        assert logits.dtype == torch.bfloat16
        logits.float().square().sum().backward()
    for part, parameter in net.named_parameters():
        assert parameter.grad is not None, part
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()
        assert parameter.grad.any(), part


@pytest.mark.parametrize("name", ["resnet18", "resnet50_imagenet", *SMALL])
def test_no_control_flow_depends_on_the_data(name: str) -> None:
    traced = fx.symbolic_trace(built(name))  # fails where Python looks at a value or a shape
    assert torch.equal(traced(images(name)), built(name)(images(name)))
