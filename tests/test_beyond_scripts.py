"""The scripts behind results/beyond: at a small size they write what the committed files hold."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import confused, fit_cifar10, last_network, with_label
from covlearn import cli
from covlearn.bench.figures import draw
from covlearn.bench.table import read_table
from covlearn.data.sources import load_data, with_noise
from covlearn.fitted import load
from covlearn.metrics import calibration_error

RESULTS = last_network.OUT.parent
RUNS = RESULTS / "beyond" / "cifar10"
TRAINED = [
    *["train", "--data", "digits", "--noise", "symmetric:0.4"],
    *["--method", "cal", "--preset", "recommended"],
]
QUICK = [
    "sieve_plan.epochs=8",
    "plan.epochs=2",
    "scores=averaged",
    "threshold=argmax",
    "look_for_evidence=true",
]


def committed(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("published 0.4, without a cut", RUNS / "0.4" / "sieve alone" / "0"),
        ("published 0.6, with the cut", RUNS / "0.6" / "with the cut" / "0"),
    ],
)
def test_the_sieves_figures_are_those_of_the_records(name: str, folder: Path) -> None:
    recorded = committed("last_network.json")["figures"][name]["sieve, averaged predictions"]
    assert last_network.sieve_figures(folder) == pytest.approx(recorded, rel=1e-12)


def test_the_last_network_of_a_small_run(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "last.json"
    assert cli.main([*TRAINED, "--out", str(run), "--set", *QUICK, "judges=sieve"]) == 0
    last_network.main([f"small={run}", "--out", str(out)])
    made, before = json.loads(out.read_text()), committed("last_network.json")
    assert list(made) == list(before)
    assert made["environment"].keys() == before["environment"].keys()
    shape = before["figures"]["published 0.6, with the cut"]
    assert {name: list(judge) for name, judge in made["figures"]["small"].items()} == {
        name: list(judge) for name, judge in shape.items()
    }
    second = made["figures"]["small"]["second network, evaluation pass"]
    probs = np.load(run / "probs.npz")["probs"]
    columns = np.genfromtxt(run / "labels.csv", delimiter=",", names=True)
    # A label stays where no other class is more probable, and there are no ties.
    assert second["share right"] == (probs.argmax(axis=1) == columns["clean"]).mean()


def test_only_the_sieve_may_have_judged(tmp_path: Path) -> None:
    assert cli.main([*TRAINED, "--out", str(tmp_path / "run"), "--set", *QUICK, "judges=both"]) == 0
    with pytest.raises(ValueError, match="judges=sieve"):
        last_network.sieve_figures(tmp_path / "run")
    with pytest.raises(SystemExit):
        last_network.main([str(tmp_path / "run")])


def test_a_small_fit_is_judged(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "fit.json"
    asked = ["--data", "digits", "--count", "200", "--noise", "symmetric:0.3"]
    fit_cifar10.main([str(run), *asked, "--out", str(out)])
    made, before = json.loads(out.read_text()), committed("fit_cifar10.json")
    assert list(made) == list(before)
    assert made["environment"].keys() == before["environment"].keys()
    assert made["result"].keys() == before["result"].keys()
    judged, labels = made["judged"], load(run).labels
    assert judged.keys() == before["judged"].keys()
    assert judged["decisions"] == made["result"]["decisions"]
    assert sum(row[1] for row in judged["quality bins"]) == made["result"]["examples"] == 200
    assert 200 * judged["flagged"] == 200 - labels["decision"].count("keep")
    # Wrong labels that are flagged, counted from both sides.
    assert judged["precision"] * judged["flagged"] == pytest.approx(
        judged["recall"] * judged["noise"]
    )
    assert judged["test accuracy"] > 0.5


def test_the_committed_fit_agrees_with_its_bins() -> None:
    judged = committed("fit_cifar10.json")["judged"]
    off = 100 * calibration_error([row[1:] for row in judged["quality bins"]])
    assert off == pytest.approx(judged["quality off by, points"], abs=0.01)


def test_labels_of_a_small_network_that_confuses_digits(tmp_path: Path) -> None:
    confused.main(["digits", "--net", "mlp", "--epochs", "4", "--out", str(tmp_path)])
    source = load_data("digits")
    path = tmp_path / "confused_0.4_digits.npz"
    noisy, card = with_noise(source, f"file:{path}", seed=0)
    assert card is not None
    assert (card.variant, card.requested_rate) == ("confused", 0.4)
    assert card.actual_rate == pytest.approx(0.4, abs=0.05)
    assert (noisy.train.y != source.train.y).float().mean() == pytest.approx(card.actual_rate)


def test_the_given_label_beside_the_last_networks_judgement(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "with_label.json"
    assert cli.main([*TRAINED, "--out", str(run), "--set", *QUICK, "judges=both"]) == 0
    with_label.main([f"small={run}", "--out", str(out)])
    (made,) = json.loads(out.read_text()).values()
    (before, *_) = committed("with_label.json").values()
    assert {name: list(judge) for name, judge in made.items()} == {
        name: list(judge) for name, judge in before.items()
    }
    recorded = json.loads((run / "result.json").read_text())["labels"]
    assert made["written by the run"]["share right"] == recorded["quality"]["share_right"]
    probs, columns = np.load(run / "probs.npz")["probs"], read_labels(run)
    right = (probs.argmax(axis=1) == columns["clean"]).mean()
    assert made["last network"]["share right"] == pytest.approx(right, abs=1e-3)
    assert 0 < made["with the label, T of the surest 100%"]["share right"] <= 1


def read_labels(run: Path) -> Any:
    return np.genfromtxt(run / "labels.csv", delimiter=",", names=True)


def test_rows_that_share_labels_have_one_picture_of_them(tmp_path: Path) -> None:
    table = read_table(RESULTS.parents[1] / "benchmarks" / "targets_cifar10.toml")
    columns = tuple(
        each for each in table.columns if each.name in ("cifar10/0.4", "cifar10/ptd 0.4")
    )
    drawn = draw(replace(table, columns=columns), RESULTS / "targets_cifar10", tmp_path)
    expected = {
        f"{column}_{name}.png"
        for column in ("cifar10_0.4", "cifar10_ptd_0.4")
        for name in (
            "test_accuracy", "memorisation", "hard_scores", "hard_transition", "hard_reliability",
        )
    }  # fmt: skip
    assert {path.name for path in drawn} == expected  # and none by rate: each noise has one
