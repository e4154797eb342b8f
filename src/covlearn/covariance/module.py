"""CAL as a criterion for a training loop of one's own."""

import warnings
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from covlearn.checks import (
    Array,
    as_tensor,
    check_idx,
    check_labels,
    check_prior,
    check_strength,
    readable,
)
from covlearn.covariance.term import SecondOrder, Weighting, cal_of, check_weighting, example_share
from covlearn.kinds import shown
from covlearn.sieve import Refined, SieveRecorder, check_logits
from covlearn.transition import EmptyClass

LITTLE = 0.5
"""The share of the covariance, expected in a batch, below which class weighting is warned of."""


class CALLoss(nn.Module):
    """CAL for a training loop of your own: ``loss = criterion(logits, y, idx)``.

    ``noisy`` are the labels of the whole training set, ``refined`` their estimate D̂ (−1: dropped),
    ``idx`` the positions of the batch in that set. ``beta`` is the strength of the regulariser. It
    may be changed between epochs; the published schedule is 0 for 10 epochs, then rising linearly
    for 30, with the learning rate divided by 1 + β. The state dict holds labels, statistics and β;
    ``weighting`` and ``reduction`` are the caller's.

    - ``prior`` (K,): the class shares of the regulariser; by default those of the noisy labels.
    - ``weight`` (N,): γ, one an example, where dropped examples are made up for
      (:mod:`covlearn.reweight`); no class weights.
    - ``weighting``: ``"class"`` is that of the published code, each class's mean in the batch by
      its share in D̂, so that a class that a batch misses is left out; ``"sample"`` is the paper's,
      and right for any number of classes and any size of a batch.
    - ``reduction``: ``"none"`` for one value per example.
    - ``empty_class``: ``"identity"`` where D̂ has no example of a class; nothing reads its row.

    Labels, positions and logits are checked on the CPU outside of ``torch.compile`` alone, where
    that costs nothing: run a first epoch there.

    >>> noisy, refined = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 1])
    >>> criterion = CALLoss(noisy, refined, num_classes=2, beta=1.0)
    >>> idx = torch.tensor([0, 2])
    >>> criterion(torch.zeros(2, 2), noisy[idx], idx)
    tensor(2.0027e-05)
    """

    def __init__(
        self,
        noisy: Array,
        refined: Array | Refined | None,
        num_classes: int,
        beta: float = 1.0,
        *,
        prior: Array | None = None,
        weight: Array | None = None,
        weighting: Weighting = "class",
        reduction: Literal["mean", "none"] = "mean",
        empty_class: EmptyClass = "error",
    ) -> None:
        super().__init__()
        if reduction not in ("mean", "none"):
            raise ValueError(f"reduction must be 'mean' or 'none', got {shown(reduction)}")
        check_weighting(weighting)
        labels = check_labels(noisy, num_classes=num_classes, name="noisy")
        if prior is None:
            prior = labels.bincount(minlength=num_classes) / len(labels)
        self.weighting: Weighting = weighting
        self.reduction = reduction
        self.empty_class: EmptyClass = empty_class
        # Labels in 4 bytes: with N in the millions they are what this module weighs.
        # Copies, all of them: what the caller does with an array later must not change the loss.
        # In single precision, since not every device has double.
        weight = None if weight is None else as_tensor(weight).detach().clone()
        if weight is not None and weight.is_floating_point():
            weight = weight.float()
        strength = float(check_strength(beta, name="beta"))
        self.register_buffer("noisy", labels.to(torch.int32, copy=True))
        self.register_buffer("weight", weight)
        self.register_buffer("prior", check_prior(prior, num_classes=num_classes).float().clone())
        self.register_buffer("strength", torch.tensor(strength, dtype=torch.float32))
        self.set_refined(refined)

    noisy: Tensor
    refined: Tensor
    weight: Tensor | None
    transition: Tensor
    class_weight: Tensor
    prior: Tensor
    strength: Tensor
    kept_share: Tensor

    @property
    def beta(self) -> float:
        """The strength of the regulariser."""
        return float(f"{float(self.strength):.7g}")  # as it was set: that many digits are kept

    @beta.setter
    def beta(self, value: float) -> None:
        """For the epochs to come."""
        self.strength.fill_(float(check_strength(value, name="beta")))

    def set_refined(self, refined: Array | Refined | None) -> None:
        """Takes another D̂, and counts T̂ and the class shares anew."""
        if refined is None or isinstance(refined, SieveRecorder):
            raise ValueError(
                f"CALLoss needs refined labels D̂, got {type(refined).__name__}; build them with "
                "refine() of a SieveRecorder in the same loop, or from any model's probabilities "
                "with covlearn.sieve.refine"
            )
        labels = refined.label if isinstance(refined, Refined) else as_tensor(refined)
        device = self.noisy.device
        weight = None if self.weight is None else self.weight.cpu()
        stats = SecondOrder.from_labels(
            self.noisy.long().cpu(),
            labels.cpu(),
            len(self.prior),
            weight=weight,
            empty_class=self.empty_class,
        )
        kept_share = torch.tensor(stats.kept_share, dtype=torch.float32)
        self.register_buffer("refined", labels.to(device, torch.int32, copy=True))
        self.register_buffer("transition", stats.transition.to(device))
        self.register_buffer("class_weight", stats.class_weight.to(device))
        self.register_buffer("kept_share", kept_share.to(device))
        self._shares = stats.class_weight.double()
        self._warned = False

    def forward(self, logits: Tensor, y: Tensor, idx: Tensor) -> Tensor:
        """The mean loss of the batch, or one value per example with ``reduction="none"``."""
        logits = check_logits(logits, num_classes=len(self.prior))
        y = check_labels(y, num_classes=len(self.prior), length=len(logits), name="y")
        for name, values in (("logits", logits), ("y", y)):
            if values.device != self.noisy.device:
                raise ValueError(
                    f"{name} must be on the device of CALLoss, {self.noisy.device}, got "
                    f"{values.device}; move one of them with .to(device)"
                )
        idx = check_idx(idx, num_examples=len(self.noisy), length=len(logits))
        if readable(y):
            if not torch.equal(y, self.noisy[idx].long()):
                raise ValueError(
                    "y must be the noisy labels of the examples at idx, got others; idx must count "
                    "in the order of the labels given to CALLoss, however the loader shuffles"
                )
            self._warn_of_missed_classes(len(logits))
        refined = self.refined[idx].long()
        stats = SecondOrder(self.transition, self.class_weight, self.kept_share)
        weight = None if self.weight is None else self.weight[idx]
        share_B = example_share(refined, stats, self.weighting, weight, None, logits.dtype)
        beta = check_strength(self.strength, name="beta")
        loss = cal_of(logits, y, refined, self.transition, share_B, self.prior, beta, 1e-8, 1e-5)
        return loss.mean() if self.reduction == "mean" else loss

    def extra_repr(self) -> str:
        """What tells one from another."""
        beta = "?" if self.strength.is_meta else f"{self.beta:g}"
        return (
            f"num_examples={len(self.noisy)}, num_classes={len(self.prior)}, beta={beta}, "
            f"weighting={self.weighting!r}, reduction={self.reduction!r}"
        )

    def _warn_of_missed_classes(self, batch_size: int) -> None:
        """Once, where a batch has too few examples for so many classes."""
        if self.weighting != "class" or self._warned:
            return
        self._warned = True
        there = float((self._shares * (1 - (1 - self._shares) ** batch_size)).sum())
        if there < LITTLE:
            warnings.warn(
                f"a batch of {batch_size} has few of {len(self.prior)} classes, and with "
                f"weighting='class' that leaves out {1 - there:.0%} of the covariance on average; "
                "pass weighting='sample'",
                stacklevel=3,
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "CALLoss":
        def kept(tensor: Tensor) -> Tensor:
            """Half precision is for the network: T̂, P, π and γ would be rounded."""
            moved = fn(tensor)
            half = moved.is_floating_point() and moved.element_size() < 4
            return tensor.to(moved.device) if half else moved

        super()._apply(kept, recurse)  # type: ignore[no-untyped-call]
        return self
