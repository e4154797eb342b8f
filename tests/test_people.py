"""`benchmarks/people.py` on a look-alike of features: what a cell is, and its record on
docs/fit_measured.md."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import people
from benchmarks.confused import LABELS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> dict[str, NDArray[Any]]:
    """Ten clouds, 200 examples a seed."""
    monkeypatch.setattr(people, "IMAGES", 200)
    draw = np.random.default_rng(0)
    made: dict[str, NDArray[Any]] = {}
    for part, count in (("train", 400), ("test", 100)):
        y = draw.integers(10, size=count)
        x = 4 * np.eye(10)[y] + draw.normal(size=(count, 10))
        made |= {part: x.astype(np.float32), f"{part}_y": y}
    return made


def test_a_seed_has_its_own_images_with_their_own_labels(data: dict[str, NDArray[Any]]) -> None:
    split, clean, (test_x, test_y) = people.split_of(data, "confused_0.4", 1)
    with np.load(LABELS / "confused_0.4_cifar10.npz") as labels:
        assert split.y.tolist() == labels["noisy"][200:400].tolist()
    assert clean.tolist() == data["train_y"][200:].tolist()
    assert test_y.tolist() == data["test_y"].tolist()
    # Both parts are standardised by what is trained on.
    mean, deviation = data["train"][200:].mean(axis=0), data["train"][200:].std(axis=0)
    expected = (data["test"] - mean) / deviation
    np.testing.assert_allclose(test_x.numpy(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.filterwarnings("ignore::UserWarning:cleanlab")
def test_a_cell_has_all_methods(data: dict[str, NDArray[Any]]) -> None:
    cells = {f"{noise}/0": people.cell((noise, 0), data) for noise in ("symmetric:0.2", "none")}
    table = people.means(cells)
    assert set(table["symmetric:0.2"]) == set(people.METHODS)
    assert table["symmetric:0.2"]["ours"]["f1"] > 0.8
    assert table["none"]["ours"]["flagged"] <= 0.02
    assert "f1" not in table["none"]["ours"]


@pytest.mark.parametrize(
    ("noise", "title"),
    [
        ("three_labellers_0.4", "as three people would label, 40 % wrong"),
        ("confused_0.4", "as a network confuses, 40 %"),
        ("confused_0.1", "as a network confuses, 10 %"),
        ("symmetric:0.2", "at random, 20 %"),
        ("none", "clean"),
    ],
)
def test_the_page_has_the_record(noise: str, title: str) -> None:
    record = json.loads((ROOT / "results" / "people.json").read_text(encoding="utf-8"))
    assert sum(name.startswith(f"{noise}/") for name in record["cells"]) == 3
    row = record["means"][noise]

    def of(method: str | None, figure: str) -> str:
        value = None if method is None else row[method].get(figure)
        return "—" if value is None else f"{100 * value:.1f}"

    page = (ROOT / "docs" / "fit_measured.md").read_text(encoding="utf-8")
    for by, trained, judged in (
        ("cross-entropy", "ce", None),
        ("cleanlab", "CleanLearning", "cleanlab"),
        ("cleanlab, our sieves", None, "cleanlab, our sieves"),
        ("`fit`", "ours", "ours"),
    ):
        texts = [of(trained, "accuracy")]
        for figure in ("f1", "average_precision", "refined_right", "flagged"):
            texts.append(of(judged, figure))
        assert f"| {title} | {by} | {' | '.join(texts)} |" in page
