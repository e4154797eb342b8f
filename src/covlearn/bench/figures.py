"""Pictures of a table's records: PNG files beside the runs. Needs matplotlib, reads files alone."""

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from covlearn import records
from covlearn.bench.found import Found
from covlearn.bench.summary import Entry, collect, found_by_column
from covlearn.bench.table import Column, Row, Table
from covlearn.metrics import calibration_error
from covlearn.plain_files import read_json

CURVES = {"test_accuracy": "test accuracy", "memorisation": "share of wrong labels fitted"}


def draw(table: Table, folder: Path, out: Path, settings: Sequence[str] = ()) -> list[Path]:
    """Every picture that the table's finished runs allow, each under a name of its own."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("pictures need matplotlib: pip install 'covlearn[plot]'")
    out.mkdir(parents=True, exist_ok=True)
    found = found_by_column(table, folder, settings)
    drawn = [
        path
        for column in table.columns
        for path in _of_column(table, column, found[column.name], out)
    ]
    entries = collect(table, folder, found)
    if (path := _against_rate(table, entries, out / "accuracy_by_rate.png")) is not None:
        drawn.append(path)
    return drawn


def _of_column(table: Table, column: Column, found: Found, out: Path) -> Iterator[Path]:
    shown = {
        row.name: (row, found[row.name][0][0][1])
        for row in table.rows
        if row.same_runs_as is None and 0 in found[row.name][0]
    }
    name = plain_name(column.name)
    for key, title in CURVES.items():
        if (path := _curves(column, shown, key, title, out / f"{name}_{key}.png")) is not None:
            yield path
    drawn = []  # rows that share a D̂ need its pictures once
    for row, run in shown.values():
        kept = run / records.REFINEMENT
        if kept.exists() and (refinement := read_json(kept)) not in drawn:
            drawn.append(refinement)
            result = records.read_result(run)
            threshold = None if result is None else result.facts.get("threshold")
            where = f"{column.name}, {row.title or row.name}, trial 0"
            stem = f"{name}_{plain_name(row.name)}"
            yield _scores(refinement, threshold, where, out / f"{stem}_scores.png")
            if "true" in refinement["transition"]:
                yield _transition(refinement, where, out / f"{stem}_transition.png")
            if "reliability" in refinement:
                yield _reliability(refinement, where, out / f"{stem}_reliability.png")


def plain_name(text: str) -> str:
    """A part of a file's name that needs no quotes and makes no folder."""
    return text.replace("/", "_").replace(" ", "_").replace(",", "")


def _curves(
    column: Column, runs: dict[str, tuple[Row, Path]], key: str, title: str, path: Path
) -> Path | None:
    """One curve a method: the epochs of its final stage in trial 0."""
    figure, axes = _axes()
    drawn = False
    for row, run in runs.values():
        result = records.read_result(run)
        lines = [
            line
            for line in records.read_metrics(run)
            if result is not None and line["stage"] == result.final_stage
        ]
        values = [line.get(key) for line in lines]
        if values and None not in values:
            axes.plot(range(1, len(values) + 1), values, label=row.title or row.name, linewidth=1.2)
            drawn = True
    if not drawn:
        return None
    axes.set(xlabel="epoch", ylabel=title, title=f"{column.name}, trial 0")
    axes.legend(fontsize=7)
    return _saved(figure, path)


def _scores(refinement: dict[str, Any], threshold: Any, where: str, path: Path) -> Path:
    """The sieve's scores, right and wrong labels apart where they are known."""
    figure, axes = _axes()
    edges, scores = refinement["score_edges"], refinement["scores"]
    for name in [name for name in ("right", "wrong") if name in scores] or ["all"]:
        axes.stairs(scores[name], edges, fill=True, alpha=0.55, label=f"{name} labels")
    if isinstance(threshold, int | float):
        axes.axvline(threshold, color="black", linestyle="--", label=f"threshold {threshold:.2f}")
    axes.set(xlabel="score", ylabel="examples", yscale="log", title=where)
    axes.legend(fontsize=8)
    return _saved(figure, path)


def _transition(refinement: dict[str, Any], where: str, path: Path) -> Path:
    """T̂ beside T, on one scale."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(7.6, 3.6), layout="constrained")
    both = figure.subplots(1, 2)
    for axes, name, title in zip(
        both, ("estimated", "true"), ("T̂, counted on D̂", "T, counted on the clean labels"),
        strict=True,
    ):  # fmt: skip
        image = axes.imshow(refinement["transition"][name], vmin=0, vmax=1, cmap="viridis")
        axes.set(xlabel="noisy label", ylabel="label", title=title)
    figure.colorbar(image, ax=both, shrink=0.85)
    figure.suptitle(where, fontsize=9)
    return _saved(figure, path)


def _reliability(refinement: dict[str, Any], where: str, path: Path) -> Path:
    """How often what was stated with a probability was right; the size of a point is its number."""
    figure, axes = _axes()
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    for name, rows in refinement["reliability"].items():
        count, stated, right = zip(*rows, strict=True)
        sizes = [4 + 200 * number / sum(count) for number in count]
        title = f"{name}, off by {calibration_error(rows):.3f} on average"
        axes.plot(stated, right, linewidth=0.8)
        axes.scatter(stated, right, s=sizes, label=title)
    axes.set(xlabel="stated probability", ylabel="share that is right", title=where)
    axes.legend(fontsize=8)
    return _saved(figure, path)


def _against_rate(table: Table, entries: Sequence[Entry], path: Path) -> Path | None:
    """The figure that the table compares, by noise rate: one line a row, data set and noise."""
    figure, axes = _axes()
    drawn = False
    lines = dict.fromkeys(_data_and_noise(column) for column in table.columns)
    for row in table.rows:
        for data, noise in lines:
            points = [
                (each.column.rate, each.ours.mean, each.ours.std or 0.0)
                for each in entries
                if each.row is row and _data_and_noise(each.column) == (data, noise)
                if each.ours is not None and each.column.rate is not None
            ]
            if len(points) > 1:
                rates, means, deviations = zip(*sorted(points), strict=True)
                label = f"{row.title or row.name}, {Path(data).stem}"
                if sum(other == data for other, _ in lines) > 1:
                    label += f", {noise}"
                axes.errorbar(rates, means, deviations, marker="o", capsize=2, label=label)
                drawn = True
    if not drawn:
        return None
    axes.set(xlabel="noise rate", ylabel="test accuracy, %", title=table.title)
    axes.legend(fontsize=7)
    return _saved(figure, path)


def _data_and_noise(column: Column) -> tuple[str, str]:
    return column.data, column.noise.partition(":")[0]


def _axes() -> tuple[Any, Any]:
    # Not pyplot: it would keep every figure, and pick a window system.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    return figure, axes


def _saved(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=110)
    return path
