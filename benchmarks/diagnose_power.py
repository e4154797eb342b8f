"""How often `covlearn diagnose` raises a false alarm, and how often it finds what is there.

    python -m benchmarks.diagnose_power [--out results/diagnose.json]

False alarms: noise by class (symmetric, pair, and a random T whose rows have rates of their own) on
three data sets of scikit-learn and two synthetic ones, one of whose classes overlap. Power: every
instance-dependent generator of covlearn.noise. Each draw has its own noise; p ≤ 0.05 is an alarm.
The clean labels that come with a data set are taken for the truth. A cell that is in the file
already is not run again. At the end the worst cell under the null, that whose interval begins
highest, is measured once more with new draws: of many cells the worst is partly so by luck.
"""

import argparse
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress
from scipy.stats import beta
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from covlearn.diagnose import Finding, Smoother, instance_dependence_test
from covlearn.engine import Machine
from covlearn.evaluation import environment
from covlearn.noise import (
    VARIANTS,
    class_dependent,
    instance_dependent,
    instance_dependent_binary,
    pair,
    part_dependent,
    symmetric,
)
from covlearn.preparation import Standardizer

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
BOOTSTRAP = 99
LEVEL = 0.05
BY_CLASS = ("symmetric", "pair", "random T")
BY_INSTANCE = (*VARIANTS, "part_dependent", "instance_dependent_binary")
# Of each data set, how many draws a cell has under the null and under an alternative.
DRAWS = {
    "wine": (60, 30),
    "breast_cancer": (50, 20),
    "digits": (8, 5),
    "clouds": (30, 15),
    "overlapping": (10, 0),
}


AGAIN = 200  # draws of the worst cell, when it is measured once more


def clouds(spread: float) -> tuple[Floats, Labels]:
    """Four clouds of 200 points in eight dimensions, whose middles are ``spread`` apart."""
    rng = np.random.default_rng(0)
    y = np.arange(800) % 4
    return spread * rng.normal(size=(4, 8))[y] + rng.normal(size=(800, 8)), y


def load(name: str) -> tuple[Floats, Labels]:
    """Standardised features and the labels that count as clean."""
    loaders = {"wine": load_wine, "breast_cancer": load_breast_cancer, "digits": load_digits}
    if name in loaders:
        x, y = loaders[name](return_X_y=True)
    else:
        x, y = clouds({"clouds": 1.5, "overlapping": 1.0}[name])
    return Standardizer.of(x)(x), y.astype(np.int64)


def random_transition(rate: float, num_classes: int, seed: int) -> Floats:
    """Rows flip at half to one and a half times the rate, at most 0.45, to classes unevenly."""
    rng = np.random.default_rng(seed)
    transition = np.zeros((num_classes, num_classes))
    for i in range(num_classes):
        flipped = min(rate * rng.uniform(0.5, 1.5), 0.45)
        transition[i] = np.insert(flipped * rng.dirichlet(np.ones(num_classes - 1)), i, 1 - flipped)
    return transition


def noisy_labels(kind: str, rate: float, x: Floats, y: Labels, seed: int) -> Labels:
    """One draw. Two kinds take rates from us: there, half of the space has three times the rate."""
    num_classes = int(y.max()) + 1
    options: Any = {"num_classes": num_classes, "rate": rate, "seed": seed}
    if kind in ("symmetric", "pair"):
        return {"symmetric": symmetric, "pair": pair}[kind](y, **options).label
    if kind == "random T":
        transition = random_transition(rate, num_classes, seed)
        return class_dependent(y, transition=transition, seed=seed).label
    if kind in VARIANTS:
        return instance_dependent(x, y, variant=kind, **options).label
    along = x @ np.random.default_rng(seed).normal(size=x.shape[1])
    middle = np.array([np.median(along[y == i]) for i in range(num_classes)])
    beyond = (along > middle[y]).astype(np.int64)
    rates = np.array([0.5 * rate, 1.5 * rate])
    if kind == "instance_dependent_binary":
        own = rates[beyond]
        return instance_dependent_binary(y, e_plus=own, e_minus=own, seed=seed).label
    even = np.full((num_classes, num_classes), 1 / (num_classes - 1))
    np.fill_diagonal(even, -1)
    transitions = [np.eye(num_classes) + value * even for value in rates]
    return part_dependent(y, beyond, transitions=transitions, seed=seed).label


def cells() -> list[dict[str, Any]]:
    """All that is to be measured."""
    rows: list[dict[str, Any]] = []
    for name, (under_null, under_other) in DRAWS.items():
        binary = name == "breast_cancer"
        for kind in BY_CLASS:
            if kind == "pair" and binary:
                continue  # with two classes it is symmetric noise
            for rate in (0.1, 0.2, 0.3, 0.4):
                rows.append({"data": name, "noise": kind, "rate": rate, "draws": under_null})
        for kind in BY_INSTANCE:
            if not under_other or (kind == "instance_dependent_binary" and not binary):
                continue
            for rate in (0.2, 0.4):
                rows.append({"data": name, "noise": kind, "rate": rate, "draws": under_other})
    return rows


def measure(cell: dict[str, Any], x: Floats, y: Labels, smoother: Smoother) -> dict[str, Any]:
    """The alarms of one cell."""
    num_classes = int(y.max()) + 1
    # Seeds of their own: with the same ones, a cell would flip the examples that another flips.
    name = "{data} {noise} {rate}".format(**cell) + (" again" if cell["draws"] == AGAIN else "")
    seeds = [zlib.crc32(f"{name} {draw}".encode()) for draw in range(cell["draws"])]
    found: list[Finding] = [
        instance_dependence_test(
            x,
            noisy_labels(cell["noise"], cell["rate"], x, y, seed),
            num_classes=num_classes,
            draws=BOOTSTRAP,
            seed=seed,
            smoother=smoother,
        )
        for seed in seeds
    ]
    tested = [finding for finding in found if finding.statistic is not None]
    alarms = sum((finding.p_value or 0) <= LEVEL for finding in tested)
    return cell | {
        "not_tested": len(found) - len(tested),
        "alarms": alarms,
        **interval(alarms, len(tested)),
        "p_values": [finding.p_value for finding in found],
        "statistic": _mean([finding.statistic for finding in tested]),
        "null_mean": _mean([finding.null_mean for finding in tested]),
        "sure": _mean([finding.sure / finding.examples for finding in found]),
        "refined_right": _mean([float((finding.refined == y).mean()) for finding in found]),
    }


def interval(alarms: int, draws: int) -> dict[str, float]:
    """The share of alarms with its exact 95 % interval (Clopper and Pearson 1934)."""
    low = float(beta.ppf(0.025, alarms, draws - alarms + 1)) if alarms else 0.0
    high = float(beta.ppf(0.975, alarms + 1, draws - alarms)) if alarms < draws else 1.0
    return {"share": round(alarms / draws, 4), "low": round(low, 4), "high": round(high, 4)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """False alarms over all, by data, noise and rate, and the worst cell; power by cell.

    With two classes the instance-dependent generators flip at a rate that does not depend on x, so
    that there is nothing to find: those cells are a group of their own.
    """

    def pooled(of: list[dict[str, Any]]) -> dict[str, Any]:
        draws = sum(row["draws"] - row["not_tested"] for row in of)
        return {"draws": draws, **interval(sum(row["alarms"] for row in of), draws)}

    null = [row for row in rows if row["noise"] in BY_CLASS]
    two = [row for row in rows if row["noise"] in VARIANTS and row["data"] == "breast_cancer"]
    false = {"all": pooled(null)}
    for key in ("data", "noise", "rate"):
        for value in dict.fromkeys(row[key] for row in null):
            false[f"{key}: {value}"] = pooled([row for row in null if row[key] == value])
    worst = max(null, key=lambda row: row["low"])  # by share, a cell of few draws would be
    keys = ("data", "noise", "rate", "draws", "share", "low", "high")
    return {
        "false alarms": false,
        "worst cell": {key: worst[key] for key in keys},
        "generators on two classes, where they do not depend on x": pooled(two) if two else None,
        "power": {
            f"{row['data']}, {row['noise']}:{row['rate']:g}": row["share"]
            for row in rows
            if row not in null and row not in two
        },
    }


def _mean(values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--out", type=Path, default=Path("results/diagnose.json"))
    out = parser.parse_args().out
    wanted, keys = cells(), ("data", "noise", "rate", "draws")
    rows = json.loads(out.read_text(encoding="utf-8"))["cells"] if out.exists() else []
    rows = [row for row in rows if {key: row[key] for key in keys} in wanted]
    done = [{key: row[key] for key in keys} for row in rows]
    waiting = [cell for cell in wanted if cell not in done]
    content: dict[str, Any] = {
        "bootstrap_draws": BOOTSTRAP,
        "level": LEVEL,
        "environment": environment(Machine(device="cpu")),
    }
    smoothers: dict[str, Smoother] = {}
    with Progress() as bars:
        task = bars.add_task("cells", total=len(waiting))
        for cell in waiting:
            x, y = load(cell["data"])
            if cell["data"] not in smoothers:
                smoothers = {cell["data"]: Smoother(x)}
            rows.append(measure(cell, x, y, smoothers[cell["data"]]))
            write(out, content | {"summary": summary(rows), "cells": rows})
            bars.advance(task)
    worst = summary(rows)["worst cell"]
    x, y = load(worst["data"])
    again = {key: worst[key] for key in keys} | {"draws": AGAIN}
    content["worst cell again"] = measure(again, x, y, Smoother(x))
    write(out, content | {"summary": summary(rows), "cells": rows})
    print(json.dumps(summary(rows), indent=1, ensure_ascii=False))


def write(out: Path, content: dict[str, Any]) -> None:
    """After each cell: a run that is cut off leaves what it has."""
    out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
