"""Tables: what a TOML file says, which cells are run, and what is made of their records."""

import csv
import dataclasses
import json
import os
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from covlearn import cli, engine, records
from covlearn.bench import execute
from covlearn.bench.execute import check_jobs, job_of, run_cells
from covlearn.bench.summary import (
    as_markdown,
    as_rows,
    collect,
    environments_of,
    paired,
    write_summary,
)
from covlearn.bench.table import Cell, Table, cells_of, read_table
from covlearn.job import Job, settled
from tests.runs import assert_same_run

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
TABLES = sorted(BENCHMARKS.glob("table*.toml"))

TOML = """
title = "A small table"
preset = "paper"
trials = 2
pairs = [["gce", "ce"]]
settings = ["plan.epochs=3", "plan.batch_size=8", "plan.lr_milestones=()", "net.hidden=[4]"]

[[rows]]
name = "ce"
method = "ce"
title = "CE"

[[rows]]
name = "ce at 2"
method = "ce"
same_runs_as = "ce"
figure = "epoch:2"

[[rows]]
name = "gce"
method = "gce"
settings = ["plan.lr=0.01"]

[[columns]]
name = "data/0.2"
data = "DATA"
noise = "symmetric:0.2"
rate = 0.2

[[columns]]
name = "data/0.4"
data = "DATA"
noise = "symmetric:0.4"
rate = 0.4

[expected.ce]
"data/0.2" = [80.0, 1.5]
"data/0.4" = [70.0]
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A table of two rows and two columns on forty examples."""
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    np.savez(tmp_path / "data.npz", x=x, y=y, x_test=x, y_test=y)
    path = tmp_path / "small.toml"
    path.write_text(TOML.replace("DATA", str(tmp_path / "data.npz")))
    return path


def command(table: Path, *arguments: str) -> int:
    folder = str(table.parent / "runs")
    return cli.main(["bench", str(table), "--folder", folder, "--device", "cpu", *arguments])


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


def test_a_cell_that_fails_stops_no_other(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = small.read_text().replace('["plan.lr=0.01"]', '["plan.lr=1e30"]')
    small.write_text(text)
    assert command(small, "--trials", "1", "--only", "rate=0.2") == 1
    captured = capsys.readouterr()
    assert "data/0.2/gce/0: ValueError: stage gce: epoch 0" in captured.err
    assert "[1/2] data/0.2/ce/0: best" in captured.err
    entries = {each.row.name: each for each in collect(read_table(small), small.parent / "runs")
               if each.column.rate == 0.2}  # fmt: skip
    assert entries["ce"].ours is not None
    assert entries["gce"].ours is None


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
    text = small.read_text().replace('method = "ce"\ntitle = "CE"', 'method = "cal"')
    text = text.replace('method = "gce"', 'method = "cal"').replace("plan.lr=0.01", "relabel=true")
    small.write_text(text.replace('"plan.epochs=3"', '"plan.epochs=3", "sieve_plan.epochs=2"'))
    table = read_table(small)
    stages: list[str] = []
    epochs = engine._eager_epoch

    def counted(*given: Any) -> float:
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


def test_a_folder_of_another_table_is_refused(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(small, "--trials", "1", "--only", "row=ce,rate=0.2") == 0
    assert (
        command(small, "--trials", "1", "--only", "row=ce,rate=0.2", "--set", "plan.lr=0.02") == 1
    )
    assert "holds a run of another configuration: method.plan.lr is 0.1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'method = "gce"',
            'method = "gcee"',
            "row gce: method must be one of .* did you mean 'gce'",
        ),
        ('title = "CE"', 'titel = "CE"', "Row has .*, got 'titel'; did you mean 'title'"),
        ("trials = 2", "trial = 2", "Table has .*, got 'trial'; did you mean 'trials'"),
        ("[expected.ce]", "[expected.cee]", "expected: there is no 'cee' in this table"),
        ('"data/0.2" = [80.0', '"data/0.3" = [80.0', "expected.ce: there is no 'data/0.3'"),
        ("[70.0]", "[70.0, 1.0, 2.0]", "must be a mean and perhaps a standard deviation, got 3"),
        ('"epoch:2"', '"epoch:two"', "figure must be one of .* or epoch:N, got 'epoch:two'"),
        ('same_runs_as = "ce"', 'same_runs_as = "c"', "same_runs_as: there is no 'c'"),
        ('[["gce", "ce"]]', '[["gce", "cx"]]', "pairs: there is no 'cx'"),
        ('name = "gce"', 'name = "ce"', "each row needs a name of its own, 'ce' came twice"),
        ('name = "gce"', 'name = "../gce"', "must serve as a folder's, got '../gce'"),
        ('["plan.lr=0.01"]', '["plan.rl=0.01"]', "row gce: plan.rl cannot be set"),
        ('preset = "paper"', 'preset = "papr"', "preset must be one of .*did you mean 'paper'"),
        ("trials = 2", "trials = 0", "trials must be positive, got 0"),
        ("[[rows]]", "[[rows", "must be TOML"),
    ],
)
def test_a_bad_table_is_refused_before_anything_is_run(
    small: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    assert old in small.read_text()
    small.write_text(small.read_text().replace(old, new, 1))
    assert command(small) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert error.count("\n") == 1
    assert not (small.parent / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "metod=ce"], "--only takes key=value with row, .*did you mean 'method'"),
        (["--only", "method=cal"], "no cell of this table has method=cal"),
        (["--only", "rate=much"], "rate must be a number, got 'much'"),
        (["--trials", "-1"], "expected --trials ≥ 0"),
        (["--set", "plan.epoch=3"], "plan.epoch cannot be set"),
    ],
)
def test_bad_options_are_refused(
    small: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert command(small, *arguments) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (small.parent / "runs").exists()


def test_a_table_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "no.toml"]) == 2
    assert "there is no table no.toml" in capsys.readouterr().err


def test_only_takes_alternatives(small: Path) -> None:
    table = read_table(small)
    paths = [
        cell.path for cell in cells_of(table, trials=1, only=["row=ce,rate=0.20", "method=gce"])
    ]
    assert paths == ["data/0.2/ce/0", "data/0.2/gce/0", "data/0.4/gce/0"]


def test_a_summary_of_nothing_has_dashes_alone(small: Path, tmp_path: Path) -> None:
    entries = write_summary(read_table(small), tmp_path / "empty")
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


# ---- The paper's tables ----------------------------------------------------------------------


def read(name: str) -> Table:
    return read_table(BENCHMARKS / f"{name}.toml")


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_cell_of_the_papers_tables_can_be_made(path: Path) -> None:
    table = read_table(path)
    check_jobs(table, list(cells_of(table, trials=1)), settings=())
    for row in table.rows:
        assert set(table.expected[row.name]) == {column.name for column in table.columns}


def test_the_papers_numbers_are_those_of_its_source() -> None:
    source = Path(
        os.environ.get("COVLEARN_SHARED", Path(__file__).resolve().parents[2] / "shared")
    ) / "000_cff6adb69b38abb1.txt"  # fmt: skip
    if not source.exists():
        pytest.skip(f"the paper's source is not at hand: {source} is missing")
    text = source.read_text(encoding="utf-8")
    captions = {
        "table1": "Comparison of test accuracies",
        "table2": "test accuracies on Clothing1M",
        "table3": "Analysis of each component",
        "table4": "without data augmentations",
    }
    for name, caption in captions.items():
        start = text.index(caption)
        body = text[start : text.index("end{tabular}", start)]
        printed = [
            [
                float(number)
                for number in re.findall(r"\d+\.\d\d", re.sub(r"\\eta = [\d.]+", "", line))
            ]
            for line in body.splitlines()
        ]
        printed = [numbers for numbers in printed if numbers]
        table = read(name)
        ours = [
            [number for column in table.columns for number in table.expected[row.name][column.name]]
            for row in table.rows
        ]
        assert ours == printed, name


def test_trial_zero_has_the_published_noise_and_others_their_own(tmp_path: Path) -> None:
    table = read("table1")
    column = next(column for column in table.columns if column.name == "cifar100/0.4")
    row = table.rows[-1]
    jobs = [
        job_of(table, Cell(row, column, trial), published=published, settings=())
        for trial, published in ((0, None), (0, tmp_path), (3, tmp_path))
    ]
    assert [job.noise for job in jobs] == [
        "published:0.4",
        f"file:{tmp_path / 'IDN_0.4_C100.pt'}",
        "as_published:0.4",
    ]
    assert [job.seed for job in jobs] == [0, 0, 3]
    assert jobs[0].settings == ("augmentation.rotate=15",)
    assert jobs[0].preset == "published"


def test_the_common_protocol_is_that_of_the_papers_table() -> None:
    table = read("table1")
    for row in table.rows:
        made: Any = settled(
            job_of(table, Cell(row, table.columns[0], 0), published=None, settings=())
        )[0]
        if row.name == "dmi":
            continue  # a stage of its own behind CE
        plan = made.plan
        assert (plan.batch_size, plan.lr, plan.momentum, plan.optimizer) == (128, 0.1, 0.9, "sgd")
        assert (plan.epochs, plan.lr_milestones) == (100, (60,)), row.name


def test_later_settings_go_over_earlier_ones() -> None:
    assert execute.merged(["a=1", "b=2"], ["a=3"]) == ("a=3", "b=2")
    assert Job("digits", "ce").settings == ()


RESULTS = BENCHMARKS.parent / "results"


@pytest.mark.parametrize("path", [path for path in TABLES if (RESULTS / path.stem).is_dir()])
def test_the_committed_tables_are_those_of_the_committed_records(path: Path) -> None:
    folder, table = RESULTS / path.stem, read_table(path)
    entries = collect(table, folder)
    assert any(each.trials for each in entries), "a table without a record"
    text = as_markdown(
        table,
        entries,
        differences=paired(table, folder),
        environments=environments_of(entries, folder),
    )
    assert (folder / "table.md").read_text(encoding="utf-8") == text
    rows = json.loads((folder / "table.json").read_text())["cells"]
    assert rows == json.loads(json.dumps(as_rows(entries)))
    page = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert all(line in page for line in text.splitlines() if line.startswith("|"))
