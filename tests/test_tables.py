"""The paper's tables: that each cell can be made, and that their numbers are the paper's."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results import BEYOND
from benchmarks.results import TABLES as PAPER
from covlearn import records
from covlearn.bench.execute import check_jobs
from covlearn.bench.found import RunReader, found_in
from covlearn.bench.summary import (
    as_markdown,
    as_rows,
    collect,
    entry,
    environments_of,
    found_by_column,
    paired,
    refined_figures,
)
from covlearn.bench.table import Cell, Table, cells_of, job_of, merged, read_table
from covlearn.config import typed
from covlearn.job import Job, settled
from covlearn.records import read_metrics, read_result

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
TABLES = sorted(BENCHMARKS.glob("table*.toml"))
RESULTS = BENCHMARKS.parent / "results"


def read(name: str) -> Table:
    return read_table(BENCHMARKS / f"{name}.toml")


# Rows that the paper does not have.
ADDED = {
    "table1": {"relabel"},
    "table3": {"peer"},
    "table4": {"early sieve"},
}


# Rows whose numbers are in its text alone, with the sentence.
IN_THE_TEXT = {
    ("table2", "cal_from_scratch"): r"re-train the model with \$\\estD\$ and get an accuracy of "
    r"\$(\d+\.\d+)\$"
}


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_cell_of_the_papers_tables_can_be_made(path: Path) -> None:
    table = read_table(path)
    if path.stem == "table2":  # its data is always somebody's own folder
        with pytest.raises(ValueError, match=r"data must be .* got 'clothing1m'"):
            check_jobs(table, list(cells_of(table, trials=1)), settings=())
        columns = tuple(replace(column, data="digits") for column in table.columns)
        table = replace(table, columns=columns)
    check_jobs(table, list(cells_of(table, trials=1)), settings=())
    assert {row.name for row in table.rows} - set(table.expected) == ADDED.get(path.stem, set())
    for numbers in table.expected.values():
        assert set(numbers) == {column.name for column in table.columns}


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
            if row.name not in ADDED.get(name, set()) and (name, row.name) not in IN_THE_TEXT
        ]
        assert ours == printed, name
    for (name, row_name), sentence in IN_THE_TEXT.items():
        (number,) = re.findall(sentence, text)
        assert set(read(name).expected[row_name].values()) == {(float(number),)}


def test_a_row_may_be_of_a_stage_on_the_way() -> None:
    """Rows 3 and 4 of table 3 are the training that D̂ is made of."""
    table, folder = read("table3"), RESULTS / "table3"
    rows = {row.name: row for row in table.rows}
    for column in table.columns:
        (whole, best, at_65) = (
            entry(table, rows[name], column, folder, found_in(RunReader(table, folder), column))
            for name in ("both", "sieve", "sieve at 65")
        )
        place = folder / column.name / "both" / "0"
        result = read_result(place)
        assert result is not None
        sieve = result.stages["sieve"].test_accuracy
        assert best.ours is not None
        assert sieve.best is not None
        assert best.ours.mean == pytest.approx(100 * sieve.best.value)
        assert sieve.last is not None
        assert best.figures["last"].mean == pytest.approx(100 * sieve.last.value)
        epochs = [line for line in read_metrics(place) if line["stage"] == "sieve"]
        assert at_65.ours is not None
        assert at_65.ours.mean == pytest.approx(100 * epochs[64]["test_accuracy"])
        assert whole.ours is not None
        assert result.test_accuracy.best is not None
        assert whole.ours.mean == pytest.approx(100 * result.test_accuracy.best.value)
        assert whole.refined, "of D̂ the row says something that is of the whole run"
        assert not best.refined
    found = found_by_column(RunReader(table, folder))
    gaps = {(gap.first, gap.second): gap.mean for gap in paired(table, found)}
    assert gaps["both", "sieve"] != gaps["both", "neither"]


def test_a_stage_that_runs_do_not_have_is_named() -> None:
    table = read("table3")
    row = replace(next(row for row in table.rows if row.name == "sieve"), stage="seive")
    column = table.columns[0]
    there = found_in(RunReader(table, RESULTS / "table3"), column)
    found = entry(table, row, column, RESULTS / "table3", there)
    assert found.ours is None
    assert found.left_out == ("cifar10/0.2/both/0: row sieve is of stage seive, got sieve, cal",)


def test_trial_zero_has_the_published_noise_and_others_their_own() -> None:
    table = read("table1")
    column = next(column for column in table.columns if column.name == "cifar100/0.4")
    cal = next(row for row in table.rows if row.name == "cal")
    first, third = (job_of(table, Cell(cal, column, trial)) for trial in (0, 3))
    assert (first["noise"], first["seed"]) == ("published:0.4", 0)
    assert (third["noise"], third["seed"]) == ("as_published:0.4", 3)
    assert first["settings"] == ["augmentation.rotate=15"]
    assert first["preset"] == "published"


def test_a_published_file_that_is_missing_is_named(tmp_path: Path) -> None:
    table = read("table1")
    cells = list(cells_of(table, trials=1, only=["row=cal,column=cifar100/0.4"]))
    check_jobs(table, cells, settings=())
    with pytest.raises(ValueError, match=r"cifar100/0.4: there is no published file .*_C100.pt"):
        check_jobs(table, cells, settings=(), published=tmp_path)


def test_the_common_protocol_is_that_of_the_papers_table() -> None:
    table = read("table1")
    for row in table.rows:
        made: Any = settled(typed(Job, job_of(table, Cell(row, table.columns[0], 0))))[0]
        if row.name == "dmi":
            continue  # a stage of its own behind CE
        plan = made.plan
        assert (plan.batch_size, plan.lr, plan.momentum, plan.optimizer) == (128, 0.1, 0.9, "sgd")
        assert (plan.epochs, plan.lr_milestones) == (100, (60,)), row.name


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_row_and_column_can_be_asked_for(path: Path) -> None:
    """Names may have commas."""
    table = read_table(path)
    for row in table.rows:
        for column in table.columns:
            (cell,) = cells_of(table, trials=1, only=[f"row={row.name}, column={column.name}"])
            assert (cell.row, cell.column) == (row, column)


def test_later_settings_go_over_earlier_ones() -> None:
    assert merged(["a=1", "b=2"], ["a=3"]) == ["a=3", "b=2"]


RESULTS = BENCHMARKS.parent / "results"


@pytest.mark.parametrize(
    ("path", "results"),
    [
        (path, results)
        for results, tables in ((RESULTS, PAPER), (RESULTS / "beyond", BEYOND))
        for path in tables
        if (results / path.stem).is_dir()
    ],
    ids=str,
)
def test_the_committed_tables_are_those_of_the_committed_records(path: Path, results: Path) -> None:
    folder, table = results / path.stem, read_table(path)
    found = found_by_column(RunReader(table, folder))
    entries = collect(table, folder, found)
    assert any(each.trials for each in entries), "a table without a record"
    text = as_markdown(
        table,
        entries,
        differences=paired(table, found),
        environments=environments_of(found),
    )
    assert (folder / "table.md").read_text(encoding="utf-8") == text
    rows = json.loads((folder / "table.json").read_text())["cells"]
    assert rows == json.loads(json.dumps(as_rows(entries)))
    page = (results / "README.md").read_text(encoding="utf-8")
    assert all(line in page for line in text.splitlines() if line.startswith("|"))


def test_what_the_sieve_said_stands_beside_the_best_of_its_epochs(tmp_path: Path) -> None:
    source = RESULTS / "beyond" / "beyond" / "cifar10" / "0.4" / "recommended" / "0"
    place = tmp_path / source.name
    shutil.copytree(source, place)
    lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    sieve = [line for line in lines if line["stage"] == "sieve"]
    sieve[3]["averaged_right"], sieve[-1]["averaged_right"] = 0.99, 0.5
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    figures = refined_figures([records.read(place)])
    assert (figures["sieve right"], figures["best of its epochs"]) == (0.5, 0.99)
