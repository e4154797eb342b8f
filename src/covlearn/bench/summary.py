"""The table as it stands: what was measured beside what the paper says. Reads records alone."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from covlearn import cells, records
from covlearn.atomic import write_bytes
from covlearn.bench.failed import TABLE_JSON, Failure, failed_lines
from covlearn.bench.found import Found, RunReader, found_in
from covlearn.bench.table import FIGURES, Column, Row, Table, rate_of

NOTHING = "—"
SIEVE = "sieve"  # the stage that D̂ is made of


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (n − 1 in its denominator; None for one) in percent."""

    mean: float
    std: float | None
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.std is None else f" ± {self.std:.2f}")


@dataclass(frozen=True)
class Entry:
    """All trials of one row in one column."""

    row: Row
    column: Column
    figures: dict[str, Spread]
    """By rule; the paper's own rule is ``compared``."""
    compared: str
    paper: tuple[float, ...] | None
    trials: dict[int, dict[str, float]]
    """Of each trial its figures in percent, by rule."""
    refined: dict[str, float] = field(default_factory=dict)
    """How good D̂ is, means over the trials; empty for methods that make none."""
    left_out: tuple[str, ...] = ()
    """Runs in the folder that are not this table's, or cannot be read, in words."""

    @property
    def ours(self) -> Spread | None:
        """The figure that the paper's number is of."""
        return self.figures.get(self.compared)

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, in points."""
        if self.ours is None or self.paper is None:
            return None
        return self.ours.mean - self.paper[0]


def spread(percent: Sequence[float]) -> Spread:
    """Of one accuracy or more."""
    deviation = statistics.stdev(percent) if len(percent) > 1 else None
    return Spread(statistics.fmean(percent), deviation, len(percent))


@dataclass(frozen=True)
class Difference:
    """One row less another in one column, trial by trial, in points."""

    first: str
    second: str
    column: str
    rule: str
    mean: float
    error: float | None
    """The standard error of the mean; None for one trial."""
    n: int


def found_by_column(reader: RunReader) -> dict[str, Found]:
    """The finished runs of every column, by its name; what all figures are made of."""
    return {each.name: found_in(reader, each) for each in reader.table.columns}


def paired(table: Table, found: Mapping[str, Found]) -> list[Difference]:
    """The differences that the table asks for, over the trials that both rows have."""
    rows = {row.name: row for row in table.rows}
    gaps_of = []
    for first, second in table.pairs:
        for column in table.columns:
            ours, theirs = (found[column.name][name][0] for name in (first, second))
            for rule in ("best", "last"):
                gaps = [
                    100 * (a - b)
                    for trial in sorted(ours.keys() & theirs.keys())
                    if (a := figure_value(ours[trial], rule, rows[first].stage)) is not None
                    and (b := figure_value(theirs[trial], rule, rows[second].stage)) is not None
                ]
                if gaps:
                    error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else None
                    mean = statistics.fmean(gaps)
                    gaps_of.append(
                        Difference(first, second, column.name, rule, mean, error, len(gaps))
                    )
    return gaps_of


def collect(table: Table, folder: Path, found: Mapping[str, Found]) -> list[Entry]:
    """Every row and column with the trials that are finished; the others have no figures."""
    return [
        entry(table, row, column, folder, found[column.name])
        for row in table.rows
        for column in table.columns
    ]


def entry(table: Table, row: Row, column: Column, folder: Path, found: Found) -> Entry:
    """One row in one column, of the runs that were found in it."""
    results, left_out = found[row.name]
    compared = table.figure_of(row)
    rules = dict.fromkeys([*FIGURES, compared])
    trials = {
        trial: {
            rule: 100 * value
            for rule in rules
            if (value := figure_value(run, rule, row.stage)) is not None
        }
        for trial, run in results.items()
    }
    figures = {
        rule: spread([each[rule] for each in trials.values() if rule in each])
        for rule in rules
        if any(rule in each for each in trials.values())
    }
    paper = table.expected.get(row.name, {}).get(column.name)
    refined = refined_figures(results.values())
    if row.stage is not None:
        refined = {}  # of a stage on the way D̂ is not what came out
        left_out = left_out + [
            f"{run.folder.relative_to(folder).as_posix()}: row {row.name} is of stage "
            f"{row.stage}, got {', '.join(run.result.stages)}"
            for run in results.values()
            if run.result is not None and row.stage not in run.result.stages
        ]
    return Entry(row, column, figures, compared, paper, trials, refined, tuple(left_out))


def refined_figures(runs: Iterable[records.Record]) -> dict[str, float]:
    """Means of what is known of the refined labels, over the runs that have them."""
    found: dict[str, list[float]] = {}
    for run in runs:
        labels = (run.result and run.result.labels) or {}
        quality = labels.get("quality") or {}
        figures = {
            "D̂ right": quality.get("share_right"),
            "labels kept": None if labels.get("changed") is None else 1 - labels["changed"],
            "F1": quality.get("f1"),
            "average precision": labels.get("average_precision"),
            "error of T̂": quality.get("transition_error"),
        }
        averaged = [
            line["averaged_right"]
            for line in (run.metrics if quality else [])
            if line["stage"] == SIEVE and line.get("averaged_right") is not None
        ]
        if averaged:
            figures |= {"sieve right": averaged[-1], "best of its epochs": max(averaged)}
        for name, value in figures.items():
            if quality and value is not None:
                found.setdefault(name, []).append(value)
    return {name: statistics.fmean(values) for name, values in found.items()}


def figure_value(run: records.Record, rule: str, stage: str | None = None) -> float | None:
    """A test accuracy of a finished run, or of a stage of it, by a rule; None where it has none."""
    result = run.result
    assert result is not None
    kind, _, number = rule.partition(":")
    stage = result.final_stage if stage is None else stage
    if kind != "epoch":
        if stage == result.final_stage:
            accuracy: records.Accuracy | None = result.test_accuracy
        else:
            accuracy = None if stage not in result.stages else result.stages[stage].test_accuracy
        figure: records.Figure | None = None if accuracy is None else getattr(accuracy, rule)
        return None if figure is None else figure.value
    epochs = [line for line in run.metrics if line["stage"] == stage]
    at = int(number) - 1  # the paper counts epochs from one
    return float(epochs[at]["test_accuracy"]) if at < len(epochs) else None


def as_rows(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """One flat row an entry, for CSV and JSON; what was not run is None."""
    rows = []
    for each in entries:
        flat: dict[str, Any] = {
            "row": each.row.name,
            "method": each.row.method,
            "column": each.column.name,
            "data": each.column.data,
            "noise": each.column.noise,
            "rate": rate_of(each.column),
            "n": len(each.trials),
            "trials": " ".join(map(str, each.trials)),
            "compared": each.compared,
        }
        for rule in dict.fromkeys([*FIGURES, each.compared]):
            found = each.figures.get(rule)
            flat[f"{rule} mean"] = None if found is None else round(found.mean, 4)
            deviation = None if found is None else found.std
            flat[f"{rule} std"] = None if deviation is None else round(deviation, 4)
        flat["paper mean"] = None if each.paper is None else each.paper[0]
        flat["paper std"] = each.paper[1] if each.paper and len(each.paper) > 1 else None
        flat["difference"] = None if each.difference is None else round(each.difference, 4)
        flat |= {name: round(value, 4) for name, value in each.refined.items()}
        rows.append(flat)
    return rows


def trial_rows(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """One flat row a trial."""
    return [
        {"row": each.row.name, "column": each.column.name, "trial": trial}
        | {
            rule: round(figures[rule], 4) if rule in figures else None
            for rule in dict.fromkeys([*FIGURES, each.compared])
        }
        for each in entries
        for trial, figures in each.trials.items()
    ]


def as_markdown(
    table: Table,
    entries: list[Entry],
    *,
    differences: Iterable[Difference] = (),
    environments: Mapping[str, int],
    failed: Sequence[Failure] = (),
) -> str:
    """The table for a reader: ours, the paper's, the difference."""
    lines = [f"# {table.title}", ""]
    lines += ["Test accuracy in percent, mean ± standard deviation over n trials. — was not run"]
    lines[-1] += ", or failed as said below." if failed else "."
    if table.expected:
        lines[-1] += (
            " Each cell: ours by the paper's rule (n), the paper's, and the difference in points."
        )
        lines += ["", *_grid(table, entries, compared_text)]
    shown = [rule for rule in FIGURES if any(rule in each.figures for each in entries)]
    for rule in shown:
        lines += ["", f"## Ours, {rule.replace('_', ' ')} epoch" if rule != "mean_of_last_ten"
                  else "## Ours, mean of the last ten epochs", ""]  # fmt: skip
        lines += _grid(table, entries, lambda each, rule=rule: plain_text(each, rule))
    if differences := list(differences):
        lines += ["", "## Paired differences", ""]
        lines += ["Trial by trial, in points: mean ± standard error (n).", ""]
        lines += [_line(["difference", "column", "best epoch", "last epoch"]), "|---|---|---|---|"]
        by_place: dict[tuple[str, str], dict[str, str]] = {}
        for gap in differences:
            error = "" if gap.error is None else f" ± {gap.error:.2f}"
            place = by_place.setdefault((f"{gap.first} − {gap.second}", gap.column), {})
            place[gap.rule] = f"{gap.mean:+.2f}{error} ({gap.n})"
        for (name, column), shown_gaps in by_place.items():
            cells = [name, column, *(shown_gaps.get(rule, NOTHING) for rule in ("best", "last"))]
            lines.append(_line(cells))
    lines += _refined_lines(entries)
    lines += failed_lines(failed)
    if left_out := [text for each in entries for text in each.left_out]:
        lines += ["", "## Left out", "", "Runs in the folder that are not of this table:", ""]
        lines += [f"- {text}" for text in dict.fromkeys(left_out)]
    if environments:
        lines += ["", "## Where", ""]
        lines += [f"- {text}: {count} runs" for text, count in environments.items()]
    return "\n".join(lines) + "\n"


def compared_text(each: Entry) -> str:
    """Ours, the paper's and the difference."""
    paper = NOTHING
    if each.paper is not None:
        paper = f"{each.paper[0]:.2f}" + (f" ± {each.paper[1]:.2f}" if len(each.paper) > 1 else "")
    if each.ours is None:
        return f"{NOTHING} (paper {paper})"
    gap = "" if each.difference is None else f", {each.difference:+.2f}"
    return f"**{each.ours}** ({each.ours.n}) (paper {paper}{gap})"


def plain_text(each: Entry, rule: str) -> str:
    """One figure with its n, or —."""
    found = each.figures.get(rule)
    return NOTHING if found is None else f"{found} ({found.n})"


def environments_of(found: Mapping[str, Found]) -> dict[str, int]:
    """The machines and versions that the finished runs were made on, with how many runs each."""
    seen: dict[str, int] = {}
    runs = {
        run.folder: run.environment
        for rows in found.values()
        for results, _ in rows.values()
        for run in results.values()
    }
    for place in sorted(runs, key=str):
        there = runs[place]
        device = there.get("gpu") or there.get("processor") or "unknown"
        text = f"{device}, torch {there.get('torch')}, commit {there.get('commit') or 'unknown'}"
        seen[text] = seen.get(text, 0) + 1
    return seen


def write_summary(reader: RunReader, failed: Sequence[Failure] = ()) -> list[Entry]:
    """The table in its folder, from the records that are there, and the cells that failed.

    As table.md, table.csv and table.json, and in trials.csv with a line a trial.
    """
    table, folder = reader.table, reader.folder
    found = found_by_column(reader)
    entries = collect(table, folder, found)
    environments = environments_of(found)
    rows, differences = as_rows(entries), paired(table, found)
    text = as_markdown(
        table, entries, differences=differences, environments=environments, failed=failed
    )
    write_bytes(folder / "table.md", text.encode())
    _write_rows(folder / "table.csv", rows)
    _write_rows(folder / "trials.csv", trial_rows(entries))
    whole = {
        "title": table.title,
        "environments": environments,
        "cells": rows,
        "differences": [asdict(gap) for gap in differences],
        "failed": [asdict(each) for each in failed],
    }
    write_bytes(folder / TABLE_JSON, (json.dumps(whole, indent=2) + "\n").encode())
    return entries


def _write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = (["" if row.get(name) is None else row[name] for name in names] for row in rows)
    cells.write_cells(path, names or ["row", "column", "trial"], values)


def _refined_lines(entries: Iterable[Entry]) -> list[str]:
    shown = [each for each in entries if each.refined]
    if not shown:
        return []
    names = list(dict.fromkeys(name for each in shown for name in each.refined))
    lines = ["", "## Refined labels", ""]
    lines += [
        "Means over n trials: the share of D̂ that is right, of labels that D̂ leaves as they are, "
        "how well the wrong ones are found by D̂ (F1) and by the score (average precision), and the "
        "mean error of an entry of T̂. Of a sieve with averaged predictions, the share of these "
        "that is right when they are read, after its last epoch, and after the epoch that is best "
        "in hindsight.",
        "",
    ]
    lines += [_line(["method", "column", "n", *names]), "|" + "---|" * (3 + len(names))]
    for each in shown:
        figures = [
            f"{each.refined[name]:.3f}" if name in each.refined else NOTHING for name in names
        ]
        place = [each.row.title or each.row.name, each.column.name, str(len(each.trials))]
        lines.append(_line([*place, *figures]))
    return lines


def _grid(table: Table, entries: list[Entry], text: Any) -> list[str]:
    by_place = {(each.row.name, each.column.name): each for each in entries}
    head = ["method", *(column.name for column in table.columns)]
    lines = [_line(head), "|" + "---|" * len(head)]
    for row in table.rows:
        cells = [text(by_place[row.name, column.name]) for column in table.columns]
        lines.append(_line([row.title or row.name, *cells]))
    return lines


def _line(cells: Iterable[str]) -> str:
    """A line of a Markdown table, whose cells end at no sign and no line break of their own."""
    escaped = (" ".join(cell.splitlines()).replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
