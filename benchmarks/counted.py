"""On how many of the sieves' predictions the T of `fit`'s verdicts is counted, and what they do.

    python -m benchmarks.counted          # four data sets, nine noises; minutes

T is counted where the sieves are surest, since elsewhere their own errors look like wrong labels.
But labels that are wrong where examples are hard, as people's are, are not there, so that labels
count as wrong more often where predictions are less sure. And where D̂ has a label, the network has
heard the given one, which Bayes' rule would then count twice. Of each share, and of the one in use
with T as it is everywhere, with none or all of what was heard left out, or with labels replaced
below another quality, by clean labels: how well verdicts find wrong labels, how many are flagged,
the share of labels that is right after repair, that of the wrong ones that is put right, and by how
many points quality and the noise rate are off. D̂, and so the network, is the same for all.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track

from benchmarks.detection import detection, noisy_labels
from benchmarks.peers import ALL_NOISES, load
from covlearn.calibration import HEARD, label_posterior, surest_transition, wrong_by_sureness
from covlearn.engine import Machine
from covlearn.evaluation import environment
from covlearn.fitting import COUNTED, SCALE_SPREAD, fit_split, set_up
from covlearn.metrics import calibration_error, reliability
from covlearn.verdicts import judge

OUT = Path(__file__).resolve().parents[1] / "results" / "counted.json"
SHARES = (0.25, 0.5, 0.75, 1.0)
ALIKE = f"{COUNTED}, alike everywhere"
HEARD_SHARES = {f"{COUNTED}, heard 0": 0.0, f"{COUNTED}, heard 1": 1.0}
BELOW = {f"{COUNTED}, below {below}": below for below in (0.1, 0.2, 0.4, 0.5)}
SEEDS = {"digits": 3, "breast_cancer": 3, "wine": 3, "fashion": 1}


def one(name: str, noise: str, seed: int) -> dict[str, Any]:
    """A fit, and its verdicts by each share."""
    torch.set_num_threads(1)
    clean, *_ = load(name, seed)
    split = replace(clean, y=noisy_labels(clean, noise, seed))
    fit = fit_split(split, set_up("cal", split=split, device="cpu"), seed=seed)
    judge_by = fit.own_logits if fit.evidence.contradictory else fit.crossed
    given, right = split.y.numpy(), clean.y.numpy()
    found: dict[str, Any] = {"evidence": fit.evidence.found}
    ours = ((str(share), share) for share in SHARES)
    others = ((name, COUNTED) for name in (ALIKE, *HEARD_SHARES, *BELOW))
    for variant, share in [*others, *ours]:
        transition = surest_transition(fit.crossed, split.y, surest=share)
        times = None
        if fit.evidence.found and variant != ALIKE:
            times = wrong_by_sureness(fit.crossed, split.y, transition)
        logits = label_posterior(
            judge_by,
            split.y,
            transition,
            times=times,
            spread=SCALE_SPREAD,
            heard=fit.heard,
            heard_share=HEARD_SHARES.get(variant, HEARD),
        )
        verdicts = judge(split.y, logits, evidence=fit.evidence.found)
        refined = verdicts.refined
        if fit.evidence.found and variant in BELOW:
            replaced = (verdicts.quality < BELOW[variant]) & (verdicts.confidence >= 0.5)
            refined = np.where(replaced, verdicts.suggested, given)
        row = detection(given, right, verdicts.decision != "keep", 1 - verdicts.quality, refined)
        quality = reliability(torch.from_numpy(verdicts.quality), split.y == clean.y)
        found[variant] = {
            "f1": row.get("f1"),
            "average_precision": row.get("average_precision"),
            "flagged": row["flagged"],
            "share_right": row["refined_right"],
            "repaired": row.get("repaired"),
            "quality_off": 100 * calibration_error(quality),
            "rate_off": 100 * float((1 - verdicts.quality).mean() - row["wrong"]),
        }
    return found


def means(cells: dict[str, Any], kind: Callable[[str], bool]) -> dict[str, dict[str, float]]:
    """Over the cells with noise of a kind, each figure that all of them have."""
    chosen = [cell for name, cell in cells.items() if kind(name.split("/")[1].partition(":")[0])]
    table: dict[str, dict[str, float]] = {}
    for name in (ALIKE, *HEARD_SHARES, *BELOW, *map(str, SHARES)):
        figures = [figure for figure, value in chosen[0][name].items() if value is not None]
        table[name] = {
            figure: statistics.fmean(cell[name][figure] for cell in chosen) for figure in figures
        }
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    tasks = [
        (name, noise, seed)
        for name, seeds in SEEDS.items()
        for seed in range(seeds)
        for noise in ALL_NOISES
    ]
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        made = track(pool.map(one, *zip(*tasks, strict=True)), total=len(tasks))
        cells = {"/".join(map(str, task)): row for task, row in zip(tasks, made, strict=True)}
    record = {
        "environment": environment(Machine()),
        "confused": means(cells, lambda kind: kind == "confused"),
        "other noise": means(cells, lambda kind: kind not in ("confused", "none")),
        "clean": means(cells, lambda kind: kind == "none"),
        "cells": cells,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: record[name] for name in ("confused", "other noise")}, indent=1))


if __name__ == "__main__":
    main()
