"""Folds: each class in all of them, copies of an example in one."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from covlearn.data import Augmentation, Split
from covlearn.methods.crossfit import folds_of, stratified_folds


def test_classes_are_spread_over_the_folds() -> None:
    y = torch.tensor([0] * 50 + [1] * 10 + [2] * 5 + [3])
    fold = stratified_folds(y, 5, seed=0)
    for label, count in ((0, 10), (1, 2), (2, 1)):
        assert torch.bincount(fold[y == label], minlength=5).tolist() == [count] * 5
    assert torch.equal(fold, stratified_folds(y, 5, seed=0))
    assert not torch.equal(fold, stratified_folds(y, 5, seed=1))


def numbers(count: int, columns: int = 4) -> Tensor:
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(0))


def copied(*, agree: bool = True) -> Split:
    x, y = numbers(60), torch.arange(60) % 3
    others = y[:20] if agree else (y[:20] + torch.arange(20) % 2) % 3
    return Split(torch.cat([x, x[:40], x[:20]]), torch.cat([y, y[:40], others]), 3)


def test_copies_of_an_example_are_in_one_fold() -> None:
    split = copied()
    fold = folds_of(split, 5, seed=0)
    assert torch.equal(fold[60:100], fold[:40])
    assert torch.equal(fold[100:], fold[:20])
    assert torch.equal(fold[:60], stratified_folds(split.y[:60], 5, seed=0))
    assert not torch.equal(fold, folds_of(split, 5, seed=0, deal=2))


def test_without_copies_folds_are_those_of_the_labels() -> None:
    x, y = torch.arange(80.0).reshape(40, 2), torch.arange(40) % 4
    assert Split(x, y, 4).copied is None
    assert torch.equal(folds_of(Split(x, y, 4), 5, seed=3), stratified_folds(y, 5, seed=3))


@pytest.mark.parametrize("shape", [(4, 4, 3), (6,)])
def test_images_and_whole_numbers_have_copies_too(shape: tuple[int, ...]) -> None:
    x = torch.randint(0, 256, (30, *shape), dtype=torch.uint8)
    augmentation = Augmentation(mean=(0.5,) * 3, std=(0.5,) * 3) if len(shape) == 3 else None
    x = x if augmentation else x.float()
    split = Split(x.repeat(2, *[1] * len(shape)), (torch.arange(60) % 30) % 2, 2, augmentation)
    assert split.copied is not None
    assert torch.equal(split.copied, torch.arange(60) % 30)


@pytest.mark.parametrize("columns", [3, 6])
def test_rows_of_few_categories_are_no_copies(columns: int) -> None:
    """Though their labels agree wherever none is wrong."""
    cells = torch.randint(0, 5, (900, columns), generator=torch.Generator().manual_seed(0))
    x = torch.cat([torch.eye(5)[cells[:, column]] for column in range(columns)], dim=1)
    split = Split(x, cells.sum(dim=1) % 2, 2)
    assert len(x.unique(dim=0)) < 900
    assert split.copied is None
    twice = Split(x.repeat(2, 1), split.y.repeat(2), 2)
    assert twice.copied is None  # the price: these are copies


def test_what_was_labelled_one_by_one_is_evidence_and_no_copy() -> None:
    split = copied(agree=False)  # ten labels of sixty differ from those of their like
    assert split.copied is None
    assert torch.equal(folds_of(split, 5, seed=0), stratified_folds(split.y, 5, seed=0))


def test_decisions_of_people_do_not_make_copies_differ() -> None:
    split = copied()
    trusted = torch.arange(120) < 10
    decided = replace(split, y=torch.where(trusted, (split.y + 1) % 3, split.y), trusted=trusted)
    assert decided.copied is not None
    assert split.copied is not None
    assert torch.equal(decided.copied, split.copied)
    fold = folds_of(decided, 5, seed=0)
    assert torch.equal(fold[60:100], fold[:40])
    assert replace(decided, trusted=None).copied is None


def test_one_example_that_is_everywhere_is_no_copy() -> None:
    x = torch.cat([numbers(60), torch.zeros(30, 4)])
    assert Split(x, torch.zeros(90).long(), 2).copied is None
    many = Split(numbers(120).repeat(30, 1), torch.zeros(3600).long(), 2)
    assert many.copied is not None  # thirty of each, which is not much of all


def test_of_copies_one_counts_and_labels_of_people_do_not() -> None:
    split = copied()
    assert torch.equal(split.counted, torch.arange(120) < 60)
    trusted = torch.arange(120) < 10  # of whose copies the first counts in their place
    expected = (torch.arange(120) >= 10) & (torch.arange(120) < 70)
    assert torch.equal(replace(split, trusted=trusted).counted, expected)
    assert bool(copied(agree=False).counted.all())
    assert bool(replace(split, trusted=torch.ones(120).bool()).counted[:60].all())


def test_inputs_with_a_gradient_and_of_half_precision_can_be_compared() -> None:
    x = numbers(30).repeat(2, 1).requires_grad_()
    assert Split(x, torch.zeros(60).long(), 2).copied is not None
    assert Split(x.detach().bfloat16(), torch.zeros(60).long(), 2).copied is not None


def test_numbers_that_differ_in_the_last_digits_are_no_copies() -> None:
    x = numbers(30).double()
    close = torch.cat([x, x + 1e-12])
    assert Split(close, torch.zeros(60).long(), 2).copied is None
