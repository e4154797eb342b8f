"""Folds: each class in all of them, copies of an example in one."""

from dataclasses import replace

import torch

from covlearn.copies import MOST
from covlearn.data import Split
from covlearn.methods.folds import counted, folds_of, stratified_folds


def test_classes_are_spread_over_the_folds() -> None:
    y = torch.tensor([0] * 50 + [1] * 10 + [2] * 5 + [3])
    fold = stratified_folds(y, 5, seed=0)
    for label, count in ((0, 10), (1, 2), (2, 1)):
        assert torch.bincount(fold[y == label], minlength=5).tolist() == [count] * 5
    assert torch.equal(fold, stratified_folds(y, 5, seed=0))
    assert not torch.equal(fold, stratified_folds(y, 5, seed=1))


def copied(*, agree: bool) -> Split:
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(60) % 3
    others = y[:20] if agree else (y[:20] + torch.arange(20) % 2) % 3
    return Split(torch.cat([x, x[:40], x[:20]]), torch.cat([y, y[:40], others]), 3)


def test_copies_of_an_example_are_in_one_fold() -> None:
    split = copied(agree=True)
    fold = folds_of(split, 5, seed=0)
    assert torch.equal(fold[60:100], fold[:40])
    assert torch.equal(fold[100:], fold[:20])
    assert torch.equal(fold[:60], stratified_folds(split.y[:60], 5, seed=0))
    assert not torch.equal(fold, folds_of(split, 5, seed=0, deal=2))


def test_what_was_labelled_one_by_one_is_evidence_and_no_copy() -> None:
    split = copied(agree=False)  # ten labels of sixty differ from those of their like
    assert torch.equal(folds_of(split, 5, seed=0), stratified_folds(split.y, 5, seed=0))


def test_without_copies_folds_are_those_of_the_labels() -> None:
    x, y = torch.arange(80.0).reshape(40, 2), torch.arange(40) % 4
    assert torch.equal(folds_of(Split(x, y, 4), 5, seed=3), stratified_folds(y, 5, seed=3))


def test_rows_of_few_categories_are_no_copies() -> None:
    y = torch.arange(4 * MOST) % 2
    kinds = torch.eye(2)[y]
    assert torch.equal(folds_of(Split(kinds, y, 2), 4, seed=0), stratified_folds(y, 4, seed=0))
    few, theirs = kinds[: 2 * MOST], y[: 2 * MOST]
    fold = folds_of(Split(few, theirs, 2), 4, seed=0)
    assert [len(fold[theirs == kind].unique()) for kind in (0, 1)] == [1, 1]


def test_of_copies_one_counts_and_labels_of_people_do_not() -> None:
    split = copied(agree=True)
    assert torch.equal(counted(split), torch.arange(120) < 60)
    trusted = torch.arange(120) < 10  # of whose copies the first counts in their place
    expected = (torch.arange(120) >= 10) & (torch.arange(120) < 70)
    assert torch.equal(counted(replace(split, trusted=trusted)), expected)
    assert bool(counted(copied(agree=False)).all())
    assert bool(counted(Split(torch.arange(8.0)[:, None], torch.arange(8) % 2, 2)).all())
