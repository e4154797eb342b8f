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


TABLE1 = result("table1/table.json")
CAL = {cell["column"]: cell for cell in TABLE1["cells"] if cell["row"] == "cal"}


def lead(column: str, rule: str) -> str:
    """Of CAL over CORES², of three trials."""
    (found,) = (
        each
        for each in TABLE1["differences"]
        if (each["first"], each["second"], each["column"], each["rule"])
        == ("cal", "cores", column, rule)
    )
    assert found["n"] == 3
    return f"{found['mean']:+.1f} ± {found['error']:.1f}".replace("-", "−")


def beyond_published() -> float:
    """Points of `recommended` over CAL as published at the last epoch, wherever both were run."""
    gaps = [
        gap
        for gap in result("beyond/beyond/table.json")["differences"]
        if (gap["first"], gap["second"], gap["rule"]) == ("recommended", "published", "last")
    ]
    assert [gap["n"] for gap in gaps] == [1] * 6
    return statistics.fmean(gap["mean"] for gap in gaps)


def behind_cores() -> float:
    """Points by which CAL is behind at the best epoch on CIFAR-100 at 60 %, and there alone."""
    gaps = {
        gap["column"]: gap["mean"]
        for gap in TABLE1["differences"]
        if (gap["first"], gap["second"], gap["rule"]) == ("cal", "cores", "best")
        if gap["column"].startswith("cifar100/")
    }
    assert {column for column, gap in gaps.items() if gap > 0} == {"cifar100/0.2", "cifar100/0.4"}
    return -float(gaps["cifar100/0.6"])


def claims() -> list[str]:
    """Every piece of the README that has a number in it which was measured, from the results."""
    plain = result("speed/against_plain_loop.json")["figures"]
    means = [CAL[f"cifar10/{rate}"]["best mean"] for rate in (0.4, 0.6)]
    paper = [CAL[f"cifar10/{rate}"]["paper mean"] for rate in (0.4, 0.6)]
    assert [CAL[f"cifar10/{rate}"]["n"] for rate in (0.4, 0.6)] == [3, 3]
    return [
        peers("accuracy", "ce"),
        peers("accuracy", "CleanLearning"),
        peers("average_precision", "cleanlab"),
        peers("f1", "cleanlab"),
        peers("repaired", "cleanlab"),
        peers("refined_right", "cleanlab"),
        f"takes {statistics.median(plain['engine, s'][1:]):.2f} s an epoch",
        f"{plain['plain / engine']:.1f} times as fast",
        f"has {means[0]:.1f} and {means[1]:.1f} % where the paper has",
        f"{paper[0]:.1f} and {paper[1]:.1f} (40 and 60 % wrong, three trials)",
        f"{lead('cifar10/0.6', 'best')} points at the best epoch",
        f"{lead('cifar10/0.6', 'last')} at the last, and not at 40 %",
        f"{lead('cifar10/0.4', 'best')} and **{lead('cifar10/0.4', 'last')}**",
        f"leads at 20 and 40 %, and is **{behind_cores():.1f} points behind** CORES² at 60 %",
        f"ends {beyond_published():.1f} points above",
    ]


# Names, versions, a width, and 60 %, which the claims around it are of.
OTHER_NUMBERS = {"420", "10", "100", "34", "200", "3.11", "2.0", "60", "95", "0", "1"}


def test_the_figures_are_those_of_the_results_and_there_are_no_others() -> None:
    text = " ".join(README.split())
    for claim in claims():
        assert claim in text
        text = text.replace(claim, "")
    assert set(re.findall(r"\d+(?:\.\d+)?", text)) <= OTHER_NUMBERS


def test_it_is_read_on_one_screen() -> None:
    lines = README.splitlines()
    assert len(lines) <= 55
    assert max(map(len, lines)) < 140
    for code in re.findall(r"```\w+\n(.*?)```", README, re.DOTALL):
        assert max(map(len, code.splitlines())) <= 92


def test_the_peers_table_says_on_what() -> None:
    cells = result("peers.json")["cells"]
    assert {cell["data"] for cell in cells} == {"digits", "fashion", "wine", "breast_cancer"}
    assert {cell["seed"] for cell in cells} == set(range(10))
    assert "digits, Fashion-MNIST, wine and breast cancer" in README
    assert "ten seeds" in README


def test_the_noises_of_the_peers_are_counted() -> None:
    settings = {cell["noise"] for cell in result("peers.json")["cells"]} - {"none"}
    kinds = {setting.partition(":")[0] for setting in settings}
    assert (len(kinds), len(settings)) == (5, 8)
    for text in (README, (ROOT / "docs" / "fit_measured.md").read_text(encoding="utf-8")):
        assert "five kinds of noise at eight settings and none" in " ".join(text.split())


def test_where_the_lead_over_cores_is_shown() -> None:
    """At 60 %, not at 40 %, by both rules: more than two standard errors of three trials."""
    shown = {
        (found["column"], found["rule"])
        for found in TABLE1["differences"]
        if (found["first"], found["second"]) == ("cal", "cores")
        and found["n"] >= 3
        and found["mean"] > 2 * found["error"]
    }
    assert shown == {("cifar10/0.6", "best"), ("cifar10/0.6", "last")}


def test_who_is_above_cal_at_its_best_epoch() -> None:
    """Of the paper's methods that were measured, those that the README names, at 40 % alone."""
    assert "where Forward and peer loss have better best epochs" in " ".join(README.split())
    best = {(cell["row"], cell["column"]): cell["best mean"] for cell in TABLE1["cells"]}
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


def test_how_many_trials_there_are() -> None:
    """Of CAL, CORES² and CE on D̂ three at CIFAR-10's 0.4 and 0.6, of the others one."""
    three = {("cal", rate) for rate in (0.4, 0.6)} | {("cores", rate) for rate in (0.4, 0.6)}
    three |= {("relabel", rate) for rate in (0.4, 0.6)}
    for cell in TABLE1["cells"]:
        many = any((cell["row"], cell["column"]) == (row, f"cifar10/{rate}") for row, rate in three)
        assert cell["n"] == 3 if many else cell["n"] <= 1
