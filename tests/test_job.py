"""When a recorded run is the job that is asked for, and when it is another."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covlearn import records
from covlearn.cli.train import summary
from covlearn.config import Tree, override, plain
from covlearn.data import Augmentation
from covlearn.job import Job, other_than, protocol_of, run_job, settled
from covlearn.methods import presets
from covlearn.methods.scaled import recommended


def recorded(**changes: Any) -> dict[str, Any]:
    """The configuration that a run of a job leaves, as far as jobs are compared by it."""
    job = Job(**{"data": "cifar10", "method": "cal", "preset": "recommended", **changes})
    method, others = settled(job)
    protocol = presets.Protocol()
    if job.preset is not None:
        protocol = presets.protocol(job.preset, "cifar10")
    return {
        "job": plain(job),
        "method": {"name": job.method, **plain(method)},
        "net": {"name": job.net or protocol.net},
        "holdout": protocol.holdout if job.holdout is None else job.holdout,
        "data": {"augmentation": moved(protocol.augmentation, others["augmentation"])},
    }


def moved(by_preset: Tree, settings: Tree) -> Any:
    ours = override(Augmentation(mean=(0.5,), std=(0.2,)), by_preset)
    return plain(override(ours, settings))


def asked(**changes: Any) -> dict[str, Any]:
    return recorded(**changes)["job"]  # type: ignore[no-any-return]


def test_a_run_is_its_own_job() -> None:
    assert other_than(recorded(), asked()) == []
    with_net = {"settings": ("net.width=8", "plan.epochs=7")}
    assert other_than(recorded(**with_net), asked(**with_net)) == []


def test_spaces_and_order_do_not_count() -> None:
    there = recorded(settings=("net.width=8", "machine.capture=false", "plan.epochs=7"))
    here = asked(settings=(" machine.capture = false", "plan.epochs = 7", "net.width =8"))
    assert other_than(there, here) == []


def test_settings_that_come_to_the_same_are_the_same_job() -> None:
    epochs = settled(Job("cifar10", "cal", preset="recommended"))[0].plan.epochs  # type: ignore[attr-defined]
    assert other_than(recorded(), asked(settings=(f"plan.epochs={epochs}",))) == []
    assert other_than(recorded(settings=(f"plan.epochs={epochs}",)), asked()) == []
    by_preset = {"settings": ("augmentation.crop=4", "augmentation.rotate=0")}
    assert other_than(recorded(), asked(**by_preset)) == []
    assert other_than(recorded(**by_preset), asked()) == []


def test_a_field_that_came_later_has_its_default_in_older_runs() -> None:
    older = recorded()
    del older["method"]["rounds"]
    del older["method"]["plan"]["lr_factor"]
    assert other_than(older, asked()) == []
    (found,) = other_than(older, asked(settings=("rounds=2",)))
    assert found == "method.rounds is 1 there, 2 here"
    (found,) = other_than(older, asked(settings=("plan.lr_factor=0.2",)))
    assert found == "method.plan.lr_factor is 0.1 there, 0.2 here"


def test_a_field_that_is_gone_counts_where_it_was_in_use() -> None:
    older = recorded()
    older["method"]["plan"]["gone"] = False
    assert other_than(older, asked()) == []
    older["method"]["plan"]["gone"] = True
    assert other_than(older, asked()) == ["method.plan.gone is true there, null here"]


def test_a_run_from_when_there_was_another_prior_is_the_same_job_without_it() -> None:
    older = recorded()
    older["method"]["peer_prior"] = "noisy"
    assert other_than(older, asked()) == []
    older["method"]["peer_prior"] = "target"
    assert other_than(older, asked()) == ['method.peer_prior is "target" there, null here']


@pytest.mark.parametrize(("threshold", "labelled"), [(0.95, "agreed"), (0.6, "all")])
def test_a_run_from_when_there_was_consistency_is_the_same_job_without_it(
    threshold: float, labelled: str
) -> None:
    older = recorded()
    older["method"] |= {
        "consistency": 0.0,
        "consistency_threshold": threshold,
        "consistency_labelled": labelled,
    }
    assert other_than(older, asked()) == []
    older["method"]["consistency"] = 1.0
    assert other_than(older, asked()) == ["method.consistency is 1.0 there, null here"]


def test_a_preset_that_has_changed_since_is_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    before = recorded()
    changed = {**presets.CIFAR10, "cal": {"plan": {**presets.COMMON, "epochs": 50}}}
    monkeypatch.setitem(presets.BY_DATA, "cifar10", changed)
    assert any(
        "method.plan.epochs is 100 there, 50 here" in text for text in other_than(before, asked())
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("NET", {"cifar10": "resnet18"}, 'net is "resnet34" there, "resnet18" here'),
        ("MOVED", {"cifar10": {"crop": 2}}, "augmentation.crop is 4 there, 2 here"),
    ],
)
def test_and_so_is_one_whose_network_or_images_have(
    name: str, value: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = recorded()
    monkeypatch.setattr(presets, name, value)
    assert message in other_than(before, asked())


@pytest.mark.parametrize(
    "damaged",
    [
        {"job": None},
        {"job": []},
        {"job": {"data": "cifar10"}},
        {"method": "cal"},
        {"method": {"name": "ce"}},
        {"net": None},
        {"data": None},
    ],
)
def test_a_damaged_record_is_another_job(damaged: dict[str, Any]) -> None:
    assert other_than(recorded() | damaged, asked())


def test_a_job_that_cannot_be_made_is_said_in_words() -> None:
    job = asked(method="ce") | {"settings": ["sieve_beta.value=1"]}
    (found,) = other_than(recorded(method="ce"), job)
    assert found.startswith("sieve_beta.value cannot be set: CE has no such field")
    (found,) = other_than(recorded(), asked() | {"settings": ["augmentation.tilt=1"]})
    assert found.startswith("augmentation.tilt cannot be set")


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
        {"settings": ("augmentation.rotate=15",)},
        {"settings": ("augmentation.mean=0.1",)},
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


# ---- Data of one's own ------------------------------------------------------------------------


def own(folder: Path, shape: tuple[int, ...], dtype: Any, count: int = 300) -> str:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, size=(count, *shape)).astype(dtype)
    y = rng.integers(0, 3, size=count)
    np.savez(folder / "own.npz", x=x, y=y, x_test=x[:9], y_test=y[:9])
    return str(folder / "own.npz")


@pytest.mark.parametrize("method", ["cal", "ce", "forward", "ptd"])
@pytest.mark.parametrize(
    ("shape", "dtype", "seen"),
    [((5,), "f4", (5,)), ((5, 4), "f4", (20,)), ((9, 9, 3), "u1", (9, 9, 3))],
)
def test_data_of_ones_own_is_trained_as_fit_would(
    method: str, shape: tuple[int, ...], dtype: str, seen: tuple[int, ...], tmp_path: Path
) -> None:
    choice = recommended(method, num_examples=300, num_classes=3, shape=seen)
    job = Job(own(tmp_path, shape, dtype), method, preset="recommended")
    found, others = settled(job)
    assert found == choice.method
    assert protocol_of(job).net == choice.net
    assert others["net"] == choice.net_options
    assert protocol_of(job).holdout == 0.1
    # What is asked for goes over it, and another network has options of its own.
    wanted = replace(job, settings=("plan.weight_decay=0.5", "net.hidden=[3]"))
    found, others = settled(wanted)
    assert found.plan.weight_decay == 0.5  # type: ignore[attr-defined]
    assert getattr(found, "decays", ()) == ()
    assert others["net"] == choice.net_options | {"hidden": [3]}
    assert settled(replace(job, net="linear"))[1]["net"] == {}
    assert settled(replace(job, preset="paper"))[1]["net"] == {}


def test_a_run_of_ones_own_data_is_its_own_job(tmp_path: Path) -> None:
    """Though its method is cross-fitted, and has fields that CAL has not."""
    brief = ("plan.epochs=1", "sieve_plan.epochs=1", "plain_plan.epochs=1", "decays=()")
    job = Job(own(tmp_path, (5,), "f4"), "cal", preset="recommended", settings=brief)
    result = run_job(job, tmp_path / "run", device="cpu")
    assert summary(result, tmp_path).startswith("cal, cross-fitted, seed 0")
    config = records.read_config(tmp_path / "run")
    assert config["method"]["name"] == "covlearn.methods.crossfit:CrossFittedCAL"
    assert other_than(config, plain(job)) == []
    (found,) = other_than(config, plain(replace(job, settings=(*brief, "folds=3"))))
    assert found == "method.folds is 5 there, 3 here"


def test_a_run_is_its_own_job_when_its_data_is_gone(tmp_path: Path) -> None:
    """What its settings depended on is in its record."""
    brief = ("plan.epochs=1", "sieve_plan.epochs=1", "plain_plan.epochs=1", "decays=()")
    for shape, dtype in (((5, 4), "f4"), ((9, 9, 3), "u1")):
        data = own(tmp_path, shape, dtype)
        job = Job(data, "cal", preset="recommended", settings=brief)
        folder = tmp_path / dtype
        run_job(job, folder, device="cpu")
        Path(data).unlink()
        assert other_than(records.read_config(folder), plain(job)) == []


@pytest.mark.parametrize("setting", ["beta.value=5", "weighting=sample", "prior_scale=7"])
def test_what_would_change_nothing_is_refused(setting: str, tmp_path: Path) -> None:
    job = Job(own(tmp_path, (5,), "f4"), "cal", preset="recommended", settings=(setting,))
    with pytest.raises(ValueError, match=r"changes nothing .* set relabel=false, too"):
        settled(job)
    assert not settled(replace(job, settings=(setting, "relabel=false")))[0].relabel  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["cal", "ce"])
def test_features_that_are_far_from_unit_scale_are_refused(method: str, tmp_path: Path) -> None:
    data = own(tmp_path, (5,), "f4")
    arrays = dict(np.load(data))
    np.savez(data, **(arrays | {"x": arrays["x"] * np.array([1, 1, 1, 900, 1], dtype="f4")}))
    job = Job(data, method, preset="recommended")
    with pytest.raises(ValueError, match=r"unit scale .* feature 3 of .*covlearn fit, which does"):
        run_job(job, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
