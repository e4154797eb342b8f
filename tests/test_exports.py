"""Exports of hostile data: names that leave the folder, images that clash, labels changed since.

And exports that are fitted again: they have what the source had, and nothing that covlearn made of it.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pytest
from PIL import Image

from covlearn import cells
from covlearn.atomic import remove_leftovers
from covlearn.cli import clean
from covlearn.exports import KINDS, export
from covlearn.fitted import FitResult, Fitted
from covlearn.inputs import read_examples
from covlearn.locks import held
from covlearn.saved import COLUMNS
from tests.inputs.make import picture, read_pixels

PIXELS = len(b"P5\n1 1\n255\n\0")
CLASSES = ["../up", "A", "a", "CON"]


def fitted(folder: Path, rows: list[tuple[str, str, str, str]]) -> Fitted:
    """A run whose examples (path, given, suggested, decision) are images with their path in them."""
    for path, *_ in rows:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with (folder / path).open("wb") as file:
            Image.new("L", (1, 1)).save(file, "PPM")
            file.write(path.encode())
    return judged(folder, rows, [str(folder / path) for path, *_ in rows], CLASSES)


def judged(
    folder: Path,
    rows: list[tuple[str, str, str, str]],
    paths: list[str | None],
    classes: list[str],
    *,
    table: pd.DataFrame | None = None,
    source: Path | None = None,
    **recipe: Any,
) -> Fitted:
    """A run with the verdicts (id, given, suggested, decision)."""
    folder.mkdir(exist_ok=True)
    if table is not None:
        table.to_parquet(folder / "table.parquet")
    pd.DataFrame({"id": [row[0] for row in rows], "path": paths}).to_parquet(
        folder / "examples.parquet"
    )
    table = [(*row, "0.1", "0.9", "because") for row in rows]
    cells.write_cells(folder / "labels.csv", COLUMNS, table)
    result = FitResult("cal", 0, len(rows), len(classes), [], 0.5, {}, {}, {}, 1.0)
    config = {"covlearn": "0", "source": {"path": None if source is None else str(source)}}
    return Fitted(folder, config, result, recipe, classes, None, None)


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


def test_what_a_killed_export_left_goes_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container every process may have the same number."""
    run = fitted(tmp_path / "run", ROWS)
    left = [tmp_path / f"out.{name}.partial" for name in (os.getpid(), "0123")]
    for place in left:
        (place / "data").mkdir(parents=True)
    (tmp_path / "out.mine.partial").mkdir()
    with held(left[1]):  # an export at work
        export(run, tmp_path / "out", "csv")
    assert sorted(os.listdir(tmp_path)) == ["out", "out.0123.partial", "out.mine.partial", "run"]

    def look(*_: object) -> None:
        (mine,) = tmp_path.glob("new.*.partial")
        remove_leftovers(tmp_path / "new")
        assert mine.exists()

    monkeypatch.setitem(KINDS, "csv", look)
    export(run, tmp_path / "new", "csv")


def test_a_link_is_no_place_for_an_export(tmp_path: Path) -> None:
    run = fitted(tmp_path / "run", ROWS)
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nothing"):
        link = tmp_path / f"to_{name}"
        link.symlink_to(tmp_path / name)
        with pytest.raises(ValueError, match="must be new or an empty folder"):
            export(run, link, "csv")


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


# ---- Fitted again -----------------------------------------------------------------------------

OWN = {
    "quality": [0.5, 3.0, 2.5, 9.0, 7.0, 8.0],  # the owner's, of wine
    "kind": ["red", "red", "red", "white", "white", "white"],
}
JUDGED = [
    ("0", "red", "red", "keep"),
    ("1", "red", "red", "review"),
    ("2", "red", "white", "relabel"),
    ("3", "white", "red", "drop"),
    ("4", "white", "white", "keep"),
    ("5", "white", "white", "keep"),
]


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("more", "id", "ids"),
    [
        ({}, None, ["0", "1", "2", "4", "5"]),  # the numbers of rows, some of which are gone
        ({"key": list("abcdef")}, "key", ["a", "b", "c", "e", "f"]),
        ({"id": list("aabbbb")}, None, ["0", "1", "2", "3", "4"]),  # names groups
    ],
)
def test_a_table_is_read_again_as_it_was(
    tmp_path: Path, form: str, more: dict[str, list[str]], id: str | None, ids: list[str]
) -> None:
    table = pd.DataFrame(OWN | more)
    rows = JUDGED if id is None else [(table[id][n], *row[1:]) for n, row in enumerate(JUDGED)]
    options = {"table": table, "label": "kind", "id": id, "image": None}
    run = judged(tmp_path / "run", rows, [None] * 6, ["red", "white"], **options)
    export(run, tmp_path / "out", form)
    first = read_examples(table, label="kind", id=id)
    again = read_examples(tmp_path / "out" / f"clean.{form}", label="kind", id=id)
    names = [[column["name"] for column in e.recipe["columns"]] for e in (first, again)]
    assert "quality" in names[0]
    assert names[1] == names[0]
    assert again.ids == ids
    assert again.table["quality"].tolist() == [0.5, 3.0, 2.5, 7.0, 8.0]
    assert again.given == ["red", "red", "white", "white", "white"]
    assert sorted(os.listdir(tmp_path / "out")) == [f"clean.{form}", "verdicts.csv"]
    assert cells.read_cells(tmp_path / "out" / "verdicts.csv") == run.labels
    read_examples(table.drop(columns="kind"), recipe=again.recipe)  # predicting needs no more


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_ids_stand_beside_an_id_that_repeats(tmp_path: Path, form: str) -> None:
    """It names groups; without the examples' own ids the verdicts belonged to no row."""
    table = pd.DataFrame(OWN | {"id": list("aabbbb")})
    options: dict[str, Any] = {"table": table, "kind": "table", "label": "kind"}
    run = judged(tmp_path / "run", JUDGED, [None] * 6, ["red", "white"], **options)
    done = export(run, tmp_path / "out", form)
    args = argparse.Namespace(form=form, out=tmp_path / "out", dry_run=False)
    assert clean.summary(done, run, args)[-1].endswith("--label kind --id example_id --out RUN")
    again = read_examples(tmp_path / "out" / f"clean.{form}", label="kind", id="example_id")
    assert again.ids == ["0", "1", "2", "4", "5"]
    assert again.table["id"].tolist() == list("aabbb")


@pytest.mark.parametrize(
    ("image", "id", "said"),
    [
        ("id", None, "--id example_id --image id"),
        ("ID", "id", "--id id --image ID"),
        ("file", None, "--id id --image file"),
    ],
)
def test_the_command_to_fit_again_names_every_column_that_is_more_than_a_feature(
    tmp_path: Path, image: str, id: str | None, said: str
) -> None:
    """A column called id may hold the images, or stand beside another of nearly that name."""
    names = [f"{n}.png" for n in range(6)]
    for name in names:
        (tmp_path / name).touch()
    table = pd.DataFrame({"kind": OWN["kind"], image: names} | ({} if id is None else {id: names}))
    options: dict[str, Any] = {"table": table, "kind": "images", "label": "kind", "image": image}
    rows = [(name, *row[1:]) for name, row in zip(names, JUDGED, strict=True)]
    paths: list[str | None] = [str(tmp_path / name) for name in names]
    run = judged(tmp_path / "run", rows, paths, ["red", "white"], id=id, **options)
    done = export(run, tmp_path / "out", "csv")
    args = argparse.Namespace(form="csv", out=tmp_path / "out", dry_run=False)
    assert clean.summary(done, run, args)[-1].endswith(f"--label kind {said} --out RUN")


SEEN = [
    ("cat/a b.png", "cat", "cat", "keep"),
    ("cat/1.png", "cat", "dog", "relabel"),
    ("cat/2.png", "cat", "cat", "keep"),
    ("dog/1.png", "dog", "dog", "drop"),
    ("dog/2.png", "dog", "dog", "review"),
]


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("manifest", [False, True])
def test_images_are_read_again_from_where_they_are(
    tmp_path: Path, form: str, manifest: bool
) -> None:
    images = tmp_path / "images of mine"
    paths = [picture(images / row[0], seed) for seed, row in enumerate(SEEN)]
    options: dict[str, Any] = {}
    if manifest:  # whose paths start at its own folder, not at that of the export
        table = pd.DataFrame({"what": [row[1] for row in SEEN], "file": [row[0] for row in SEEN]})
        options = {"table": table, "label": "what", "image": "file"}
    run = judged(tmp_path / "run", SEEN, [str(path) for path in paths], ["cat", "dog"], **options)
    done = export(run, tmp_path / "out", form)
    assert done.images == images
    names = {"label": "what", "image": "file"} if manifest else {}
    again = read_pixels(tmp_path / "out" / f"clean.{form}", **names)
    assert again.ids == [row[0] for row in SEEN if row[3] != "drop"]
    assert again.given == ["cat", "dog", "cat", "dog"]
    assert [path.resolve() for path in again.paths or ()] == [*paths[:3], paths[4]]


def test_without_links_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(1, "Operation not permitted")

    run = fitted(tmp_path / "run", ROWS)
    monkeypatch.setattr(Path, "symlink_to", refuse)
    export(run, tmp_path / "out", "csv")
    paths = cells.read_cells(tmp_path / "out" / "clean.csv")["path"]
    assert paths == [str(tmp_path / "run" / row[0]) for row in ROWS if row[3] != "drop"]


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("place", ["clean", "cat/clean", "../link/clean", "empty"])
def test_a_place_in_the_source_is_refused(tmp_path: Path, place: str, dry_run: bool) -> None:
    source = tmp_path / "source"
    paths = [picture(source / row[0], seed) for seed, row in enumerate(SEEN)]
    (source / "empty").mkdir()
    (tmp_path / "link").symlink_to(source)
    there = sorted(source.rglob("*"))
    run = judged(
        tmp_path / "run", SEEN, [str(path) for path in paths], ["cat", "dog"], source=source
    )
    with pytest.raises(ValueError, match=r"must not lie in .*source.*choose a folder outside"):
        export(run, source / place, "folder", dry_run=dry_run)
    assert sorted(source.rglob("*")) == there
    export(run, tmp_path / "source-clean", "folder", dry_run=dry_run)  # beside it is well


@pytest.mark.parametrize(
    ("classes", "folders"),
    [
        (["un 1", "zéro", "二"], ["un 1", "zéro", "二"]),
        (["A_B", "a b", "a_b"], ["A_B", "a b", "a_b-2"]),
        (["X", "x", "x-2"], ["X", "x-3", "x-2"]),  # the last has a right to its name
        (["a/b", "a_b"], ["a_b-2", "a_b"]),
        (["con .x", "nul", "a ", "b. c", "d."], ["_con .x", "_nul", "a", "b. c", "d"]),
    ],
)
def test_classes_keep_their_names_where_they_can(
    tmp_path: Path, classes: list[str], folders: list[str]
) -> None:
    rows = [(f"{n}.png", name, name, "keep") for n, name in enumerate(classes)]
    paths: list[str | None] = [str(picture(tmp_path / "source" / row[0])) for row in rows]
    run = judged(tmp_path / "run", rows, paths, classes)
    planned = export(run, tmp_path / "out", "folder", dry_run=True)
    assert not (tmp_path / "out").exists()
    assert export(run, tmp_path / "out", "folder") == planned
    assert planned.folders == dict(zip(classes, folders, strict=True))
    assert sorted(os.listdir(tmp_path / "out")) == sorted(folders)
    for number, folder in enumerate(folders):
        assert os.listdir(tmp_path / "out" / folder) == [f"{number}.png"]


def test_a_long_name_keeps_its_ending(tmp_path: Path) -> None:
    names = ["short.png", f"{'x' * 120}.png", f"{'図' * 40}.png", f"{'図' * 41}.png"]
    rows = [(name, "a", "a", "keep") for name in names]
    paths: list[str | None] = [str(picture(tmp_path / "source" / name)) for name in names]
    export(judged(tmp_path / "run", rows, paths, ["a", "b"]), tmp_path / "out", "folder")
    made = sorted((tmp_path / "out" / "a").iterdir())
    assert len(made) == len(names)
    assert {path.suffix for path in made} == {".png"}
