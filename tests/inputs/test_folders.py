"""Folders of class folders: which images there are, and of which class."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from covlearn.inputs import Skipped
from covlearn.inputs.images import load_image
from tests.inputs.make import class_folders, picture, read_pixels, text


def test_class_folders(tmp_path: Path) -> None:
    examples = read_pixels(class_folders(tmp_path / "pets"))
    assert examples.ids == [f"{name}/{place}.png" for name in ("cat", "dog") for place in range(3)]
    assert examples.classes == ["cat", "dog"]
    assert examples.given == ["cat"] * 3 + ["dog"] * 3
    assert examples.y is not None
    assert examples.y.tolist() == [0, 0, 0, 1, 1, 1]
    assert examples.y.dtype == torch.int64
    assert examples.paths == [tmp_path / "pets" / name for name in examples.ids]
    assert examples.x.shape == (6, 32, 32, 3)
    assert examples.x.dtype == torch.uint8
    assert examples.table is None
    assert examples.skipped == []
    assert len(examples) == 6
    np.testing.assert_array_equal(examples.x[4], load_image(examples.paths[4], 32))


@pytest.mark.parametrize("suffix", [".jpg", ".jpeg", ".PNG", ".webp", ".bmp", ".gif", ".tiff"])
def test_kinds_of_files(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        for place in range(2):
            picture(tmp_path / name / f"{place}{suffix}")
    assert len(read_pixels(tmp_path)) == 4


def test_images_in_deeper_folders_are_of_the_class_above(tmp_path: Path) -> None:
    class_folders(tmp_path)
    picture(tmp_path / "cat" / "2024" / "may" / "x.png")
    examples = read_pixels(tmp_path)
    assert examples.given is not None
    assert examples.given[examples.ids.index("cat/2024/may/x.png")] == "cat"


def test_hidden_things_are_neither_classes_nor_images(tmp_path: Path) -> None:
    class_folders(tmp_path)
    for name in (".git/x.png", "__MACOSX/cat/x.png", "cat/.x.png", "cat/.cache/x.png"):
        picture(tmp_path / name)
    text(tmp_path / "cat" / "Thumbs.db", "")
    examples = read_pixels(tmp_path)
    assert len(examples) == 6
    assert examples.notes == []


def test_other_files_are_noted(tmp_path: Path) -> None:
    class_folders(tmp_path)
    text(tmp_path / "README.txt", "hello")
    (tmp_path / "empty").mkdir()
    examples = read_pixels(tmp_path)
    assert examples.classes == ["cat", "dog"]
    assert any("README.txt" in note for note in examples.notes)
    assert any("empty" in note for note in examples.notes)


def test_numbered_classes_are_sorted_as_numbers(tmp_path: Path) -> None:
    examples = read_pixels(class_folders(tmp_path, ("10", "9", "1")))
    assert examples.classes == ["1", "9", "10"]


def test_links_are_followed_and_may_point_to_themselves(tmp_path: Path) -> None:
    class_folders(tmp_path / "there")
    (tmp_path / "pets").mkdir()
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).symlink_to(tmp_path / "there" / name)
    (tmp_path / "there" / "cat" / "again").symlink_to(tmp_path / "there" / "cat")
    assert len(read_pixels(tmp_path / "pets")) == 6


def test_splits_are_no_classes(tmp_path: Path) -> None:
    class_folders(tmp_path / "train")
    class_folders(tmp_path / "test")
    with pytest.raises(ValueError, match=r"splits test, train; name one of them"):
        read_pixels(tmp_path)
    # A class may be called test if images lie in it.
    assert read_pixels(class_folders(tmp_path / "other", ("test", "train"))).classes


def test_images_without_a_class_folder(tmp_path: Path) -> None:
    class_folders(tmp_path)
    picture(tmp_path / "loose.png")
    with pytest.raises(ValueError, match=r"loose.png: it lies in no class folder"):
        read_pixels(tmp_path)
    examples = read_pixels(tmp_path, on_bad="skip")
    assert [item.id for item in examples.skipped] == ["loose.png"]
    for path in (picture(tmp_path / "flat" / "1.png"), tmp_path / "flat"):
        with pytest.raises(
            ValueError, match=r"of no kind that is read|must hold one folder a class"
        ):
            read_pixels(path)


def test_kinds_of_images_that_are_not_read_are_listed(tmp_path: Path) -> None:
    class_folders(tmp_path)
    text(tmp_path / "cat" / "x.heic", "x")
    with pytest.raises(ValueError, match=r"cat/x.heic: images of this kind are not read"):
        read_pixels(tmp_path)
    examples = read_pixels(tmp_path, on_bad="skip")
    assert [item.id for item in examples.skipped] == ["cat/x.heic"]


def test_folders_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_folders(tmp_path, ("cat", "dog", "owl"))
    scandir = os.scandir

    def denied(path: Path) -> object:  # root may read everything
        if Path(path).name == "owl":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(ValueError, match=r"owl: this folder cannot be read \(Permission denied\)"):
        read_pixels(tmp_path)
    assert [item.id for item in read_pixels(tmp_path, on_bad="skip").skipped] == ["owl"]


def test_names_that_are_no_text(tmp_path: Path) -> None:
    class_folders(tmp_path)
    try:
        os.rename(os.fsencode(tmp_path / "cat" / "0.png"), os.fsencode(tmp_path) + b"/cat/\xff.png")
    except OSError:
        pytest.skip("this file system takes no such name")
    with pytest.raises(ValueError, match=r"its name is no text in UTF-8"):
        read_pixels(tmp_path)
    assert len(read_pixels(tmp_path, on_bad="skip")) == 5


def test_one_class(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"at least two classes .* all examples are 'cat'"):
        read_pixels(class_folders(tmp_path, ("cat",)))


def test_a_class_of_one_image(tmp_path: Path) -> None:
    class_folders(tmp_path)
    picture(tmp_path / "owl" / "x.png")
    with pytest.raises(ValueError, match=r"owl/x.png: its class 'owl' has no other example"):
        read_pixels(tmp_path)
    examples = read_pixels(tmp_path, on_bad="skip")
    assert examples.classes == ["cat", "dog"]
    assert examples.skipped == [
        Skipped("owl/x.png", "its class 'owl' has no other example, and a class needs at least two")
    ]


def test_a_class_that_loses_its_images_to_damage_goes(tmp_path: Path) -> None:
    class_folders(tmp_path)
    picture(tmp_path / "owl" / "x.png")
    (tmp_path / "owl" / "y.png").write_bytes(b"no image")
    examples = read_pixels(tmp_path, on_bad="skip")
    assert examples.classes == ["cat", "dog"]
    assert len(examples.x) == len(examples) == 6
    assert [item.id for item in examples.skipped] == ["owl/y.png", "owl/x.png"]


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no image that can be read \(it is empty\)"):
        read_pixels(tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        read_pixels(tmp_path / "nowhere")


def test_images_to_predict(tmp_path: Path) -> None:
    trained = read_pixels(class_folders(tmp_path / "pets"))
    picture(tmp_path / "new" / "a.png", 3)
    picture(tmp_path / "new" / "deep" / "b.png", 1)
    examples = read_pixels(tmp_path / "new", recipe=trained.recipe)
    assert examples.ids == ["a.png", "deep/b.png"]
    assert examples.given is None
    assert examples.y is None
    assert examples.classes == ["cat", "dog"]
    assert torch.equal(examples.x, trained.x[[3, 1]])
    one = read_pixels(tmp_path / "new" / "a.png", recipe=trained.recipe)
    assert one.ids == ["a.png"]
    assert torch.equal(one.x, trained.x[3:4])


def test_labels_of_images_to_predict(tmp_path: Path) -> None:
    trained = read_pixels(class_folders(tmp_path / "pets", ("cat", "dog", "owl")))
    new = class_folders(tmp_path / "new", ("dog", "owl"), each=1)
    examples = read_pixels(new, recipe=trained.recipe)
    assert examples.given == ["dog", "owl"]
    assert examples.y is not None
    assert examples.y.tolist() == [1, 2]  # of training's classes
    loose = picture(new / "loose.png")
    assert read_pixels(new, recipe=trained.recipe).given is None  # one has no class folder
    loose.unlink()
    picture(new / "emu" / "x.png")
    assert read_pixels(new, recipe=trained.recipe).given is None  # not all are classes


def test_the_recipe_knows_the_channels(tmp_path: Path) -> None:
    source = class_folders(tmp_path / "pets")
    examples = read_pixels(source)
    for _ in ("read", "found again"):
        cached = read_pixels(source, cache=tmp_path / "cache")
        assert cached.recipe == examples.recipe
    pixels = examples.x.double() / 255
    np.testing.assert_allclose(examples.recipe["mean"], pixels.mean(dim=(0, 1, 2)), rtol=1e-9)
    spread = pixels.std(dim=(0, 1, 2), correction=0)
    np.testing.assert_allclose(examples.recipe["std"], spread, rtol=1e-9)
    new = read_pixels(class_folders(tmp_path / "new", each=2), recipe=examples.recipe)
    assert new.recipe == examples.recipe
    Image.new("RGB", (32, 32)).save(picture(tmp_path / "black" / "a" / "0.png"))
    for name in ("a/1.png", "b/0.png", "b/1.png"):
        Image.new("RGB", (32, 32)).save(picture(tmp_path / "black" / name))
    assert read_pixels(tmp_path / "black").recipe["std"] == [1 / 255] * 3


@pytest.mark.parametrize(
    ("side", "size"), [(8, 32), (28, 32), (45, 32), (46, 64), (100, 128), (150, 128), (400, 224)]
)
def test_the_size_is_chosen_by_the_median(tmp_path: Path, side: int, size: int) -> None:
    class_folders(tmp_path, size=(side + 7, side))  # the short side counts
    Image.new("RGB", (900, 900)).save(tmp_path / "cat" / "huge.png")
    examples = read_pixels(tmp_path)
    assert examples.recipe["size"] == size
    assert examples.x.shape == (7, size, size, 3)


def test_one_file_is_not_files(tmp_path: Path) -> None:
    class_folders(tmp_path, ("a", "b"))
    (tmp_path / "a" / "notes.txt").touch()
    note = "1 file that is no image by its name was left out: a/notes.txt"
    assert note in read_pixels(tmp_path).notes
    (tmp_path / "b" / "notes.txt").touch()
    notes = " ".join(read_pixels(tmp_path).notes)
    assert "2 files that are no images by their name were left out" in notes
