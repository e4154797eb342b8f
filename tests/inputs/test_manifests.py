"""Tables that name image files."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from covlearn.inputs import read_examples
from tests.inputs.make import class_folders, picture, read_pixels, text


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """cat/0.png … dog/2.png in a folder."""
    return class_folders(tmp_path / "data")


LINES = (
    "path,label",
    *(f"{name}/{place}.png,{name}" for name in ("cat", "dog") for place in (0, 1, 2)),
)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_paths_are_relative_to_the_file(images: Path, suffix: str) -> None:
    manifest = text(images / "labels.csv", *LINES)
    if suffix == "parquet":
        pd.read_csv(manifest).to_parquet(images / "labels.parquet")
    examples = read_pixels(images / f"labels.{suffix}")
    folder = class_folders(images.parent / "same")
    other = read_pixels(folder)
    assert examples.ids == other.ids
    assert examples.given == other.given
    assert torch.equal(examples.x, other.x)
    assert examples.paths == [images / name for name in examples.ids]
    assert examples.table["path"].tolist() == examples.ids
    assert examples.recipe["image"] == "path"


def test_a_column_is_named(images: Path) -> None:
    lines = [line.replace("path,label", "where,what") for line in LINES]
    manifest = text(images / "labels.csv", *lines)
    examples = read_pixels(manifest, image="where", label="what")
    assert examples.classes == ["cat", "dog"]
    # A column that is called path but holds none is a category.
    table = text(images / "table.csv", "path,label,size", "x,a,1", "y,b,2", "x,a,4", "y,b,3")
    assert read_examples(table).recipe["kind"] == "table"


def test_columns_that_nothing_is_learned_from_are_named_once(images: Path) -> None:
    lines = [f"{line},{place % 2},x" for place, line in enumerate(LINES[1:])]
    manifest = text(images / "labels.csv", f"{LINES[0]},age,site", *lines)
    examples = read_pixels(manifest)
    said = "images alone are learned from, not the columns age, site"
    assert examples.notes == [said]
    assert read_pixels(pd.read_csv(manifest).assign(path=examples.paths)).notes == [said]
    assert list(examples.table.columns) == ["path", "label", "age", "site"]
    assert read_pixels(text(images / "plain.csv", *LINES)).notes == []
    assert read_examples(manifest, recipe=examples.recipe).notes == []


def test_ids_of_their_own(images: Path) -> None:
    lines = ["id,path,label", *(f"n{place},{line}" for place, line in enumerate(LINES[1:]))]
    examples = read_pixels(text(images / "labels.csv", *lines))
    assert examples.ids == ["n0", "n1", "n2", "n3", "n4", "n5"]


def test_backslashes_are_slashes(images: Path) -> None:
    manifest = text(images / "labels.csv", *(line.replace("/", "\\") for line in LINES))
    assert read_pixels(manifest).ids[0] == "cat/0.png"


@pytest.mark.parametrize(
    "path", ["../secret.png", "cat/../../secret.png", "{root}/secret.png", "/etc/x.png"]
)
def test_paths_must_not_leave_the_folder(images: Path, path: str) -> None:
    picture(images.parent / "secret.png")
    path = path.format(root=images.parent)
    manifest = text(images / "labels.csv", *LINES, f"{path},cat")
    with pytest.raises(
        ValueError, match=r"line 8: its image .* lies outside of .*; move the table"
    ):
        read_pixels(manifest)
    examples = read_pixels(manifest, on_bad="skip")
    assert len(examples) == 6
    assert [item.id for item in examples.skipped] == ["line 8"]


def test_paths_that_stay_inside_in_a_roundabout_way(images: Path) -> None:
    lines = [*LINES[:-2], f"{images}/dog/1.png,dog", "cat/../dog/./2.png,dog"]
    assert read_pixels(text(images / "labels.csv", *lines)).ids[-2:] == ["dog/1.png", "dog/2.png"]


def test_an_image_twice(images: Path) -> None:
    manifest = text(images / "labels.csv", *LINES, "cat/../dog/1.png,cat")
    with pytest.raises(
        ValueError, match=r"dog/1.png \(line 8\): its id is that of line 6 too.*'dog' and 'cat'"
    ):
        read_pixels(manifest)
    examples = read_pixels(manifest, on_bad="skip")
    assert len(examples) == 6
    assert examples.given is not None
    assert examples.given[4] == "dog"


def test_bad_rows_are_all_listed(images: Path) -> None:
    (images / "cat" / "0.png").write_bytes(b"")
    manifest = text(images / "labels.csv", *LINES, "cat/9.png,cat", ",dog", "cat/1.png ,")
    with pytest.raises(
        ValueError, match=r"2 examples that cannot be used: line 9: it has no image path"
    ):
        read_pixels(manifest)
    examples = read_pixels(manifest, on_bad="skip")
    assert {item.id: item.reason.partition(" (")[0] for item in examples.skipped} == {
        "line 9": "it has no image path",
        "cat/1.png (line 10)": "its id is that of line 3 too, and ids must be different; the labels "
        "differ, 'cat' and ''",
        "cat/0.png": "it is empty",
        "cat/9.png": "there is no such file",
    }
    assert examples.ids == ["cat/1.png", "cat/2.png", "dog/0.png", "dog/1.png", "dog/2.png"]
    assert len(examples.x) == len(examples.table) == 5


def test_a_table_in_memory_may_name_files_anywhere(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(images / "cat")
    table = pd.DataFrame(
        {
            "image": [
                images / "dog" / "0.png",
                str(images / "dog" / "1.png"),
                "0.png",
                "../cat/1.png",
            ],
            "label": ["d", "d", "c", "c"],
        }
    )
    examples = read_pixels(table)
    assert examples.ids == ["dog/0.png", "dog/1.png", "cat/0.png", "cat/1.png"]
    assert examples.paths is not None
    assert examples.paths[2] == images / "cat" / "0.png"


def test_images_to_predict(images: Path) -> None:
    trained = read_pixels(text(images / "labels.csv", *LINES))
    new = text(images / "new.csv", "path", "dog/1.png", "cat/0.png")
    examples = read_pixels(new, recipe=trained.recipe)
    assert examples.given is None
    assert torch.equal(examples.x, trained.x[[4, 0]])
    folder = read_pixels(images, recipe=trained.recipe)  # from a manifest to a folder
    assert torch.equal(folder.x, trained.x)
    assert folder.given == trained.given
