"""Networks by name, and their pre-trained weights.

A net maps a batch to logits (B, K). Those here also have ``features(x)``, the penultimate features
(B, D), and a head ``fc`` with ``net(x) == net.fc(net.features(x))``; a method that asks for
features needs the same of a net of your own.
"""

import difflib
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from covlearn.checks import check_num_classes
from covlearn.kinds import checked
from covlearn.nets.resnet import BasicBlock, Bottleneck, ResNet
from covlearn.nets.small import CNN, MLP, Linear, check_sizes

Builder = Callable[..., nn.Module]

NETS: dict[str, Builder] = {
    "resnet18": partial(ResNet, BasicBlock, (2, 2, 2, 2), "cifar"),
    "resnet34": partial(ResNet, BasicBlock, (3, 4, 6, 3), "cifar"),
    "resnet50": partial(ResNet, Bottleneck, (3, 4, 6, 3), "cifar"),
    "resnet50_imagenet": partial(ResNet, Bottleneck, (3, 4, 6, 3), "imagenet"),
    "cnn": CNN,
    "mlp": MLP,
    "linear": Linear,
}


@checked
def build_net(
    name: str,
    *,
    num_classes: int,
    input_shape: Sequence[int],
    seed: int,
    options: Mapping[str, Any] | None = None,
) -> nn.Module:
    """A new network on the CPU, its weights a function of ``seed`` alone.

    ``name`` is one of :data:`NETS`, or ``"pkg.mod:factory"`` for a callable of your own, called as
    ``factory(num_classes=…, input_shape=…, **options)``. ``input_shape`` is the shape of one
    example as the network sees it, (C, H, W) or (D,). PyTorch's global random state stays as it
    was; a factory must draw from PyTorch's default generator and from no other. The option
    ``pretrained`` names a local file of weights for a net of :data:`NETS`.

    >>> net = build_net("mlp", num_classes=3, input_shape=(4,), seed=0, options={"hidden": [8]})
    >>> net(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """
    num_classes = check_num_classes(num_classes)
    input_shape = check_sizes(input_shape, name="input_shape")
    # PyTorch's generator on the CPU looks at 32 bits: a higher seed would repeat a lower one.
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be an integer in 0…2³²−1, got {seed!r}")
    options = dict(options or {})
    check_options(name, options)
    builder = builder_of(name)
    # A factory of one's own may have an option of that name, and another meaning for it.
    pretrained = options.pop("pretrained", None) if name in NETS else None
    # The default generator is seeded itself: torch.manual_seed would also seed every accelerator,
    # whose states are not restored. The device is set, so that a default device draws nothing.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(int(seed))
        net = builder(num_classes=num_classes, input_shape=input_shape, **options)
        if name not in NETS:
            _check_logits(net, name, input_shape, num_classes)
    if pretrained is not None:
        load_pretrained(net, pretrained)
    return net


@checked
def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuses options that the net of a name does not take, without making it."""
    builder = builder_of(name)
    taken = {key for key in options if key != "pretrained" or name not in NETS}
    try:
        inspect.signature(builder).bind(num_classes=2, input_shape=(1,), **dict.fromkeys(taken))
    except TypeError as error:
        raise ValueError(f"net {name!r} {_describe_options(builder)}: {error}") from error


@checked
def num_parameters(
    name: str, *, num_classes: int, input_shape: Sequence[int], options: Mapping[str, Any]
) -> int:
    """The size of a net of :data:`NETS`, without room being made for it; 0 for any other."""
    if name not in NETS:
        return 0
    num_classes = check_num_classes(num_classes)
    input_shape = check_sizes(input_shape, name="input_shape")
    try:
        with torch.device("meta"):
            net = NETS[name](num_classes=num_classes, input_shape=input_shape, **options)
    except (TypeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"net {name!r} cannot be made with {options}: {error}") from error
    return sum(parameter.numel() for parameter in net.parameters())


@checked
def load_pretrained(net: nn.Module, path: str | PathLike[str]) -> list[str]:
    """Copy the weights of a local state dict into ``net``; return the names that were left new.

    ``path`` ends in .pt or .pth (read without executing pickled code) or in .safetensors. Names
    and shapes must agree. Left new are a head ``fc`` for another number of classes, and BatchNorm's
    batch counters, which old files do not have. Anything else is an error, and ``net`` stays as it
    was.
    """
    path = Path(path)
    given = _read_tensors(path)
    wanted = net.state_dict()
    left_new = [
        name
        for name, new in wanted.items()
        if (name.endswith(".num_batches_tracked") and name not in given)
        or (name.startswith("fc.") and name in given and _only_width_differs(given[name], new))
    ]
    taken = [name for name in wanted if name not in left_new]
    differences = {
        "missing in the file": [name for name in taken if name not in given],
        "not in the net": [name for name in given if name not in wanted],
        "of another shape": [
            f"{name} {tuple(given[name].shape)} for {tuple(wanted[name].shape)}"
            for name in taken
            if name in given and given[name].shape != wanted[name].shape
        ],
    }
    if any(differences.values()):
        listed = "; ".join(f"{how}: {_some(names)}" for how, names in differences.items() if names)
        raise ValueError(f"the weights in {path} belong to another network: {listed}")
    net.load_state_dict({name: given[name] for name in taken}, strict=False)
    return left_new


@checked
def builder_of(name: str) -> Builder:
    """What makes the net of a name, or of ``pkg.mod:factory``."""
    if name in NETS:
        return NETS[name]
    if ":" not in name:
        near = difflib.get_close_matches(name, NETS, n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise ValueError(
            f"unknown net {name!r}; {hint}There are {', '.join(NETS)}, and pkg.mod:factory for a "
            "net of your own"
        )
    try:
        factory = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"cannot import the net {name!r}: {error}; write pkg.mod:factory, with pkg installed "
            "or on PYTHONPATH"
        ) from error
    if not callable(factory):
        raise ValueError(f"{name!r} must be callable, got {type(factory).__name__}")
    return factory  # type: ignore[no-any-return]


def _describe_options(builder: Builder) -> str:
    known = [
        parameter
        for parameter in inspect.signature(builder).parameters
        if parameter not in ("num_classes", "input_shape")
    ]
    return f"takes the options {', '.join(known)}" if known else "takes no options"


def _check_logits(net: object, name: str, input_shape: tuple[int, ...], num_classes: int) -> None:
    """Show a user's net two examples of zeros, in evaluation mode, so that no statistic moves."""
    if not isinstance(net, nn.Module):
        raise ValueError(f"{name!r} must return an nn.Module, got {type(net).__name__}")
    modes = {module: module.training for module in net.modules()}
    device = next((parameter.device for parameter in net.parameters()), None)
    try:
        with torch.no_grad():
            logits = net.eval()(torch.zeros(2, *input_shape, device=device))
    except Exception as error:
        raise ValueError(
            f"the net of {name!r} fails on a batch of shape {(2, *input_shape)}: {error}"
        ) from error
    for module, training in modes.items():
        module.training = training
    got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if got != (2, num_classes):
        raise ValueError(
            f"the net of {name!r} must return logits of shape (B, {num_classes}), got {got} for a "
            f"batch of shape {(2, *input_shape)}"
        )


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        try:
            read: Callable[[Path], Any] = importlib.import_module("safetensors.torch").load_file
        except ImportError as error:
            raise ImportError(
                f"reading {path} needs safetensors: pip install safetensors"
            ) from error
    elif path.suffix in (".pt", ".pth"):
        read = partial(torch.load, map_location="cpu", weights_only=True)
    else:
        raise ValueError(f"weights must be in a .pt, .pth or .safetensors file, got {path}")
    try:
        tensors = read(path)
    except OSError:
        raise  # the file is missing or may not be read, which these errors say themselves
    except Exception as error:  # what a damaged file raises has no common type
        reason = "it is damaged, or it holds more than tensors, which is never unpickled here"
        if not isinstance(error, pickle.UnpicklingError):
            reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} cannot be read as a file of weights: {reason}") from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in tensors.items()
    ):
        what = f"a dict with {_some(list(tensors))}" if isinstance(tensors, dict) else type(tensors)
        raise ValueError(
            f"{path} must hold a state dict, names and tensors and nothing else, got {what}; save "
            "the state dict inside it to a file of its own"
        )
    return tensors


def _only_width_differs(given: Tensor, new: Tensor) -> bool:
    return (
        given.ndim == new.ndim
        and given.shape[1:] == new.shape[1:]
        and given.shape[0] != new.shape[0]
    )


def _some(names: Sequence[object]) -> str:
    listed = ", ".join(str(name) for name in names[:5])
    return listed if len(names) <= 5 else f"{listed} and {len(names) - 5} more"
