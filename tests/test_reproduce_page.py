"""docs/reproduce.md: what differences between text and code are worth is what the records say, and
the epochs of a table are those that it would run."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from covlearn.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
DIGITS, CIFAR10 = (
    json.loads((ROOT / "results" / name / "table.json").read_text(encoding="utf-8"))
    for name in ("differences_digits", "differences_cifar10")
)
COMPOSED = json.loads((ROOT / "results" / "composed" / "table.json").read_text(encoding="utf-8"))
COLUMN = "cifar10/0.4"


def difference(table: Any, row: str, column: str, rule: str) -> Any:
    (found,) = (
        each
        for each in table["differences"]
        if (each["first"], each["column"], each["rule"]) == (row, column, rule)
    )
    return found


def points(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def refined_right(row: str) -> str:
    (cell,) = (each for each in CIFAR10["cells"] if (each["row"], each["column"]) == (row, COLUMN))
    return f"{100 * cell['D̂ right']:.1f} %"


@pytest.mark.parametrize(
    ("title", "row"),
    [
        ("β constant from the start", "constant beta"),
        ("learning rate not divided", "rate not divided"),
        ("scores of an evaluation pass", "evaluation pass"),
        ("covariance per sample", "by sample"),
        ("π in the sieve, not its root", "plain prior"),
    ],
)
def test_a_row_of_differences_is_that_of_the_records(title: str, row: str) -> None:
    texts = []
    for column in ("digits/cal 0.4", "digits/ptd 0.4"):
        found = difference(DIGITS, row, column, "last")
        assert found["n"] == 8
        texts.append(f"{points(found['mean'])} ± {found['error']:.2f}")
    both = [difference(CIFAR10, row, COLUMN, rule) for rule in ("best", "last")]
    assert [found["n"] for found in both] == [1, 1]
    texts += [", ".join(points(found["mean"]) for found in both), refined_right(row)]
    assert f"| {title} | {' | '.join(texts)} |" in PAGE


def test_what_they_are_differences_to() -> None:
    def cell(table: Any, column: str) -> Any:
        (found,) = (
            each
            for each in table["cells"]
            if (each["row"], each["column"]) == ("published", column)
        )
        return found

    small = [cell(DIGITS, f"digits/{noise} 0.4")["last mean"] for noise in ("cal", "ptd")]
    large = cell(CIFAR10, COLUMN)
    texts = [f"{value:.2f}" for value in small]
    texts += [f"{large['best mean']:.2f}, {large['last mean']:.2f}", refined_right("published")]
    assert f"| as published, accuracy | {' | '.join(texts)} |" in PAGE


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("table1", "{} for Table 1"),
        ("table3", "{} for Table 3"),
        ("table4", "{} for Table 4"),
    ],
)
def test_how_many_epochs_a_table_takes(
    table: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(ROOT / "benchmarks" / f"{table}.toml")
    assert main(["bench", file, "--dry-run", "--folder", str(tmp_path)]) == 0
    epochs = re.search(r"([\d,]+) epochs in all", capsys.readouterr().out)
    assert epochs is not None
    assert words.format(epochs[1]) in " ".join(PAGE.split())


@pytest.mark.parametrize(
    ("title", "row"),
    [("cross-entropy", "cal"), ("Forward", "over forward"), ("GCE", "over gce")],
)
def test_a_base_loss_is_that_of_the_records(title: str, row: str) -> None:
    (cell,) = (each for each in COMPOSED["cells"] if each["row"] == row)
    assert cell["n"] == 1
    assert f"| {title} | {cell['best mean']:.2f} | {cell['last mean']:.2f} |" in PAGE
    if row == "cal":
        assert f"({100 * cell['D̂ right']:.1f} in the run of the first row)" in PAGE
    else:
        assert f"D̂ is right for {100 * cell['D̂ right']:.1f} % of the labels there" in PAGE


def test_what_is_learned_by_heart_after_the_best_epoch_is_that_of_the_records() -> None:
    texts = []
    for row, name in (("over gce", "GCE"), ("cal", "cross-entropy")):
        file = ROOT / "results" / "composed" / COLUMN / row / "0" / "metrics.jsonl"
        lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        stage = [line for line in lines if line["stage"] == "cal"]
        best = max(stage, key=lambda line: line["test_accuracy"])
        repeated = (f"{line['memorisation']:.2f}" for line in (best, stage[-1]))
        texts.append(f"{' to '.join(repeated)} over {name}")
    assert f"goes from {texts[0]}, from {texts[1]}." in PAGE
