"""Networks by name and factories of the user's: what fits, and what is refused."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from torch import nn

from covlearn.nets import build_net
from tests.test_nets import equal

NO_FACTORY = ["a list"]


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
        (
            "mlp",
            {"options": {"hiden": [3]}},
            "net 'mlp' takes the options hidden, shortcut: .*'hiden'",
        ),
        ("mlp", {"options": {"num_classes": 3}}, "multiple values.*num_classes"),
        ("mlp", {"options": {"hidden": 64}}, "hidden must be a sequence"),
        ("mlp", {"options": {"hidden": [64, 0]}}, "hidden must be"),
        ("cnn", {"options": {"widths": ["a"]}}, "widths must be"),
        ("cnn", {"options": {"batch_norm": "no"}}, "batch_norm must be True or False, got 'no'"),
        ("resnet18", {"options": {"stem": "imagenet"}}, "net 'resnet18' takes no options"),
        ("nowhere.mod:net", {}, "cannot import the net 'nowhere.mod:net': No module named"),
        (":net", {}, "cannot import the net ':net'"),
        (f"{__name__}:missing", {}, "cannot import the net .*no attribute 'missing'"),
        (f"{__name__}:NO_FACTORY", {}, "must be callable, got list"),
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
