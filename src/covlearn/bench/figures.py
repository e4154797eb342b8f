"""Pictures of a table's records: PNG files beside the runs. Needs matplotlib, reads files alone."""

import importlib.util
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from covlearn import records
from covlearn.atomic import check_can_write
from covlearn.bench.figure_style import legend_beside, panels, row_style, save, wrapped
from covlearn.bench.found import Found, RunReader
from covlearn.bench.refined_figures import (
    read_refinement,
    reliability_figure,
    scores_figure,
    transition_figure,
)
from covlearn.bench.summary import Entry, collect, found_by_column
from covlearn.bench.table import Column, Row, Table, rate_of

CURVES = {"test_accuracy": "test accuracy, %", "memorisation": "wrong labels fitted, %"}
RULES = {
    "best": "best epoch",
    "last": "last epoch",
    "mean_of_last_ten": "mean of the last ten epochs",
    "selected": "epoch selected on held-out labels",
}
PANEL_TITLE = 52  # characters of a line over one of several axes
MARKED = 10  # epochs from one marker of a curve to the next


def draw(table: Table, folder: Path, out: Path, settings: Sequence[str] = ()) -> list[Path]:
    """Every picture that the table's finished runs allow, each under a name of its own."""
    check_can_draw(out)
    out.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, Path] = {}  # by a name that differs by more than case
    for name, figure in figures(table, folder, settings):
        own, number = name, 2
        while own.casefold() in drawn:
            own, number = f"{name}-{number}", number + 1
        drawn[own.casefold()] = save(figure, out / f"{own}.png")
    return list(drawn.values())


def figures(table: Table, folder: Path, settings: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """The figures with their names: of one column after the other, then of all by noise rate.

    Columns called ``a/b`` and ``a_b`` have figures of the same name.
    """
    found = found_by_column(RunReader(table, folder, settings))
    for column in table.columns:
        yield from _of_column(table, column, found[column.name])
    if (figure := _against_rate(table, collect(table, folder, found))) is not None:
        yield "accuracy_by_rate", figure


def check_can_draw(out: Path) -> None:
    """Says that pictures cannot be made, before a table is run for which they are asked."""
    records.check_folder(out)
    check_can_write(out)
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("pictures need matplotlib: pip install 'covlearn[plot]'")


def _of_column(table: Table, column: Column, found: Found) -> Iterator[tuple[str, Any]]:
    shown = [(row, found[row.name][0][0].folder) for row in table.rows if 0 in found[row.name][0]]
    name = plain_name(column.name)
    for key, title in CURVES.items():
        if (figure := _curves(table, column, shown, key, title)) is not None:
            yield f"{name}_{key}", figure
    drawn = []  # rows that share a D̂ need its pictures once
    for row, run in shown:
        kept = run / records.REFINEMENT
        if row.same_runs_as is not None or not kept.exists():
            continue
        if (refinement := read_refinement(kept)) not in drawn:
            drawn.append(refinement)
            where = wrapped(f"{column.name}, {row.title or row.name}, trial 0")
            stem = f"{name}_{plain_name(row.name)}"
            yield f"{stem}_scores", scores_figure(refinement, records.read_result(run), where)
            if "true" in refinement["transition"]:
                yield f"{stem}_transition", transition_figure(refinement, where)
            if "reliability" in refinement:
                yield f"{stem}_reliability", reliability_figure(refinement, where)


def plain_name(text: str) -> str:
    """A part of a file's name that needs no quotes and makes no folder."""
    return text.replace("/", "_").replace(" ", "_").replace(",", "")


def _curves(
    table: Table, column: Column, shown: Sequence[tuple[Row, Path]], key: str, title: str
) -> Any | None:
    """One curve a row: the epochs, in trial 0, of the stage that the row is of."""
    figure, (axes,) = panels()
    drawn: set[tuple[Path, str]] = set()
    some_earlier = some_named = False
    for row, run in shown:
        stage, earlier, values = _epochs(row, run, key)
        if not values or None in values:
            continue
        place, label = table.rows.index(row), row.title or row.name
        if row.stage is not None:
            label, some_named = f"{label} [stage {row.stage}]", True
        if earlier:
            label, some_earlier = f"{label} (+{earlier})", True
        points = [(epoch, 100 * value) for epoch, value in enumerate(values, start=1)]
        # Curves that lie on each other have their markers at other epochs.
        looks = row_style(place) | {"markevery": (place % MARKED, MARKED)}
        rule, _, at = table.figure_of(row).partition(":")
        if rule == "epoch" and (run, stage) in drawn:
            # The same training as another row's, read at one epoch: a point on that row's curve.
            points = points[int(at) - 1 : int(at)]
            looks |= {"linestyle": "none", "markersize": 9, "zorder": 3, "markevery": 1}
        axes.plot([at for at, _ in points], [value for _, value in points], label=label, **looks)
        drawn.add((run, stage))
    if not drawn:
        return None
    epoch = "epoch of the last stage" if some_earlier or some_named else "epoch"
    epoch += ", or of the stage that is named" if some_named else ""
    axes.set(xlabel=epoch, ylabel=title, title=wrapped(f"{column.name}, trial 0"))
    legend_beside(axes, title="(+n): after n epochs of earlier stages" if some_earlier else None)
    return figure


def _epochs(row: Row, run: Path, key: str) -> tuple[str, int, list[Any]]:
    """The stage that a row is of, how many epochs of a run came before, and its own, one by one."""
    result = records.read_result(run)
    stage = row.stage or (None if result is None else result.final_stage) or ""
    lines = records.read_metrics(run)
    values = [line.get(key) for line in lines if line["stage"] == stage]
    return stage, [*(line["stage"] for line in lines), stage].index(stage), values


def _against_rate(table: Table, entries: Sequence[Entry]) -> Any | None:
    """The figure that the table compares, by noise rate: one panel a noise, one line a row."""
    shown = [
        (columns, lines)
        for columns in _of_one_noise(table.columns)
        if (lines := _lines(table, entries, columns))
    ]
    if not shown:
        return None
    figure, side_by_side = panels(len(shown), width=4.8)
    legend, most_lines = {}, 1
    for axes, (columns, lines) in zip(side_by_side, shown, strict=True):
        for place, points in lines.items():
            row = table.rows[place]
            label = row.title or row.name
            if table.figure_of(row) != table.figure:
                label += f" [{_in_words(table.figure_of(row))}]"
            style = row_style(place) | {"capsize": 2, "elinewidth": 0.8}
            legend[place] = axes.errorbar(*zip(*points, strict=True), label=label, **style)
        title = wrapped(", ".join(column.name for column in columns), PANEL_TITLE)
        most_lines = max(most_lines, title.count("\n") + 1)
        axes.set(xlabel="noise rate")
        axes.set_title(title, fontsize=9)
        axes.locator_params(axis="x", nbins=5)
    side_by_side[0].set_ylabel(f"test accuracy, %, {_in_words(table.figure)}")
    figure.suptitle(wrapped(table.title), y=0.92 + 0.04 * most_lines, verticalalignment="bottom")
    bars = "bars: ± a standard deviation, where there are several trials"
    legend_beside(side_by_side[-1], [legend[place] for place in sorted(legend)], title=bars)
    return figure


def _of_one_noise(columns: Sequence[Column]) -> list[list[Column]]:
    """The columns that may be joined: the same data with more or less of the same noise."""
    same: dict[tuple[Any, ...], list[Column]] = {}
    for column in columns:
        noise = column.noise.partition(":")[0]
        if noise == "file":
            # Of a file nobody knows what noise it has but by the name of its column: "confused 0.1"
            # and "confused 0.4" are the same at two rates, "three labellers 0.4" is another.
            rate = rate_of(column)
            words = re.split("[ /]", column.name)
            noise = " ".join(word for word in words if rate is None or word != f"{rate:g}")
        key = (column.data, noise, column.published is None, column.settings)
        same.setdefault(key, []).append(column)
    return [sorted(columns, key=lambda column: rate_of(column) or 0.0) for columns in same.values()]


def _lines(
    table: Table, entries: Sequence[Entry], columns: Sequence[Column]
) -> dict[int, list[tuple[float, float, float]]]:
    """By place of a row its rates, means and deviations, where it has two rates or more."""
    lines = {}
    for place, row in enumerate(table.rows):
        points = [
            # Of one trial there is no deviation, and NaN draws no bar.
            (rate, each.ours.mean, math.nan if each.ours.std is None else each.ours.std)
            for each in entries
            if each.row is row and each.column in columns and each.ours is not None
            if (rate := rate_of(each.column)) is not None
        ]
        if len({rate for rate, _, _ in points}) > 1:
            lines[place] = sorted(points)
    return lines


def _in_words(rule: str) -> str:
    """Of which epoch an accuracy is."""
    return RULES.get(rule, rule.replace(":", " "))
