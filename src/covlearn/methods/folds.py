"""Which examples are held back together, to be judged by networks that have not seen them."""

import torch
from torch import Tensor

from covlearn.data import Split, counter


def folds_of(split: Split, folds: int, *, seed: int, deal: int = 1) -> Tensor:
    """A fold for each example, each class spread evenly over them; copies are in one fold.

    A network that has seen a copy of an example has seen its label.
    """
    y = split.y.cpu()
    if split.copied is None:
        return stratified_folds(y, folds, seed=seed, deal=deal)
    originals, original = split.copied.unique(return_inverse=True)
    return stratified_folds(y[originals], folds, seed=seed, deal=deal)[original]


def stratified_folds(y: Tensor, folds: int, *, seed: int, deal: int = 1) -> Tensor:
    """A fold for each label, each class spread evenly over them; a function of seed and deal."""
    order = counter.permutation(counter.key(seed, deal * folds), len(y))
    order = order[y[order].argsort(stable=True)]
    fold = torch.empty_like(y)
    # Classes come one after the other, so that also those of one example go to different folds.
    fold[order] = torch.arange(len(y)) % folds
    return fold
