"""Tables: what a TOML file says, which cells are run, and what is made of their records."""

import csv
import dataclasses
import importlib.util
import json
import multiprocessing
import pickle
import re
import shutil
import statistics
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from covlearn import engine, records
from covlearn.bench import execute
from covlearn.bench.execute import ELSEWHERE, Outcome, run_cells
from covlearn.bench.figures import draw, figures
from covlearn.bench.found import RunReader
from covlearn.bench.summary import write_summary
from covlearn.bench.table import Cell, cells_of, read_table
from covlearn.cli.bench import Standing
from covlearn.stages import FollowedCheckpoint
from tests.bench_table import command, entries_of, small_table
from tests.runs import assert_same_run


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A table of two rows and two columns on forty examples."""
    return small_table(tmp_path)


def test_a_cell_that_was_killed_after_its_result_leaves_what_others_leave(small: Path) -> None:
    assert command(small, "--trials", "1", "--only", "row=ce,rate=0.2") == 0
    place = small.parent / "runs" / "data/0.2" / "ce" / "0"
    kept = {file.name for file in place.iterdir()}
    assert records.RESULT in kept
    assert kept.isdisjoint({records.MODEL, records.LABELS, records.PROBS, records.STAGES})
    (place / records.STAGES).mkdir()
    (place / records.STAGES / "ce.pt").touch()
    assert command(small, "--trials", "1", "--only", "row=ce,rate=0.2") == 0
    assert {file.name for file in place.iterdir()} == kept


def test_a_table_is_run_skipped_and_summarised(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(small, "--only", "row=ce") == 0
    folder = small.parent / "runs"
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        f"[{number}/4] data/{rate}/ce/{trial}"
        for number, (trial, rate) in enumerate(
            [(0, "0.2"), (0, "0.4"), (1, "0.2"), (1, "0.4")], start=1
        )
    ]
    assert not list(folder.rglob(records.MODEL))
    assert not list(folder.rglob(records.LABELS))

    values = {"best": [], "last": [], "epoch:2": []}  # type: dict[str, list[float]]
    for trial in (0, 1):
        record = records.read(folder / f"data/0.2/ce/{trial}")
        accuracies = [100 * line["test_accuracy"] for line in record.metrics]
        assert len(accuracies) == 3
        assert record.config["seed"] == record.config["noise"]["seed"] == trial
        values["best"].append(max(accuracies))
        values["last"].append(accuracies[-1])
        values["epoch:2"].append(accuracies[1])
    whole = json.loads((folder / "table.json").read_text())
    cells = {(cell["row"], cell["column"]): cell for cell in whole["cells"]}
    ce, fixed = cells["ce", "data/0.2"], cells["ce at 2", "data/0.2"]
    assert ce["best mean"] == pytest.approx(statistics.fmean(values["best"]), abs=1e-3)
    assert ce["best std"] == pytest.approx(statistics.stdev(values["best"]), abs=1e-3)
    assert ce["last mean"] == pytest.approx(statistics.fmean(values["last"]), abs=1e-3)
    assert ce["n"] == 2
    assert ce["selected mean"] is None, "nothing was held out"
    assert ce["difference"] == pytest.approx(statistics.fmean(values["best"]) - 80, abs=1e-3)
    assert fixed["epoch:2 mean"] == pytest.approx(statistics.fmean(values["epoch:2"]), abs=1e-3)
    assert cells["gce", "data/0.2"]["best mean"] is None

    with (folder / "trials.csv").open() as file:
        trials = [row for row in csv.DictReader(file) if row["column"] == "data/0.2"]
    assert [(row["row"], row["trial"]) for row in trials] == [
        ("ce", "0"), ("ce", "1"), ("ce at 2", "0"), ("ce at 2", "1"),
    ]  # fmt: skip
    for rule in ("best", "last"):
        assert [float(row[rule]) for row in trials[:2]] == pytest.approx(values[rule], abs=1e-3)
    assert {row["selected"] for row in trials} == {""}
    # Of a row that compares another epoch, that one.
    assert [float(row["epoch:2"]) for row in trials[2:]] == pytest.approx(
        values["epoch:2"], abs=1e-3
    )

    text = (folder / "table.md").read_text()
    mean, std = statistics.fmean(values["best"]), statistics.stdev(values["best"])
    assert f"**{mean:.2f} ± {std:.2f}** (2) (paper 80.00 ± 1.50, {mean - 80:+.2f})" in text
    assert "| gce | — (paper —) | — (paper —) |" in text
    with (folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["n"] for row in rows] == ["2", "2", "2", "2", "0", "0"]
    assert rows[-1]["best mean"] == ""

    def never(*_: Any, **__: Any) -> None:
        pytest.fail("a finished cell was run again")

    monkeypatch.setattr(execute, "run_job", never)
    (small.parent / "data.npz").unlink()
    assert command(small, "--only", "row=ce") == 0, "neither data nor training is needed any more"
    assert command(small, "--trials", "0", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])[0]["n"] == 2


def test_differences_are_taken_trial_by_trial(small: Path) -> None:
    table = small.read_text().replace("trials = 2", "trials = 3")
    small.write_text(table)
    assert command(small, "--only", "row=ce,rate=0.2") == 0
    assert command(small, "--only", "row=gce,rate=0.2", "--trials", "2") == 0
    folder = small.parent / "runs"
    gaps = []
    for trial in (0, 1):
        last = [
            records.read(folder / f"data/0.2/{row}/{trial}").metrics[-1]["test_accuracy"]
            for row in ("gce", "ce")
        ]
        gaps.append(100 * (last[0] - last[1]))
    found = json.loads((folder / "table.json").read_text())["differences"]
    last_gap = next(gap for gap in found if gap["rule"] == "last")
    assert (last_gap["first"], last_gap["second"], last_gap["n"]) == ("gce", "ce", 2)
    assert last_gap["mean"] == pytest.approx(statistics.fmean(gaps))
    assert last_gap["error"] == pytest.approx(statistics.stdev(gaps) / 2**0.5)
    assert f"{statistics.fmean(gaps):+.2f} ± {last_gap['error']:.2f} (2)" in (
        folder / "table.md"
    ).read_text()  # fmt: skip
    assert not any(gap["column"] == "data/0.4" for gap in found)


def test_the_table_is_written_after_each_cell_that_was_run_not_after_those_that_were_done(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those nothing is new."""
    written = []

    def watched(reader: RunReader, *options: Any) -> Any:
        written.append(len(list(reader.folder.glob("*/*/*/*/result.json"))))
        return write_summary(reader, *options)

    monkeypatch.setattr("covlearn.bench.summary.write_summary", watched)
    assert command(small, "--only", "rate=0.2") == 0
    assert written == [0, 1, 2, 3, 4]
    written.clear()
    assert command(small) == 0  # four of the eight are done
    assert written == [4, 5, 6, 7, 8]


def test_a_record_is_read_again_only_if_its_run_was_made_anew(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is written after each cell: all records for each would be seconds in the end."""
    reader = RunReader(read_table(small), small.parent / "runs")
    assert command(small, "--only", "rate=0.2") == 0
    shutil.copytree(reader.folder, tmp_path / "kept")
    opened: list[str] = []
    plain = records.read

    def watched(folder: Path) -> records.Record:
        opened.append(folder.relative_to(reader.folder).as_posix())
        return plain(folder)

    monkeypatch.setattr(records, "read", watched)
    before = write_summary(reader)
    ours = [f"data/0.2/{row}/{trial}" for row in ("ce", "gce") for trial in (0, 1)]
    assert sorted(opened) == ours, "of rows that share their runs, once"
    opened.clear()
    assert command(small, "--only", "rate=0.4,row=ce") == 0  # as another process might
    opened.clear()
    after = write_summary(reader)
    assert sorted(opened) == ["data/0.4/ce/0", "data/0.4/ce/1"]
    assert [len(each.trials) for each in before] == [2, 0, 2, 0, 2, 0]
    assert after == entries_of(small)
    assert after != before

    opened.clear()
    place = reader.folder / ours[0]
    shutil.rmtree(place)
    assert [len(each.trials) for each in write_summary(reader)] == [1, 2, 1, 2, 2, 0]
    shutil.copytree(tmp_path / "kept" / ours[0], place)
    assert write_summary(reader) == after
    assert opened == [ours[0]]


def test_a_cell_that_fails_stops_no_other(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = small.read_text().replace('["plan.lr=0.01"]', '["plan.lr=1e30"]')
    small.write_text(text)
    assert command(small, "--trials", "1", "--only", "rate=0.2") == 1
    captured = capsys.readouterr()
    assert "data/0.2/gce/0: stage gce: epoch 0" in captured.err
    assert "[1/2] data/0.2/ce/0: best" in captured.err
    entries = {each.row.name: each for each in entries_of(small) if each.column.rate == 0.2}
    assert entries["ce"].ours is not None
    assert entries["gce"].ours is None
    folder = small.parent / "runs"
    assert captured.err.splitlines()[-1] == (
        f"covlearn: 1 of 2 cells failed: data/0.2/gce/0; why is in {folder / 'table.md'}"
    )
    text = (folder / "table.md").read_text()
    assert "— was not run, or failed as said below." in text
    assert "- row gce, column data/0.2, trial 0: stage gce: epoch 0" in text
    (failed,) = json.loads((folder / "table.json").read_text())["failed"]
    assert (failed["row"], failed["column"], failed["trial"]) == ("gce", "data/0.2", 0)
    assert failed["reason"].startswith("stage gce: epoch 0")
    assert not list(empty_folders(folder))


def empty_folders(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_dir() and not any(path.iterdir()))


def test_what_failed_is_remembered_until_it_is_run_again(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = small.read_text()
    small.write_text(text.replace('["plan.lr=0.01"]', '["plan.lr=1e30"]'))
    assert command(small, "--trials", "1", "--only", "row=gce") == 1

    def failed() -> list[str]:
        whole = json.loads((small.parent / "runs" / "table.json").read_text())
        return [each["column"] for each in whole["failed"]]

    assert failed() == ["data/0.2", "data/0.4"]
    assert not list(empty_folders(small.parent / "runs")), "not even those of the columns"
    small.write_text(text)
    assert command(small, "--trials", "0") == 0
    assert failed() == ["data/0.2", "data/0.4"], "nothing was run again"
    assert command(small, "--trials", "1", "--only", "row=gce,rate=0.2") == 0
    assert failed() == ["data/0.4"]
    (small.parent / "runs" / "table.json").write_text('{"failed": [1]}')
    capsys.readouterr()
    assert command(small, "--trials", "1") == 0
    assert failed() == []
    told = capsys.readouterr().err.splitlines()
    new = [line.partition(": ")[0] for line in told if ": best" in line]
    done = [line.partition(": ")[0] for line in told if ": done before, best" in line]
    assert (new, done) == (
        ["[1/4] data/0.2/ce/0", "[3/4] data/0.4/ce/0", "[4/4] data/0.4/gce/0"],
        ["[2/4] data/0.2/gce/0"],
    )


def test_a_command_keeps_what_another_one_notes_of_failed_cells(small: Path) -> None:
    """Also what was noted of the cells that it is asked for, until it has run them."""
    folder, table = small.parent / "runs", read_table(small)
    ce, *_, gce = cells = list(cells_of(table, trials=1, only=[]))

    def failed() -> list[tuple[str, str]]:
        whole = json.loads((folder / "table.json").read_text())
        return [(each["row"], each["reason"]) for each in whole["failed"]]

    one, other = Standing(table, cells, folder, []), Standing(table, cells, folder, [])
    one.follow([Outcome(ce, None, "it broke")])
    other.follow([Outcome(ce, None, ELSEWHERE), Outcome(gce, None, "it broke, too")])
    assert failed() == [("ce", "it broke"), ("gce", "it broke, too")]
    Standing(table, cells, folder, [])  # which is cut off before its first cell ends
    assert len(failed()) == 2
    other.follow([Outcome(ce, None, "for another reason")])
    assert sorted(failed()) == [("ce", "for another reason"), ("gce", "it broke, too")]


def test_a_command_that_writes_the_table_waits_for_another_that_does(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would write what was noted before the other one did."""
    table, folder = read_table(small), small.parent / "runs"
    ce, *_, gce = cells = list(cells_of(table, trials=1, only=[]))
    one, other = Standing(table, cells, folder, []), Standing(table, cells, folder, [])
    follow = threading.Thread(target=other.follow, args=([Outcome(gce, None, "it broke")],))

    def while_the_other_writes(*arguments: Any) -> Any:
        monkeypatch.undo()
        follow.start()
        follow.join(0.3)
        return write_summary(*arguments)

    monkeypatch.setattr("covlearn.bench.summary.write_summary", while_the_other_writes)
    one.follow([Outcome(ce, None, "it broke")])
    follow.join(30)
    whole = json.loads((folder / "table.json").read_text())
    assert sorted(each["row"] for each in whole["failed"]) == ["ce", "gce"]


def test_a_cell_whose_folder_holds_another_run_failed_too(small: Path) -> None:
    only = ("--trials", "1", "--only", "row=ce,rate=0.2")
    assert command(small, *only) == 0
    assert command(small, *only, "--set", "plan.epochs=2") == 1
    whole = json.loads((small.parent / "runs" / "table.json").read_text())
    assert [each["reason"].partition(" holds ")[2] for each in whole["failed"]] == [
        "a run of another configuration: method.plan.epochs is 3 there, 2 here; choose another "
        "--folder, or delete it to run it again"
    ]
    assert (small.parent / "runs" / "data/0.2/ce/0" / records.RESULT).exists()


def test_names_do_not_break_the_markdown(small: Path, tmp_path: Path) -> None:
    text = small.read_text().replace('title = "CE"', 'title = "CE | L1\\nplain"')
    small.write_text(text.replace("data/0.2", "data/0.2|a"))
    table = read_table(small)
    write_summary(RunReader(table, tmp_path / "empty"))
    lines = (tmp_path / "empty" / "table.md").read_text().splitlines()
    grid = [line for line in lines if line.startswith("|")]
    assert grid[0] == r"| method | data/0.2\|a | data/0.4 |"
    assert grid[2].startswith(r"| CE \| L1 plain | ")
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in grid} == {4}


def test_pictures_without_matplotlib_are_refused_before_anything_is_run(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else there(name)
    )
    pictures = ("--figures", str(small.parent / "pictures"))
    for options in (["--dry-run"], []):
        assert command(small, "--trials", "1", *pictures, *options) == 2
        assert "pictures need matplotlib: pip install 'covlearn[plot]'" in capsys.readouterr().err
    assert not (small.parent / "runs").exists()


def test_a_table_that_was_cut_off_goes_on(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    table = read_table(small)
    cell = Cell(table.rows[0], table.columns[0], 0)

    def cut(_: str, __: int, history: list[Any]) -> None:
        if len(history) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_cells(table, [cell], tmp_path / "runs", device="cpu", progress=lambda _: cut))
    assert not (tmp_path / "runs" / cell.path / records.RESULT).exists()
    assert command(small, "--trials", "1", "--only", "row=ce,rate=0.2", "--keep-models") == 0
    whole = list(run_cells(table, [cell], tmp_path / "whole", device="cpu", keep_models=True))
    assert whole[0].result is not None
    assert_same_run(tmp_path / "runs" / cell.path, tmp_path / "whole" / cell.path)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "run_job", interrupted)
    assert command(small, "--only", "row=gce") == 130
    assert "interrupted; the same command goes on from here" in capsys.readouterr().err


def test_rows_with_a_stage_in_common_train_it_once(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = small.read_text().replace('method = "ce"\n', 'method = "cal"\n')
    text = text.replace('method = "gce"', 'method = "cal"').replace("plan.lr=0.01", "relabel=true")
    small.write_text(text.replace('"plan.epochs=3"', '"plan.epochs=3", "sieve_plan.epochs=2"'))
    table = read_table(small)
    stages: list[str] = []
    epochs = engine._eager_epoch

    def counted(*given: Any) -> Any:
        stages.append(type(given[0].objective).__name__)
        return epochs(*given)

    monkeypatch.setattr(engine, "_eager_epoch", counted)
    cells = list(cells_of(table, trials=1, only=["row=ce,rate=0.2", "row=gce,rate=0.2"]))
    outcomes = list(run_cells(table, cells, tmp_path / "both", device="cpu", keep_models=True))
    assert stages.count("Confident") == 2, "the sieve's two epochs, once"
    assert not (tmp_path / "both" / "data" / "0.2" / execute.SHARED).exists()
    assert len(outcomes) == 2
    alone = list(run_cells(table, cells[1:], tmp_path / "alone", device="cpu", keep_models=True))
    assert alone[0].error is None
    assert_same_run(tmp_path / "both" / cells[1].path, tmp_path / "alone" / cells[1].path)
    # Another sieve is another stage.
    stages.clear()
    list(run_cells(table, cells, tmp_path / "more", device="cpu", settings=["sieve_beta.value=1"]))
    assert stages.count("Confident") == 2
    stages.clear()
    table = read_table(small)
    other = dataclasses.replace(
        table.rows[-1],
        settings=(*table.rows[-1].settings, "sieve_beta.value=1", "sieve_beta.start=0"),
    )
    table = dataclasses.replace(table, rows=(*table.rows[:-1], other))
    cells = list(cells_of(table, trials=1, only=["row=ce,rate=0.2", "row=gce,rate=0.2"]))
    list(run_cells(table, cells, tmp_path / "two", device="cpu"))
    assert stages.count("Confident") == 4, "sieves that differ are both trained"


def test_cells_side_by_side_are_those_in_turn(small: Path, tmp_path: Path) -> None:
    table = read_table(small)
    cells = list(cells_of(table, trials=1, only=["rate=0.4"]))
    turns, beside = (
        {
            outcome.cell.path: outcome.result.test_accuracy
            for outcome in run_cells(
                table, cells, tmp_path / str(number), device="cpu", processes=number
            )
            if outcome.result is not None
        }
        for number in (1, 2)
    )
    assert len(turns) == 2
    assert turns == beside


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ('"symmetric:0.2"\nrate = 0.2', '"symmetric:0.3"\nrate = 0.3', "job.noise is"),
        ("data.npz", "other.npz", "job.data is"),
        ('"net.hidden=[4]"', '"net.hidden=[5]"', "job.settings.net.hidden is"),
        ("trials = 2", 'trials = 2\nnet = "mlp"', "job.net is null there"),
        ("trials = 2", "trials = 2\nholdout = 0.2", "job.holdout is null there"),
        ('preset = "paper"', 'preset = "published"', "job.preset is"),
    ],
)
def test_runs_of_another_table_are_neither_taken_nor_averaged(
    small: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, difference: str
) -> None:
    shutil.copy(small.parent / "data.npz", small.parent / "other.npz")
    assert command(small, "--trials", "1", "--only", "row=ce,column=data/0.2") == 0
    assert old in small.read_text()
    small.write_text(small.read_text().replace(old, new))
    assert command(small, "--trials", "1", "--only", "row=ce,column=data/0.2") == 1
    captured = capsys.readouterr()
    assert f"holds a run of another configuration: {difference}" in captured.err
    assert "choose another --folder" in captured.err
    entry = entries_of(small)[0]
    assert entry.ours is None
    assert len(entry.left_out) == 1
    assert "## Left out" in (small.parent / "runs" / "table.md").read_text()
    assert "left out: data/0.2/ce/0: " in captured.out


def test_settings_on_the_command_line_belong_to_the_job(small: Path) -> None:
    assert command(small, "--trials", "1", "--only", "row=ce,rate=0.2") == 0
    only = ("--only", "row=ce,rate=0.2", "--set", "plan.epochs=2")
    assert command(small, "--trials", "2", *only) == 1, "trial 0 has three epochs"
    rows = json.loads((small.parent / "runs" / "table.json").read_text())["cells"]
    assert rows[0]["trials"] == "1", "one epoch count in one mean"


def test_a_setting_that_another_row_has_no_field_for_leaves_that_row_out(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(small, "--trials", "1", "--only", "row=ce,rate=0.2") == 0
    assert command(small, "--trials", "1", "--only", "row=gce,rate=0.2", "--set", "q=0.5") == 0
    captured = capsys.readouterr()
    assert "left out: data/0.2/ce/0: q cannot be set: CE has no such field" in captured.out
    assert "data/0.2/gce/0: best" in captured.err


@pytest.mark.parametrize(
    "name", ["config.json", "environment.json", "metrics.jsonl", "result.json"]
)
def test_a_damaged_record_stops_nothing_else(
    small: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    only = ("--trials", "1", "--only", "rate=0.2")
    assert command(small, "--trials", "1", "--only", "row=ce,rate=0.2") == 0
    place = small.parent / "runs" / "data/0.2/ce/0"
    (place / name).write_text("{\n")
    assert command(small, *only, "--dry-run") == 1
    assert f"data/0.2/ce/0: {place / name}" in capsys.readouterr().out
    assert command(small, *only) == 1
    captured = capsys.readouterr()
    assert "data/0.2/gce/0: best" in captured.err
    assert f"data/0.2/ce/0: {place / name}" in captured.err
    assert f"left out: data/0.2/ce/0: {place / name}" in captured.out
    rows = json.loads((small.parent / "runs" / "table.json").read_text())["cells"]
    assert [row["n"] for row in rows if row["column"] == "data/0.2"] == [0, 0, 1]


def test_columns_of_like_names_have_pictures_of_their_own(small: Path) -> None:
    small.write_text(small.read_text().replace("data/0.4", "data_0.2"))
    assert command(small, "--trials", "1", "--only", "row=ce") == 0
    place = small.parent / "pictures"
    table = read_table(small)
    drawn = draw(table, small.parent / "runs", place)
    assert sorted(drawn) == sorted(place.iterdir())
    assert len(drawn) == len(list(figures(table, small.parent / "runs"))) > 2
    assert place / "data_0.2_test_accuracy-2.png" in drawn


def test_a_process_that_dies_is_a_cell_that_failed(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = small.read_text().replace('method = "gce"', 'method = "tests.bad_methods:Dies"')
    text = text.replace('settings = ["plan.lr=0.01"]', 'preset = "defaults"')
    small.write_text(text.replace('"plan.batch_size=8", "plan.lr_milestones=()", ', ""))
    allow = ["--allow", "tests.bad_methods:Dies"]
    assert command(small, "--trials", "1", "--processes", "2", *allow) == 1
    errors = capsys.readouterr().err
    for rate in ("0.2", "0.4"):
        assert f"data/{rate}/gce/0: its process ended with exit code 3" in errors
        assert f"data/{rate}/ce/0: best" in errors


def test_a_cell_without_memory_says_so() -> None:
    assert execute.in_words(MemoryError()).startswith("out of memory; lower batch_size")
    assert execute.in_words(RuntimeError("CUDA out of memory")).startswith("out of memory (CUDA")
    assert execute.in_words(KeyError("x")) == "KeyError: 'x'"


def test_a_child_ends_when_its_parent_does() -> None:
    context = multiprocessing.get_context("spawn")
    alive, lifeline = context.Pipe(duplex=False)
    child = context.Process(target=execute._end_with_parent, args=(alive,))
    child.start()
    alive.close()
    assert child.is_alive()
    lifeline.close()
    child.join(60)
    assert child.exitcode == 1


def test_a_row_that_reads_another_rows_runs_does_not_decide_them(small: Path) -> None:
    assert command(small, "--trials", "1", "--only", "row=ce at 2,rate=0.2") == 0
    record = records.read(small.parent / "runs" / "data/0.2/ce/0")
    assert len(record.metrics) == 3
    assert record.config["job"]["method"] == "ce"


def test_a_dry_run_counts_what_is_left_and_writes_nothing(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(small, "--trials", "1", "--only", "row=ce") == 0
    capsys.readouterr()
    before = sorted(small.parent.rglob("*"))
    assert command(small, "--trials", "1", "--dry-run") == 0
    said = capsys.readouterr().out
    assert sorted(small.parent.rglob("*")) == before
    # Two columns, of which CE is done and CE at 2 reads the same runs: GCE is left.
    assert "data/0.2/gce/0: 3 epochs" in said
    assert said.endswith("2 of 4 cells are to be run, 6 epochs in all at most\n")


def test_a_dry_run_counts_the_epochs_of_every_round(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = small.read_text().replace('method = "gce"', 'method = "cal"')
    settings = '"plan.epochs=3", "sieve_plan.epochs=2", "rounds=4"'
    small.write_text(text.replace('"plan.epochs=3"', settings))
    assert command(small, "--trials", "1", "--dry-run", "--only", "row=gce") == 0
    assert "data/0.2/gce/0: 14 epochs" in capsys.readouterr().out


def test_shared_stages_go_when_nobody_asks_for_them(small: Path, tmp_path: Path) -> None:
    text = small.read_text().replace('method = "ce"\n', 'method = "cal"\n')
    text = text.replace('method = "gce"', 'method = "cal"').replace("plan.lr=0.01", "relabel=true")
    small.write_text(text.replace('"plan.epochs=3"', '"plan.epochs=3", "sieve_plan.epochs=2"'))
    table = read_table(small)
    cells = list(cells_of(table, trials=1, only=["row=ce,rate=0.2", "row=gce,rate=0.2"]))
    outcomes = run_cells(table, cells, tmp_path / "runs", device="cpu")
    next(outcomes)
    shared = tmp_path / "runs" / "data" / "0.2" / execute.SHARED / "0"
    names = [path.name for path in shared.glob("*.pt")]
    assert len(names) == 1
    assert names[0].startswith("sieve-"), "the last stage is nobody else's"
    outcomes.close()  # type: ignore[attr-defined]
    # What was cut off is not taken up again: the data may be another by now.
    np.savez(
        tmp_path / "data.npz",
        **{**np.load(tmp_path / "data.npz"), "x": np.zeros((40, 4), dtype=np.float32)},
    )
    execute._loaded.cache_clear()
    list(run_cells(table, cells[1:], tmp_path / "runs", device="cpu"))
    assert not shared.parent.exists()
    losses = [
        [line["loss"] for line in records.read(tmp_path / "runs" / cell.path).metrics][:2]
        for cell in cells
    ]
    assert losses[0] != losses[1], "a sieve of other inputs"


def test_only_takes_alternatives(small: Path) -> None:
    table = read_table(small)
    paths = [
        cell.path for cell in cells_of(table, trials=1, only=["row=ce,rate=0.20", "method=gce"])
    ]
    assert paths == ["data/0.2/ce/0", "data/0.2/gce/0", "data/0.4/gce/0"]
    with pytest.raises(
        ValueError, match="no cell of this table has method=gec; did you mean 'gce'"
    ):
        list(cells_of(table, trials=1, only=["method=gec"]))


def test_a_table_without_numbers_of_a_paper_shows_none(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(small, "--trials", "1", "--only", "row=ce") == 0
    assert "(paper" in capsys.readouterr().out
    small.write_text(small.read_text().partition("[expected.ce]")[0])
    assert command(small, "--trials", "1", "--only", "row=ce") == 0
    said = capsys.readouterr().out
    assert "paper" not in said
    assert "best: mean ± std (n); files: " in said


def test_a_rate_is_known_by_the_noise(small: Path) -> None:
    small.write_text(small.read_text().replace("rate = 0.4\n", ""))
    cells = cells_of(read_table(small), trials=1, only=["row=ce,rate=0.4"])
    assert [cell.path for cell in cells] == ["data/0.4/ce/0"]


def test_a_dry_run_says_where_another_run_is(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(small, "--trials", "1", "--only", "row=ce,rate=0.2") == 0
    capsys.readouterr()
    only = ["--trials", "1", "--dry-run", "--only", "row=ce"]
    assert command(small, *only, "--set", "plan.epochs=2") == 1
    said = capsys.readouterr().out
    assert "data/0.2/ce/0: holds a run of another configuration: " in said
    assert "choose another --folder" in said
    assert said.endswith(
        "1 of 2 cells are to be run, 2 epochs in all at most; 1 would fail, as said above\n"
    )


def test_a_result_that_is_more_than_a_pipe_holds_comes_back(tmp_path: Path) -> None:
    """Forward's 100 × 100 numbers of T, in a process of its own."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 100
    x = rng.normal(size=(300, 4)).astype(np.float32)
    np.savez(tmp_path / "many.npz", x=x, y=y, x_test=x, y_test=y)
    table = tmp_path / "many.toml"
    table.write_text(f"""
title = "many classes"
preset = "recommended"
trials = 1
settings = ["plan.epochs=1", "estimation_plan.epochs=1", "net.hidden=[4]"]

[[rows]]
name = "forward"
method = "forward"

[[columns]]
name = "many"
data = "{tmp_path / "many.npz"}"
""")
    cells = list(cells_of(read_table(table), trials=1))
    (outcome,) = run_cells(
        read_table(table), cells, tmp_path / "runs", device="cpu", processes=2
    )  # fmt: skip
    assert outcome.error is None
    assert outcome.result is not None
    assert len(outcome.result.facts["transition"]) == 100
    assert len(pickle.dumps(outcome.result)) > 1 << 16, "else a pipe would hold it"


def test_a_summary_of_nothing_has_dashes_alone(small: Path, tmp_path: Path) -> None:
    entries = write_summary(RunReader(read_table(small), tmp_path / "empty"))
    assert all(each.ours is None and each.difference is None for each in entries)
    text = (tmp_path / "empty" / "table.md").read_text()
    assert "**" not in text


def test_pictures_are_drawn_of_what_was_run(small: Path, tmp_path: Path) -> None:
    text = small.read_text().replace('method = "gce"', 'method = "cal"')
    small.write_text(text.replace('["plan.lr=0.01"]', '["plan.lr=0.01", "sieve_plan.epochs=2"]'))
    assert command(small, "--trials", "1", "--figures", str(tmp_path / "pictures")) == 0
    drawn = {path.name: path for path in (tmp_path / "pictures").iterdir()}
    expected = ["accuracy_by_rate.png"]
    for column in ("data_0.2", "data_0.4"):
        curves = ("test_accuracy", "memorisation", "gce_scores", "gce_transition")
        expected += [f"{column}_{name}.png" for name in curves]
    assert sorted(drawn) == sorted(expected)
    for path in drawn.values():
        pixels = np.asarray(Image.open(path).convert("L"))
        assert pixels.std() > 5, f"{path.name} is blank"
    # Of other settings these runs are another table's.
    here = ("--trials", "0", "--figures", str(tmp_path / "none"))
    assert command(small, *here, "--set", "plan.epochs=5") == 0
    assert not list((tmp_path / "none").iterdir())


def test_pictures_are_of_runs_with_the_settings_asked_for(small: Path, tmp_path: Path) -> None:
    options = ("--only", "row=ce", "--trials", "1", "--set", "plan.epochs=2")
    assert command(small, *options, "--figures", str(tmp_path / "pictures")) == 0
    assert (tmp_path / "pictures" / "accuracy_by_rate.png").exists()


def test_a_shared_stage_that_another_process_clears_is_trained(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who runs cells of the same folder clears what it takes for left behind, at any moment."""
    text = small.read_text().replace('method = "gce"', 'method = "cal"')
    text = text.replace('["plan.lr=0.01"]', '["plan.lr=0.01", "sieve_plan.epochs=2"]')
    small.write_text(text)
    claim = FollowedCheckpoint.claim

    def cleared(self: FollowedCheckpoint) -> None:
        claim(self)
        if self.shared is not None:
            shutil.rmtree(self.shared.parent)

    monkeypatch.setattr(FollowedCheckpoint, "claim", cleared)
    assert command(small, "--only", "row=gce", "--trials", "1") == 0
