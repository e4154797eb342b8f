"""Looking at a source without reading its inputs, as ``--dry-run`` does."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from covlearn.inputs import images, pictures, read_examples, sources, table_files
from tests.inputs.make import class_folders, picture, text

FACTS = ("ids", "given", "classes", "notes", "skipped")


def alike(source: Any, **options: Any) -> None:
    """Both ways give the same of everything but the inputs' values."""
    look, whole = (read_examples(source, look=look, **options) for look in (True, False))
    for name in FACTS:
        assert getattr(look, name) == getattr(whole, name), name
    assert look.x.shape == whole.x.shape
    assert look.x.dtype == whole.x.dtype
    assert not look.x.any()
    assert look.x.untyped_storage().nbytes() <= 4


@pytest.fixture
def table(tmp_path: Path) -> pd.DataFrame:
    rows = np.arange(60)
    return pd.DataFrame(
        {
            "id": [f"n{row}" for row in rows],
            "size": rows % 7 + 0.5,
            "colour": np.array(["red", "green", "blue"])[rows % 3],
            "flag": rows % 5 > 1,
            "label": np.array(["x", "y"])[rows % 2],
        }
    )


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("looked", [1000, 25])
def test_tables(
    tmp_path: Path, table: pd.DataFrame, name: str, looked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    table.to_csv(path, index=False) if name == "t.csv" else table.to_parquet(path)
    monkeypatch.setattr(sources, "LOOKED_AT", looked)
    alike(path)
    recipe = read_examples(path).recipe
    alike(path, recipe=recipe)


def test_rows_of_a_table_beyond_the_first_are_not_read(
    tmp_path: Path, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LOOKED_AT", 25)
    table["size"] = table["size"].astype(object)
    table.loc[40, "size"] = "inf"
    table.to_csv(tmp_path / "t.csv", index=False)
    assert len(read_examples(tmp_path / "t.csv", look=True)) == 60
    with pytest.raises(ValueError, match="column 'size' must hold a finite number"):
        read_examples(tmp_path / "t.csv")


def test_a_column_without_a_name(tmp_path: Path, table: pd.DataFrame) -> None:
    table.to_csv(tmp_path / "t.csv")
    alike(tmp_path / "t.csv")
    alike(tmp_path / "t.csv", recipe=read_examples(tmp_path / "t.csv").recipe)


@pytest.mark.parametrize("rows", [slice(0, 1), slice(24, 26), slice(59, 60), slice(0, 60)])
@pytest.mark.parametrize("more", [",", ",x"])
def test_lines_with_a_cell_too_many_are_refused_in_the_same_words(
    tmp_path: Path, table: pd.DataFrame, rows: slice, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LOOKED_AT", 25)
    monkeypatch.setattr(table_files, "ROWS_AT_ONCE", 10)
    head, *lines = table.to_csv(index=False).splitlines()
    lines[rows] = [f"{line}{more}" for line in lines[rows]]
    text(tmp_path / "t.csv", head, *lines)
    said = []
    for look in (True, False):
        with pytest.raises(ValueError, match=r"every line must have as many cells") as refused:
            read_examples(tmp_path / "t.csv", look=look)
        said.append(str(refused.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("shape", [(4,), (2, 3), (9, 9, 3)])
def test_arrays(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 256, (12, *shape))
    x = values.astype(np.uint8 if len(shape) == 3 else np.float32)
    y = np.arange(12) % 3
    np.savez(tmp_path / "a.npz", x=x, y=y[:, None], ids=np.arange(12) * 5)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    for name in ("a.npz", "x.npy"):
        alike(tmp_path / name, features="none")


def test_of_an_archive_only_labels_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((12, 4)), y=np.arange(12) % 3)
    read = np.lib.format.read_array
    shapes = []

    def counted(*args: Any, **options: Any) -> Any:
        shapes.append(read(*args, **options).shape)
        return np.arange(12) % 3

    monkeypatch.setattr("numpy.lib._npyio_impl.format.read_array", counted)
    assert read_examples(tmp_path / "a.npz", look=True).x.shape == (12, 4)
    assert shapes == [(12,)]


def test_images(tmp_path: Path) -> None:
    alike(class_folders(tmp_path / "small"), features="none")
    alike(class_folders(tmp_path / "large", size=(70, 60)), features="none")


def test_no_image_is_decoded_and_few_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("cat", "dog"):
        for number in range(30):
            path = tmp_path / kind / f"{number:02}.png"
            picture(path, number)
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2])  # its header is there, its picture is not
    opened = []

    def counted(source: Any) -> tuple[int, int]:
        opened.append(source)
        return images.check_image(source)

    monkeypatch.setattr(pictures, "SAMPLED", 10)
    monkeypatch.setattr(pictures, "check_image", counted)
    monkeypatch.setattr(pictures, "load_image", lambda *_: pytest.fail("an image was decoded"))
    examples = read_examples(tmp_path, features="none", look=True)
    assert (len(examples), examples.classes) == (60, ["cat", "dog"])
    assert 0 < len(set(opened)) <= 10


def test_images_that_cannot_be_read_are_refused_or_left_out_as_when_all_is_read(
    tmp_path: Path,
) -> None:
    class_folders(tmp_path, ("a", "b"))
    (tmp_path / "a" / "bad.png").write_bytes(b"no image")
    said = []
    for look in (True, False):
        with pytest.raises(ValueError, match=r"a/bad.png: it is no image") as refused:
            read_examples(tmp_path, features="none", look=look)
        said.append(str(refused.value))
    assert said[0] == said[1]
    looked, whole = (
        read_examples(tmp_path, features="none", look=look, on_bad="skip") for look in (True, False)
    )
    assert looked.skipped == whole.skipped
    assert looked.ids == whole.ids
    assert looked.x.shape == whole.x.shape


def test_labels_are_checked_as_they_are_before_reading(tmp_path: Path) -> None:
    class_folders(tmp_path, ("one",))
    with pytest.raises(ValueError, match="at least two classes"):
        read_examples(tmp_path, features="none", look=True)
