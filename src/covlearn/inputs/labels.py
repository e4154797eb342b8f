"""Labels of any type as text, and their classes in order.

The rules, the same for every source:

- None, NaN and empty text are no label. An example without one is bad input when one trains.
- Spaces around a label are taken off, and accents are brought into one form (Unicode's NFC).
- A label is what it reads as: 1, "1" and 1.0 are the class 1, True is the class True. Text such as
  "1.0" stays as it is unless "1" is there too. That types were mixed is noted.
- Upper and lower case differ; classes that differ in nothing else are noted.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covlearn.inputs.examples import Reading, Skipped, counted, some

WHOLE_NUMBER = re.compile(r"([+-]?\d+)\.0*")
FEWEST = 2  # examples of a class
MANY_CLASSES = 50  # above this, classes of one example each are taken for measurements


def label_texts(values: Sequence[Any], reading: Reading) -> list[str]:
    """Each label as text, "" where there is none."""
    texts, kinds, put_right = [], set(), []
    for value in values:
        text, kind = _text(value)
        clean = unicodedata.normalize("NFC", text.strip())
        if clean != text and clean:
            put_right.append(clean)
        if clean:
            kinds.add(kind)
        texts.append(clean)
    if put_right:
        # What they were is not known of every source: of a CSV file spaces before a cell are gone.
        shown = some([repr(text) for text in dict.fromkeys(put_right)])
        reading.note(
            f"{counted(len(put_right), 'label')} had spaces around or accents in another form, "
            f"which was put right, to {shown}"
        )
    if len(kinds) > 1:
        reading.note(
            f"the labels are of mixed types ({', '.join(sorted(kinds))}); those that read the same "
            "are one class"
        )
    return _one_form_of_numbers(texts, reading)


def class_names(texts: Sequence[str]) -> list[str]:
    """The different labels in order: by number if all are numbers, else by name.

    >>> class_names(["10", "9", "", "9"])
    ['9', '10']
    """
    names = sorted({text for text in texts if text})
    try:
        numbers = {name: float(name) for name in names}
    except ValueError:
        return names
    # NaN has no place in an order. Equal numbers, as 1 and 01, stay sorted by name.
    return (
        sorted(names, key=numbers.__getitem__)
        if all(map(math.isfinite, numbers.values()))
        else names
    )


def positions(texts: Sequence[str], classes: Sequence[str]) -> Tensor:
    """Where each label is among the classes; −1 for one that is not."""
    place = {name: position for position, name in enumerate(classes)}
    return torch.tensor([place.get(text, -1) for text in texts], dtype=torch.int64)


def too_rare(ids: Sequence[str], texts: Sequence[str], reading: Reading) -> list[Skipped]:
    """The examples whose class has no other; what is wrong with all the classes is an error."""
    counts = Counter(texts)
    single = alone(counts)
    rare = set(single)
    if len(single) > max(MANY_CLASSES, len(counts) // 2):
        raise ValueError(
            f"the labels of {reading.where} must be classes, but {len(single):,} of "
            f"{len(counts):,} come once only, as {some(class_names(single))}; measurements and "
            "names are no classes, choose another label column or group them first"
        )
    check_two_classes([name for name in counts if name not in rare], single, reading)
    names = class_names([text for text in texts if text])
    lower = Counter(name.casefold() for name in names)
    alike = [name for name in names if lower[name.casefold()] > 1]
    if alike:
        reading.note(f"these classes differ only in upper and lower case: {some(alike, listed=6)}")
    reason = "its class {} has no other example, and a class needs at least two"
    return [
        Skipped(key, reason.format(repr(text)))
        for key, text in zip(ids, texts, strict=True)
        if text in rare
    ]


def alone(counts: Mapping[Any, int]) -> list[Any]:
    """The classes of one example: no label of another says anything of it, whoever judges it."""
    return [name for name, count in counts.items() if count < FEWEST]


def check_two_classes(names: Sequence[str], single: Sequence[str], reading: Reading) -> None:
    """Two classes at least."""
    if len(names) >= 2:
        return
    found = {0: "there is none", 1: f"all examples are {names[0]!r}" if names else ""}[len(names)]
    if single:
        found += f" but for classes of one example: {some(single)}"
    raise ValueError(
        f"{reading.where} must have at least two classes of two examples each, but {found}; add "
        "examples of another class, or choose another label column"
    )


def _text(value: Any) -> tuple[str, str]:  # noqa: PLR0911
    """The value as text, and what type it was."""
    if isinstance(value, Tensor | np.ndarray | np.generic) and not isinstance(value, str | bytes):
        value = value.reshape(-1).tolist()
        value = value[0] if len(value) == 1 else value
    match value:
        case None:
            return "", "nothing"
        case bytes():
            return value.decode("utf-8", "replace"), "text"
        case str():
            return str(value), "text"
        case bool():
            return str(value), "true or false"
        case int():
            return str(value), "numbers"
        case float():
            if math.isnan(value):
                return "", "nothing"
            return (str(int(value)) if value.is_integer() else repr(value)), "numbers"
        case list() | tuple() | dict() | set():
            raise ValueError(
                f"a label must be one name or number, got {type(value).__name__} "
                f"{str(value)[:60]}; argmax(axis=1) numbers one-hot labels, and several labels an "
                "example are not supported"
            )
    text = str(value)
    return ("", "nothing") if text in ("<NA>", "NaT") else (text, type(value).__name__)


def _one_form_of_numbers(texts: list[str], reading: Reading) -> list[str]:
    """Text "1.0" as "1", where "1" is there as well."""
    there = set(texts)
    merged = {
        text: match[1]
        for text in there
        if (match := WHOLE_NUMBER.fullmatch(text)) and match[1] in there
    }
    if not merged:
        return texts
    shown = some([f"{old!r} and {new!r}" for old, new in merged.items()])
    reading.note(f"labels that are the same number are one class: {shown}")
    return [merged.get(text, text) for text in texts]
