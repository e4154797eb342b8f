"""How a table's pictures look: a style for each row, legends beside the axes, nothing cut off."""

import io
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# The colours of Okabe and Ito, which people who do not see red and green alike tell apart, without
# their yellow, which a white page swallows.
BLUE, VERMILLION = "#0072B2", "#D55E00"
COLOURS = (BLUE, VERMILLION, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
LINES = ("solid", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (6, 2, 1, 2, 1, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
TITLE, LEGEND = 70, 48  # characters of a line
DPI = 120


def row_style(place: int) -> dict[str, Any]:
    """Colour, line and marker of the row at a place of its table: the same in all its pictures.

    Colours and lines tell 35 rows apart. There is one marker more than colours, so that colours and
    markers do, too, where lines are hidden or noisy.
    """
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": LINES[place // len(COLOURS) % len(LINES)],
        "marker": MARKERS[place % len(MARKERS)],
        "linewidth": 1.2,
        "markersize": 4,
    }


def panels(number: int = 1, *, width: float = 6.4, height: float = 4.0) -> tuple[Any, list[Any]]:
    """A figure with axes side by side, each of one size whatever stands beside them."""
    # Not pyplot: it would keep every figure, and pick a window system.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(number * width, height))
    side_by_side = list(figure.subplots(1, number, squeeze=False)[0])
    for axes in side_by_side:
        axes.grid(alpha=0.3)
    return figure, side_by_side


def wrapped(text: str, width: int = TITLE) -> str:
    """In lines that fit."""
    return textwrap.fill(text, width)


def legend_beside(
    axes: Any, handles: Iterable[Any] | None = None, title: str | None = None
) -> None:
    """Right of the axes, where it hides no data; the picture is as wide as it needs."""
    handles = axes.get_legend_handles_labels()[0] if handles is None else list(handles)
    axes.legend(
        handles=handles,
        labels=[wrapped(handle.get_label(), LEGEND) for handle in handles],
        title=None if title is None else wrapped(title, LEGEND),
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        borderaxespad=0.0,
        fontsize=8,
        title_fontsize=8,
        alignment="left",
        handlelength=3.2,  # a whole period of the longest line
    )


def save(figure: Any, path: Path) -> Path:
    """As a PNG file that has all of the figure on it, legends outside of its axes, too."""
    from PIL import Image  # noqa: PLC0415

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=DPI, bbox_inches="tight", pad_inches=0.08)
    with Image.open(drawn) as image:
        # A palette makes the file a third as large: there are hundreds of them beside the records.
        few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(path, optimize=True, dpi=(DPI, DPI))
    return path
