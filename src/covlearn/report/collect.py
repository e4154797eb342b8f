"""All that a page says of a run, as plain JSON."""

import math
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covlearn import records
from covlearn.fitted import Fitted, load
from covlearn.inputs import Progress
from covlearn.noise import NoiseCard
from covlearn.plain_files import read_json
from covlearn.report import words
from covlearn.report.again import next_command
from covlearn.report.curves import curves
from covlearn.report.diagnosed import diagnosed
from covlearn.report.suspects import gallery
from covlearn.report.trained import TRANSITIONS, check_result, known_columns, known_transitions
from covlearn.verdicts import RELABEL_BELOW

FORMAT = 1
BINS = 100  # of a histogram; the slider moves from one to the next
MOST_CLASSES = 40  # rows of a matrix
HARDEST = 15


def collect(folder: Path, progress: Progress | None = None) -> dict[str, Any]:
    """What there is to say of a run of ``covlearn fit`` or ``covlearn train``."""
    if progress is not None:
        progress(0, 0, "gathering the report")
    config = records.read_config(folder)
    if config.get("command") == "fit":
        return of_fit(load(folder), progress)
    return of_train(records.read(folder))


def of_fit(fitted: Fitted, progress: Progress | None = None) -> dict[str, Any]:
    """A run of ``covlearn fit``: it has no clean labels, so that nothing here is a test."""
    result, labels, classes = fitted.result, fitted.labels, fitted.classes
    suspects, left_out = gallery(fitted, progress)
    command, incomplete = next_command(fitted)
    number = {name: n for n, name in enumerate(classes)}
    given = np.array([number[name] for name in labels["given"]])
    suggested = np.array([number[name] for name in labels["suggested"]])
    quality = np.array(labels["quality"], dtype=float)
    people = fitted.people
    transition, covariance = (fitted.statistics[name] for name in ("transition", "covariance"))
    count = result.decisions
    flagged = result.examples - count["keep"]
    tiles = [
        ["examples", f"{result.examples:,}"],
        ["labels that look wrong", words.percent(result.noise_rate, 1)],
        ["to relabel", f"{count['relabel']:,}"],
        ["to drop", f"{count['drop']:,}"],
        ["to review", f"{count['review']:,}"],
    ]
    if people:
        tiles.append(["decided by people", f"{len(people):,}"])
    refined = np.where(np.array(labels["decision"]) == "relabel", suggested, given)
    largest = int(np.bincount(given, minlength=len(classes)).argmax())
    return common(fitted.folder, fitted.config) | {
        "command": "fit",
        "classes": classes,
        "summary": [*words.of_fit(result), *people_sentences(fitted, given)],
        "tiles": tiles,
        "gallery": suspects,
        "scores": quality_scores(quality, labels, people, found=result.evidence["found"]),
        "noise": {
            "facts": [
                ["labels that look wrong", words.percent(result.noise_rate, 1)],
                ["suspects of all kinds", f"{flagged:,} of {result.examples:,}"],
                [
                    "largest class",
                    f"{classes[largest]}: {words.percent((given == largest).mean(), 1)} of the "
                    f"labels, {words.percent((refined == largest).mean(), 1)} after repairs",
                ],
                ["evidence", result.evidence["sentence"]],
            ],
            "warnings": [],
            "matrices": [
                matrix(
                    transition,
                    "T̂: how often an example of a class is labelled as another",
                    "the refined label",
                    given,
                )
            ],
        },
        "covariance": matrix(
            covariance, "Covariance of T and the loss", "the refined label i", given
        ),
        "diagnosis": diagnosed(fitted.folder),
        "diagnose": shlex.join(["covlearn", "diagnose", str(fitted.folder)]),
        "hardest": hardest(
            given, suggested, quality, np.array(labels["decision"]) != "keep", classes
        ),
        "left_out": left_out,
        "skipped": [f"{item['id']}: {item['reason']}" for item in result.skipped[:50]],
        "skipped_count": len(result.skipped),
        "notes": result.notes,
        "next": command,
        "next_note": incomplete,
        "seconds": result.seconds,
    }


def of_train(record: records.Record) -> dict[str, Any]:
    """A run of ``covlearn train``, as far as its files go."""
    config, result = record.config, record.result
    classes = [str(n) for n in range(config["data"]["classes"])]
    card = config.get("noise")
    if card is not None:
        NoiseCard.from_dict(card)  # refuses what is none
    check_result(record)
    known = known_columns(record, len(classes))
    wrong = known["given"] != known["clean"] if {"given", "clean"} <= set(known) else None
    rate = (
        float(wrong.mean()) if wrong is not None else None if card is None else card["actual_rate"]
    )
    transitions = known_transitions(record.folder / records.REFINEMENT, len(classes))
    matrices = []
    given = known.get("given", np.zeros(0)).astype(int)
    for name, (title, rows) in TRANSITIONS.items():
        if name in transitions:
            matrices.append(matrix(transitions[name], title, rows, given))
    if card is not None and "true" not in transitions:
        known_rows = [row or [math.nan] * len(classes) for row in card["transition"]]
        matrices.append(matrix(np.array(known_rows), "T", "the clean label", given))
    tiles = [["examples", f"{config['data']['examples']:,}"]]
    if result is not None:
        tiles.append(["test accuracy", words.percent(result.returned.value, 1)])
        if result.memorisation is not None:
            tiles.append(["learned by heart", words.percent(result.memorisation, 1)])
    if rate is not None:
        tiles.append(["wrong labels", words.percent(rate, 1)])
    facts = [] if card is None else card_facts(card)
    return common(record.folder, config) | {
        "command": "train",
        "classes": classes,
        "summary": words.of_train(result, rate),
        "tiles": tiles,
        "gallery": None,
        "scores": train_scores(known, wrong, result),
        "noise": {
            "facts": facts,
            "warnings": [] if card is None else card["warnings"],
            "matrices": matrices,
        },
        "covariance": None,
        "diagnosis": None,
        "hardest": hardest_trained(known, classes),
        "left_out": ["The examples themselves: covlearn train keeps none of them in its folder."],
        "skipped": [],
        "skipped_count": 0,
        "notes": [] if card is None else card["notes"],
        "next": None,
        "next_note": None,
        "seconds": None if result is None else result.seconds,
    }


def common(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """What every run has: its curves and where it came from."""
    path = folder / records.ENVIRONMENT
    environment = read_json(path) if path.exists() else {}
    source = config.get("source") or {"name": config["data"].get("name")}
    data = {name: value for name, value in config["data"].items() if value is not None}
    return {
        "format": FORMAT,
        "kind": "run",
        "name": folder.resolve().name,
        "identity": "-".join(
            str(part) for part in (folder.resolve().name, config["seed"], config["data"].get("y"))
        ),
        "curves": curves(records.read_metrics(folder)),
        "provenance": [
            ["Data", flat({name: v for name, v in source.items() if v is not None} | data)],
            [
                "Run",
                flat(
                    {
                        "method": words.method(config["method"]["name"]),
                        "preset": config.get("preset"),
                        "seed": config["seed"],
                        "net": config["net"],
                        "machine": config["machine"],
                    }
                ),
            ],
            ["Versions", flat({"covlearn": config["covlearn"]} | environment)],
            ["All settings of the method", flat(config["method"])],
        ],
    }


def quality_scores(
    quality: NDArray[np.float64],
    labels: dict[str, list[str]],
    people: dict[str, tuple[str, str]],
    *,
    found: bool,
) -> dict[str, Any]:
    """How many labels are of which quality, without and with a suggestion that is sure.

    Labels that a person decided on do not count.
    """
    judged = np.array([key not in people for key in labels["id"]])
    sure = (np.array(labels["confidence"], dtype=float) >= 0.5).astype(int)
    # Rounded first: 0.29 · 100 is 28.999999999999996 in floating point.
    bins = np.minimum(np.floor(np.round(quality * BINS, 6)).astype(int), BINS - 1)
    return {
        "measure": "quality",
        "low": 0.0,
        "high": 1.0,
        "counts": counted(bins[judged], sure[judged]),
        "threshold": RELABEL_BELOW,
        "found": found,
    }


def train_scores(
    known: dict[str, NDArray[np.float64]],
    wrong: NDArray[np.bool_] | None,
    result: records.Result | None,
) -> dict[str, Any] | None:
    """How many right and wrong labels have which score, higher for one that is likelier wrong."""
    measure = next((name for name in ("score", "loss") if name in known), None)
    if measure is None:
        return None
    values = known[measure]
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    high = max(high, low + 1e-6)
    values = np.clip(np.nan_to_num(values, posinf=high, neginf=low), low, high)
    # A bin is open below, as labels above a threshold are called wrong.
    bins = np.clip(np.ceil((values - low) / (high - low) * BINS).astype(int) - 1, 0, BINS - 1)
    threshold = None if result is None else result.facts.get("threshold")
    usable = isinstance(threshold, float | int) and low <= threshold <= high
    return {
        "measure": measure,
        "low": low,
        "high": high,
        "counts": counted(bins, np.zeros_like(bins) if wrong is None else wrong.astype(int)),
        "known": wrong is not None,
        "threshold": threshold if usable else None,
    }


def counted(bins: NDArray[np.int64], group: NDArray[np.int64]) -> list[list[int]]:
    """How many examples of each of two groups are in each bin."""
    table = np.bincount(2 * bins + group, minlength=2 * BINS)
    return [[int(one) for one in row] for row in table.reshape(BINS, 2)]


def matrix(values: NDArray[Any], title: str, rows: str, given: NDArray[np.int64]) -> dict[str, Any]:
    """A K×K table; of many classes those that the most labels name."""
    num_classes = len(values)
    chosen = np.arange(num_classes)
    if num_classes > MOST_CLASSES:
        size = np.bincount(given, minlength=num_classes)
        chosen = np.sort(np.argsort(-size, kind="stable")[:MOST_CLASSES])
    part = values[np.ix_(chosen, chosen)]
    cells = [[None if not math.isfinite(v) else float(f"{v:.4g}") for v in row] for row in part]
    return {
        "title": title,
        "rows": rows,
        "classes": chosen.tolist(),
        "values": cells,
        "left_out": num_classes - len(chosen),
    }


def hardest(
    given: NDArray[np.int64],
    suggested: NDArray[np.int64],
    quality: NDArray[np.float64],
    suspect: NDArray[np.bool_],
    classes: list[str],
) -> dict[str, Any]:
    """Classes by the share of their labels that are suspect."""
    rows: list[dict[str, Any]] = []
    for number, name in enumerate(classes):
        mine = given == number
        if not mine.any():
            continue
        towards = Counter(suggested[mine & suspect & (suggested != given)].tolist()).most_common(1)
        rows.append(
            {
                "class": name,
                "examples": int(mine.sum()),
                "suspects": int((mine & suspect).sum()),
                "share": float((mine & suspect).sum() / mine.sum()),
                "measure": float(quality[mine].mean()),
                "towards": classes[towards[0][0]] if towards else None,
            }
        )
    rows.sort(key=lambda row: (-row["share"], row["measure"]))
    return {"measure": "mean quality", "rows": rows[:HARDEST], "left_out": len(rows[HARDEST:])}


def hardest_trained(
    known: dict[str, NDArray[np.float64]], classes: list[str]
) -> dict[str, Any] | None:
    """Classes by the share of their labels that the last pass did not predict."""
    if not {"given", "prediction"} <= set(known):
        return None
    given, predicted = known["given"].astype(int), known["prediction"].astype(int)
    agrees = (given == predicted).astype(float)
    table = hardest(given, np.maximum(predicted, 0), agrees, given != predicted, classes)
    return table | {"measure": "agreement"}


def people_sentences(fitted: Fitted, given: NDArray[np.int64]) -> list[str]:
    """What people decided, and whether the model has come to agree."""
    people = fitted.people
    if not people:
        return []
    changed = sum(label != before for label, before in people.values())
    mine = np.array([key in people for key in fitted.labels["id"]])
    believed = int((fitted.probs[mine, given[mine]] >= 0.5).sum())
    return [
        f"People decided on {words.labels(len(people))} and changed {changed:,} of them; they were "
        f"held fixed. The model agrees with {believed:,} of these decisions."
    ]


def card_facts(card: dict[str, Any]) -> list[list[str]]:
    """A noise card in a few lines."""
    seed = "" if card["seed"] is None else f", seed {card['seed']}"
    asked = card["requested_rate"]
    return [
        ["noise", f"{card['variant']} (version {card['version']}){seed}"],
        ["wrong labels", words.percent(card["actual_rate"], 2)],
        ["asked for", "–" if asked is None else words.percent(asked, 1)],
        [
            "dominated by the diagonal",
            f"{card['num_dominant']:,} of {card['num_classes']:,} classes",
        ],
        [
            "largest class",
            f"{card['largest_class']}, {words.percent(card['largest_share'], 1)} of the labels",
        ],
    ]


def flat(values: Any, path: str = "") -> list[list[str]]:
    """A tree of settings as lines of path and value."""
    if isinstance(values, dict):
        return [
            line
            for name, value in values.items()
            for line in flat(value, f"{path}.{name}" if path else str(name))
        ]
    if isinstance(values, list):
        values = ", ".join(map(str, values))
    return [[path, "–" if values is None else str(values)]]
