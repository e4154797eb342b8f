"""Text, JSON and CSV files of whoever wrote them: what is wrong with one is a sentence."""

import csv
import io
import json
from pathlib import Path
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """The value that JSON from anywhere describes; what is wrong with it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_text(path: Path) -> str:
    """A file of a run as text."""
    try:
        return path.read_bytes().decode()  # line ends stay as they are
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ValueError(f"{path} is missing: {path.parent} is not the folder of a run") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text, but it is damaged: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a run."""
    text = read_text(path)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{path} must hold JSON, but it is damaged: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value


def read_columns(path: Path) -> dict[str, list[str]]:
    """The columns of a CSV file with a line of names, as text."""
    try:
        names, *rows = csv.reader(io.StringIO(read_text(path), newline=""))
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        return {name: list(column) for name, column in zip(names, columns, strict=True)}
    except (ValueError, csv.Error) as error:
        raise ValueError(
            f"{path} must be a table of covlearn, but it is damaged: {error}"
        ) from error
