"""Features of frozen networks; the libraries of others are stood in for by small ones."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covlearn.inputs import extractors, pictures, read_examples
from covlearn.inputs.extractors import LITE0, Extractor, default_extractor, make_extractor
from covlearn.nets import choice
from tests.inputs.make import class_folders, picture, pixels


class Mean(nn.Module):
    """The mean and the largest value of each channel; as slow as it is wise."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))
        self.fc = nn.Linear(6, 1000)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.fc(
            torch.cat([x.mean(dim=(2, 3)), x.amax(dim=(2, 3))], dim=1) * self.scale
        )
        return features


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A library with one model, called mean."""
    how = SimpleNamespace(crop_size=[16], mean=(0.5, 0.25, 0.0), std=(0.5, 0.5, 2.0))
    weights = SimpleNamespace(url="https://example.org/mean-1234.pth", transforms=lambda: how)
    models: Any = ModuleType("torchvision.models")
    models.list_models = lambda module: ["mean", "resnet50", "resnet18"]
    models.get_model_weights = lambda name: SimpleNamespace(DEFAULT=weights)
    models.get_model = lambda name, weights: Mean()
    package = ModuleType("torchvision")
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    monkeypatch.setattr(extractors, "LITE0_PACKAGES", ("not_installed_at_all",))
    return models  # type: ignore[no-any-return]


def expected(image: Any) -> Any:
    x = (image / 255 - np.array([0.5, 0.25, 0.0])) / np.array([0.5, 0.5, 2.0])
    return np.concatenate([x.mean(axis=(0, 1)), x.max(axis=(0, 1))])


def test_features_of_torchvision(torchvision: ModuleType, tmp_path: Path) -> None:
    source = class_folders(tmp_path / "pets", size=(16, 16))
    before = torch.get_rng_state()
    examples = read_examples(source, features="torchvision:mean", cache=tmp_path / "cache")
    assert torch.equal(torch.get_rng_state(), before)
    assert examples.x.dtype == torch.float32
    np.testing.assert_allclose(
        examples.x, np.stack([expected(pixels(seed, 16, 16)) for seed in range(6)]), atol=1e-5
    )
    described = examples.recipe["extractor"]
    assert described["pretrained"] == "ImageNet-pretrained"
    assert described["name"] == "torchvision:mean"
    assert any(
        "ImageNet-pretrained features of torchvision:mean" in note for note in examples.notes
    )
    new = read_examples(picture(tmp_path / "x.png", 2, size=(16, 16)), recipe=examples.recipe)
    torch.testing.assert_close(new.x, examples.x[2:3])
    again = read_examples(source, cache=tmp_path / "cache", recipe=examples.recipe)
    assert torch.equal(again.x, examples.x)
    with pytest.raises(ValueError, match=r"as in training, torchvision:mean, got 'none'"):
        read_examples(source, recipe=examples.recipe, features="none")


def test_other_weights_are_refused(torchvision: Any, tmp_path: Path) -> None:
    source = class_folders(tmp_path / "pets")
    examples = read_examples(source, features="torchvision:mean")
    torchvision.get_model = lambda name, weights: Mean(2.0)
    with pytest.raises(ValueError, match=r"weights of torchvision:mean must be those of training"):
        read_examples(source, recipe=examples.recipe)


def test_auto_downloads_nothing(
    torchvision: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    assert default_extractor() is None
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "mean-1234.pth").write_bytes(b"")
    assert default_extractor() == "torchvision:resnet50"
    monkeypatch.setattr(extractors, "LITE0_PACKAGES", ("json", "csv"))
    assert default_extractor() == LITE0


def test_many_small_images_and_a_gpu_are_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extractors, "LITE0_PACKAGES", ("json", "csv"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    source = class_folders(tmp_path / "pets")
    monkeypatch.setattr(choice, "FEWEST", 1)
    examples = read_examples(source)
    assert examples.x.dtype == torch.uint8
    assert any("trained on the pixels themselves" in note for note in examples.notes)


def test_features_of_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    timm: Any = ModuleType("timm")

    def create_model(name: str, *, pretrained: bool, num_classes: int) -> nn.Module:
        if name != "mean":
            raise RuntimeError(f"Unknown model ({name})")
        assert pretrained
        net = Mean()
        net.fc = nn.Identity()  # type: ignore[assignment]
        return net

    how = {"input_size": (3, 16, 16), "mean": (0.5, 0.25, 0.0), "std": (0.5, 0.5, 2.0)}
    timm.create_model = create_model
    timm.data = SimpleNamespace(resolve_model_data_config=lambda net: how)
    monkeypatch.setitem(sys.modules, "timm", timm)
    extractor = make_extractor("timm:mean")
    assert (extractor.size, extractor.dim) == (16, 6)
    image = pixels(0, 16, 16)
    np.testing.assert_allclose(extractor(image[None])[0], expected(image), atol=1e-5)
    with pytest.raises(ValueError, match=r"timm cannot make 'other': Unknown model"):
        make_extractor("timm:other")


def test_without_any_network_the_pixels_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extractors, "LITE0_PACKAGES", ("not_installed_at_all",))
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    examples = read_examples(class_folders(tmp_path))
    assert examples.x.dtype == torch.uint8
    assert examples.recipe["extractor"] is None
    assert any("pip install 'covlearn[lite]'" in note for note in examples.notes)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("efficientnet", r"features must be one of auto, none, .* got 'efficientnet'"),
        ("torchvision:", r"features must be one of"),
        ("efficientnet_lite0:x", r"features must be one of"),
        ("torchvision:meen", r"torchvision has no model 'meen'.*mean"),
    ],
)
def test_names_that_are_not_known(
    torchvision: ModuleType, tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read_examples(class_folders(tmp_path), features=name)


@pytest.mark.parametrize(
    ("name", "extra"), [(LITE0, "lite"), ("torchvision:x", "vision"), ("timm:x", "vision")]
)
def test_missing_libraries_are_named(
    monkeypatch: pytest.MonkeyPatch, name: str, extra: str
) -> None:
    for package in (*extractors.LITE0_PACKAGES, "torchvision", "torchvision.models", "timm"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"pip install 'covlearn\[{extra}\]'"):
        make_extractor(name)


def test_damaged_images_leave_no_row(
    torchvision: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "SHARD", 4)
    monkeypatch.setattr(pictures, "BATCH", 2)
    source = class_folders(tmp_path / "pets", each=6)
    whole = read_examples(source, features="torchvision:mean")
    for name in ("cat/2.png", "cat/3.png", "dog/5.png"):
        (source / name).write_bytes(b"no image")
    for cache in (None, tmp_path / "cache", tmp_path / "cache"):
        examples = read_examples(source, features="torchvision:mean", cache=cache, on_bad="skip")
        assert [item.id for item in examples.skipped] == ["cat/2.png", "cat/3.png", "dog/5.png"]
        kept = [whole.ids.index(name) for name in examples.ids]
        torch.testing.assert_close(examples.x, whole.x[kept])


def test_the_features_of_lite0() -> None:
    for package in extractors.LITE0_PACKAGES:
        pytest.importorskip(package, reason="the extra lite is not installed")
    extractor: Extractor = make_extractor(LITE0)
    assert (extractor.size, extractor.dim) == (224, 1280)
    images = np.stack([pixels(seed, 224, 224) for seed in range(2)])
    features = extractor(images)
    # As its authors scale their inputs: x / 127.5 − 1.
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
    with torch.inference_mode():
        known = extractor.net.net.extract_features(x).mean(dim=(2, 3))  # type: ignore[union-attr,operator]
    np.testing.assert_allclose(features, known, atol=1e-4)
    alone = extractor(images[1:])
    np.testing.assert_allclose(alone[0], features[1], atol=1e-4)
