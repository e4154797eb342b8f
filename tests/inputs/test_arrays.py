"""Arrays and array files."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from covlearn.inputs import read_examples
from tests.inputs.make import pixels, read_pixels

X = np.random.default_rng(0).normal(3, [1, 20, 0.1], (12, 3))
Y = np.array(["b", "a"] * 6)


def expected(x: NDArray[Any] = X) -> NDArray[Any]:
    result: NDArray[Any] = (x - x.mean(axis=0)) / x.std(axis=0)
    return result


def test_a_pair() -> None:
    for x in (X, X.tolist(), torch.from_numpy(X), X.astype(np.float16).astype(np.float64)):
        examples = read_examples((x, Y))
        np.testing.assert_allclose(examples.x, expected(np.asarray(x)), rtol=1e-4, atol=1e-5)
        assert examples.ids == [str(row) for row in range(12)]
        assert examples.classes == ["a", "b"]
        assert examples.y is not None
        assert examples.y.tolist() == [1, 0] * 6
        assert examples.recipe["kind"] == "features"


@pytest.mark.parametrize(
    ("x", "y"), [("x", "y"), ("X", "Y"), ("features", "labels"), ("embeddings", "targets")]
)
def test_npz(tmp_path: Path, x: str, y: str) -> None:
    np.savez(tmp_path / "d.npz", allow_pickle=False, **{x: X, y: Y})
    examples = read_examples(tmp_path / "d.npz")
    np.testing.assert_allclose(examples.x, expected(), rtol=1e-5, atol=1e-6)
    assert examples.given == Y.tolist()
    assert torch.equal(read_examples({x: X, y: Y}).x, examples.x)


def test_npz_with_names_of_its_own(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=X, kind=Y, ids=[f"n{row}" for row in range(12)], more=X)
    with pytest.raises(
        ValueError, match=r"must hold the labels as y, .* it holds x, kind, ids, more"
    ):
        read_examples(tmp_path / "d.npz")
    examples = read_examples(tmp_path / "d.npz", label="kind")
    assert examples.ids[3] == "n3"
    assert any("not looked at: more" in note for note in examples.notes)
    again = read_examples(tmp_path / "d.npz", recipe=examples.recipe)
    assert again.given == examples.given  # the recipe knows which array it was
    assert again.ids == examples.ids
    with pytest.raises(ValueError, match=r"has no array 'kinds', which label names"):
        read_examples(tmp_path / "d.npz", label="kinds")
    np.savez(tmp_path / "e.npz", z=X, y=Y)
    with pytest.raises(ValueError, match=r"must hold the inputs as x, features.*holds z, y"):
        read_examples(tmp_path / "e.npz")


@pytest.mark.parametrize(
    ("x", "y"),
    [("x", "y"), ("X_train", "y_train"), ("features", "labels"), ("embeddings_1", "labels_1")],
)
def test_npy_pairs(tmp_path: Path, x: str, y: str) -> None:
    np.save(tmp_path / f"{x}.npy", X)
    with pytest.raises(ValueError, match=rf"{x}.npy has no labels; put them beside it"):
        read_examples(tmp_path / f"{x}.npy")
    np.save(tmp_path / f"{y}.npy", Y)
    np.testing.assert_allclose(
        read_examples(tmp_path / f"{x}.npy").x, expected(), rtol=1e-5, atol=1e-6
    )


def test_npy_with_a_file_of_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", X)
    np.save(tmp_path / "yours.npy", Y)
    for label in ("yours.npy", str(tmp_path / "yours.npy")):
        assert read_examples(tmp_path / "mine.npy", label=label).classes == ["a", "b"]
    with pytest.raises(ValueError, match=r"nowhere.npy cannot be read.*No such file"):
        read_examples(tmp_path / "mine.npy", label="nowhere.npy")


def test_new_rows(tmp_path: Path) -> None:
    trained = read_examples((X, Y))
    np.save(tmp_path / "new.npy", X[5:7])
    for source in (X[5:7], tmp_path / "new.npy", {"x": X[5:7]}, torch.from_numpy(X[5:7])):
        examples = read_examples(source, recipe=trained.recipe)
        assert torch.equal(examples.x, trained.x[5:7])
        assert examples.given is None
    with pytest.raises(
        ValueError, match=r"must have 3 features an example, as training had, got 2"
    ):
        read_examples(X[:, :2], recipe=trained.recipe)
    with pytest.raises(ValueError, match=r"larger by far than any of training"):
        read_examples(np.full((1, 3), 1e300), recipe=trained.recipe)
    far = np.stack([np.full(3, 1e300), X[0]])
    examples = read_examples(far, recipe=trained.recipe, on_bad="skip")
    assert examples.ids == ["1"]
    assert torch.equal(examples.x, trained.x[:1])


def test_inputs_that_are_not_finite() -> None:
    x = X.copy()
    x[3, 1], x[7] = np.nan, np.inf
    with pytest.raises(
        ValueError, match=r"2 examples .* 3: its inputs must be finite, got NaN .* at 1"
    ):
        read_examples((x, Y))
    examples = read_examples((x, Y), on_bad="skip")
    kept = [row for row in range(12) if row not in (3, 7)]
    assert examples.ids == [str(row) for row in kept]
    np.testing.assert_allclose(examples.x, expected(X[kept]), rtol=1e-4, atol=1e-5)
    assert [item.id for item in examples.skipped] == ["3", "7"]
    with pytest.raises(ValueError, match=r"not one row of the data is finite"):
        read_examples((np.full((4, 2), np.nan), ["a", "b"] * 2), on_bad="skip")


def test_columns_of_one_value_are_zero() -> None:
    x = np.concatenate([X, np.full((12, 1), 0.1)], axis=1)
    assert (read_examples((x, Y)).x[:, 3] == 0).all()
    with pytest.raises(ValueError, match="all alike"):
        read_examples((np.full((12, 2), 0.1), Y))


def test_more_dimensions_are_flattened() -> None:
    examples = read_examples((X.reshape(12, 1, 3), Y))
    np.testing.assert_allclose(examples.x, expected(), rtol=1e-5, atol=1e-6)
    assert any("flattened to 3 features" in note for note in examples.notes)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y[:5], r"12 examples and 5 labels"),
        (X[:0], Y[:0], r"no example that can be used|at least two classes"),
        (X[:, 0], Y, r"must have shape \(examples, features\)"),
        (X.astype(str), Y, r"must be numbers, got <U"),
        (X.astype(object), Y, r"must be numbers, got Python objects"),
        (np.array(3.0), Y, r"must be an array"),
        (X, None, r"must have labels to learn from"),
    ],
)
def test_bad_pairs(x: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_examples((x, y))


def test_duplicate_ids() -> None:
    source = {"x": X, "y": Y, "ids": ["same", "same", *map(str, range(10))]}
    with pytest.raises(ValueError, match=r"same \(row 1\): its id is that of row 0 too"):
        read_examples(source)
    assert len(read_examples(source, on_bad="skip")) == 11


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=X, y=Y.astype(object))
    with pytest.raises(ValueError, match=r"d.npz cannot be read .* never unpickled"):
        read_examples(tmp_path / "d.npz")
    np.save(tmp_path / "x.npy", X.astype(object), allow_pickle=True)
    np.save(tmp_path / "y.npy", Y)
    with pytest.raises(ValueError, match=r"x.npy cannot be read .* never unpickled"):
        read_examples(tmp_path / "x.npy")


def test_damaged_files(tmp_path: Path) -> None:
    zipfile.ZipFile(tmp_path / "d.npz", "w").close()
    with pytest.raises(ValueError, match=r"d.npz is an archive of nothing"):
        read_examples(tmp_path / "d.npz")
    zipfile.ZipFile(tmp_path / "d.zip", "w").close()
    with pytest.raises(ValueError, match=r"d.zip is an archive of nothing; unpack it"):
        read_examples(tmp_path / "d.zip")
    for name in ("e.npz", "e.npy", "f.npz", "f.npy"):
        np.savez(tmp_path / "whole.npz", x=X, y=Y)
        np.save(tmp_path / "labels.npy", Y)
        content = (tmp_path / "whole.npz").read_bytes()
        (tmp_path / name).write_bytes(b"" if name.startswith("e") else content[: len(content) // 2])
        with pytest.raises(ValueError, match=rf"{name} cannot be read"):
            read_examples(tmp_path / name, label="labels.npy" if name.endswith("npy") else None)
    (tmp_path / "d.xyz").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"d.xyz is of no kind that is read; name a folder"):
        read_examples(tmp_path / "d.xyz")


def test_images_in_arrays(tmp_path: Path) -> None:
    images = np.stack([pixels(seed, 32, 32) for seed in range(6)])
    y = [0, 1] * 3
    examples = read_pixels((images, y))
    np.testing.assert_array_equal(examples.x, images)
    assert examples.recipe["kind"] == "images"
    assert examples.paths is None
    channels_first = torch.from_numpy(images).permute(0, 3, 1, 2)
    assert torch.equal(read_pixels((channels_first, y)).x, examples.x)
    grey = read_pixels((images[..., 0], y))
    np.testing.assert_array_equal(grey.x, np.repeat(images[..., :1], 3, axis=3))
    np.savez(tmp_path / "d.npz", images=images, labels=y)
    assert torch.equal(read_pixels(tmp_path / "d.npz", cache=tmp_path / "cache").x, examples.x)
    other = read_pixels((images[::-1], y), cache=tmp_path / "cache")  # the cache knows the pixels
    assert torch.equal(other.x, examples.x.flip(0))
    assert torch.equal(read_pixels(images[2:4], recipe=examples.recipe).x, examples.x[2:4])
    with pytest.raises(ValueError, match="1, 3 or 4 channels"):
        read_pixels((images[..., [0, 1]], y))


def test_a_table_with_labels_beside_it() -> None:
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    examples = read_examples((table, pd.Series(Y)))
    np.testing.assert_allclose(examples.x, expected(), rtol=1e-5, atol=1e-6)
    assert examples.recipe["kind"] == "table"
    new = read_examples(table.iloc[3:5], recipe=examples.recipe)
    assert torch.equal(new.x, examples.x[3:5])


def test_other_objects() -> None:
    for source in (3, object()):
        with pytest.raises(ValueError, match="a source must be a folder"):
            read_examples(source)
    with pytest.raises(ValueError, match="on_bad must be one of refuse, skip"):
        read_examples((X, Y), on_bad="ignore")  # type: ignore[arg-type]
