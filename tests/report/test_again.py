"""The command that a page prints is the run's own, with the decisions."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from covlearn import cells, cli, records
from covlearn.report import write_report
from covlearn.report.again import UNKNOWN
from tests.report.runs import data_of, look_alike

QUICK = ["--set", "folds=2", "plan.epochs=2", "sieve_plan.epochs=2", "net.hidden=[8]"]
RUNS = {
    "bad examples skipped": ["--on-bad", "skip", *QUICK],
    "all by name": [
        "--on-bad", "skip", "--seed", "3", "--preset", "paper", "--net", "linear",
        "--set", "plan.epochs=3", "sieve_plan.epochs=2", "beta.value=0.5", "machine.capture=false",
    ],
    "columns ignored": ["--on-bad", "skip", "--ignore", "b", "--ignore", "d", *QUICK],
    "another method": ["--on-bad", "skip", "--method", "ce", "--set", "plan.lr_milestones=1,2"],
    "the class": [
        "--on-bad", "skip", "--method", "covlearn.methods.crossfit:CrossFittedCAL", *QUICK,
        "plan.optimizer=adam",
    ],
}  # fmt: skip


def fit_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Runs the printed command with one decision; the configurations before and after."""
    labels = cells.read_cells(folder / records.LABELS)
    decisions = f"id,label\n{labels['id'][0]},{labels['given'][0]}\n"
    (folder.parent / "decisions.csv").write_text(decisions, encoding="utf-8")
    monkeypatch.chdir(folder.parent)
    data: Any = data_of(folder / "report.html")
    assert data["next_note"] is None
    program, *arguments = shlex.split(data["next"])
    assert program == "covlearn"
    assert cli.main(arguments) == 0
    before, after = (records.read_config(place) for place in (folder, Path(f"{folder}-decided")))
    assert after["data"].pop("trusted") is not None
    assert before["data"].pop("trusted") is None
    return before, after


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_the_printed_command_fits_as_the_run_was_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    y = np.arange(90) % 3
    x = np.random.default_rng(0).normal(size=(90, 4)) + 5 * np.eye(4)[y]
    frame = pd.DataFrame(x, columns=list("abcd"))
    frame["the kind"] = np.array(["ash", "birch", "cedar"])[y]
    frame.loc[4, "the kind"] = None
    frame["no"] = [f"t{n}" for n in range(90)]
    frame.to_csv(tmp_path / "the trees.csv", index=False)
    fit = ["fit", str(tmp_path / "the trees.csv"), "--label", "the kind", "--id", "no"]
    folder = tmp_path / "a run"
    assert cli.main([*fit, "--out", str(folder), "--device", "cpu", *options]) == 0
    before, after = fit_again(folder, monkeypatch)
    assert after == before
    said = data_of(folder / "report.html")["next"]
    assert isinstance(said, str)
    assert "'the kind'" in said
    # No more than what was asked for: defaults are not spelled out.
    assert said.count("=") <= sum(option.count("=") for option in options)


def test_movements_of_images_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.arange(40) % 2
    x = np.tile(np.array([30, 220], dtype=np.uint8)[y, None, None, None], (1, 8, 8, 3))
    np.savez(tmp_path / "data.npz", images=x, labels=y)
    settings = ["folds=2", "plan.epochs=1", "net.widths=[4]", "augmentation.flip=true"]
    fit = ["fit", str(tmp_path / "data.npz"), "--features", "none", "--device", "cpu"]
    folder = tmp_path / "run"
    assert cli.main([*fit, "--out", str(folder), "--set", *settings]) == 0
    before, after = fit_again(folder, monkeypatch)
    assert after == before
    assert after["augmentation"]["flip"]


@pytest.mark.parametrize(
    ("changed", "printed"),
    [
        ({"method": {"name": "someones.own:Method"}}, "--method someones.own:Method"),
        ({"method": {"name": "cal", "folds": 5}}, "--seed 3"),
        ({"source": {"path": None, "label": "-x"}}, "fit SOURCE --label=-x"),
        ({"machine": {"device": ["cpu"]}}, "--out"),
        ({"augmentation": ["crop"]}, "--out"),
        ({"preset": {}}, "--out"),
    ],
)
def test_where_options_cannot_be_told_the_page_says_so(
    tmp_path: Path, changed: dict[str, Any], printed: str
) -> None:
    folder = look_alike(tmp_path / "run", count=60, classes=["a", "b"], seed=3)
    config = records.read_config(folder)
    config["data"]["shape"] = [4]
    (folder / records.CONFIG).write_text(json.dumps(config | changed), encoding="utf-8")
    data = data_of(write_report(folder))
    assert printed in str(data["next"])
    assert data["next_note"] == UNKNOWN
