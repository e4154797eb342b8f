"""The README's code runs as printed, and every number in it is that of a file under results/."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def result(name: str) -> Any:
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


def test_the_three_lines_find_wrong_labels() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    features, clean = load_breast_cancer(return_X_y=True)
    wrong = np.random.default_rng(0).permutation(len(clean))[:60]
    given = clean.copy()
    given[wrong] = 1 - given[wrong]
    names: dict[str, Any] = {"X": features, "y": given}
    exec(code, names)
    issues = names["issues"]
    columns = re.findall(r"label_issues_  # (.*)", code)[0].split(", ")
    assert set(columns) <= set(issues.columns)
    flagged = np.flatnonzero(issues["decision"] != "keep")
    assert np.isin(flagged, wrong).sum() > 30
    assert np.isin(flagged, wrong).mean() > 0.8


def peers(measure: str, peer: str) -> str:
    found = result("peers.json")["summary"][measure][peer]
    rows, worse = found["all rows"], len(found["significantly worse"])
    points = "{:+.1f} [{:+.1f}, {:+.1f}]".format(
        *(100 * rows[key] for key in ("mean", "low", "high"))
    )
    better = f"{found['significantly better']} of {found['rows']}"
    return f"{points} | {better} | {worse or 'none'} |"


def people(noise: str) -> str:
    row = result("people.json")["means"][noise]
    return f"{100 * row['ours']['f1']:.1f}, cleanlab's {100 * row['cleanlab']['f1']:.1f},"


def claims() -> list[str]:
    """Every piece of the README that has a measured number in it, made from the results."""
    plain = result("speed/against_plain_loop.json")["figures"]
    trial = result("speed/trial_cost.json")["figures"]["66 + 100 epochs by these figures, s"]
    found = [
        peers("accuracy", "ce"),
        peers("accuracy", "CleanLearning"),
        peers("average_precision", "cleanlab"),
        peers("f1", "cleanlab"),
        peers("repaired", "cleanlab"),
        peers("refined_right", "cleanlab"),
        f"has an F1 of {people('three_labellers_0.4')}",
        f"and {people('confused_0.1')} with a tenth",
        f"takes {statistics.median(plain['engine, s'][1:]):.2f} s an epoch",
        f"{plain['plain / engine']:.1f} times as fast",
        f"{trial:.0f} s by a short run's figures",
    ]
    cells = result("beyond/beyond/table.json")["cells"]
    last = {(cell["row"], cell["column"]): cell["last mean"] for cell in cells}
    for title, column in (
        ("CIFAR-10, published noise, 20 %", "cifar10/0.2"),
        ("CIFAR-10, published noise, 40 %", "cifar10/0.4"),
        ("CIFAR-10, published noise, 60 %", "cifar10/0.6"),
        ("CIFAR-10, part-dependent noise, 40 %", "cifar10/ptd 0.4"),
        ("CIFAR-10, labels that a network confuses, 40 %", "cifar10/confused 0.4"),
        ("CIFAR-10, as three people would label, 40 %", "cifar10/three labellers 0.4"),
        ("CIFAR-100, published noise, 40 %", "cifar100/0.4"),
        ("CIFAR-10, clean labels", "cifar10/clean"),
    ):
        values = (last[row, column] for row in ("ce", "published", "recommended"))
        texts = ("—" if value is None else f"{value:.1f}" for value in values)
        found.append(f"| {title} | {' | '.join(texts)} |")
    means = [means_of_cal()[column] for column in ("cifar10/0.4", "cifar10/0.6")]
    found.append(f"whose means are {means[0]:.1f} and {means[1]:.1f}")
    return found


def means_of_cal() -> dict[str, float]:
    """At the last epoch, where the table has three trials of the published settings."""
    cells = result("table1/table.json")["cells"]
    return {
        cell["column"]: cell["last mean"]
        for cell in cells
        if cell["row"] == "cal" and cell["n"] == 3
    }


def test_the_table_is_of_trial_0_where_there_are_three_of_one_row() -> None:
    assert set(means_of_cal()) == {"cifar10/0.4", "cifar10/0.6"}
    assert "trial 0 of each" in README
    cells = result("beyond/beyond/table.json")["cells"]
    rows = ("ce", "published", "recommended")
    assert max(cell["n"] for cell in cells if cell["row"] in rows) == 1


def test_the_figures_are_those_of_the_results_and_there_are_no_others() -> None:
    text = README
    for claim in claims():
        assert claim in text
        text = text.replace(claim, "")
    # What is left with a decimal point: the rate of a command, the oldest Python, the licence.
    assert set(re.findall(r"\d+\.\d+", text)) <= {"0.4", "3.11", "2.0"}


def test_the_noises_of_the_peers_are_counted() -> None:
    settings = {cell["noise"] for cell in result("peers.json")["cells"]} - {"none"}
    kinds = {setting.partition(":")[0] for setting in settings}
    assert (len(kinds), len(settings)) == (5, 8)
    for text in (README, (ROOT / "docs" / "fit.md").read_text(encoding="utf-8")):
        assert "five kinds of noise at eight settings and none" in " ".join(text.split())


def test_where_the_lead_over_cores_is_shown() -> None:
    """At 60 %, not at 20 and 40 %: more than two standard errors of three trials or more."""
    assert "at 60 %, not at 20 and 40 %" in " ".join(README.split())
    shown = {
        found["column"]
        for found in result("table1/table.json")["differences"]
        if (found["first"], found["second"], found["rule"]) == ("cal", "cores", "best")
        and found["n"] >= 3
        and found["mean"] > 2 * found["error"]
    }
    assert shown == {"cifar10/0.6"}


def test_who_is_above_cal_at_its_best_epoch() -> None:
    """Of the paper's methods that were measured, those that the status names, at 40 % alone."""
    said = " ".join(README.split())
    assert (
        "best epochs of Forward and of Peer loss, one trial each, are above CAL's at 40 %" in said
    )
    cells = result("table1/table.json")["cells"]
    best = {(cell["row"], cell["column"]): cell["best mean"] for cell in cells}
    above = {
        (row, column)
        for (row, column), value in best.items()
        if value is not None and column.startswith("cifar10/") and value > best["cal", column]
    }
    assert above == {
        ("forward", "cifar10/0.4"),
        ("peer", "cifar10/0.4"),
        ("cores", "cifar10/0.2"),  # no lead over it is shown there
    }
