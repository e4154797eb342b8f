"""Run folders: plain files that outlive the process. Nothing here imports torch.

config.json        what was run: method with all fields, data, noise card, net, seed, machine
environment.json   what it ran on
metrics.jsonl      one line an epoch, with its stage
result.json        the figures, each with the rule that chose it; its presence means finished
labels.csv         one line a training example: given and suggested label, score, last pass
refinement.json    how the scores of D̂ are spread, and T̂, for methods that make a D̂
model.safetensors  the network that the method returned
probs.npz          what it says of the training examples (N, K), in evaluation mode
stages/            checkpoints, until the run is finished

Each file is written next to its place and renamed, so that a run killed at any moment leaves the
old one or the new one. Lines of metrics.jsonl are appended; a resumed run writes it anew from its
checkpoint first.
"""

import contextlib
import csv
import io
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import covlearn
from covlearn.atomic import PARTIAL, remove_leftover, without_links, write_bytes
from covlearn.config import plain, typed
from covlearn.plain_files import parse_json, read_columns, read_json, read_text

FORMAT = 1
CONFIG, ENVIRONMENT, METRICS, RESULT = (
    "config.json",
    "environment.json",
    "metrics.jsonl",
    "result.json",
)
LABELS, MODEL, STAGES = "labels.csv", "model.safetensors", "stages"
REFINEMENT, PROBS = "refinement.json", "probs.npz"
LISTED = 5  # differences that a message names
# What is known of data by a digest alone: to say that it has changed is to say all.
DIGESTS = {
    **{"data.x": "inputs", "data.y": "labels", "data.clean": "clean labels"},
    **{"data.test_x": "test inputs", "data.test_y": "test labels"},
    **{"data.validation_x": "validation inputs", "data.validation_y": "validation labels"},
    "data.trusted": "examples that a person decided on",
}
MOST_CLASSES = 1_000_000
# What readers of a configuration rely on.
CONFIG_FIELDS: dict[str, type] = {
    "covlearn": str,
    "method.name": str,
    "net.name": str,
    "seed": int,
    "data.examples": int,
    "data.classes": int,
    "machine": dict,
}
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Figure:
    """A test accuracy, the epoch it belongs to and the rule that chose the epoch."""

    value: float
    epoch: int | None
    rule: str


@dataclass(frozen=True)
class Accuracy:
    """A stage's accuracy on the clean test labels, by four rules."""

    best: Figure | None
    last: Figure | None
    mean_of_last_ten: Figure | None
    selected: Figure | None
    """By the accuracy on held-out noisy labels; None where nothing is held out."""


@dataclass(frozen=True)
class Stage:
    """One stage of a run in short; metrics.jsonl has it epoch by epoch."""

    epochs: int
    seconds: float
    test_accuracy: Accuracy
    memorisation: float | None
    """Share of the wrong labels that the last training pass predicted; None if unknown."""


@dataclass(frozen=True)
class Result:
    """What came out of a run. ``test_accuracy`` and ``memorisation`` are of the final stage."""

    method: str
    seed: int
    final_stage: str | None
    test_accuracy: Accuracy
    returned: Figure
    """Test accuracy of the network that the method returned, which is in model.safetensors."""
    memorisation: float | None
    labels: dict[str, Any] | None
    """How good D̂ is, for methods that made one (`covlearn.metrics.LabelQuality`)."""
    facts: dict[str, Any]
    """What the method noted."""
    seconds: float
    """Of all epochs, evaluation included, in whichever process they were run."""
    stages: dict[str, Stage] = field(default_factory=dict)
    format: int = FORMAT


@dataclass(frozen=True)
class Record:
    """All that a run folder holds; ``result`` is None until the run is finished."""

    folder: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    metrics: list[dict[str, Any]]
    result: Result | None

    @cached_property
    def labels(self) -> dict[str, list[Any]] | None:
        """The columns of labels.csv, numbers as numbers and empty cells as None."""
        path = self.folder / LABELS
        return read_table(path) if path.exists() else None


def read(folder: str | os.PathLike[str]) -> Record:
    """What a run left behind, finished or not."""
    folder = Path(folder)
    config = read_config(folder)
    environment = folder / ENVIRONMENT
    return Record(
        folder=folder,
        config=config,
        environment=read_json(environment) if environment.exists() else {},
        metrics=read_metrics(folder),
        result=read_result(folder),
    )


def read_config(folder: Path) -> dict[str, Any]:
    """What was run, of a format that can be read."""
    path = folder / CONFIG
    config = read_json(path)
    found = config.get("format")
    if isinstance(found, int) and found > FORMAT:
        raise ValueError(
            f"{path} has format {found}, of covlearn {config.get('covlearn')}, and this is "
            f"covlearn {covlearn.__version__}, which reads format {FORMAT}; update covlearn: pip "
            "install --upgrade covlearn"
        )
    if found != FORMAT:
        raise ValueError(
            f"{path} must have format {FORMAT}, got {found!r}; read it with the version of "
            "covlearn that wrote it"
        )
    for name, kind in CONFIG_FIELDS.items():
        value: Any = config
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(
                f"{path} must hold {name} as covlearn writes it, got {_short(value)}; it is damaged"
            )
    if not 0 < config["data"]["classes"] <= MOST_CLASSES:
        raise ValueError(
            f"{path} must have 1…{MOST_CLASSES:,} classes, got {config['data']['classes']:,}"
        )
    return config


def read_result(folder: Path) -> Result | None:
    """The result of a finished run of ``covlearn train``."""
    return read_outcome(folder, Result)


def read_outcome(folder: Path, kind: type[Outcome]) -> Outcome | None:
    """The result of a finished run of a command whose results are of this kind."""
    path = folder / RESULT
    if not path.exists():
        return None
    try:
        return typed(kind, read_json(path))
    except ValueError as error:
        raise ValueError(f"{path} must hold a result of covlearn: {error}") from error


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """One record an epoch. A last line that a kill cut short is left out."""
    path = folder / METRICS
    if not path.exists():
        return []
    *lines, rest = read_text(path).split("\n")
    if not _is_json(rest):
        rest = ""
    return [_epoch(line, path, number) for number, line in enumerate([*lines, rest], 1) if line]


def start_as(
    kind: type[Outcome], folder: Path, config: Mapping[str, Any], *, resume: bool
) -> Outcome | None:
    """Makes the folder ready for a run of this configuration; the result if there is one already.

    Refused are a folder with another configuration, an unfinished run without ``resume``, and a
    folder of something else.
    """
    path = folder / CONFIG
    check_place(folder)
    if not path.exists():
        write_json(path, config)
        return None
    result = same_run(kind, folder, config, resume=resume)
    for partial in folder.rglob(f"*{PARTIAL}"):  # what a kill left half written
        if partial.is_file():  # a folder is an export's
            remove_leftover(partial)
    if result is not None:  # a kill may have come between the result and the end
        shutil.rmtree(folder / STAGES, ignore_errors=True)
    return result


def same_run(
    kind: type[Outcome], folder: Path, config: Mapping[str, Any], *, resume: bool
) -> Outcome | None:
    """The result of the folder's run, which must be of this configuration; looks only."""
    there = read_config(folder)
    # The same run can be put into other words: what they come to is in the other parts.
    differing = differences({**there, "job": None}, {**plain(config), "job": None})
    if differing:
        listed = "; ".join(differing[:LISTED])
        more = f" and {len(differing) - LISTED} more" if len(differing) > LISTED else ""
        raise ValueError(
            f"{folder} holds a run of another configuration: {listed}{more}; "
            "choose another folder, or delete this one to start again"
        )
    result = read_outcome(folder, kind)
    if result is None and not resume:
        raise ValueError(
            f"{folder} holds an unfinished run; continue it with --resume (resume=True), or choose "
            "another folder"
        )
    wrote, reads = there.get("covlearn"), config.get("covlearn")
    if result is None and wrote != reads and (folder / STAGES).exists():
        raise ValueError(
            f"{folder} holds an unfinished run of covlearn {wrote}, and {reads} might go on "
            "otherwise; finish it with that version, or delete the folder to start again"
        )
    return result


def check_place(folder: Path) -> None:
    """Refuses a folder that holds something else than a run, and a name that no record can have."""
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{folder} must be a name in UTF-8; choose another") from error
    check_folder(folder)
    if not folder.exists() or (folder / CONFIG).exists():
        return
    others = sorted(p.name for p in folder.iterdir() if not p.name.endswith(PARTIAL))
    if others:
        raise ValueError(
            f"{folder} must be new, empty or of an earlier run, but it holds {others[0]} and "
            f"no {CONFIG}; choose another folder"
        )


def check_folder(folder: Path) -> None:
    """Refuses a folder that cannot be made, because something else has its name or one above it."""
    for each in (folder, *folder.absolute().parents):
        if os.path.lexists(each):
            if not each.is_dir():
                it = "it" if each == folder else each
                what = "a file" if each.exists() else "a link to nothing"
                raise ValueError(f"{folder} must be a folder, but {it} is {what}; choose another")
            return


def abandon_if_empty(folder: Path) -> None:
    """Frees a folder in which not one epoch was recorded, so that bad input can be put right."""
    if not (folder / METRICS).exists() and not (folder / STAGES).exists():
        for name in (ENVIRONMENT, CONFIG):
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something else is in it
            folder.rmdir()


def differences(there: Any, here: Any, *, path: str = "") -> list[str]:
    """Where two configurations differ, in words; covlearn's own version does not count."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        return [
            text
            for key in dict.fromkeys([*there, *here])
            if (name := f"{path}.{key}" if path else key) != "covlearn"
            for text in differences(there.get(key), here.get(key), path=name)
        ]
    # An integer and an equal float are the same setting.
    if there == here:
        return []
    if path in DIGESTS:
        return [f"the {DIGESTS[path]} ({path}) have changed"]
    return [f"{path} is {_short(there)} there, {_short(here)} here"]


def write_json(path: Path, value: Any) -> None:
    """Plain values, readable by any JSON parser."""
    write_bytes(path, json_text(value).encode())


def json_text(value: Any) -> str:
    """Plain values as JSON for files."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_metrics(folder: Path, history: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
    """All epochs of all stages so far, in order."""
    lines = [_line(stage, record) for stage, records in history.items() for record in records]
    write_bytes(folder / METRICS, "".join(lines).encode())


def append_metrics(folder: Path, stage: str, record: Mapping[str, Any]) -> None:
    """One epoch more."""
    with open(folder / METRICS, "a", encoding="utf-8", opener=without_links) as file:
        file.write(_line(stage, record))


def write_table(path: Path, columns: Mapping[str, Sequence[Any] | None]) -> None:
    """A CSV file with a line of names; a column or a cell that is None is left empty."""
    length = max((len(column) for column in columns.values() if column is not None), default=0)
    cells = [[None] * length if column is None else column for column in columns.values()]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    rows = zip(*cells, strict=True)
    writer.writerows(["" if cell is None else str(cell) for cell in row] for row in rows)
    write_bytes(path, text.getvalue().encode())


def read_table(path: Path) -> dict[str, list[Any]]:
    """The columns of a CSV file with numbers as numbers and empty cells as None."""
    return {name: [_number(cell) for cell in column] for name, column in read_columns(path).items()}


def _line(stage: str, record: Mapping[str, Any]) -> str:
    return json.dumps(plain({"stage": stage, **record}), allow_nan=False) + "\n"


def _epoch(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}, must hold JSON: {error}") from error
    values = record.values() if isinstance(record, dict) else [[]]
    if not all(value is None or isinstance(value, str | int | float) for value in values) or not (
        isinstance(record.get("stage"), str) and isinstance(record.get("epoch"), int)
    ):
        raise ValueError(f"{path}, line {number}, must hold an epoch: its stage and its figures")
    return dict(record)


def _is_json(line: str) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def _number(cell: str) -> Any:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell or None


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}…"
