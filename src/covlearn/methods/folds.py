"""Which examples are held back together, to be judged by networks that have not seen them."""

import torch
from torch import Tensor

from covlearn.copies import first_copied
from covlearn.data import Split, counter


def folds_of(split: Split, folds: int, *, seed: int, deal: int = 1) -> Tensor:
    """A fold for each example, each class spread evenly over them; copies are in one fold.

    A network that has seen a copy of an example has seen its label.
    """
    y = split.y.cpu()
    first = first_copied(split.x, y)
    if first is None:
        return stratified_folds(y, folds, seed=seed, deal=deal)
    originals, original = first.unique(return_inverse=True)
    return stratified_folds(y[originals], folds, seed=seed, deal=deal)[original]


def counted(split: Split) -> Tensor:
    """(N,) bool: labels that count when it is asked how often labels are wrong.

    Not those of people, which are right, and of copies one: the others say nothing new.
    """
    judged = split.judged
    if not isinstance(split.x, Tensor):
        return judged
    first = first_copied(split.x[judged.to(split.x.device)], split.y.cpu()[judged])
    if first is None:
        return judged
    return judged.masked_scatter(judged, first == torch.arange(len(first)))


def stratified_folds(y: Tensor, folds: int, *, seed: int, deal: int = 1) -> Tensor:
    """A fold for each label, each class spread evenly over them; a function of seed and deal."""
    order = counter.permutation(counter.key(seed, deal * folds), len(y))
    order = order[y[order].argsort(stable=True)]
    fold = torch.empty_like(y)
    # Classes come one after the other, so that also those of one example go to different folds.
    fold[order] = torch.arange(len(y)) % folds
    return fold
