"""Labels that a person decided on: what comes back from the report's page or from Label Studio.

A CSV file has the columns id and label, and may have given, what the source said when the decision
was made: ids that are row numbers name other rows when a table is sorted anew, and where the source
says something else now the file is refused. Label Studio's JSON export is a
list of tasks, each with its annotations: the id is that in the task's data, as ``covlearn clean
--as label-studio`` wrote it there, and the label is the choice. Tasks without an annotation, or
with one that was skipped, decide nothing.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from covlearn.cells import restored
from covlearn.inputs.examples import Examples, Trusted, some
from covlearn.inputs.labels import WHOLE_NUMBER, positions
from covlearn.inputs.table_files import read_table
from covlearn.kinds import nearest
from covlearn.plain_files import parse_json


class Decision(NamedTuple):
    """The label that a person decided on, and the one that they saw, if that is known."""

    label: str
    given: str | None = None


def read_trusted(path: Path) -> dict[str, Decision]:
    """What was decided of each id; two different labels for an id are refused."""
    if not path.is_file():
        raise ValueError(f"{path} is not there; --trusted takes a CSV file or Label Studio's JSON")
    pairs = _from_label_studio(path) if path.suffix.lower() == ".json" else _from_table(path)
    decided: dict[str, Decision] = {}
    for key, *texts in pairs:
        label, given = (unicodedata.normalize("NFC", text.strip()) for text in texts)
        if not key:
            raise ValueError(f"{path} has a label without an id, {label!r}; name the example")
        if not label:
            raise ValueError(f"{path} has no label for {key!r}; give one, or take the line out")
        before = decided.setdefault(key, Decision(label, given or None)).label
        if before != label:
            raise ValueError(
                f"{path} decides twice on {key!r}, for {before!r} and for {label!r}; keep one"
            )
    if not decided:
        raise ValueError(f"{path} holds no decision; decide on an example first")
    return decided


def with_trusted(examples: Examples, decisions: Mapping[str, Decision], path: Path) -> Examples:
    """The examples with the decided labels in place of those that the source gives."""
    if examples.given is None:
        raise ValueError(f"the source must have labels for {path} to replace some, got none")
    there = set(examples.ids)
    unknown = [key for key in decisions if key not in there]
    if unknown:
        left_out = {item.id for item in examples.skipped}
        why = " (left out, as it cannot be used)" if unknown[0] in left_out else ""
        raise ValueError(
            f"{path} must name examples of the source, but {len(unknown):,} of {len(decisions):,} "
            f"ids are not there: {some([repr(key) for key in unknown])}{why}"
        )
    decided = {key: _as_class(each.label, examples.classes) for key, each in decisions.items()}
    for key, label in decided.items():
        if label not in examples.classes:
            known = f"; its classes are {some(examples.classes, listed=8)}"
            raise ValueError(
                f"{path} gives {key!r} the label {label!r}, which is no class of the source"
                f"{nearest(label, examples.classes) or known}"
            )
    given = [
        decided.get(key, label) for key, label in zip(examples.ids, examples.given, strict=True)
    ]
    mask = torch.tensor([key in decided for key in examples.ids])
    before = {
        key: label
        for key, label in zip(examples.ids, examples.given, strict=True)
        if key in decided
    }
    moved = [
        (key, given, before[key])
        for key, (_, given) in decisions.items()
        if given is not None
        and before[key] not in (_as_class(given, examples.classes), decided[key])
    ]
    if moved:
        key, then, now = moved[0]
        raise ValueError(
            f"{path} was made where {key!r} is labelled {then!r}, and the source says {now!r} "
            f"({len(moved):,} of {len(decisions):,} decisions are so): its rows may be in another "
            "order; name a column with ids (--id), or take the column given out of the file"
        )
    return replace(
        examples,
        given=given,
        y=positions(given, examples.classes),
        trusted=Trusted(mask, before),
    )


def _as_class(label: str, classes: Sequence[str]) -> str:
    """The class that a label names: pandas writes 9 as 9.0 where another cell is empty."""
    match = WHOLE_NUMBER.fullmatch(label)
    return match[1] if label not in classes and match and match[1] in classes else label


def _from_table(path: Path) -> Iterator[tuple[str, str, str]]:
    table = read_table(path, verbatim=["id", "label", "given"])
    missing = [name for name in ("id", "label") if name not in table]
    if missing:
        raise ValueError(
            f"{path} must have the columns id and label, got {some(list(table), listed=8)}"
        )
    table = table.reindex(columns=["id", "label", "given"]).astype(object)
    for cells in table.where(table.notna(), "").itertuples(index=False):
        key, label, given = (restored(str(cell)) for cell in cells)
        yield key, label, given


def _from_label_studio(path: Path) -> Iterator[tuple[str, str, str]]:
    try:
        tasks = parse_json(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path} must hold JSON, but it is damaged: {error}") from error
    expected = (
        "must be Label Studio's JSON export (the one called JSON, not JSON-MIN) of tasks that "
        "covlearn clean --as label-studio made"
    )
    if not isinstance(tasks, list):
        raise ValueError(f"{path} {expected}, got {type(tasks).__name__}")
    for number, task in enumerate(tasks):
        try:
            key = task["data"]["id"]
            results = [
                result
                for annotation in task["annotations"]
                if not annotation.get("was_cancelled")
                for result in annotation["result"]
                if result.get("type") == "choices"
            ]
            choices = [result["value"]["choices"] for result in results]
        except (TypeError, KeyError, AttributeError):
            raise ValueError(f"{path} {expected}, but task {number} is none") from None
        for chosen in choices:
            if not isinstance(chosen, list):
                raise ValueError(f"{path} {expected}, but task {number} is none")
            if len(chosen) != 1:
                raise ValueError(
                    f"{path} must choose one label an example, got {_listed(chosen)} for {key!r}"
                )
            # Not what the task calls given: older exports have an earlier decision there.
            yield str(key), str(chosen[0]), ""


def _listed(chosen: list[Any]) -> str:
    return ", ".join(map(str, chosen)) or "none"
