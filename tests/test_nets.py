import json
import random
import struct
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn

from covlearn.nets import NETS, build_net, load_pretrained
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


def test_the_mlp_is_its_matrices() -> None:
    net = build_net("mlp", num_classes=3, input_shape=(2, 2), seed=0, options={"hidden": [5, 6]})
    weights = {name: values.double().numpy() for name, values in net.state_dict().items()}
    x = np.random.default_rng(0).standard_normal((4, 4))
    expected = x
    for layer in ("layers.0", "layers.2"):
        expected = expected @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]
        expected = np.maximum(expected, 0)
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


# Pre-trained weights.


def test_pretrained_weights_with_another_head(tmp_path: Path) -> None:
    path = tmp_path / "resnet.pth"
    source = built("resnet50_imagenet")
    torch.save(source.state_dict(), path)
    net = build_net("resnet50_imagenet", num_classes=14, input_shape=(3, 32, 32), seed=1).eval()
    head = {name: values.clone() for name, values in net.state_dict().items() if "fc" in name}
    assert load_pretrained(net, path) == ["fc.weight", "fc.bias"]
    x = images("resnet50_imagenet")
    assert torch.equal(cast(Net, net).features(x), cast(Net, source).features(x))
    assert all(torch.equal(net.state_dict()[name], values) for name, values in head.items())


def cnn(num_classes: int = 3, *, seed: int = 0, **options: Any) -> nn.Module:
    return build_net(
        "cnn", num_classes=num_classes, input_shape=(1, 4, 4), seed=seed,
        options={"widths": [4], **options},
    )  # fmt: skip


def write_safetensors(tensors: dict[str, Tensor], path: Path) -> None:
    """The format: length of the header, header in JSON, bytes; written here from its definition."""
    header: dict[str, Any] = {}
    data = b""
    for name, values in tensors.items():
        raw = values.contiguous().numpy().tobytes()
        dtype = {torch.float32: "F32", torch.int64: "I64"}[values.dtype]
        place = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": place}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def save_new(tensors: dict[str, Tensor], path: Path) -> None:
    torch.save(tensors, path)


def save_old(tensors: dict[str, Tensor], path: Path) -> None:
    """As files were before PyTorch 1.6, which the published ImageNet weights partly still are."""
    torch.save(tensors, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize(
    ("suffix", "write"), [("pt", save_new), ("pth", save_old), ("safetensors", write_safetensors)]
)
def test_the_same_weights_from_every_format(
    suffix: str, write: Callable[[dict[str, Tensor], Path], None], tmp_path: Path
) -> None:
    if suffix == "safetensors":
        pytest.importorskip("safetensors")
    path = tmp_path / f"net.{suffix}"
    source, net = cnn(seed=1), cnn(seed=2)
    write(source.state_dict(), path)
    assert load_pretrained(net, path) == []
    assert equal(source, net)
    assert load_pretrained(net, str(path)) == []


def test_old_files_without_batch_counters(tmp_path: Path) -> None:
    source, net = cnn(seed=1), cnn(seed=2)
    weights = {name: x for name, x in source.state_dict().items() if "num_batches" not in name}
    torch.save(weights, tmp_path / "old.pth")
    counters = ["layers.1.num_batches_tracked", "layers.4.num_batches_tracked"]
    assert load_pretrained(net, tmp_path / "old.pth") == counters
    assert equal(source, net)


def without(name: str) -> Callable[[dict[str, Tensor]], Any]:
    return lambda weights: {key: x for key, x in weights.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("layers.0.weight"), r"missing in the file: layers\.0\.weight$"),
        (without("fc.bias"), r"missing in the file: fc\.bias$"),
        (lambda x: x | {"other": torch.zeros(1)}, "not in the net: other$"),
        (
            lambda x: x | {"layers.0.weight": torch.zeros(4, 3, 3, 3)},
            r"of another shape: layers\.0\.weight \(4, 3, 3, 3\) for \(4, 1, 3, 3\)$",
        ),
        (
            lambda x: x | {"fc.weight": torch.zeros(5, 9)},
            r"of another shape: fc\.weight \(5, 9\) for \(3, 4\)$",
        ),
        (
            lambda x: {f"module.{name}": values for name, values in x.items()},
            r"missing in the file: layers\.0\.weight.* and 7 more; not in the net: module\.layers",
        ),
        (lambda x: {"state_dict": x, "epoch": 3}, r"state dict.*got a dict with state_dict, epoch"),
        (lambda x: [x], "state dict.*got .*list"),
    ],
)
def test_weights_of_another_net(
    change: Callable[[dict[str, Tensor]], Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "net.pt"
    torch.save(change(dict(cnn(seed=1).state_dict())), path)
    net = cnn(seed=2)
    with pytest.raises(ValueError, match=message):
        load_pretrained(net, path)
    assert equal(net, cnn(seed=2))


def test_imagenet_weights_do_not_fit_the_small_stem(tmp_path: Path) -> None:
    torch.save(built("resnet50_imagenet").state_dict(), tmp_path / "net.pt")
    with pytest.raises(ValueError, match=r"of another shape: conv1\.weight \(64, 3, 7, 7\) for"):
        load_pretrained(built("resnet50"), tmp_path / "net.pt")


class Trap:
    """What a hostile pickle looks like: reading it would call a function."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return pytest.fail, ("code of the file was executed",)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    torch.save({"fc.weight": Trap()}, path)
    with pytest.raises(ValueError, match="cannot be read as a file of weights"):
        load_pretrained(cnn(), path)
    torch.save(cnn().state_dict(), path)
    whole = path.read_bytes()
    for damaged in (b"", b"weights", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"net\.pt cannot be read as a file of weights"):
            load_pretrained(cnn(), path)
    with pytest.raises(ValueError, match=r"\.pt, \.pth or \.safetensors file, got .*net\.h5"):
        load_pretrained(cnn(), tmp_path / "net.h5")
    with pytest.raises(FileNotFoundError):
        load_pretrained(cnn(), tmp_path / "missing.pt")


def test_safetensors_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(ImportError, match="pip install safetensors"):
        load_pretrained(cnn(), tmp_path / "net.safetensors")


# Bad input and nets of one's own.


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("resnet43", {}, "unknown net 'resnet43'; did you mean resnet34.*There are resnet18, "),
        ("transformer", {}, "unknown net 'transformer'; There are resnet18"),
        ("mlp", {"num_classes": 1}, "num_classes must be at least 2"),
        ("mlp", {"input_shape": ()}, "input_shape must be a sequence of positive integers"),
        ("mlp", {"input_shape": 4}, "input_shape must be a sequence"),
        ("mlp", {"input_shape": (3, 0, 4)}, r"input_shape must be .*got \(3, 0, 4\)"),
        ("mlp", {"input_shape": (4.0,)}, "input_shape must be"),
        ("cnn", {"input_shape": (4,)}, r"needs images.*got \(4,\); use mlp or linear"),
        ("resnet18", {"input_shape": (8, 8)}, r"needs images.*got \(8, 8\)"),
        ("mlp", {"seed": -1}, "seed must be"),
        ("mlp", {"seed": 2**32}, "seed must be"),
        ("mlp", {"seed": 0.5}, "seed must be"),
        ("mlp", {"options": {"hiden": [3]}}, "net 'mlp' takes the options hidden: .*'hiden'"),
        ("mlp", {"options": {"num_classes": 3}}, "multiple values.*num_classes"),
        ("mlp", {"options": {"hidden": 64}}, "hidden must be a sequence"),
        ("mlp", {"options": {"hidden": [64, 0]}}, "hidden must be"),
        ("cnn", {"options": {"widths": ["a"]}}, "widths must be"),
        ("cnn", {"options": {"batch_norm": "no"}}, "batch_norm must be True or False, got 'no'"),
        ("resnet18", {"options": {"stem": "imagenet"}}, "net 'resnet18' takes no options"),
        ("nowhere.mod:net", {}, "cannot import the net 'nowhere.mod:net': No module named"),
        (":net", {}, "cannot import the net ':net'"),
        (f"{__name__}:missing", {}, "cannot import the net .*no attribute 'missing'"),
        (f"{__name__}:SMALL", {}, "must be callable, got list"),
    ],
)
def test_bad_input(name: str, arguments: dict[str, Any], message: str) -> None:
    defaults: dict[str, Any] = {"num_classes": 3, "input_shape": (3, 4, 4), "seed": 0}
    with pytest.raises(ValueError, match=message):
        build_net(name, **(defaults | arguments))


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """A module of the user's, ``user_nets``, to hang factories into."""
    module = ModuleType("user_nets")
    sys.modules["user_nets"] = module
    yield module
    del sys.modules["user_nets"]


def test_a_factory_of_the_users(module: ModuleType) -> None:
    calls: list[dict[str, Any]] = []

    def factory(*, num_classes: int, input_shape: tuple[int, ...], width: int) -> nn.Module:
        calls.append({"num_classes": num_classes, "input_shape": input_shape, "width": width})
        frozen = nn.BatchNorm1d(width).eval()
        moving = nn.BatchNorm1d(width)
        return nn.Sequential(
            nn.Linear(input_shape[0], width), frozen, moving, nn.Linear(width, num_classes)
        )

    module.factory = factory  # type: ignore[attr-defined]
    net, again, other = (
        build_net(
            "user_nets:factory", num_classes=3, input_shape=[4], seed=seed, options={"width": 5}
        )
        for seed in (0, 0, 1)
    )
    assert calls[0] == {"num_classes": 3, "input_shape": (4,), "width": 5}
    assert equal(net, again)
    assert not equal(net, other)
    # The trial leaves modes and statistics as the factory made them.
    assert isinstance(net, nn.Sequential)
    assert [part.training for part in net] == [True, False, True, True]
    assert net.training
    assert int(net.state_dict()["2.num_batches_tracked"]) == 0
    with pytest.raises(ValueError, match="takes the options width: missing a required"):
        build_net("user_nets:factory", num_classes=3, input_shape=[4], seed=0)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (None, "must return an nn.Module, got NoneType"),
        (nn.Linear(4, 2), r"must return logits of shape \(B, 3\), got \(2, 2\) for a batch of"),
        (nn.Unflatten(1, (2, 2)), r"must return logits of shape \(B, 3\), got \(2, 2, 2\)"),
        (nn.LSTM(4, 3), r"must return logits of shape \(B, 3\), got tuple"),
        (nn.Linear(5, 3), r"fails on a batch of shape \(2, 4\): mat1 and mat2"),
    ],
)
def test_factories_that_do_not_fit(made: object, message: str, module: ModuleType) -> None:
    module.factory = lambda *, num_classes, input_shape: made  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=message):
        build_net("user_nets:factory", num_classes=3, input_shape=(4,), seed=0)


def test_a_net_by_name_can_start_from_a_file(tmp_path: Path) -> None:
    made = build_net("mlp", num_classes=3, input_shape=(4,), seed=1)
    torch.save(made.state_dict(), tmp_path / "weights.pt")
    options = {"pretrained": str(tmp_path / "weights.pt")}
    again = build_net("mlp", num_classes=3, input_shape=(4,), seed=2, options=options)
    for name, value in made.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    with pytest.raises(ValueError, match="belong to another network"):
        build_net("mlp", num_classes=3, input_shape=(5,), seed=2, options=options)
