"""Presets: every method for every kind of data, the values that matter, and the command line."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covlearn import cli, records
from covlearn.config import leaves, plain, typed
from covlearn.engine import Plan
from covlearn.job import Job, protocol_of, settled
from covlearn.methods import CAL, METHODS
from covlearn.methods.presets import (
    BY_BOTH,
    BY_NAME,
    DATA,
    PRESETS,
    Protocol,
    data_kind,
    preset,
    protocol,
)
from covlearn.schedules import Ramp

OWN = (
    "preset paper has no settings for a method of one's own, covlearn.methods:CE; write preset = "
    '"defaults" in its row of a table'
)
COMMON = Plan(epochs=100, batch_size=128, lr=0.1, lr_milestones=(60,), weight_decay=5e-4)
SHORT = Plan(epochs=30, batch_size=64, lr=0.1, lr_milestones=(20,), weight_decay=5e-4)
EVERY = [(name, method, data) for name in PRESETS for method in METHODS for data in DATA]


def plans(method: Any) -> dict[str, Plan]:
    return {
        field.name: value
        for field in fields(method)
        if isinstance(value := getattr(method, field.name), Plan)
    }


@pytest.mark.parametrize(("name", "method", "data"), EVERY)
def test_every_preset_builds_and_makes_the_round_trip(name: str, method: str, data: str) -> None:
    made: Any = preset(name, method, data)
    assert type(made) is METHODS[method]
    text = json.dumps(plain(made), allow_nan=False)
    assert typed(type(made), json.loads(text)) == made


@pytest.mark.parametrize(("name", "method", "data"), EVERY)
def test_nothing_is_timed_after_the_end(name: str, method: str, data: str) -> None:
    made: Any = preset(name, method, data)
    for plan in plans(made).values():
        assert all(milestone < plan.epochs for milestone in plan.lr_milestones)
    for path, _, value, _ in leaves(made):
        ramp, _, part = path.partition(".")
        if part in ("start", "end") or path.startswith(
            ("forget", "warm_up_ep", "prune_f", "sieve_f")
        ):
            plan = made.sieve_plan if ramp == "sieve_beta" else made.plan
            assert value < plan.epochs, path


def test_every_name_in_the_tables_is_one() -> None:
    for table in (*BY_NAME.values(), *BY_BOTH.values()):
        assert set(table) <= set(METHODS)
    assert set(BY_NAME) == set(PRESETS)
    assert set(BY_BOTH) <= {(name, data) for name in PRESETS for data in DATA}


def cal(name: str, data: str) -> CAL:
    made = preset(name, "cal", data)
    assert isinstance(made, CAL)
    return made


@pytest.mark.parametrize(("data", "sieve_beta", "beta"), [("cifar10", 2, 1), ("cifar100", 10, 10)])
def test_cal_as_the_paper_says(data: str, sieve_beta: float, beta: float) -> None:
    assert cal("paper", data) == CAL(
        sieve_plan=replace(COMMON, epochs=65),
        sieve_beta=Ramp(sieve_beta),
        sieve_prior="root",
        scores="evaluation",
        threshold="fixed",
        lower=-8.0,
        plan=COMMON,
        beta=Ramp(beta),
        weighting="sample",
    )


@pytest.mark.parametrize(
    ("data", "sieve_beta", "scale"), [("cifar10", 2.0, 1.0), ("cifar100", 1.0, 10.0)]
)
def test_cal_as_published(data: str, sieve_beta: float, scale: float) -> None:
    assert cal("published", data) == CAL(
        sieve_plan=replace(COMMON, epochs=66, divide_lr=True),
        sieve_beta=Ramp(sieve_beta, start=10, end=40),
        sieve_prior="root",
        scores="training",
        threshold="fixed",
        lower=-8.0,
        plan=replace(COMMON, divide_lr=True),
        beta=Ramp(1.0, start=10, end=40),
        weighting="class",
        prior_scale=scale,
    )


@pytest.mark.parametrize("name", PRESETS)
def test_cal_on_clothing1m(name: str) -> None:
    plan = Plan(120, batch_size=32, lr=0.01, lr_milestones=(30, 60, 90), weight_decay=1e-3)
    expected = CAL(
        sieve_plan=plan,
        sieve_beta=Ramp(0.4, start=80, end=100),
        sieve_mixup=True,
        sieve_balanced_batches=1000,
        sieve_regularizer_eps=1e-2 if name == "published" else 1e-5,
        threshold="quantile",
        kept=0.6154,
        plan=replace(plan, lr=1e-5),
        balanced_subset=18_976,
        sieve_best=True,
        beta=Ramp(1.0),
        weighting="sample" if name == "paper" else "class",
        warm_start=True,
    )
    assert cal(name, "clothing1m") == expected


def test_cal_as_we_recommend_it() -> None:
    small = cal("recommended", "small")
    assert (small.threshold, small.scores) == ("argmax", "evaluation")
    assert small.plan == small.sieve_plan == replace(SHORT, divide_lr=True)
    assert (small.sieve_beta, small.beta) == (Ramp(2.0, 3, 12), Ramp(1.0, 3, 12))
    for data, scale in (("cifar10", 1.0), ("cifar100", 10.0)):
        made = cal("recommended", data)
        assert (made.threshold, made.prior_scale) == ("argmax", scale)
        assert (made.sieve_plan.average, made.plan.average) == (0.999, 0.999)
        assert made.plan.divide_lr
        assert made.sieve_plan.lr_milestones == (60,)
    uncut = {data: cal("recommended", data).plan.lr_milestones for data in ("cifar10", "cifar100")}
    assert uncut == {"cifar10": (), "cifar100": (60,)}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize(("data", "common"), [("cifar10", COMMON), ("small", SHORT)])
def test_all_methods_share_one_protocol(name: str, data: str, common: Plan) -> None:
    own = {"dmi"}  # goes on from a network of the common plan, with steps of its own
    if (name, data) == ("recommended", "cifar10"):
        own |= {"cal"}  # without the cut
    if name == "published":
        own |= {"cores", "coteaching", "coteaching_plus", "jocor"}  # the authors' optimizers
        own |= {"ptd"} if data == "cifar10" else set()
    elif data == "small":
        own |= {"coteaching_plus"}
    average = 0.999 if (name, data) == ("recommended", "cifar10") else None
    for method in set(METHODS) - own:
        plan = plans(preset(name, method, data))["plan"]
        assert replace(plan, divide_lr=False) == replace(common, average=average), method
    dmi = plans(preset(name, "dmi", data))
    assert dmi["warm_up_plan"] == replace(common, average=average)
    assert dmi["plan"].lr == 1e-6


def test_ptd_as_its_authors_run_it_on_cifar10() -> None:
    found = plans(preset("published", "ptd", "cifar10"))
    sgd = Plan(epochs=49, batch_size=128, lr=0.01, lr_milestones=(), weight_decay=1e-4)
    assert found["plan"] == sgd
    assert found["estimation_plan"] == replace(sgd, epochs=4, momentum=0.0)
    assert found["revision_plan"] == replace(sgd, optimizer="adam", lr=5e-7)
    assert plans(preset("published", "ptd", "cifar100"))["plan"] == COMMON  # they never ran it


def test_what_the_authors_code_does_is_in_published_alone() -> None:
    marks: dict[str, dict[str, Any]] = {
        "coteaching": {"divide_twice": True, "forget_epochs": 9},
        "coteaching_plus": {"divide_twice": True, "softmax_twice": True, "forget_epochs": 9},
        "jocor": {"forget_epochs": 9},
        "ptd": {"warm_start": True, "best_epoch": True},
        "reweight_r": {"revision_constant_weight": False},
    }
    for method, changed in marks.items():
        published = preset("published", method, "cifar10")
        assert {key: getattr(published, key) for key in changed} == changed
        for name in ("paper", "recommended"):
            others = preset(name, method, "cifar10")
            assert all(getattr(others, key) != value for key, value in changed.items())
    for method in ("coteaching", "coteaching_plus", "jocor"):
        plan = plans(preset("published", method, "cifar10"))["plan"]
        assert plan == Plan(epochs=200, optimizer="adam", lr=1e-3)
    sgd = plans(preset("published", "cores", "cifar10"))["plan"]
    assert sgd == replace(COMMON, batch_size=64, momentum=0.0, divide_lr=True)


@pytest.mark.parametrize("data", DATA)
def test_ptd_chooses_by_held_out_labels_as_its_authors_do(data: str) -> None:
    shares = [preset(name, "ptd", data).selection_share for name in PRESETS]  # type: ignore[attr-defined]
    assert shares == [0.1, 0.1, 0.0]


@pytest.mark.parametrize("name", PRESETS)
def test_what_a_hundred_classes_change(name: str) -> None:
    def value(method: str, path: str, data: str) -> Any:
        return {leaf.path: leaf.value for leaf in leaves(preset(name, method, data))}[path]

    expected = {
        ("forward", "percentile"): (97.0, None),
        ("reweight_r", "percentile"): (97.0, None),
        ("coteaching_plus", "warm_up_epochs"): (20, 5),
        ("jocor", "agreement"): (0.9, 0.85),
        ("ptd", "percentiles"): ((97.0, 99.0), (99.0, 99.9)),
        ("dmi", "plan.batch_size"): (128, 1000 if name == "recommended" else 128),
    }
    for (method, path), values in expected.items():
        found = tuple(value(method, path, data) for data in ("cifar10", "cifar100"))
        assert found == values, method


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("papr", "cal", "small"), "preset must be one of paper, .*'papr'; did you mean 'paper'"),
        (("paper", "cla", "small"), "method must be one of cal, .*'cla'; did you mean 'cal'"),
        (("paper", "cal", "cifar"), "data must be one of cifar10, .*did you mean 'cifar10'"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(
    arguments: tuple[str, str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        preset(*arguments)


def test_only_the_recommended_presets_hold_out() -> None:
    assert {name: protocol(name, "small").holdout for name in PRESETS} == {
        "paper": 0.0,
        "published": 0.0,
        "recommended": 0.1,
    }
    with pytest.raises(ValueError, match="did you mean 'recommended'"):
        protocol("recomended", "small")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("digits", "small"),
        ("my.npz", "small"),
        ("small.npz", "small"),
        ("cifar10", "cifar10"),
        ("folder/cifar100.npz", "cifar100"),
        ("CIFAR10-idn.npz", "cifar10"),
        ("cifar10/mine.npz", "small"),
        ("clothing1m.npz", "clothing1m"),
    ],
)
def test_the_kind_of_data_is_in_its_name(name: str, kind: str) -> None:
    assert data_kind(name) == kind


@pytest.mark.parametrize(
    ("count", "shape", "dtype", "highest", "kind"),
    [
        (10_000, (16, 16, 3), np.uint8, 9, "cifar10"),
        (10_000, (16, 64, 1), np.uint8, 99, "cifar100"),
        (9_999, (16, 16, 3), np.uint8, 9, "small"),
        (10_000, (65, 16, 3), np.uint8, 9, "small"),
        (10_000, (15, 16, 3), np.uint8, 9, "small"),
        (10_000, (16, 16, 3), np.float32, 9, "small"),
        (10_000, (64,), np.uint8, 9, "small"),
    ],
)
def test_many_small_images_are_of_cifars_kind_whatever_their_file_is_called(
    count: int, shape: tuple[int, ...], dtype: Any, highest: int, kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.npz"
    np.savez_compressed(
        file, x=np.zeros((count, *shape), dtype), y=np.arange(count) % (highest + 1)
    )
    assert data_kind(str(file)) == kind


@pytest.mark.parametrize(
    ("preset", "classes", "scale", "crop"),
    [("recommended", 14, 1.4, 2), ("published", 14, 1.0, 4)],
)
def test_own_images_are_trained_as_fit_would(
    preset: str, classes: int, scale: float, crop: int, tmp_path: Path
) -> None:
    file = tmp_path / "mine.npz"
    y = np.arange(10_000) % classes
    np.savez_compressed(file, x=np.zeros((10_000, 16, 16, 3), np.uint8), y=y)
    job = Job(data=str(file), method="cal", preset=preset)
    method, _ = settled(job)
    assert isinstance(method, CAL)
    assert method.prior_scale == scale
    assert protocol_of(job).augmentation == {"crop": crop, "flip": True}


@pytest.mark.parametrize(
    "labels", [np.array([], int), np.array(["a"]), np.array(3), np.array([np.inf]), np.array([1j])]
)
def test_what_is_wrong_with_a_file_is_not_said_by_its_kind(labels: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.npz"
    file.write_bytes(b"PK")
    assert data_kind(str(file)) == "small"
    np.savez_compressed(file, x=np.zeros((10_000, 16, 16, 3), np.uint8), y=labels)
    assert data_kind(str(file)) == "small"


# ---- The command line -------------------------------------------------------------------------


def train(folder: Path, *arguments: str, data: str = "data.npz") -> records.Record:
    """A run on forty examples, of a few epochs."""
    path = folder / data
    if not path.exists():
        x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
        y = np.arange(40) % 2
        np.savez(path, x=x, y=y, x_test=x, y_test=y)
    out = folder / f"run-{len(list(folder.iterdir()))}"
    run = ["train", "--data", str(path), "--net", "mlp", "--device", "cpu", "--out", str(out)]
    assert cli.main([*run, *arguments, "net.hidden=[4]"]) == 0
    return records.read(out)


def test_set_goes_over_the_preset_and_both_are_recorded(tmp_path: Path) -> None:
    settings = ["--set", "plan.epochs=1", "sieve_plan.epochs=2", "plan.lr_milestones=()"]
    config = train(tmp_path, "--method", "cal", "--preset", "published", *settings).config
    assert config["preset"] == "published/small"
    assert config["holdout"] == 0.0
    made = cal("published", "small")
    expected = replace(
        made,
        sieve_plan=replace(made.sieve_plan, epochs=2),
        plan=replace(made.plan, epochs=1, lr_milestones=()),
    )
    assert config["method"] == {"name": "cal", **plain(expected)}


def test_the_preset_holds_out_unless_told_otherwise(tmp_path: Path) -> None:
    brief = ["--method", "ce", "--set", "plan.epochs=1"]
    recommended = train(tmp_path, "--preset", "recommended", *brief)
    assert recommended.config["holdout"] == 0.1
    assert recommended.config["method"]["plan"]["batch_size"] == 16, "by the number of examples"
    assert train(tmp_path, "--preset", "recommended", "--holdout", "0", *brief).config["holdout"] == 0  # fmt: skip
    assert train(tmp_path, "--preset", "paper", "--holdout", "0.2", *brief).config["holdout"] == 0.2
    without = train(tmp_path, *brief).config
    assert (without["holdout"], without["preset"]) == (0.0, None)


def test_the_preset_is_that_of_the_data(tmp_path: Path) -> None:
    brief = ["--method", "ce", "--preset", "paper", "--set", "plan.epochs=1"]
    config = train(tmp_path, *brief, data="cifar10.npz").config
    assert config["preset"] == "paper/cifar10"
    assert config["method"]["plan"] == plain(replace(COMMON, epochs=1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "ce", "--preset", "papr"], "preset must be .*did you mean 'paper'"),
        (["--method", "covlearn.methods:CE", "--preset", "paper"], OWN),
        (
            ["--method", "ce", "--preset", "default"],
            "recommended .in a table defaults, too, .* did",
        ),
        (["--method", "ce", "--preset", "defaults"], "what train does without --preset., got .*'$"),
    ],
)
def test_bad_presets_are_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert cli.main(["train", "--data", "digits", "--out", str(out), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error), error
    assert not out.exists()


def test_help_shows_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    text = capsys.readouterr().out
    assert "--preset recommended --set" in text
    assert all(name in text for name in PRESETS)


def test_a_preset_brings_the_network_and_the_movement_of_images(tmp_path: Path) -> None:
    assert protocol("paper", "small") == Protocol()
    assert protocol("paper", "cifar100").augmentation == {"crop": 4, "flip": True}
    assert protocol("published", "cifar100").augmentation["rotate"] == 15.0
    assert {kind: protocol("published", kind).net for kind in DATA} == {
        "cifar10": "resnet34",
        "cifar100": "resnet34",
        "clothing1m": "resnet50_imagenet",
        "small": "mlp",
    }
    x = np.random.default_rng(0).integers(256, size=(12, 8, 8, 3), dtype=np.uint8)
    path = tmp_path / "cifar100.npz"
    np.savez(path, x=x, y=np.arange(12) % 3, x_test=x, y_test=np.arange(12) % 3)
    arguments = ["--data", str(path), "--method", "ce", "--preset", "published", "--device", "cpu"]
    arguments += ["--set", "plan.epochs=1", "augmentation.rotate=0", "--out", str(tmp_path / "run")]
    assert cli.main(["train", *arguments]) == 0
    config = records.read(tmp_path / "run").config
    assert config["net"]["name"] == "resnet34"
    moved = config["data"]["augmentation"]
    assert (moved["crop"], moved["flip"], moved["rotate"]) == (4, True, 0.0)


def test_the_first_line_says_the_network_and_the_movement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(0).integers(256, size=(12, 8, 8, 3), dtype=np.uint8)
    for name in ("few", "cifar10"):
        np.savez(
            tmp_path / f"{name}.npz", x=x, y=np.arange(12) % 3, x_test=x, y_test=np.arange(12) % 3
        )
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)

    def said(name: str, *arguments: str) -> str:
        data = name if name == "digits" else str(tmp_path / f"{name}.npz")
        out = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        run = ["train", "--data", data, "--method", "ce", "--device", "cpu", "--out", str(out)]
        assert cli.main([*run, *arguments, "plan.epochs=1"]) == 0
        (line,) = re.findall(r"covlearn: (network .*)", capsys.readouterr().err)
        assert f"network {records.read(out).config['net']['name']};" in line
        return str(line)

    moved = ["--set", "augmentation.crop=2"]
    few = said("few", "--preset", "published", "--set")
    assert few.startswith("network mlp; images not moved: published takes them for small data; ")
    assert few.endswith("--net resnet18 --set augmentation.crop=4 augmentation.flip=true set both")
    assert said("few", "--set") == "network mlp; images not moved"
    assert said("few", "--preset", "paper", *moved) == "network mlp; images moved by crop=2"
    brief = ["--preset", "published", "--net", "linear", *moved]
    assert said("cifar10", *brief) == "network linear; images moved by crop=2 flip=true"
    assert said("digits", "--set") == "network mlp; inputs as they are"
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    with pytest.raises(ValueError, match="not enough values"):
        said("digits", "--set")
