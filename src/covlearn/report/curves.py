"""What was measured after each epoch, as charts."""

import re
from typing import Any

TITLES = (
    ("loss", "Training loss", "number"),
    ("agreement", "Agreement with the given labels", "share"),
    ("test_accuracy", "Accuracy on the test labels", "share"),
    ("holdout_accuracy", "Accuracy on held-out noisy labels", "share"),
    ("memorisation", "Wrong labels learned by heart", "share"),
)
REFINED = "network on the refined labels"
STAGES = {
    "cal": "second stage of CAL",
    "ce": "network on the given labels",
    "estimation": "network that estimates T",
    "rate": "network that estimates the noise rate",
    "relabel": REFINED,
    "warm_up": "warm-up on the given labels",
}
"""What stages are called where a reader sees them; others say what they are."""
SIEVES, PLAIN = "sieves", "plain training, tried"


def curves(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One chart a measure, one line a stage; lines of one ``group`` share a colour."""
    charts = []
    for name, title, unit in TITLES:
        stages: dict[str, list[float | None]] = {}
        for line in metrics:
            if name in line:
                stages.setdefault(line["stage"], []).append(line[name])
        lines = [
            stage_names(stage)
            | {"values": [None if v is None else float(f"{v:.5g}") for v in values]}
            for stage, values in stages.items()
            if any(value is not None for value in values)
        ]
        if lines:
            charts.append({"title": title, "unit": unit, "lines": lines})
    return charts


def stage_names(stage: str) -> dict[str, str]:
    """What a stage is called, and what all stages of its kind are.

    >>> stage_names("sieve-3"), stage_names("relabel 2")["name"]
    ({'name': 'sieve 3', 'group': 'sieves'}, 'network on the refined labels, round 2')
    >>> stage_names("sieve-0 with weight decay 0.01")["name"]
    'sieve 0 with weight decay 0.01'
    >>> stage_names("plain-2")
    {'name': 'plain training without fold 2', 'group': 'plain training, tried'}
    >>> stage_names("refined-1 with weight decay 0.3")["name"]
    'network on the refined labels without fold 1 with weight decay 0.3'
    """
    if fold := re.fullmatch(r"sieve-(\d+.*)", stage):
        return {"name": f"sieve {fold[1]}", "group": SIEVES}
    if fold := re.fullmatch(r"plain-(\d+)", stage):
        return {"name": f"plain training without fold {fold[1]}", "group": PLAIN}
    if fold := re.fullmatch(r"refined-(\d+.*)", stage):
        return {"name": f"{REFINED} without fold {fold[1]}", "group": f"{REFINED}, tried"}
    again = re.fullmatch(r"(.+) (\d+)", stage)
    name = STAGES.get(stage, stage)
    if again and again[1] in STAGES:
        name = f"{STAGES[again[1]]}, round {again[2]}"
    return {"name": name, "group": name}
