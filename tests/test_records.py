"""Run folders: whole or not at all, and readable without torch."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import covlearn
from covlearn import records
from covlearn.config import plain, typed
from covlearn.records import Accuracy, Figure, Result, Stage, differences, start_as

CONFIG = {
    "format": 1,
    "covlearn": "0",
    "method": {"name": "ce", "plan": {"epochs": 3}},
    "seed": 0,
    "net": {"name": "mlp"},
    "data": {"examples": 2, "classes": 2},
    "machine": {"device": "cpu"},
}
ACCURACY = Accuracy(Figure(0.5, 1, "a"), Figure(0.25, 2, "b"), Figure(0.375, 2, "c"), None)
RESULT = Result(
    method="ce",
    seed=0,
    final_stage="ce",
    test_accuracy=ACCURACY,
    returned=Figure(0.25, None, "d"),
    memorisation=None,
    labels=None,
    facts={"threshold": "-inf", "rates": [1, 2]},
    seconds=1.5,
    stages={"ce": Stage(3, 1.5, ACCURACY, 0.5)},
)


def finish(folder: Path) -> None:
    records.write_json(folder / records.CONFIG, CONFIG)
    records.write_json(folder / records.ENVIRONMENT, {"python": "3"})
    records.write_metrics(folder, {"ce": [{"epoch": 0, "loss": 1.0}]})
    records.append_metrics(folder, "ce", {"epoch": 1, "loss": float("nan")})
    records.write_table(folder / records.LABELS, {"idx": [0, 1], "score": None})
    records.write_json(folder / records.RESULT, RESULT)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    finish(tmp_path)
    record = records.read(tmp_path)
    assert record.config == CONFIG
    assert record.environment == {"python": "3"}
    assert record.result == RESULT
    assert record.labels == {"idx": [0, 1], "score": [None, None]}
    assert record.metrics == [
        {"stage": "ce", "epoch": 0, "loss": 1.0},
        {"stage": "ce", "epoch": 1, "loss": None},
    ]


def test_records_are_read_without_torch(tmp_path: Path) -> None:
    finish(tmp_path)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from covlearn import records\n"
        f"record = records.read({str(tmp_path)!r})\n"
        "print(record.result.returned.value, len(record.metrics), len(record.labels['idx']))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(covlearn.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.split() == ["0.25", "2", "2"]


def test_an_unfinished_run_can_be_read(tmp_path: Path) -> None:
    records.write_json(tmp_path / records.CONFIG, CONFIG)
    record = records.read(tmp_path)
    assert (record.result, record.labels, record.metrics, record.environment) == (
        None,
        None,
        [],
        {},
    )


@pytest.mark.parametrize("cut", [1, 10, 20])
def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path, cut: int) -> None:
    records.write_metrics(tmp_path, {"a": [{"epoch": 0}, {"epoch": 1}]})
    path = tmp_path / records.METRICS
    path.write_bytes(path.read_bytes()[:-cut])
    epochs = [record["epoch"] for record in records.read_metrics(tmp_path)]
    assert epochs == ([0, 1] if cut == 1 else [0])


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5))
def test_a_table_keeps_every_bit(values: list[float]) -> None:
    column = list(np.array(values, dtype=np.float32))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        records.write_table(path, {"idx": range(len(values)), "score": column, "empty": None})
        table = records.read_table(path)
    assert table["idx"] == list(range(len(values)))
    assert np.array_equal(np.array(table["score"], dtype=np.float32), column)
    assert table["empty"] == [None] * len(values)


def test_a_table_without_rows(tmp_path: Path) -> None:
    records.write_table(tmp_path / "t.csv", {"idx": [], "score": None})
    assert records.read_table(tmp_path / "t.csv") == {"idx": [], "score": []}


def test_what_json_has_no_number_for_is_refused_or_named(tmp_path: Path) -> None:
    records.write_json(tmp_path / "a.json", {"a": float("inf"), "b": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": "inf", "b": None}


def test_a_result_makes_the_round_trip() -> None:
    assert typed(Result, json.loads(json.dumps(plain(RESULT)))) == RESULT


def test_a_new_folder_gets_its_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert start_as(Result, folder, CONFIG, resume=False) is None
    assert records.read(folder).config == CONFIG


def test_a_finished_run_is_read_back(tmp_path: Path) -> None:
    finish(tmp_path)
    newer = CONFIG | {"covlearn": "1"}
    assert start_as(Result, tmp_path, newer, resume=False) == RESULT
    assert start_as(Result, tmp_path, newer, resume=True) == RESULT


def test_an_unfinished_run_needs_to_be_resumed(tmp_path: Path) -> None:
    start_as(Result, tmp_path, CONFIG, resume=True)  # nothing to resume yet: it starts
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages" / "a.pt.17.partial").touch()
    with pytest.raises(ValueError, match="unfinished run; continue it with --resume"):
        start_as(Result, tmp_path, CONFIG, resume=False)
    assert start_as(Result, tmp_path, CONFIG, resume=True) is None
    assert not list(tmp_path.rglob("*.partial"))


def test_a_folder_whose_first_write_was_killed_is_new(tmp_path: Path) -> None:
    (tmp_path / "config.json.17.partial").write_text("{")
    assert start_as(Result, tmp_path, CONFIG, resume=False) is None


@pytest.mark.parametrize("resume", [False, True])
def test_another_configuration_is_refused_with_what_differs(tmp_path: Path, resume: bool) -> None:
    finish(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    other = CONFIG | {"method": {"name": "ce", "plan": {"epochs": 4}}, "preset": "paper"}
    with pytest.raises(ValueError, match=r"method\.plan\.epochs is 3 there, 4 here") as caught:
        start_as(Result, tmp_path, other, resume=resume)
    assert 'preset is null there, "paper" here' in str(caught.value)
    assert "seed" not in str(caught.value)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_long_list_of_differences_is_cut() -> None:
    assert differences({"a": 1, "b": {"c": 2.0}}, {"a": 1.0, "b": {"c": 2}}) == []
    assert differences({"a": list(range(99))}, {"a": []})[0].startswith("a is [0, 1, 2")
    assert len(differences({"a": list(range(99))}, {"a": []})[0]) < 80


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: (folder / "thesis.tex").touch(), "holds thesis.tex and no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json must hold JSON"),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe"), "it is damaged"),
        (lambda folder: (folder / "config.json").write_text("[]"), "must hold a JSON object"),
        (lambda folder: (folder / "config.json").write_text("{}"), "must have format 1, got None"),
        (
            lambda folder: [finish(folder), (folder / "result.json").write_text('{"a": 1}')],  # type: ignore[func-returns-value]
            "result.json must hold a result of covlearn: Result has method",
        ),
    ],
)
def test_what_is_no_run_of_ours_is_refused(tmp_path: Path, prepare: Any, message: str) -> None:
    prepare(tmp_path)
    with pytest.raises(ValueError, match=message):
        start_as(Result, tmp_path, CONFIG, resume=True)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(ValueError, match="must be a folder, but it is a file"):
        start_as(Result, tmp_path / "a", CONFIG, resume=False)


def test_reading_where_nothing_was_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not the folder of a run"):
        records.read(tmp_path)
