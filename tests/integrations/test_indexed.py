"""Positions in items and in batches, however they are shuffled and collated."""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from covlearn.data import IndexedDataset
from covlearn.integrations.transformers import IndexCollator

X = torch.arange(20.0).reshape(10, 2)
DATA = TensorDataset(X, torch.arange(10) % 3)


def test_batches_say_where_their_examples_stand() -> None:
    loader = DataLoader(
        IndexedDataset(DATA),
        batch_size=4,
        shuffle=True,
        generator=torch.Generator().manual_seed(0),
    )
    seen = []
    for x, y, idx in loader:
        assert torch.equal(x, X[idx])
        assert torch.equal(y, idx % 3)
        seen += idx.tolist()
    assert sorted(seen) == list(range(10))
    assert seen != list(range(10))


def test_positions_of_a_subset_count_in_the_subset() -> None:
    x, _, idx = IndexedDataset(Subset(DATA, [7, 2]))[1]
    assert idx == 1
    assert torch.equal(x, X[2])


def test_iteration_ends() -> None:
    assert [item[-1] for item in IndexedDataset(DATA)] == list(range(10))  # type: ignore[attr-defined]


def test_a_list_of_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="idx must be one position, got list; let the loader"):
        IndexedDataset(DATA)[[1, 2]]  # type: ignore[index]


class AtOnce(Dataset[Any]):
    """Fetches a batch at once, and knows its classes."""

    classes = ("ash", "birch", "cedar")

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.too_few = False

    def __len__(self) -> int:
        return 10

    def __getitem__(self, idx: int) -> Any:
        raise AssertionError("one by one")

    def __getitems__(self, positions: list[int]) -> list[Any]:
        self.asked.append(positions)
        return [DATA[position] for position in positions[self.too_few :]]


def test_a_dataset_that_fetches_batches_is_asked_for_batches() -> None:
    dataset = AtOnce()
    for x, y, idx in DataLoader(IndexedDataset(dataset), batch_size=4, shuffle=True):
        assert torch.equal(x, X[idx])
        assert torch.equal(y, idx % 3)
    assert [len(positions) for positions in dataset.asked] == [4, 4, 2]
    with pytest.raises(IndexError, match="0…9, got 10"):
        IndexedDataset(dataset).__getitems__([1, 10])
    dataset.too_few = True
    with pytest.raises(ValueError, match="AtOnce must return one item a position, 2, got 1"):
        IndexedDataset(dataset).__getitems__([1, 2])


def test_what_else_a_dataset_has_is_there() -> None:
    indexed = IndexedDataset(AtOnce())
    for same in (indexed, pickle.loads(pickle.dumps(indexed)), copy.deepcopy(indexed)):
        assert same.classes == ("ash", "birch", "cedar")
        with pytest.raises(AttributeError, match="'AtOnce' object has no attribute 'targets'"):
            _ = same.targets
    assert not hasattr(IndexedDataset([(1, 2)]), "__getitems__")
    assert not hasattr(IndexedDataset([(1, 2)]), "_secret")


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(DATA)


@pytest.mark.parametrize(
    ("dataset", "says"),
    [(Stream(), "a stream"), ([torch.zeros(2)], "tuples"), ([{"idx": 3}], "rename")],
)
def test_what_cannot_have_positions_is_refused(dataset: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        IndexedDataset(dataset)[0]


def test_a_collator_that_knows_no_positions_carries_them() -> None:
    items = [{"text": "a" * n, "labels": n} for n in range(1, 6)]

    def longest(batch: list[dict[str, Any]]) -> dict[str, Any]:
        assert all(set(item) == {"text", "labels"} for item in batch)
        return {"length": max(len(item["text"]) for item in batch)}

    collate = IndexCollator(longest)
    batch = collate([IndexedDataset(items)[position] for position in (3, 0)])
    assert batch["length"] == 4
    assert batch["idx"].tolist() == [3, 0]
    assert collate(items) == {"length": 5}
    with pytest.raises(ValueError, match="or none, got 1 of 2"):
        collate([items[0], IndexedDataset(items)[1]])


def test_what_is_read_from_the_dataset_is_set_there() -> None:
    dataset = AtOnce()
    dataset.transform = None  # type: ignore[attr-defined]
    indexed = IndexedDataset(dataset)
    indexed.transform = str.upper
    assert dataset.transform is indexed.transform is str.upper  # type: ignore[attr-defined]
    indexed.note = "of this one alone"
    assert not hasattr(dataset, "note")
