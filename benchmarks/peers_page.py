"""What ``benchmarks/peers.py`` measured as one JSON file and one page of tables.

A difference is ours minus the peer's, paired by seed, with a 95 % interval of Student's t over the
seeds. An interval that lies on one side of zero is called significant; with so many rows a few
would be so by chance.
"""

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scipy.stats import t as student

OURS = "ours"
COMPARED = {
    "accuracy": ("ce", "ce, averaged", "CleanLearning", "ce on D̂"),
    "average_precision": ("cleanlab", "cleanlab, our sieves"),
    "f1": ("cleanlab", "cleanlab, our sieves"),
    "repaired": ("cleanlab", "cleanlab, our sieves", "ce on D̂"),
    "refined_right": ("cleanlab", "cleanlab, our sieves", "ce on D̂"),
}
USERS = {"accuracy": ("ce", "ce, averaged", "CleanLearning"), "average_precision": ("cleanlab",)}
Row = dict[str, Any]


def write_page(rows: list[Row], environment: Row, out: Path) -> None:
    """The JSON file, and the page beside it."""
    content = {
        "environment": environment,
        "summary": summary(rows),
        "differences": differences(rows),
        "cells": [],
    }
    # A cell a line: what has changed can be read off two versions of the file.
    lines = [json.dumps(rounded(row), ensure_ascii=False) for row in rows]
    head = json.dumps(rounded(content), indent=1, ensure_ascii=False)
    text = head.replace('"cells": []', '"cells": [\n' + ",\n".join(lines) + "\n]") + "\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    out.with_suffix(".md").write_text(page(rows), encoding="utf-8")


def rounded(value: Any) -> Any:
    """Every number to five digits after the point."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 5) if isinstance(value, float) else value


def differences(rows: list[Row]) -> list[Row]:
    """Ours minus each peer, for each measure, data set and kind of noise."""
    return [
        {"measure": measure, "data": data, "noise": noise, "peer": peer, **interval(found)}
        for measure, peers in COMPARED.items()
        for data, noise in groups(rows)
        for peer in peers
        if (found := paired(rows, measure, peer, data, noise))
    ]


def paired(
    rows: list[Row], measure: str, peer: str, data: str | None = None, noise: str | None = None
) -> list[float]:
    """The differences of each seed; without a data set the mean over all rows of a seed."""
    value = {
        (row["method"], row["data"], row["noise"], row["seed"]): row[measure]
        for row in rows
        if measure in row
    }
    by_seed: dict[int, list[float]] = {}
    for (method, its_data, its_noise, seed), own in value.items():
        other = value.get((peer, its_data, its_noise, seed))
        wanted = data in (None, its_data) and noise in (None, its_noise)
        if method == OURS and other is not None and wanted:
            by_seed.setdefault(seed, []).append(own - other)
    most = max(map(len, by_seed.values()), default=0)
    # A seed that lacks some rows would weigh them otherwise than the others do.
    return [statistics.mean(found) for found in by_seed.values() if len(found) == most]


def interval(values: list[float]) -> Row:
    """The mean with its 95 % interval."""
    mean, count = statistics.mean(values), len(values)
    if count < 2:
        return {"mean": mean, "low": None, "high": None, "seeds": count}
    half = float(student.ppf(0.975, count - 1)) * statistics.stdev(values) / count**0.5
    return {"mean": mean, "low": mean - half, "high": mean + half, "seeds": count}


def summary(rows: list[Row]) -> Row:
    """Of each measure and peer the mean difference, and how many rows are better or worse."""
    found = differences(rows)
    made: Row = {}
    for measure, peers in COMPARED.items():
        for peer in peers:
            of = [each for each in found if (each["measure"], each["peer"]) == (measure, peer)]
            whole = paired(rows, measure, peer)
            if not of or not whole:
                continue
            made.setdefault(measure, {})[peer] = {
                "all rows": interval(whole),
                "rows": len(of),
                "significantly better": sum(better(each) for each in of),
                "significantly worse": [
                    f"{each['data']}, {each['noise']}" for each in of if worse(each)
                ],
            }
    return made


def better(difference: Row) -> bool:
    return difference["low"] is not None and difference["low"] > 0


def worse(difference: Row) -> bool:
    return difference["high"] is not None and difference["high"] < 0


def groups(rows: list[Row]) -> list[tuple[str, str]]:
    """Data sets and kinds of noise, in the order in which they came."""
    return list(dict.fromkeys((row["data"], row["noise"]) for row in rows))


def mean_of(rows: Iterable[Row], measure: str, method: str, **where: str) -> float | None:
    values = [
        row[measure]
        for row in rows
        if row["method"] == method
        and measure in row
        and all(row[name] == value for name, value in where.items())
    ]
    return statistics.mean(values) if values else None


# ---- Markdown ---------------------------------------------------------------------------------


def page(rows: list[Row]) -> str:
    """All tables."""
    seeds = {
        data: sorted({row["seed"] for row in rows if row["data"] == data and row["method"] == OURS})
        for data in dict.fromkeys(row["data"] for row in rows)
    }
    lines = [
        "# Ours and its peers",
        "",
        "Made by `python -m benchmarks.peers`; `peers.json` has every cell. In brackets: ours "
        "minus the peer, paired by seed, with its 95 % interval; bold where that lies on one side "
        "of zero. Seeds: "
        + ", ".join(f"{data} {len(found)}" for data, found in seeds.items())
        + ".",
        "",
        "## In short",
        "",
        *short(rows),
        "",
        "## Test accuracy (%)",
        "",
        *measure_table(rows, "accuracy"),
        "",
        "## Wrong labels found, average precision (%)",
        "",
        *measure_table(rows, "average_precision"),
        "",
        "## Wrong labels found, F1 (%)",
        "",
        *measure_table(rows, "f1"),
        "",
        "## Wrong labels correctly repaired (%)",
        "",
        *measure_table(rows, "repaired"),
        "",
        "## Labels that are right after repair (%)",
        "",
        "All of them, so that right labels that are changed count, too.",
        "",
        *measure_table(rows, "refined_right"),
        "",
        "## Precision, recall and labels flagged on clean data (%)",
        "",
        *detection_table(rows),
        "",
        "## Seconds of one processor",
        "",
        *seconds_table(rows),
        "",
        "## Do probabilities mean what they say?",
        "",
        "The mean distance, over ten bins weighted by their counts, between a probability and how "
        "often it came true (points): of a label being wrong, 1 − quality, for ours and for "
        "cleanlab's score; of the suggested label being right, confidence.",
        "",
        *reliability_table(rows),
    ]
    return "\n".join(lines) + "\n"


def short(rows: list[Row]) -> list[str]:
    lines = ["| measure | peer | ours − peer | rows better | rows worse |", "|---|---|---|---|---|"]
    for measure, peers in summary(rows).items():
        for peer, found in peers.items():
            names = "; ".join(found["significantly worse"]) or "none"
            lines.append(
                f"| {measure.replace('_', ' ')} | {peer} | {points(found['all rows'])} | "
                f"{found['significantly better']} of {found['rows']} | {names} |"
            )
    return lines


def measure_table(rows: list[Row], measure: str) -> list[str]:
    peers = COMPARED[measure]
    lines = [
        f"| data | noise | ours | {' | '.join(peers)} |",
        "|---|---|---|" + "---|" * len(peers),
    ]
    for data, noise in groups(rows):
        own = mean_of(rows, measure, OURS, data=data, noise=noise)
        if own is None:
            continue
        cells = [data, noise, f"{100 * own:.1f}"]
        for peer in peers:
            value = mean_of(rows, measure, peer, data=data, noise=noise)
            found = paired(rows, measure, peer, data, noise)
            if value is None or not found:
                cells.append("")
            else:
                cells.append(f"{100 * value:.1f} ({points(interval(found))})")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def points(found: Row) -> str:
    """A difference in points, with its interval."""
    if found["low"] is None:
        return f"{100 * found['mean']:+.1f}"
    text = f"{100 * found['mean']:+.1f} [{100 * found['low']:+.1f}, {100 * found['high']:+.1f}]"
    return f"**{text}**" if better(found) or worse(found) else text


def detection_table(rows: list[Row]) -> list[str]:
    methods = (OURS, "cleanlab", "cleanlab, our sieves")
    lines = ["| data | method | precision | recall | flagged on clean data |"]
    lines.append("|---|---|---|---|---|")
    for data in dict.fromkeys(row["data"] for row in rows):
        for method in methods:
            values = [
                mean_of(rows, "precision", method, data=data),
                mean_of(rows, "recall", method, data=data),
                mean_of(rows, "flagged", method, data=data, noise="none"),
            ]
            shown = ["" if value is None else f"{100 * value:.1f}" for value in values]
            lines.append(f"| {data} | {method} | {' | '.join(shown)} |")
    return lines


def seconds_table(rows: list[Row]) -> list[str]:
    methods = (OURS, "ce", "ce, averaged", "cleanlab", "CleanLearning")
    lines = [f"| data | {' | '.join(methods)} |", "|---|" + "---|" * len(methods)]
    for data in dict.fromkeys(row["data"] for row in rows):
        values = [mean_of(rows, "seconds", method, data=data) for method in methods]
        shown = ["" if value is None else f"{value:.2f}" for value in values]
        lines.append(f"| {data} | {' | '.join(shown)} |")
    return lines


def reliability_table(rows: list[Row]) -> list[str]:
    lines = [
        "| data | noise | wrong: ours | cleanlab | cleanlab, our sieves | confidence: ours |",
        "|---|---|---|---|---|---|",
    ]
    flat = [
        row | {name: row[name]["error"] for name in ("wrongness", "confidence") if name in row}
        for row in rows
    ]
    for data, noise in groups(rows):
        values = [
            mean_of(flat, "wrongness", method, data=data, noise=noise)
            for method in (OURS, "cleanlab", "cleanlab, our sieves")
        ] + [mean_of(flat, "confidence", OURS, data=data, noise=noise)]
        shown = ["" if value is None else f"{100 * value:.1f}" for value in values]
        lines.append(f"| {data} | {noise} | {' | '.join(shown)} |")
    return lines
