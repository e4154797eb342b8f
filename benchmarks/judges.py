"""Who finds the wrong labels: the sieve, the network that was trained on D̂, or the mean of both.

And whether the given label helps to judge itself, by Bayes' rule (:mod:`covlearn.calibration`).

    python -m benchmarks.judges          # digits, five noises, four seeds each

One CAL a cell with averaged predictions. Of each judge, by clean labels: the share of its labels
that are right, how well it finds the wrong ones (F1, and average precision by the margin of the
largest rival class), and by how many points its probabilities are off on average.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import environment
from covlearn.calibration import label_posterior, surest_transition
from covlearn.data.sources import load_data, with_noise
from covlearn.job import Job, settled
from covlearn.methods.base import view_of
from covlearn.metrics import average_precision, calibration_error, reliability
from covlearn.run import LocalRun
from covlearn.sieve import refine_by_argmax

OUT = Path(__file__).resolve().parents[1] / "results" / "beyond" / "judges_digits.json"
NOISES = ("symmetric:0.4", "cal:0.4", "ptd:0.4", "calibrated:0.4", "calibrated:0.2")
SETTINGS = ("scores=averaged", "threshold=argmax", "look_for_evidence=true")


def judged(probs: Tensor, noisy: Tensor, clean: Tensor) -> dict[str, Any]:
    """How right a judge is."""
    wrong, refined = noisy != clean, refine_by_argmax(probs, noisy)
    flagged = refined.label != noisy
    confidence, label = probs.max(dim=1)
    quality = probs.gather(1, noisy.unsqueeze(1)).squeeze(1)
    return {
        "share right": float((refined.label == clean).double().mean()),
        "f1": 2 * int((flagged & wrong).sum()) / int(flagged.sum() + wrong.sum()),
        "average precision": average_precision(refined.score, wrong),
        "quality off by, points": 100 * calibration_error(reliability(quality, ~wrong)),
        "confidence off by, points": 100
        * calibration_error(reliability(confidence, label == clean)),
    }


def one(noise: str, seed: int) -> dict[str, dict[str, Any]]:
    """A run, and its judges."""
    source, _ = with_noise(load_data("digits"), noise, seed=seed)
    method, _ = settled(Job("digits", "cal", preset="recommended", settings=SETTINGS))
    run = LocalRun(source.train, seed=seed)
    model = method.fit(view_of(run))
    assert run.refined_by is not None
    assert source.clean is not None
    sieve, last = run.refined_by.exp(), run.predict(model)[0].softmax(dim=1)
    judges = {"sieve": sieve, "last network": last, "both": (sieve + last) / 2}
    judges |= {
        f"{name}, with the label": with_label(judges[name], source.train.y)
        for name in ("last network", "both")
    }
    return {name: judged(probs, source.train.y, source.clean) for name, probs in judges.items()}


def with_label(probs: Tensor, noisy: Tensor) -> Tensor:
    """The same with the given label as evidence, by Bayes' rule and T counted on all of them."""
    logs = probs.double().clamp(min=1e-9).log()
    return label_posterior(logs, noisy, surest_transition(logs, noisy, surest=1.0)).exp().float()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = {}
    for noise in NOISES:
        for seed in range(options.seeds):
            cells[f"{noise}, seed {seed}"] = one(noise, seed)
            print(noise, seed, cells[f"{noise}, seed {seed}"], flush=True)
    means = {
        judge: {
            figure: statistics.fmean(cell[judge][figure] for cell in cells.values())
            for figure in next(iter(cells.values()))[judge]
        }
        for judge in next(iter(cells.values()))
    }
    print(json.dumps(means, indent=2))
    record = {"environment": environment(), "means": means, "cells": cells}
    options.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
