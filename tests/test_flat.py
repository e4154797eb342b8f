"""The flat tensors and the working copy, as far as they need no GPU."""

import copy

import pytest
import torch
from torch import Tensor, nn

from covlearn import kernels
from covlearn.average import Average
from covlearn.flat import Flat, Working, lower_precision, use_working_copy
from covlearn.nets import build_net

GROUP = {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}


def make() -> nn.Module:
    net = build_net("resnet18", num_classes=10, input_shape=(3, 32, 32), seed=0)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)


def draw_gradients(working: Working, generator: torch.Generator) -> None:
    assert working.rest is not None
    for parameter in (*working.copies, *working.rest.parameters):
        gradient = torch.randn(parameter.shape, generator=generator)
        parameter.grad = torch.empty_like(parameter).copy_(gradient)


def give_gradients(model: nn.Module, working: Working) -> None:
    """Those of the working copy, in float32."""
    for parameter, other in zip(model.parameters(), working.model.parameters(), strict=True):
        assert other.grad is not None
        parameter.grad = other.grad.float()


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_a_flat_step_is_that_of_the_optimizer() -> None:
    mine, theirs = make(), make()
    working = Working(mine, sgd(mine))
    optimizer = sgd(theirs)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        draw_gradients(working, generator)
        give_gradients(theirs, working)
        working.step()
        optimizer.step()
    torch.testing.assert_close(weights(mine), weights(theirs), rtol=1e-6, atol=1e-7)
    for own, copied in zip(working.low.parameters, working.copies, strict=True):
        assert torch.equal(own.bfloat16(), copied)


def test_the_optimizers_state_can_be_saved_and_restored() -> None:
    model, other = make(), make()
    optimizer = sgd(model)
    working = Working(model, optimizer)
    generator = torch.Generator().manual_seed(0)
    draw_gradients(working, generator)
    working.step()
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    resumed = sgd(other)
    other.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    again = Working(other, resumed)
    for one in (working, again):
        draw_gradients(one, torch.Generator().manual_seed(1))
        one.step()
    assert torch.equal(weights(model), weights(other))
    states = zip(optimizer.state.values(), resumed.state.values(), strict=True)
    assert all(torch.equal(a["momentum_buffer"], b["momentum_buffer"]) for a, b in states)


def test_what_is_shared_with_the_model_and_what_is_not() -> None:
    model = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    formats = [p.stride() for p in model.parameters()]
    own = list(model.parameters())
    working = Working(model, sgd(model))
    assert [p.stride() for p in model.parameters()] == formats
    assert all(a is b for a, b in zip(own, model.parameters(), strict=True))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    buffers = zip(model.buffers(), working.model.buffers(), strict=True)
    assert all(mine is theirs for mine, theirs in buffers)
    lower = {id(p) for p in lower_precision(model)}
    for mine, theirs in zip(model.parameters(), working.model.parameters(), strict=True):
        assert theirs.dtype == (torch.bfloat16 if id(mine) in lower else torch.float32)
        assert (mine is theirs) == (id(mine) not in lower)
        assert theirs.stride() == mine.stride()
        assert theirs.data_ptr() % 16 == 0
    assert type(model.get_submodule("conv1")) is nn.Conv2d


def test_refresh_takes_over_what_was_loaded() -> None:
    model = make()
    working = Working(model, sgd(model))
    other = build_net("resnet18", num_classes=10, input_shape=(3, 32, 32), seed=1)
    model.load_state_dict(other.state_dict())
    working.refresh()
    for mine, theirs in zip(other.parameters(), working.model.parameters(), strict=True):
        torch.testing.assert_close(mine.to(theirs.dtype), theirs.contiguous(), rtol=0, atol=0)


def test_a_part_is_updated_as_the_whole_is() -> None:
    generator = torch.Generator().manual_seed(0)
    draw = [torch.randn(5, 7, generator=generator), torch.randn(100, generator=generator)]
    groups = []
    for _ in range(2):
        parameters = [nn.Parameter(value.clone()) for value in draw]
        optimizer = torch.optim.SGD(parameters, **GROUP)  # type: ignore[arg-type]
        flat = Flat(parameters, torch.bfloat16, optimizer.param_groups[0])
        flat.adopt(optimizer)
        groups.append(flat)
    whole, parts = groups
    gradient = torch.randn(len(whole.weight), generator=generator).bfloat16()
    whole.gradient.copy_(gradient)
    whole.update(slice(0, len(gradient)))
    for place, parameter in zip(parts.places, parts.parameters, strict=True):
        parts.update(place, gradient[place][: parameter.numel()])
    for mine, theirs in zip(whole.parameters, parts.parameters, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("in_one_pass", [False, True])
def test_an_average_follows_the_flat_weights(in_one_pass: bool) -> None:
    model = make()
    average = Average(model, 0.5)
    working = Working(model, sgd(model))
    start = weights(average.model)
    average.follow(model, [part.weight for part in working.parts] if in_one_pass else [])
    assert torch.equal(weights(average.model), start)
    shared = {p.untyped_storage().data_ptr() for p in average.model.parameters()}
    assert (len(shared) == 2) == in_one_pass
    assert shared.isdisjoint(p.untyped_storage().data_ptr() for p in model.parameters())
    seen = []
    for seed in range(2):
        draw_gradients(working, torch.Generator().manual_seed(seed))
        working.step()
        average.update()
        seen.append(weights(model))
    torch.testing.assert_close(weights(average.model), (seen[0] + 2 * seen[1]) / 3)


class Step:
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model = model
        self.optimizer: torch.optim.Optimizer | Working = optimizer
        self.average: Average | None = None
        self.parameters: list[Tensor] = list(model.parameters())


def test_only_sgd_gets_a_working_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    monkeypatch.setattr(kernels, "available", lambda: True)
    step = Step(model, torch.optim.Adam(model.parameters()))
    assert use_working_copy(step) is None
    assert step.model is model
    step = Step(model, sgd(model))
    step.average = Average(model, 0.5)
    assert use_working_copy(step) is not None
    assert len({p.untyped_storage().data_ptr() for p in step.average.model.parameters()}) == 2
    assert isinstance(step.optimizer, Working)
    assert step.model is step.optimizer.model
    trained = {id(parameter) for parameter in step.parameters}
    assert trained == {id(parameter) for parameter in step.model.parameters()}
    monkeypatch.setattr(kernels, "available", lambda: False)
    assert use_working_copy(Step(model, sgd(model))) is None
