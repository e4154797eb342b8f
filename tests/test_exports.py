"""Exports of hostile data: names that leave the folder, images that clash, labels changed since."""

import json
import os
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest
from PIL import Image

from covlearn import cells
from covlearn.exports import export
from covlearn.fitted import FitResult, Fitted
from covlearn.saved import COLUMNS

PIXELS = len(b"P5\n1 1\n255\n\0")
CLASSES = ["../up", "A", "a", "CON"]


def fitted(folder: Path, rows: list[tuple[str, str, str, str]]) -> Fitted:
    """A run whose examples (path, given, suggested, decision) are images with their path in them."""
    for path, *_ in rows:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with (folder / path).open("wb") as file:
            Image.new("L", (1, 1)).save(file, "PPM")
            file.write(path.encode())
    paths = [str(folder / path) for path, *_ in rows]
    pd.DataFrame({"id": [row[0] for row in rows], "path": paths}).to_parquet(
        folder / "examples.parquet"
    )
    table = [(*row, "0.1", "0.9", "because") for row in rows]
    cells.write_cells(folder / "labels.csv", COLUMNS, table)
    result = FitResult("cal", 0, len(rows), len(CLASSES), [], 0.5, {}, {}, {}, 1.0)
    return Fitted(folder, {"covlearn": "0"}, result, {}, CLASSES, None, None)


ROWS = [
    ("x/1.png", "../up", "../up", "keep"),
    ("y/1.png", "A", "../up", "relabel"),
    ("y/2.png", "A", "a", "relabel"),
    ("y/3.png", "CON", "a", "review"),
    ("y/4.png", "A", "a", "drop"),
    ("y/.5.png", "a", "a", "keep"),
]


def test_hostile_names_are_made_safe_and_none_is_lost(tmp_path: Path) -> None:
    run = fitted(tmp_path / "run", ROWS)
    done = export(run, tmp_path / "out", "folder")
    found = {
        str(path.relative_to(tmp_path / "out")): path.read_bytes()[PIXELS:].decode()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert found == {
        "_up/1.png": "x/1.png",
        "_up/1-2.png": "y/1.png",
        "a-2/2.png": "y/2.png",
        "_CON/3.png": "y/3.png",
        "a-2/5.png": "y/.5.png",
    }
    assert (done.examples, done.relabelled, done.left_out) == (5, 2, 1)
    assert sorted(os.listdir(tmp_path)) == ["out", "run"]


def test_images_are_linked_unless_they_are_to_be_copied(tmp_path: Path) -> None:
    run = fitted(tmp_path / "run", ROWS)
    export(run, tmp_path / "linked", "folder")
    export(run, tmp_path / "copied", "folder", copy=True)
    source = tmp_path / "run" / "x" / "1.png"
    assert (tmp_path / "linked" / "_up" / "1.png").samefile(source)
    assert not (tmp_path / "copied" / "_up" / "1.png").samefile(source)


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    run = fitted(tmp_path / "run", ROWS)
    (tmp_path / "run" / "y" / "2.png").unlink()
    with pytest.raises(ValueError, match=r"2\.png is not there any more"):
        export(run, tmp_path / "out", "folder")
    assert os.listdir(tmp_path) == ["run"]


def test_label_studio_is_told_where_images_are_below_its_document_root(tmp_path: Path) -> None:
    rows = [(row[0].replace("y/", "y & z/"), *row[1:]) for row in ROWS]
    run = fitted(tmp_path / "my run", rows)
    done = export(run, tmp_path / "out", "label-studio")
    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text())
    assert done.tasks == len(tasks) == 4
    assert done.images == tmp_path / "my run"
    prefix = "/data/local-files/?d="
    for task in tasks:
        assert task["data"]["image"].startswith(f"{prefix}my%20run/y%20%26%20z/")
        served = done.images.parent / unquote(task["data"]["image"].removeprefix(prefix))
        assert served == tmp_path / "my run" / task["data"]["id"]
        assert served.is_file()


def test_labels_that_were_changed_since_are_refused(tmp_path: Path) -> None:
    run = fitted(tmp_path / "run", ROWS)
    table = [(*row, "0.1", "0.9", "because") for row in reversed(ROWS)]
    cells.write_cells(tmp_path / "run" / "labels.csv", COLUMNS, table)
    with pytest.raises(ValueError, match="must have the 6 examples of"):
        export(run, tmp_path / "out", "csv")
    assert os.listdir(tmp_path) == ["run"]
