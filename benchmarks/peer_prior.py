"""Whose prior the regulariser beside CE on D̂ should have where noise has a sink.

    python -m benchmarks.peer_prior            # CIFAR-10 must be there; a CPU does, in half an hour

6,000 images of CIFAR-10 with the noise of the published 0.4, of which 41 % say bird, a D̂ that is
right for 88 % and wrong at random, a small network and 24 epochs: with the noisy labels' prior and
with D̂'s own, without and with mixup, three trials. `benchmarks/peer_prior.toml` has digits.
"""

import argparse
import json
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from covlearn.data.sources import load_data, with_noise
from covlearn.evaluation import environment
from covlearn.job import Job, make_machine, run_job

OUT = Path(__file__).resolve().parents[1] / "results" / "beyond" / "peer_prior_cifar10.json"
NOISE, IMAGES, TESTED, WRONG = "as_published:0.4", 6000, 4000, 0.12
SETTINGS = (
    "net.widths=[16,32,64]",
    "target=refined",
    "look_for_evidence=false",
    "judges=sieve",
    "scores=evaluation",
    "plan.epochs=24",
    "plan.average=0.99",
    "beta.start=3",
    "beta.end=10",
)


def write_part(folder: Path, trial: int) -> tuple[Path, Path]:
    """Files of some images with their noisy labels, and of a D̂ for them."""
    source = load_data("cifar10")
    clean = source.train.y.numpy()
    noisy = with_noise(source, NOISE, seed=0)[0].train.y.numpy()
    rng = np.random.default_rng(trial)
    part = np.sort(rng.permutation(len(clean))[:IMAGES])
    refined = clean[part].copy()
    wrong = rng.random(IMAGES) < WRONG
    refined[wrong] = (refined[wrong] + rng.integers(1, 10, wrong.sum())) % 10
    data, labels = folder / f"part{trial}.npz", folder / f"refined{trial}.npy"
    x, x_test = (np.asarray(split.x) for split in (source.train, source.test))
    y_test = source.test.y.numpy()[:TESTED]
    np.savez(data, x=x[part], y=noisy[part], x_test=x_test[:TESTED], y_test=y_test)
    np.save(labels, refined)
    return data, labels


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    cells: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = [write_part(folder, trial) for trial in range(options.trials)]
        grid = list(product(range(options.trials), ("noisy", "target"), (False, True)))
        for trial, prior, mixup in track(grid, description="trials"):
            data, labels = parts[trial]
            own = (f"labels={labels}", f"peer_prior={prior}", f"mixup={str(mixup).lower()}")
            job = Job(str(data), "cal", preset="recommended", seed=trial, net="cnn", holdout=0.0,
                      settings=(*SETTINGS, *own))  # fmt: skip
            place = folder / f"{trial}-{prior}-{mixup}"
            last = run_job(job, place, device="cpu").test_accuracy.last
            assert last is not None
            cells.append(
                {"trial": trial, "prior": prior, "mixup": mixup, "last": round(100 * last.value, 2)}
            )
    made = {
        "environment": environment(make_machine("cpu", {})),
        "noise": NOISE, "images": IMAGES, "tested": TESTED, "wrong in D̂": WRONG,
        "settings": SETTINGS, "cells": cells,
    }  # fmt: skip
    options.out.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {options.out}")


if __name__ == "__main__":
    main()
