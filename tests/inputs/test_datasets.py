"""PyTorch map-style datasets, and Hugging Face's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from covlearn.inputs import read_examples
from tests.inputs.make import picture, pixels, read_pixels

X = torch.from_numpy(np.random.default_rng(0).normal(3, 2, (12, 4)))
Y = torch.tensor([1, 0] * 6)


class Items(Dataset[Any]):
    """Whatever it is given."""

    def __init__(self, items: list[Any], **facts: Any) -> None:
        self.items = items
        vars(self).update(facts)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, idx: int) -> Any:
        if isinstance(self.items[idx], Exception):
            raise self.items[idx]
        return self.items[idx]


def test_features() -> None:
    examples = read_examples(TensorDataset(X, Y))
    arrays = read_examples((X, Y))
    assert torch.equal(examples.x, arrays.x)
    assert examples.given == arrays.given == ["1", "0"] * 6
    new = read_examples(Items(list(X[3:5])), recipe=examples.recipe)
    assert torch.equal(new.x, examples.x[3:5])
    assert new.given is None


def test_class_names() -> None:
    named = Items(list(zip(X, Y, strict=True)), classes=["dog", "cat"])
    assert read_examples(named).given == ["cat", "dog"] * 6
    targets = Items(list(zip(X, Y, strict=True)), classes=["dog", "cat"], targets=(1 - Y).tolist())
    assert read_examples(targets).given == ["dog", "cat"] * 6
    words = Items([(x, "b" if y else "a") for x, y in zip(X, Y, strict=True)])
    assert read_examples(words).classes == ["a", "b"]


@pytest.mark.parametrize("kind", ["picture", "uint8", "uint8 channels first", "float"])
def test_images(kind: str) -> None:
    arrays = [pixels(seed, 32, 32) for seed in range(6)]
    made: dict[str, Any] = {
        "picture": Image.fromarray,
        "uint8": lambda array: array,
        "uint8 channels first": lambda array: torch.from_numpy(array).permute(2, 0, 1),
        "float": lambda array: torch.from_numpy(array).permute(2, 0, 1) / 255,
    }
    source = Items([(made[kind](array), place % 2) for place, array in enumerate(arrays)])
    examples = read_pixels(source)
    np.testing.assert_array_equal(examples.x, np.stack(arrays))
    assert torch.equal(read_pixels(source, recipe=examples.recipe).x, examples.x)


def test_float_images_that_are_not_in_0_to_1_are_features() -> None:
    for value in (-0.5, 1.5):
        images = np.random.default_rng(0).random((6, 3, 8, 8))
        images[:, 0, 0, 0] = value
        source = Items([(image, place % 2) for place, image in enumerate(images)])
        assert read_pixels(source).x.shape == (6, 192)


def test_items_that_fail_are_listed() -> None:
    good = [(x, int(y)) for x, y in zip(X, Y, strict=True)]
    source = Items([*good, RuntimeError("disk gone"), (X[0, :2], 1), ("text", 1)])
    with pytest.raises(
        ValueError, match=r"12: reading it failed with RuntimeError: disk gone; 13:"
    ):
        read_examples(source)
    examples = read_examples(source, on_bad="skip")
    assert len(examples) == 12
    assert [item.id for item in examples.skipped] == ["12", "13", "14"]
    images = Items(
        [(Image.fromarray(pixels(s)), s % 2) for s in range(6)] + [(3, 1), ValueError("x")]
    )
    examples = read_pixels(images, on_bad="skip")
    assert len(examples) == 6
    assert {item.id for item in examples.skipped} == {"6", "7"}


def test_items_that_are_no_pairs() -> None:
    with pytest.raises(ValueError, match=r"must give pairs \(x, y\), but item 0 is Tensor"):
        read_examples(Items(list(X)))
    with pytest.raises(ValueError, match="has no examples"):
        read_examples(Items([]))


datasets = pytest.importorskip("datasets", reason="the extra hf is not installed")


def hugging_images(folder: Path) -> Any:
    paths = [str(picture(folder / f"{place}.png", place, size=(32, 32))) for place in range(6)]
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["dog", "cat"]),
            "name": datasets.Value("string"),
        }
    )
    names = [f"n{place}" for place in range(6)]
    columns = {"image": paths, "label": [0, 1] * 3, "name": names}
    return datasets.Dataset.from_dict(columns, features=features)


def test_hugging_face_images(tmp_path: Path) -> None:
    source = hugging_images(tmp_path / "images")
    examples = read_pixels(source)
    np.testing.assert_array_equal(examples.x, np.stack([pixels(seed, 32, 32) for seed in range(6)]))
    assert examples.classes == ["cat", "dog"]
    assert examples.given == ["dog", "cat"] * 3
    assert examples.table["name"].tolist() == [f"n{place}" for place in range(6)]
    assert read_pixels(source, id="name").ids[2] == "n2"
    source.save_to_disk(str(tmp_path / "saved"))
    saved = read_pixels(tmp_path / "saved", cache=tmp_path / "cache")
    assert torch.equal(saved.x, examples.x)
    assert torch.equal(read_pixels(source.select([3]), recipe=examples.recipe).x, examples.x[3:4])
    other = source.rename_column("label", "kind")
    named = read_pixels(other, label="kind", id="name")
    again = read_pixels(other, recipe=named.recipe)
    assert (again.given, again.ids) == (named.given, named.ids)
    with pytest.raises(ValueError, match=r"has no column 'labels'"):
        read_pixels(source, label="labels")
    with pytest.raises(ValueError, match=r"is the label\? Name one of name"):
        read_pixels(source.remove_columns("label"))


def test_hugging_face_tables(tmp_path: Path) -> None:
    source = datasets.Dataset.from_dict(
        {
            "size": [1.0, 2.0, 4.0, 3.0],
            "vector": [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0], [0.0, 1.0]],
            "label": ["a", "b", "a", "b"],
        }
    )
    examples = read_examples(source)
    assert examples.x.shape == (4, 3)
    assert torch.equal(read_examples(source, recipe=examples.recipe).x, examples.x)
    splits = datasets.DatasetDict({"train": source, "test": source})
    with pytest.raises(ValueError, match=r"splits train, test; name one of them"):
        read_examples(splits)
    splits.save_to_disk(str(tmp_path / "splits"))
    with pytest.raises(ValueError, match=r"splits train, test; name one of them"):
        read_examples(tmp_path / "splits")
    assert torch.equal(read_examples(tmp_path / "splits" / "train").x, examples.x)
    with pytest.raises(ValueError, match="must be a Dataset in memory"):
        read_examples(source.to_iterable_dataset())
    (tmp_path / "splits" / "train" / "state.json").write_text("{}")
    with pytest.raises(ValueError, match="cannot be read as a Hugging Face dataset"):
        read_examples(tmp_path / "splits" / "train")


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state.json").write_text("{}")
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ValueError, match=r"pip install 'covlearn\[hf\]'"):
        read_examples(tmp_path)
