"""CAL as a criterion for a training loop of one's own."""

from typing import Literal

import torch
from torch import Tensor, nn

from covlearn.checks import (
    Array,
    as_tensor,
    check_idx,
    check_labels,
    check_prior,
    check_scores,
    check_strength,
    readable,
)
from covlearn.covariance.term import SecondOrder, Weighting, cal_of, check_weighting, example_share
from covlearn.transition import EmptyClass


class CALLoss(nn.Module):
    """CAL for a training loop of your own: ``loss = criterion(logits, y, idx)``.

    ``noisy`` are the labels of the whole training set, ``refined`` their estimate D̂ (−1: dropped),
    ``idx`` the positions of the batch in that set. ``beta`` may be changed between epochs; the
    published schedule is 0 for 10 epochs, then rising linearly for 30, with the learning rate
    divided by 1 + β. The state dict holds all of it, β too.

    >>> noisy, refined = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 1])
    >>> criterion = CALLoss(noisy, refined, num_classes=2, beta=1.0)
    >>> idx = torch.tensor([0, 2])
    >>> criterion(torch.zeros(2, 2), noisy[idx], idx)
    tensor(2.0027e-05)
    """

    def __init__(
        self,
        noisy: Array,
        refined: Array | None,
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
        if refined is None:
            raise ValueError(
                "CALLoss needs refined labels D̂, got None; build them with SieveRecorder in the "
                "same loop, or from any model's probabilities with covlearn.sieve.refine"
            )
        if reduction not in ("mean", "none"):
            raise ValueError(f"reduction must be 'mean' or 'none', got {reduction!r}")
        check_weighting(weighting)
        labels = check_labels(noisy, num_classes=num_classes, name="noisy")
        stats = SecondOrder.from_labels(
            labels, refined, num_classes, weight=weight, empty_class=empty_class
        )
        if prior is None:
            prior = labels.bincount(minlength=num_classes) / len(labels)
        self.beta = float(check_strength(beta, name="beta"))
        self.weighting: Weighting = weighting
        self.reduction = reduction
        self.kept_share = stats.kept_share
        # Labels in 4 bytes: with N in the millions they are what this module weighs.
        # Copies, all of them: what the caller does with an array later must not change the loss.
        weight = None if weight is None else as_tensor(weight).detach().clone()
        self.register_buffer("noisy", labels.to(torch.int32, copy=True))
        self.register_buffer("refined", as_tensor(refined).to(torch.int32, copy=True))
        self.register_buffer("weight", weight)
        self.register_buffer("transition", stats.transition)
        self.register_buffer("class_weight", stats.class_weight)
        self.register_buffer("prior", check_prior(prior, num_classes=num_classes).clone())

    noisy: Tensor
    refined: Tensor
    weight: Tensor | None
    transition: Tensor
    class_weight: Tensor
    prior: Tensor

    def forward(self, logits: Tensor, y: Tensor, idx: Tensor) -> Tensor:
        """The mean loss of the batch, or one value an example with ``reduction="none"``."""
        logits = check_scores(logits, num_classes=len(self.prior))
        y = check_labels(y, num_classes=len(self.prior), length=len(logits), name="y")
        idx = check_idx(idx, num_examples=len(self.noisy), length=len(logits))
        if readable(y) and not torch.equal(y, self.noisy[idx].long()):
            raise ValueError(
                "y must be the noisy labels of the examples at idx, got others; idx must count in "
                "the order of the labels given to CALLoss, however the loader shuffles"
            )
        refined = self.refined[idx].long()
        stats = SecondOrder(self.transition, self.class_weight, self.kept_share)
        weight = None if self.weight is None else self.weight[idx]
        share_B = example_share(refined, stats, self.weighting, weight, None, logits.dtype)
        beta = check_strength(self.beta, name="beta")
        loss = cal_of(logits, y, refined, self.transition, share_B, self.prior, beta, 1e-8, 1e-5)
        return loss.mean() if self.reduction == "mean" else loss

    def get_extra_state(self) -> dict[str, float]:
        """What the state dict holds beside tensors."""
        return {"beta": float(self.beta), "kept_share": self.kept_share}

    def set_extra_state(self, state: dict[str, float]) -> None:
        """Takes that up again."""
        self.beta, self.kept_share = state["beta"], state["kept_share"]
