"""Quality as a probability, with and without a prior on how sure a network is of itself.

    python -m benchmarks.calibration          # 60 fits of small tables, some minutes

``fit`` on scikit-learn's bundled tables with several noises. The same networks and T̂, four spreads
of the prior (:func:`covlearn.calibration.calibrated_scale`): by how many points quality is off, the
mean of −ln P(right label), average precision by quality, and the share of labels whose quality is
within a thousandth of zero or one. Chosen by clean labels, on these cells.
"""

import argparse
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.detection import load, noisy_labels
from benchmarks.measure import environment
from covlearn.calibration import label_posterior, surest_transition
from covlearn.fitting import fit_split, set_up
from covlearn.metrics import average_precision, calibration_error, reliability

OUT = Path(__file__).resolve().parents[1] / "results" / "calibration.json"
NOISES = ("symmetric:0.1", "symmetric:0.2", "symmetric:0.4", "ptd:0.2", "cal:0.4", "calibrated:0.3")
SEEDS = {"breast_cancer": 3, "wine": 3, "iris": 3, "digits": 1}
SPREADS = (math.inf, 1.0, 0.5, 0.3)


def one(name: str, noise: str, seed: int) -> dict[str, Any] | None:
    """A fit under each spread; None where no label was called wrong."""
    split, _, _ = load(name, seed)
    clean, given = split.y, noisy_labels(split, noise, seed)
    split = replace(split, y=given)
    fit = fit_split(split, set_up("cal", split=split, device="cpu"), seed=seed)
    if not fit.evidence.contradictory:
        return None
    transition = surest_transition(fit.crossed, given)
    rows, figures = torch.arange(len(given)), {}
    for spread in SPREADS:
        log_p = label_posterior(fit.own_logits, given, transition, spread=spread)
        quality = log_p[rows, given].exp()
        extreme = (quality < 1e-3) | (quality > 1 - 1e-3)
        figures[str(spread)] = {
            "quality off by, points": 100 * calibration_error(reliability(quality, given == clean)),
            "-ln P(right)": -float(log_p[rows, clean].clamp(min=math.log(1e-12)).mean()),
            "average precision": average_precision(-quality, given != clean),
            "share within a thousandth": float(extreme.double().mean()),
        }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells: dict[str, Any] = {}
    means: dict[str, Any] = {}
    for name, seeds in SEEDS.items():
        own = [
            (f"{name}, {noise}, seed {seed}", figures)
            for noise in NOISES
            for seed in range(seeds)
            if (figures := one(name, noise, seed)) is not None
        ]
        cells |= dict(own)
        means[name] = {
            "cells": len(own),
            **{
                spread: {
                    figure: statistics.fmean(each[spread][figure] for _, each in own)
                    for figure in own[0][1][spread]
                }
                for spread in own[0][1]
            },
        }
        print(name, json.dumps(means[name], indent=1), flush=True)
    record = {"environment": environment(), "means": means, "cells": cells}
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
