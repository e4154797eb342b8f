"""Reweight-R (T-revision, Xia et al. 2019): importance weights whose transition is learned on."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from covlearn.data import Batch
from covlearn.engine import Objective, Outputs, Plan
from covlearn.kinds import check_fields
from covlearn.losses import reweighted
from covlearn.methods.base import Run
from covlearn.methods.forward import check_percentile, estimate_transition
from covlearn.transition import revised_transition


@dataclass(frozen=True)
class ReweightR:
    """T from anchors; cross-entropy weighted by w = p_ỹ/(pᵀT)_ỹ; then again, T + ΔT learned too.

    Two traps of published code: ΔT added once an example inside the loop over the batch, and a
    detached w, from which ΔT gets no gradient. Here T + ΔT, projected on valid rows, is formed
    once a step, and ΔT always has its gradient.
    """

    estimation_plan: Plan = Plan(epochs=20, weight_decay=5e-4)
    """Of the network that T is read off."""
    percentile: float | None = 97.0
    """Of p_i, where the anchor of class i lies; None: the largest p_i, as for CIFAR-100."""
    plan: Plan = Plan(epochs=100, lr_milestones=(60,), weight_decay=5e-4)
    """Of the training with importance weights, T fixed."""
    warm_start: bool = True
    """Go on from the estimation network, as the authors' code does, or from a new one."""
    constant_weight: bool = True
    """To the network w is a number; else it can lower the loss by lowering w, as p_ỹ → 0 does."""
    revision_plan: Plan = Plan(epochs=100, optimizer="adam", lr=5e-7, weight_decay=5e-4)
    """Of the revision."""
    revision_constant_weight: bool = True
    """The same of the revision, where the authors' code lets the network's gradient through w."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_percentile(self.percentile)

    def fit(self, run: Run) -> nn.Module:
        """Three stages: estimation, reweighting, revision."""
        network, transition = estimate_transition(
            run, self.estimation_plan, percentile=self.percentile
        )
        model = network if self.warm_start else run.net("reweight")
        weighted = Reweighted(transition, constant_weight=self.constant_weight)
        run.train("reweight", model, weighted, self.plan)
        revision = Revised(transition, constant_weight=self.revision_constant_weight)
        run.train("revision", model, revision, self.revision_plan)
        run.note(revised_transition=revision.current().tolist())
        return model


class Reweighted(Objective):
    """w ℓ_ỹ with w = p_ỹ/(pᵀT)_ỹ."""

    transition: Tensor

    def __init__(self, transition: Tensor, *, constant_weight: bool) -> None:
        super().__init__()
        self.constant_weight = constant_weight
        self.register_buffer("transition", transition.float())

    def current(self) -> Tensor:
        """The matrix in the weights."""
        return self.transition

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        """(B,)."""
        loss = reweighted(
            outputs.logits,
            batch.y,
            transition=self.current(),
            constant_weight=self.constant_weight,
        )
        return loss, None


class Revised(Reweighted):
    """The same with T + ΔT, ΔT a parameter that the engine's optimizer learns, zero at first."""

    def __init__(self, transition: Tensor, *, constant_weight: bool) -> None:
        super().__init__(transition, constant_weight=constant_weight)
        self.slack = nn.Parameter(torch.zeros_like(self.transition))

    def current(self) -> Tensor:
        """T + ΔT with its rows on the simplex."""
        return revised_transition(self.transition, self.slack)
