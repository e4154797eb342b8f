"""Several runs side by side."""

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from covlearn import records
from covlearn.fitted import Fitted, load
from covlearn.report import words
from covlearn.report.curves import SIEVES, curves
from covlearn.verdicts import DECISIONS

FORMAT = 1


def compare(folders: Sequence[Path]) -> dict[str, Any]:
    """Figures, curves of the last stage, and verdicts that changed from one run to the next."""
    runs = [one_run(folder) for folder in folders]
    names = distinct([run["name"] for run in runs])
    figures = list(dict.fromkeys(name for run in runs for name in run["figures"]))
    fits = [(name, run["fitted"]) for name, run in zip(names, runs, strict=True) if run["fitted"]]
    return {
        "format": FORMAT,
        "kind": "comparison",
        "name": " and ".join(names) if len(names) < 4 else f"{len(names)} runs",
        "runs": names,
        "folders": [str(folder) for folder in folders],
        "figures": [[name, [run["figures"].get(name, "–") for run in runs]] for name in figures],
        "curves": last_stages(names, runs),
        "changes": [
            change
            for (first, before), (second, after) in itertools.pairwise(fits)
            if (change := changes(first, before, second, after)) is not None
        ],
    }


def one_run(folder: Path) -> dict[str, Any]:
    """The figures of a run in words, in the order in which they are shown."""
    config = records.read_config(folder)
    figures = {
        "command": f"covlearn {config.get('command', 'train')}",
        "method": words.method(config["method"]["name"]),
        "preset": config.get("preset") or "–",
        "seed": str(config["seed"]),
        "examples": f"{config['data']['examples']:,}",
        "classes": f"{config['data']['classes']:,}",
    }
    fitted = None
    if config.get("command") == "fit":
        fitted = load(folder)
        result = fitted.result
        figures["labels that look wrong"] = words.percent(result.noise_rate, 1)
        figures |= {f"to {name}": f"{result.decisions[name]:,}" for name in DECISIONS}
        figures["decided by people"] = f"{len(fitted.people):,}"
        figures["evidence"] = result.evidence["sentence"]
    elif (trained := records.read_result(folder)) is not None:
        accuracy = trained.test_accuracy
        for name, figure in (
            ("test accuracy, returned network", trained.returned),
            ("test accuracy, last epoch", accuracy.last),
            ("test accuracy, mean of last ten", accuracy.mean_of_last_ten),
            ("test accuracy, selected on held-out labels", accuracy.selected),
        ):
            if figure is not None:
                figures[name] = words.percent(figure.value, 2)
        figures["wrong labels learned by heart"] = words.percent(trained.memorisation, 1)
        quality = (trained.labels or {}).get("quality")
        if quality is not None:
            figures["precision of wrong labels"] = words.percent(quality["precision"], 1)
            figures["recall of wrong labels"] = words.percent(quality["recall"], 1)
    return {
        "name": folder.resolve().name,
        "figures": figures,
        "fitted": fitted,
        "curves": curves(records.read_metrics(folder)),
    }


def last_stages(names: list[str], runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each measure the last stage of each run; a run is a group of its own.

    Sieves that were trained after the network, for the verdicts alone, are no stage of it.
    """
    charts: dict[str, dict[str, Any]] = {}
    for name, run in zip(names, runs, strict=True):
        for chart in run["curves"]:
            shared = charts.setdefault(chart["title"], chart | {"lines": []})
            lines = [line for line in chart["lines"] if line["group"] != SIEVES] or chart["lines"]
            shared["lines"].append(lines[-1] | {"name": name, "group": name})
    return list(charts.values())


def changes(first: str, before: Fitted, second: str, after: Fitted) -> dict[str, Any] | None:
    """How many verdicts went from which to which, for runs on the same examples."""
    then = dict(zip(before.labels["id"], before.labels["decision"], strict=True))
    people = after.people
    count = Counter(
        (then[key], "decided by people" if key in people else decision)
        for key, decision in zip(after.labels["id"], after.labels["decision"], strict=True)
        if key in then
    )
    # Of other data a few ids may be the same by chance.
    if 2 * sum(count.values()) <= min(len(then), len(after.labels["id"])):
        return None
    columns = [*DECISIONS, *(["decided by people"] if people else [])]
    return {
        "from": first,
        "to": second,
        "shared": sum(count.values()),
        "rows": list(DECISIONS),
        "columns": columns,
        "values": [[count[row, column] for column in columns] for row in DECISIONS],
    }


def distinct(names: list[str]) -> list[str]:
    """The names, numbered where two are the same."""
    made: list[str] = []
    for name in names:
        one, number = name, 1
        while one in made:
            number += 1
            one = f"{name} ({number})"
        made.append(one)
    return made
