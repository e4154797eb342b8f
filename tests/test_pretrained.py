"""Weights of networks from files: every format, other heads, and files that do not fit."""

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from covlearn.nets import build_net, load_pretrained
from tests.test_nets import Net, built, equal, images


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


def test_a_net_by_name_can_start_from_a_file(tmp_path: Path) -> None:
    made = build_net("mlp", num_classes=3, input_shape=(4,), seed=1)
    torch.save(made.state_dict(), tmp_path / "weights.pt")
    options = {"pretrained": str(tmp_path / "weights.pt")}
    again = build_net("mlp", num_classes=3, input_shape=(4,), seed=2, options=options)
    for name, value in made.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    with pytest.raises(ValueError, match="belong to another network"):
        build_net("mlp", num_classes=3, input_shape=(5,), seed=2, options=options)
