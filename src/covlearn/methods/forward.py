"""Forward correction (Patrini et al. 2017) with a transition matrix from anchor points."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from covlearn.data import Batch
from covlearn.engine import Objective, Outputs, Plan
from covlearn.kinds import check_fields
from covlearn.losses import forward_corrected
from covlearn.methods.base import Run
from covlearn.methods.ce import CrossEntropy
from covlearn.transition import anchor_transition


@dataclass(frozen=True)
class Forward:
    """Trains by cross-entropy, reads T off anchors, minimises −ln((pᵀT)_ỹ) with a new network.

    A network that has memorised its noisy labels puts T near the identity: then estimate after
    fewer epochs. The authors' code zeroes probabilities above the percentile in place, so that a
    class's row depends on the classes before it; here it does not.
    """

    estimation_plan: Plan = Plan(epochs=100, lr_milestones=(60,), weight_decay=5e-4)
    """Of the network that T is read off."""
    percentile: float | None = 97.0
    """Of p_i, where the anchor of class i lies; None: the largest p_i, as for CIFAR-100."""
    plan: Plan = Plan(epochs=100, lr_milestones=(60,), weight_decay=5e-4)
    """Of the network that is trained through T."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_percentile(self.percentile)

    def fit(self, run: Run) -> nn.Module:
        """Two stages."""
        _, transition = estimate_transition(run, self.estimation_plan, percentile=self.percentile)
        model = run.net("forward")
        run.train("forward", model, ForwardCorrected(transition), self.plan)
        return model


def estimate_transition(
    run: Run, plan: Plan, *, percentile: float | None
) -> tuple[nn.Module, Tensor]:
    """A network trained by cross-entropy, and T (float64) from its anchors; T is recorded.

    So is the noise rate it implies, Σ_i P_i (1 − T_ii), where P_i is the share of examples whose
    likeliest noisy label is i: the class itself wherever T's diagonal is the largest of its row.
    """
    if percentile is not None:
        check_anchors(percentile, run.split.num_classes, remedy="percentile=none, the likeliest")
    network = run.net("estimation")
    run.train("estimation", network, CrossEntropy(), plan)
    logits, _ = run.predict(network)
    transition = anchor_transition(logits.double().softmax(dim=1), percentile=percentile)
    share_K = torch.bincount(logits.argmax(dim=1), minlength=len(transition)) / len(logits)
    rate = 1 - float(share_K.double() @ transition.diagonal())
    run.note(estimated_rate=rate, transition=transition.tolist())
    return network, transition


def check_percentile(percentile: float | None) -> None:
    """None or a number in [0, 100]; said before a network is trained for it."""
    if percentile is not None and not 0 <= percentile <= 100:
        raise ValueError(f"percentile must lie in [0, 100] or be None, got {percentile}")


def check_anchors(percentile: float, num_classes: int, *, remedy: str) -> None:
    """Anchors of a class must lie among its own examples; said before a network is trained."""
    if (100 - percentile) * num_classes > 100 * (1 + 1e-9):
        raise ValueError(
            f"the {percentile:g}th percentile must lie among the examples of a class, and of "
            f"{num_classes} classes each has {100 / num_classes:.2g} % on average: an anchor "
            f"there would be of another class; set {remedy}"
        )


class ForwardCorrected(Objective):
    """−ln((pᵀT)_ỹ + 1e-8)."""

    transition: Tensor

    def __init__(self, transition: Tensor) -> None:
        super().__init__()
        self.register_buffer("transition", transition.float())

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        """(B,)."""
        return forward_corrected(outputs.logits, batch.y, transition=self.transition), None
