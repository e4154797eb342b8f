"""Run folders as a table."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import covlearn
from covlearn import records
from covlearn.plain_files import read_json
from tests import runs
from tests.integrations.conftest import Case


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs, one that has only begun, and a config.json of another program."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (3, 4):
        runs.fit(folder / "cal" / str(seed), seed=seed)
    begun = folder / "cal" / "5"
    begun.mkdir()
    config = read_json(folder / "cal" / "3" / "config.json") | {"seed": 5}
    (begun / "config.json").write_text(json.dumps(config))
    (folder / "other").mkdir()
    (folder / "other" / "config.json").write_text('{"model_type": "bert"}')
    return folder


def test_a_row_a_run(folder: Path) -> None:
    table = covlearn.read_runs(folder, settings=["plan.epochs", "no.such"])
    assert isinstance(table, pd.DataFrame)
    assert table["run"].tolist() == ["cal/3", "cal/4", "cal/5"]
    assert table["seed"].tolist() == [3, 4, 5]
    assert table["finished"].tolist() == [True, True, False]
    assert table["plan.epochs"].tolist() == [4, 4, 4]
    assert table["no.such"].isna().all()
    for row in table[table["finished"]].itertuples():
        result = records.read_result(folder / row.run)
        assert result is not None
        assert result.labels is not None
        assert result.test_accuracy.last is not None
        assert row.last == result.test_accuracy.last.value
        assert row.returned == result.returned.value
        assert row.recall == result.labels["quality"]["recall"]
        assert row.rate == runs.NOISE.card.actual_rate
    assert table["last"].isna().tolist() == [False, False, True]


def test_a_row_an_epoch(folder: Path) -> None:
    table = covlearn.read_runs(folder, by="epoch")
    lines = records.read_metrics(folder / "cal" / "4")
    mine = table[table["run"] == "cal/4"]
    assert mine["loss"].tolist() == [line["loss"] for line in lines]
    assert mine["stage"].tolist() == [line["stage"] for line in lines]
    assert set(table["run"]) == {"cal/3", "cal/4"}


def test_runs_of_fit(wine: Case) -> None:
    (row,) = covlearn.read_runs(wine.fitted.folder).itertuples()
    assert (row.command, row.run, row.examples, row.classes) == ("fit", ".", 178, 3)
    assert row.relabel == wine.fitted.result.decisions["relabel"]
    assert row.noise_rate == wine.fitted.result.noise_rate
    loaded = covlearn.load(wine.fitted.folder)
    assert loaded.result == wine.fitted.result


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must hold runs of covlearn"):
        covlearn.read_runs(tmp_path)
    with pytest.raises(ValueError, match="by must be one of run, epoch"):
        covlearn.read_runs(tmp_path, by="day")


def test_names_of_the_package_come_late() -> None:
    assert {"load", "read_runs"} <= set(dir(covlearn))
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        covlearn.lod  # noqa: B018
    code = """
import sys, covlearn
light = not {"torch", "pandas", "numpy"} & set(sys.modules)
covlearn.read_runs
sys.exit(not light or "torch" in sys.modules or "pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
