"""docs/reproduce.md: what differences between text and code are worth is what the records say, and
the epochs of a table are those that it would run."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from covlearn.cli import main
from covlearn.testing.clothing import write_lookalike

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


@pytest.mark.parametrize("table", [1, 2, 3, 4])
def test_how_long_a_table_takes(
    table: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = next(line for line in PAGE.splitlines() if re.match(rf"\| {table} \| [\d,]+ \|", line))
    asked = ["bench", str(ROOT / "benchmarks" / f"table{table}.toml"), "--dry-run"]
    if table == 2:
        write_lookalike(tmp_path / "data", noisy=56, clean=14, drawn=14)
        (tmp_path / "data" / "resnet50-weights.pth").touch()
        asked += ["--data", str(tmp_path / "data")]
    # A run without --published would fail where labels cannot be drawn; all epochs are counted.
    without = 24 if table == 1 else 0  # 12 rows, trial 0 of CIFAR-100 at 0.2 and 0.4
    assert main([*asked, "--folder", str(tmp_path / "runs")]) == (1 if without else 0)
    printed = capsys.readouterr().out
    assert printed.count("cannot be drawn again bit for bit") == without
    assert (f"; {without} need --published FOLDER" in printed) == (without > 0)
    found = re.search(r"([\d,]+) epochs in all", printed)
    assert found is not None
    epochs = int(found[1].replace(",", ""))
    if table == 2:
        assert line.startswith(f"| 2 | {epochs:,} | not measured |")
        return
    second = 100 * len(re.findall(r"/(?:coteaching|coteaching_plus|jocor)/\d+:", printed))
    assert not second or f"{second:,} of them with a second network" in line
    hours = (epochs + second) * EPOCH / 3600
    assert line.startswith(f"| {table} | {epochs:,} | {hours:.1f} |")


SPEED = {
    name: json.loads((ROOT / "results" / "speed" / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("epoch_cost", "trial_cost", "against_plain_loop", "processes")
}
EPOCH = 1.42  # seconds with its evaluation, as the page says; its own test is below


def test_the_seconds_of_an_epoch_and_of_a_trial() -> None:
    cost = SPEED["epoch_cost"]["figures"]
    trial = SPEED["trial_cost"]["figures"]
    plain = SPEED["against_plain_loop"]["figures"]
    ce, cal = (cost[f"{name}, K = 10"]["epoch, s"] for name in ("ce", "cal"))
    assert f"second stage | {ce:.2f}; {cal:.2f} |" in PAGE
    later = [
        each for name in ("sieve", "cal") for each in trial[name]["epochs with evaluation, s"][1:]
    ]
    assert f"{statistics.fmean(later):.2f}" == f"{EPOCH:.2f}"
    assert f"10,000 test images | {EPOCH:.2f} |" in PAGE
    assert f"| {trial['66 + 100 epochs by these figures, s']:.0f} | the same, from 3 + 3" in PAGE
    both = [statistics.median(plain[f"{name}, s"][1:]) for name in ("plain", "engine")]
    assert f"engine's | {both[0]:.2f}; {both[1]:.2f} |" in PAGE
    faster = SPEED["processes"]["figures"]["4 processes with the service"]["alone / side by side"]
    assert f"four cells at a time, {faster:.2f} times as fast" in " ".join(PAGE.split())


def test_the_memory_of_an_epoch() -> None:
    cost = SPEED["epoch_cost"]["figures"]
    few, many = (
        [cost[f"{name}, K = {classes}"]["peak GiB"]
         for name in ("ce", "cal", "ce with both averages")]
        for classes in (10, 100)
    )  # fmt: skip
    said = " ".join(PAGE.split())
    assert (
        f"{few[0]:.1f} GiB for CE, {few[1]:.1f} for CAL and {few[2]:.1f} with both averages at "
        f"K = 10, at {many[0]:.1f}, {many[1]:.1f} and {many[2]:.1f} GiB at K = 100"
    ) in said


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
