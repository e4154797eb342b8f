"""Pictures of a D̂: the scores it was made by, T̂ beside T, and what was stated of labels."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from covlearn import records
from covlearn.bench.figure_style import BLUE, VERMILLION, legend_beside, panels, row_style
from covlearn.config import typed
from covlearn.metrics import calibration_error
from covlearn.plain_files import read_json

STATED = {
    "quality": "that the given label is right (quality)",
    "confidence": "of the most probable label (confidence)",
}
ARGMAX = "-inf"  # how a record has the threshold of a D̂ that is what the sieve predicts
ALL_TICKED = 12  # classes that all have their number on the axis
TICKS = {0: "0", 0.001: "0.001", 0.01: "0.01", 0.05: "0.05", 0.2: "0.2", 0.5: "0.5", 1: "1"}


@dataclass(frozen=True)
class Refinement:
    """What is drawn of a run's refinement.json."""

    reason: str
    score_edges: tuple[float, ...]
    scores: dict[str, tuple[int, ...]]
    transition: dict[str, tuple[tuple[float, ...], ...]]
    reliability: dict[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)


def read_refinement(path: Path) -> dict[str, Any]:
    """The file as it is, if it holds what is drawn."""
    found = read_json(path)
    drawn = [each.name for each in fields(Refinement)]
    try:
        typed(Refinement, {name: found[name] for name in drawn if name in found})
    except ValueError as error:
        raise ValueError(f"{path} must say how a D̂ was made, but it is damaged: {error}") from error
    return found


def scores_figure(refinement: dict[str, Any], result: records.Result | None, where: str) -> Any:
    """The scores that D̂ was made by, right and wrong labels apart where they are known."""
    figure, (axes,) = panels()
    edges, scores = refinement["score_edges"], refinement["scores"]
    known = {"right": BLUE, "wrong": VERMILLION} if "right" in scores else {"all": BLUE}
    for name, colour in known.items():
        title = f"{name} labels ({sum(scores[name]):,})"
        axes.stairs(scores[name], edges, fill=True, alpha=0.35, color=colour, label=title)
        axes.stairs(scores[name], edges, color=colour)  # its outline, where the two overlap
    axes.set(
        xlabel="score of the given label",
        ylabel="examples a bin (log scale)",
        yscale="log",
        title=where,
    )
    axes.set_ylim(bottom=0.7)  # a bin of one example is seen
    threshold = None if result is None else result.facts.get("threshold")
    all_kept = result is not None and (result.labels or {}).get("changed") == 0
    reason = refinement["reason"]
    if threshold == ARGMAX:
        reason = "most probable class"
    # Where there is no evidence of wrong labels, those beyond the threshold are kept, too.
    elif isinstance(threshold, int | float) and not (all_kept and edges[-1] > threshold):
        said = f"threshold {threshold:g}: kept to its left".replace("-", "−")
        axes.axvline(threshold, color="black", linestyle="--", label=said)
    made = "all labels kept" if all_kept else "labels replaced by"
    legend_beside(axes, title=f"{made}: {reason}")
    return figure


def transition_figure(refinement: dict[str, Any], where: str) -> Any:
    """T̂ beside T, on one scale that shows small entries."""
    from matplotlib import colormaps  # noqa: PLC0415
    from matplotlib.colors import PowerNorm  # noqa: PLC0415

    figure, both = panels(2, width=4.6, height=4.6)
    scale = PowerNorm(1 / 3, vmin=0, vmax=1)
    colours = colormaps["magma_r"].resampled(128)  # all of them fit into a file's palette
    for axes, name, labels, title in zip(
        both,
        ("estimated", "true"),
        ("refined label", "true label"),
        ("T̂, counted on D̂", "T, counted on the clean labels"),
        strict=True,
    ):
        axes.grid(visible=False)
        rows = refinement["transition"][name]
        image = axes.imshow(rows, norm=scale, cmap=colours, interpolation="nearest")
        axes.set(xlabel="noisy label", ylabel=labels)
        axes.set_title(title, fontsize=10)
        if len(rows) <= ALL_TICKED:
            axes.set(xticks=range(len(rows)), yticks=range(len(rows)))
    # Beside the axes, whose room it would take otherwise.
    place = both[-1].inset_axes((1.05, 0.0, 0.05, 1.0))
    bar = figure.colorbar(image, cax=place, ticks=list(TICKS))
    bar.set_label("share of the row (colours by its cube root)")
    place.set_yticklabels(list(TICKS.values()))
    figure.suptitle(where, y=0.94, verticalalignment="bottom")
    return figure


def reliability_figure(refinement: dict[str, Any], where: str) -> Any:
    """How often what was stated with a probability was right; the size of a point is its number."""
    figure, (axes,) = panels(width=4.4, height=4.4)
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8, label="right as often as stated")
    for place, (name, rows) in enumerate(refinement["reliability"].items()):
        count, stated, right = zip(*rows, strict=True)
        sizes = [4 + 200 * number / sum(count) for number in count]
        off = calibration_error(rows)
        title = f"probability {STATED.get(name, name)}, off by {off:.3f} on average"
        style = row_style(place)
        axes.plot(stated, right, label=title, **style | {"markersize": 2})
        axes.scatter(
            stated, right, s=sizes, color=style["color"], marker=style["marker"], alpha=0.6
        )
    axes.set(xlabel="stated probability", ylabel="share that is right", aspect="equal", title=where)
    legend_beside(axes, title="area of a point: share of the examples")
    return figure
