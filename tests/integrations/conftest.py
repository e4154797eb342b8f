"""Runs of ``covlearn fit`` that the tests look at, made once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_wine

from covlearn.cli import main
from covlearn.fitted import Fitted, load

WINES = ["9", "10", "11"]  # as text, "10" comes before "9": an order that Datalab has and we do not


@dataclass(frozen=True)
class Case:
    """A run, and where its data is."""

    fitted: Fitted
    source: Path


@pytest.fixture(scope="session")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A table of which 30 labels of 178 were drawn anew."""
    folder = tmp_path_factory.mktemp("wine")
    table = load_wine(as_frame=True).frame.rename(columns={"target": "label"})
    rng = np.random.default_rng(0)
    label = table["label"].to_numpy().copy()
    label[rng.choice(len(label), 30, replace=False)] = rng.integers(3, size=30)
    table["label"] = [WINES[number] for number in label]
    table.to_csv(folder / "wine.csv", index=False)
    return fit(folder / "wine.csv", folder / "run", "--label", "label")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """A short run on 30 pictures, by pixels ("none") or by features of a network."""
    folder = tmp_path_factory.mktemp("pictures")
    x, y = load_digits(return_X_y=True)
    for number, (pixels, label) in enumerate(zip(x[y < 3][:30], y[y < 3][:30], strict=True)):
        place = folder / "data" / f"digit{label}"
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray((pixels.reshape(8, 8) * 15.9).astype(np.uint8))
        picture.resize((32, 32)).save(place / f"{number}.png")
    made: dict[str, Case] = {}

    def make(features: str) -> Case:
        if features not in made:
            settings = ("plan.epochs=2", "sieve_plan.epochs=2", "plain_plan.epochs=2")
            run = folder / f"run-{features}"
            made[features] = fit(folder / "data", run, "--features", features, "--set", *settings)
        return made[features]

    return make


def fit(source: Path, run: Path, *options: str) -> Case:
    assert main(["fit", str(source), "--out", str(run), *options]) == 0
    return Case(load(run), source)
