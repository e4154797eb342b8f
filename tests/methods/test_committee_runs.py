"""Co-teaching, Co-teaching+ and JoCoR: their runs."""

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from covlearn.engine import Plan
from covlearn.ledger import Ledger
from covlearn.methods.base import Method
from covlearn.methods.ce import CE
from covlearn.methods.coteaching import CoTeaching, CoTeachingPlus
from covlearn.methods.jocor import JoCoR
from covlearn.run import LocalRun
from tests.methods.toy import accuracy, noisy_run, rebuilt, weights

SGD = Plan(epochs=20, batch_size=32)
ADAM = Plan(epochs=20, batch_size=32, optimizer="adam", lr=3e-3)
SHORT = Plan(epochs=4, batch_size=32, lr=0.02)
RECOVERING: dict[str, CoTeaching | CoTeachingPlus | JoCoR] = {
    "coteaching": CoTeaching(SGD, rate_plan=SHORT, forget_epochs=4),
    "coteaching_plus": CoTeachingPlus(ADAM, rate_plan=SHORT, forget_epochs=4, warm_up_epochs=6),
    "jocor": JoCoR(SGD, rate_plan=SHORT, forget_epochs=4),
}


@cache
def accuracy_of_cross_entropy(plan: Plan) -> float:
    return accuracy(CE(plan).fit(noisy_run(400)))


@pytest.mark.parametrize("name", RECOVERING)
def test_recovers_a_separable_toy_where_cross_entropy_learns_the_noise(name: str) -> None:
    method = RECOVERING[name]
    run = noisy_run(400)
    model = method.fit(run)
    assert accuracy(model) > accuracy_of_cross_entropy(method.plan) + 0.05
    assert run.facts == {"estimated_rate": pytest.approx(0.4, abs=0.06)}


BRIEF = Plan(epochs=4, batch_size=16)
TINY: dict[str, CoTeaching | CoTeachingPlus | JoCoR] = {
    "coteaching": CoTeaching(BRIEF, rate_plan=BRIEF, forget_epochs=3),
    "coteaching_plus": CoTeachingPlus(BRIEF, rate_plan=BRIEF, forget_epochs=3, warm_up_epochs=2),
    "jocor": JoCoR(BRIEF, rate_plan=BRIEF, forget_epochs=3),
}


def tiny_run(**options: Any) -> LocalRun:
    return noisy_run(70, width=8, **options)


@pytest.mark.parametrize("name", TINY)
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (weights(TINY[name].fit(tiny_run(seed=seed))) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", TINY)
def test_a_rate_that_is_given_is_not_estimated(name: str) -> None:
    run = tiny_run()
    dataclasses.replace(TINY[name], rate=0.4).fit(run)
    assert list(run.history) == [name]
    assert run.facts == {}
    other = tiny_run()
    TINY[name].fit(other)
    assert list(other.history) == ["rate", name]
    assert [record["loss"] for record in run.history[name]] != [
        record["loss"] for record in other.history[name]
    ]


@pytest.mark.parametrize("name", TINY)
def test_the_first_of_two_different_networks_is_returned(name: str) -> None:
    shown: list[nn.Module] = []

    def look(stage: str, epoch: int, model: nn.Module, ledger: Ledger) -> dict[str, float]:
        shown.append(model)
        return {}

    run = tiny_run(after_epoch=look)
    model = TINY[name].fit(run)
    first, second = shown[-1].members  # type: ignore[misc]
    assert model is first
    assert not torch.equal(weights(first), weights(second))
    assert model(run.split.x).shape == (70, 3)


@pytest.mark.parametrize("stage", ["rate", "own"])
@pytest.mark.parametrize("name", TINY)
def test_a_run_that_was_cut_off_ends_with_the_same_bits(
    name: str, stage: str, tmp_path: Path
) -> None:
    whole = tiny_run()
    expected = weights(TINY[name].fit(whole))
    stage = name if stage == "own" else stage

    def cut_off(at: str, epoch: int, model: nn.Module, ledger: Ledger) -> dict[str, float]:
        if (at, epoch) == (stage, 2):
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        TINY[name].fit(tiny_run(folder=tmp_path, checkpoint_seconds=0.0, after_epoch=cut_off))

    seen: list[tuple[str, int]] = []

    def watch(at: str, epoch: int, model: nn.Module, ledger: Ledger) -> dict[str, float]:
        seen.append((at, epoch))
        return {}

    resumed = tiny_run(folder=tmp_path, checkpoint_seconds=0.0, after_epoch=watch)
    assert torch.equal(weights(TINY[name].fit(resumed)), expected)
    assert resumed.facts == whole.facts
    later = [(name, epoch) for epoch in range(4)] if stage == "rate" else []
    assert seen == [(stage, 2), (stage, 3), *later]


@pytest.mark.parametrize("name", TINY)
def test_the_settings_round_trip_through_json(name: str) -> None:
    for method in (TINY[name], type(TINY[name])()):
        assert isinstance(method, Method)
        text = json.dumps(dataclasses.asdict(method))
        assert rebuilt(type(method), json.loads(text)) == method


def test_defaults_are_the_common_protocol() -> None:
    common = Plan(epochs=100, batch_size=128, lr=0.1, lr_milestones=(60,), weight_decay=5e-4)
    for method in (CoTeaching(), CoTeachingPlus(), JoCoR()):
        assert method.plan == common
        assert method.rate is None
        assert method.forget_epochs == 10
    assert CoTeachingPlus().warm_up_epochs == 20
    assert JoCoR().agreement == 0.9


@pytest.mark.parametrize("kind", [CoTeaching, CoTeachingPlus, JoCoR])
@pytest.mark.parametrize(
    ("field", "value"), [("rate", 1.0), ("rate", -0.1), ("rate", 40.0), ("forget_epochs", -1)]
)
def test_bad_settings_are_refused(kind: Any, field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        kind(**{field: value})


def test_bad_settings_of_one_method_are_refused() -> None:
    with pytest.raises(ValueError, match="warm_up_epochs"):
        CoTeachingPlus(warm_up_epochs=-1)
    with pytest.raises(ValueError, match="agreement"):
        JoCoR(agreement=1.1)
