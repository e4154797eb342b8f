"""The tables of docs/fit_measured.md, from the records under results/."""

import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.peers_page import summary

RESULTS = Path(__file__).resolve().parents[1] / "results"
Row = dict[str, Any]
MEASURES = {
    "accuracy": "test accuracy",
    "average_precision": "average precision of the ranking of labels",
    "f1": "F1 of what is flagged",
    "repaired": "share of the wrong labels that are put right",
    "refined_right": "labels right after repair, of all",
}
PEERS = {
    "ce": "cross-entropy",
    "ce, averaged": "cross-entropy, averaged weights",
    "CleanLearning": "cleanlab's `CleanLearning`",
    "cleanlab": "cleanlab",
    "cleanlab, our sieves": "cleanlab, given our sieves' probabilities",
    "ce on D̂": "the sieves' most probable labels",
}
DATA = {
    "digits": "digits",
    "fashion": "Fashion-MNIST",
    "wine": "wine",
    "breast_cancer": "breast cancer",
}


def read(name: str) -> Any:
    """A record of results/."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def percent(value: float | None) -> str:
    """A share in percent, or — where there is none."""
    return "—" if value is None else f"{100 * value:.1f}"


def mean_of(rows: Iterable[Row], figure: str) -> float | None:
    """The mean of a figure over the rows that have it."""
    values = [row[figure] for row in rows if row.get(figure) is not None]
    return statistics.fmean(values) if values else None


def peers() -> list[list[str]]:
    """Ours minus each peer, over all settings."""
    lines = [["measure", "compared with", "points [95 % interval]", "settings better", "worse"]]
    # Of the cells, as results/peers.md has it: the summary there is rounded once already.
    for measure, found in summary(read("peers.json")["cells"]).items():
        for peer, each in found.items():
            low, high = (100 * each["all rows"][bound] for bound in ("low", "high"))
            mean = 100 * each["all rows"]["mean"]
            lines.append(
                [
                    MEASURES[measure],
                    PEERS[peer],
                    f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]",
                    f"{each['significantly better']} of {each['rows']}",
                    str(len(each["significantly worse"])),
                ]
            )
    return lines


def evidence() -> list[list[str]]:
    """In how many fits evidence of wrong labels was found, by data and kind of noise."""
    cells = [cell for cell in read("peers.json")["cells"] if cell["method"] == "ours"]
    kinds: dict[str, Callable[[str], bool]] = {
        "wrong on hard examples alone (`confused`)": lambda noise: noise.startswith("confused"),
        "other noise, 40 % wrong": lambda noise: noise[:4] != "conf" and noise.endswith("0.4"),
        "other noise, less": lambda noise: noise[:4] != "conf" and noise[-3:] in ("0.2", "0.3"),
        "clean labels": lambda noise: noise == "none",
    }
    lines = [["", *DATA.values()]]
    for title, of in kinds.items():
        line = [title]
        for data in DATA:
            found = [c["evidence"] for c in cells if c["data"] == data and of(c["noise"])]
            line.append(f"{sum(found)} of {len(found)}")
        lines.append(line)
    clean = [cell for cell in cells if cell["noise"] == "none"]
    lines.append(
        [
            "most labels flagged of clean ones, %",
            *(percent(max(c["flagged"] for c in clean if c["data"] == data)) for data in DATA),
        ]
    )
    return lines


def people() -> list[list[str]]:
    """CIFAR-10 features with labels as people would give them."""
    titles = {
        "three_labellers_0.4": "as three people would label, 40 % wrong",
        "confused_0.4": "as a network confuses, 40 %",
        "confused_0.1": "as a network confuses, 10 %",
        "symmetric:0.2": "at random, 20 %",
        "none": "clean",
    }
    figures = {
        "f1": "F1",
        "average_precision": "average precision",
        "refined_right": "labels right after repair",
        "flagged": "flagged",
    }
    # By what it trains with, and by what it judges labels with.
    methods = {
        "cross-entropy": ("ce", None),
        "cleanlab": ("CleanLearning", "cleanlab"),
        "cleanlab, our sieves": (None, "cleanlab, our sieves"),
        "`fit`": ("ours", "ours"),
    }
    lines = [["labels", "by", "accuracy", *figures.values()]]
    for noise, title in titles.items():
        row = read("people.json")["means"][noise]
        for name, (trained, judged) in methods.items():
            line = [title, name, "—" if trained is None else percent(row[trained]["accuracy"])]
            found = {} if judged is None else row[judged]
            lines.append(line + [percent(found.get(figure)) for figure in figures])
    return lines


def said() -> list[list[str]]:
    """The share of wrong labels that fit reports on these."""
    lines = [["labels", "wrong", "said, by seed", "evidence"]]
    cells = read("people.json")["cells"]
    for noise in read("people.json")["means"]:
        found = [cell for name, cell in cells.items() if name.startswith(f"{noise}/")]
        ours = [cell["ours"] for cell in found]
        rates = ", ".join(percent(each["noise_rate"]) for each in ours)
        seen = f"{sum(each['evidence'] for each in ours)} of {len(ours)}"
        lines.append([f"`{noise}`", percent(mean_of(ours, "wrong")), rates, seen])
    return lines


def hard() -> list[list[str]]:
    """Tables that are hard to learn from, by kind of noise."""
    lines = [["noise", "cells", "accuracy over cross-entropy", "worst cell", "evidence", "F1"]]
    for noise, each in read("hard_tables.json")["summary"].items():
        seen = f"{100 * each['with evidence']:.0f} %"
        gains = [f"{each[name]:+.1f}" for name in ("gain", "worst")]
        lines.append([f"`{noise}`", str(each["cells"]), *gains, seen, percent(each["f1"])])
    return lines


def sizes() -> list[list[str]]:
    """Accuracy of fit and of cross-entropy, F1 and evidence by size."""
    cells = read("sizes.json")["cells"]
    kinds = sorted({(cell["examples"], cell["classes"]) for cell in cells})
    rates = sorted({cell["rate"] for cell in cells})
    lines = [["examples × classes (seeds)", *(f"{100 * rate:.0f} % wrong" for rate in rates)]]
    for examples, classes in kinds:
        of = [c for c in cells if (c["examples"], c["classes"]) == (examples, classes)]
        seeds = len({cell["seed"] for cell in of})
        line = [f"{examples:,} × {classes:,} ({seeds})"]
        for rate in rates:
            found = [cell for cell in of if cell["rate"] == rate]
            if not found:
                line.append("—")
                continue
            ours, ce = (mean_of([c["accuracy"] for c in found], name) for name in ("ours", "ce"))
            seen = sum(cell["evidence"] for cell in found)
            line.append(f"{percent(ours)}, {percent(ce)}; {seen} of {len(found)}")
        lines.append(line)
    return lines


def copies() -> list[list[str]]:
    """Accuracy, and F1 of what is flagged, once and with each row three times."""
    lines = [["noise", "once", "three times, before", "three times"]]
    for noise in ("none", "symmetric:0.2", "ptd:0.4"):
        line = [f"`{noise}`"]
        for file, times in (("copies", "1"), ("copies_before", "3"), ("copies", "3")):
            cells = read(f"{file}.json")["cells"].items()
            rows = [c for name, c in cells if name.split("/")[1::2] == [noise, times]]
            figures = ("accuracy",) if noise == "none" else ("accuracy", "f1")
            line.append(", ".join(percent(mean_of(rows, figure)) for figure in figures))
        lines.append(line)
    return lines


def pixels() -> list[list[str]]:
    """Few images without a pretrained network."""
    lines = [["noise", "accuracy", "F1", "flagged", "wrong", "quality, confidence off by"]]
    cells = read("pixels.json")["cells"]
    for noise in dict.fromkeys(cell["noise"] for cell in cells):
        found = [cell for cell in cells if cell["noise"] == noise]
        both = [mean_of([c["accuracy"] for c in found], name) for name in ("ours", "ce")]
        off = [
            statistics.fmean(c["reliability"][what]["error"] for c in found)
            for what in ("wrong", "confidence")
        ]
        shares = [percent(mean_of(found, name)) for name in ("f1", "flagged", "wrong")]
        pairs = [", ".join(map(percent, pair)) for pair in (both, off)]
        lines.append([f"`{noise}`", pairs[0], *shares, pairs[1]])
    return lines


TABLES: dict[str, Callable[[], list[list[str]]]] = {
    "peers": peers,
    "evidence": evidence,
    "people": people,
    "said": said,
    "hard": hard,
    "sizes": sizes,
    "copies": copies,
    "pixels": pixels,
}
