"""When a recorded run is the job that is asked for, and when it is another."""

from typing import Any

import pytest

from covlearn.config import plain
from covlearn.job import Job, other_than, settled
from covlearn.methods import presets


def recorded(**changes: Any) -> dict[str, Any]:
    """The configuration that a run of a job leaves, as far as jobs are compared by it."""
    job = Job(**{"data": "cifar10", "method": "cal", "preset": "recommended", **changes})
    method, _ = settled(job)
    return {"job": plain(job), "method": {"name": job.method, **plain(method)}}


def asked(**changes: Any) -> dict[str, Any]:
    return recorded(**changes)["job"]  # type: ignore[no-any-return]


def test_a_run_is_its_own_job() -> None:
    assert other_than(recorded(), asked()) == []
    with_net = {"settings": ("net.width=8", "plan.epochs=7")}
    assert other_than(recorded(**with_net), asked(**with_net)) == []


def test_settings_that_come_to_the_same_are_the_same_job() -> None:
    epochs = settled(Job("cifar10", "cal", preset="recommended"))[0].plan.epochs  # type: ignore[attr-defined]
    assert other_than(recorded(), asked(settings=(f"plan.epochs={epochs}",))) == []
    assert other_than(recorded(settings=(f"plan.epochs={epochs}",)), asked()) == []


def test_a_field_that_came_later_has_its_default_in_older_runs() -> None:
    older = recorded()
    del older["method"]["rounds"]
    del older["method"]["plan"]["strong_views"]
    assert other_than(older, asked()) == []
    (found,) = other_than(older, asked(settings=("rounds=2",)))
    assert found == "method.rounds is 1 there, 2 here"
    (found,) = other_than(older, asked(settings=("plan.strong_views=true",)))
    assert found == "method.plan.strong_views is false there, true here"


def test_a_preset_that_has_changed_since_is_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    before = recorded()
    changed = {**presets.CIFAR10, "cal": {"plan": {**presets.COMMON, "epochs": 50}}}
    monkeypatch.setitem(presets.BY_DATA, "cifar10", changed)
    assert any(
        "method.plan.epochs is 100 there, 50 here" in text for text in other_than(before, asked())
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"noise": "cal:0.4"},
        {"preset": "published"},
        {"method": "ce"},
        {"net": "cnn"},
        {"holdout": 0.1},
        {"settings": ("net.width=8",)},
        {"settings": ("augmentation.crop=2",)},
        {"settings": ("machine.compile=true",)},
        {"settings": ("plan.epochs=7",)},
    ],
)
def test_any_other_job_is_another(changes: dict[str, Any]) -> None:
    assert other_than(recorded(), asked(**changes))
    assert other_than(recorded(**changes), asked())


def test_a_method_of_someone_else_is_compared_by_its_settings() -> None:
    job = {**asked(), "method": "pkg.mod:Class", "settings": ["a=1"]}
    config = {"job": job, "method": {"name": "pkg.mod:Class"}}
    assert other_than(config, job) == []
    assert other_than(config, {**job, "settings": ["a=2"]})
