"""Each generator of noise on synthetic clouds: which labels flip, and the T that comes of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

from covlearn import noise
from covlearn.noise.registry import GENERATORS

RATE = 0.3
SEED = 0
DPI = 80
CENTRES = np.array([[-2.0, -2.0], [2.0, -2.0], [-2.0, 2.0], [2.0, 2.0]])
COLOURS = ("#2471a3", "#c0392b", "#1e8449", "#b7950b")
MATRIX = np.array([[0.6, 0.4, 0, 0], [0, 0.9, 0.1, 0], [0.1, 0.1, 0.7, 0.1], [0.3, 0, 0, 0.7]])


@dataclass(frozen=True)
class Drawn:
    """Points, their clean labels, and what a generator made of those."""

    x: NDArray[np.float64]
    clean: NDArray[np.int64]
    labels: noise.NoisyLabels


def clouds(num_classes: int = 4) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Points (1200, 2) and the cloud that each belongs to."""
    rng = np.random.default_rng(SEED)
    clean = np.arange(1200) % num_classes
    return CENTRES[clean] + 0.8 * rng.normal(size=(1200, 2)), clean


def drawn(name: str) -> Drawn:
    """A generator's draw at the rate 0.3, or by the probabilities that the page names."""
    x, clean = clouds(2 if name == "instance_dependent_binary" else 4)
    return Drawn(x, clean, BY_NAME[name](x, clean))


def _by_rate(draw: Callable[..., noise.NoisyLabels]) -> Callable[..., noise.NoisyLabels]:
    return lambda _, y: draw(y, rate=RATE, num_classes=4, seed=SEED)


def _by_instance(variant: str) -> Callable[..., noise.NoisyLabels]:
    return lambda x, y: noise.instance_dependent(
        x, y, rate=RATE, num_classes=4, variant=variant, seed=SEED
    )


def _by_part(x: Any, y: Any) -> noise.NoisyLabels:
    parts = (x[:, 0] + x[:, 1] > 0).astype(np.int64)
    return noise.part_dependent(y, parts, transitions=[np.eye(4), MATRIX], seed=SEED)


def _confused(x: Any, y: Any) -> noise.NoisyLabels:
    likely = np.exp(-0.25 * ((x[:, None] - CENTRES) ** 2).sum(axis=2))
    probs = likely / likely.sum(axis=1, keepdims=True)
    return noise.confused(y, probs=probs, rate=RATE, seed=SEED)


def _binary(x: Any, y: Any) -> noise.NoisyLabels:
    rates = 0.5 / (1 + np.exp(-2 * (x[:, 1] + 2)))
    return noise.instance_dependent_binary(y, e_plus=rates, e_minus=rates, seed=SEED)


BY_NAME: dict[str, Callable[..., noise.NoisyLabels]] = {
    "symmetric": _by_rate(noise.symmetric),
    "pair": _by_rate(noise.pair),
    **{variant: _by_instance(variant) for variant in noise.VARIANTS},
    "class_dependent": lambda _, y: noise.class_dependent(y, transition=MATRIX, seed=SEED),
    "confused": _confused,
    "part_dependent": _by_part,
    "instance_dependent_binary": _binary,
}


def write_all(folder: Path) -> None:
    """A picture for each generator."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in GENERATORS:
        picture(drawn(name)).savefig(folder / f"{name}.png", dpi=DPI, metadata={"Software": None})


def picture(draw: Drawn) -> Any:
    """Left: the points in the colour of their noisy label, wrong ones ringed. Right: T."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(7, 3.2), layout="constrained")
        FigureCanvasAgg(figure)
        points, heat = figure.subplots(1, 2, width_ratios=(1.3, 1))
        noisy = draw.labels.label
        wrong = noisy != draw.clean
        colours = np.array(COLOURS)[noisy]
        points.scatter(*draw.x[~wrong].T, c=colours[~wrong], s=6, linewidths=0, alpha=0.45)
        points.scatter(*draw.x[wrong].T, c=colours[wrong], s=16, linewidths=0.6, edgecolors="black")
        points.set(title="given labels, wrong ones ringed", xticks=[], yticks=[], aspect="equal")
        transition = draw.labels.card.transition
        heat.imshow(transition, vmin=0, vmax=1, cmap="Blues")
        for (i, j), share in np.ndenumerate(transition):
            ink = "white" if share > 0.5 else "black"
            heat.text(j, i, f"{share:.2f}", ha="center", va="center", color=ink)
        places = range(len(transition))
        heat.set(title="T, counted", xlabel="noisy", ylabel="clean", xticks=places, yticks=places)
    return figure
