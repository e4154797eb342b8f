"""Folders that look like those of ``covlearn fit``, of any size, without a network being trained."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from covlearn import cells, records
from covlearn.fitted import FitResult
from covlearn.saved import COLUMNS, TRUSTED
from covlearn.verdicts import judge

CLASSES = ["ash", "birch", "cedar", "=elm()"]


def look_alike(
    folder: Path,
    *,
    count: int,
    classes: list[str],
    wrong: float = 0.3,
    ids: list[str] | None = None,
    paths: list[Path] | None = None,
    table: pd.DataFrame | None = None,
    found: bool = True,
    seed: int = 0,
) -> Path:
    """A run folder with verdicts on labels a share of which are wrong, judged as a model would."""
    rng = np.random.default_rng(seed)
    num_classes = len(classes)
    right = rng.integers(num_classes, size=count)
    flipped = rng.random(count) < wrong
    given = np.where(
        flipped, (right + rng.integers(1, num_classes, size=count)) % num_classes, right
    )
    logits = (
        rng.normal(size=(count, num_classes))
        + 6 * rng.random((count, 1)) * np.eye(num_classes)[right]
    )
    verdicts = judge(given, logits, evidence=found, classes=classes)
    ids = [f"folder/of/class/{n:06d}.png" for n in range(count)] if ids is None else ids
    folder.mkdir(parents=True)
    names = np.array(classes, dtype=object)
    rows = zip(
        ids,
        names[verdicts.given],
        names[verdicts.suggested],
        verdicts.decision.tolist(),
        [f"{value:.6g}" for value in verdicts.quality],
        [f"{value:.6g}" for value in verdicts.confidence],
        verdicts.reason,
        strict=True,
    )
    cells.write_cells(folder / records.LABELS, COLUMNS, rows)
    texts = None if paths is None else [str(path) for path in paths]
    pd.DataFrame({"id": ids, "path": texts}).to_parquet(folder / "examples.parquet")
    if table is not None:
        table.to_parquet(folder / "table.parquet")
    recipe = {
        "recipe": {"format": 1, "kind": "table" if paths is None else "images", "label": "label"},
        "classes": classes,
        "mean": None,
        "scale": None,
        "augmentation": None,
    }
    records.write_json(folder / "recipe.json", recipe)
    transition = np.full((num_classes, num_classes), wrong / max(num_classes - 1, 1))
    np.fill_diagonal(transition, 1 - wrong)
    covariance = rng.normal(size=transition.shape) / 10
    covariance[0] = np.nan
    np.savez(folder / "refinement.npz", transition=transition, covariance=covariance)
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.savez(folder / records.PROBS, probs=probs.astype(np.float32))
    history = [{"epoch": n, "loss": 1 / (n + 1), "agreement": 0.5 + n / 40} for n in range(10)]
    records.write_metrics(folder, {"sieve-0": history, "sieve-1": history, "relabel": history})
    records.write_json(folder / records.ENVIRONMENT, {"python": "3.11", "torch": "2"})
    config = {
        "format": records.FORMAT,
        "command": "fit",
        "covlearn": "0",
        "method": {"name": "cal", "folds": 5},
        "preset": "recommended",
        "seed": seed,
        "net": {"name": "mlp"},
        "source": {"path": "source.csv", "label": "label"},
        "data": {"examples": count, "classes": num_classes, "x": "x", "y": "y"},
        "machine": {"device": "cpu"},
    }
    records.write_json(folder / records.CONFIG, config)
    result = FitResult(
        method="cal",
        seed=seed,
        examples=count,
        classes=num_classes,
        skipped=[{"id": "broken.png", "reason": "it is empty (0 bytes)"}],
        noise_rate=float((verdicts.decision != "keep").mean()),
        decisions={name: verdicts.count(name) for name in ("keep", "relabel", "drop", "review")},
        evidence={"found": found, "sentence": "a sentence with numbers"},
        facts={},
        seconds=1.0,
        notes=["a note on the data"],
    )
    records.write_json(folder / records.RESULT, result)
    return folder


def pictures(folder: Path, count: int, side: int = 120) -> list[Path]:
    """Images of pure noise, the hardest there are to make small."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    paths = []
    for number in range(count):
        pixels = rng.integers(256, size=(side, side, 3), dtype=np.uint8)
        paths.append(folder / f"{number}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


def decide(folder: Path, labels: dict[str, tuple[str, str]]) -> None:
    """Writes down that people decided: by id, the label and the one before."""
    rows = [(key, label, before) for key, (label, before) in labels.items()]
    cells.write_cells(folder / TRUSTED, ("id", "label", "before"), rows)


def data_of(page: Path) -> dict[str, object]:
    """The JSON in a page, as a browser finds it: up to the end of its element."""
    text = page.read_text(encoding="utf-8")
    inside = text.split('<script type="application/json" id="data">', 1)[1].split("</script", 1)[0]
    value: dict[str, object] = json.loads(inside)
    return value


def suspects(folder: Path) -> pd.DataFrame:
    """The rows of the gallery, worst first."""
    labels = pd.DataFrame(cells.read_cells(folder / "labels.csv"))
    labels["quality"] = labels["quality"].astype(float)
    labels["confidence"] = labels["confidence"].astype(float)
    return labels[labels["quality"] < 0.5].sort_values("quality", kind="stable")
