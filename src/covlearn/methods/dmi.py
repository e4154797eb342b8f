"""L_DMI (Xu et al. 2019): the determinant of the joint distribution of labels and predictions."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from covlearn import distributed
from covlearn.checks import check_eps
from covlearn.data import Batch
from covlearn.engine import Objective, Outputs, Plan
from covlearn.kinds import check_fields
from covlearn.losses import dmi_from_joint
from covlearn.methods.base import Run
from covlearn.methods.ce import CrossEntropy


@dataclass(frozen=True)
class DMI:
    """Trains by cross-entropy, then minimises −ln(|det(Yᵀp)| + 1e-3) from there.

    The loss does not know one class from another, hence the start. Yᵀp is summed over the batch,
    not averaged as the paper writes: ε would drown the determinant (5e-11 at K = 10). A batch that
    misses a class has no gradient, and from 128 examples one of 100 classes is always missing:
    give ``plan`` a batch_size of about 10 K, and if the classes are not equally frequent,
    ``balanced_batches``. Batches without a gradient are counted and recorded.
    """

    warm_up_plan: Plan = Plan(epochs=100, lr_milestones=(60,), weight_decay=5e-4)
    """Of the cross-entropy to begin with."""
    plan: Plan = Plan(epochs=100, lr=1e-6, weight_decay=5e-4)
    """Of the determinant."""
    balanced_batches: int | None = None
    """Batches an epoch in which noisy classes are equally frequent; None: every example once."""
    eps: float = 1e-3
    """Added to the determinant, which may be zero."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not check_eps(self.eps) > 0:
            raise ValueError(f"eps must be positive, got {self.eps}; the paper has 1e-3")
        if self.balanced_batches is not None and self.balanced_batches < 1:
            raise ValueError(f"balanced_batches must be positive, got {self.balanced_batches}")

    def fit(self, run: Run) -> nn.Module:
        """Two stages."""
        self.check(run)
        model = run.net("dmi")
        run.train("warm_up", model, CrossEntropy(), self.warm_up_plan)
        objective = Determinant(run.split.num_classes, self.plan.batch_size, eps=self.eps)
        run.train("dmi", model, objective, self.plan, balanced_batches=self.balanced_batches)
        run.note(
            batches=int(objective.batches),
            incomplete_batches=int(objective.incomplete),
            singular_batches=int(objective.singular),
        )
        return model

    def check(self, run: Run) -> None:
        """Refuses batches of which none can have a gradient."""
        size, num_classes = self.plan.batch_size, run.split.num_classes
        if size < num_classes:
            raise ValueError(
                f"plan.batch_size must be at least the number of classes, {num_classes}, got "
                f"{size}: a smaller batch misses a class and has no gradient; take about "
                f"{10 * num_classes}"
            )
        if self.balanced_batches is None and size > len(run.split):
            raise ValueError(
                f"plan.batch_size must not exceed the number of examples, {len(run.split)}, got "
                f"{size}: incomplete batches are skipped; lower it, or set balanced_batches"
            )


class Determinant(Objective):
    """−ln(|det(Yᵀp)| + ε) of a whole batch; an incomplete one is skipped: it has no gradient."""

    batches: Tensor
    incomplete: Tensor
    singular: Tensor

    def __init__(self, num_classes: int, batch_size: int, *, eps: float = 1e-3) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.batch_size = batch_size
        self.eps = eps
        for name in ("batches", "incomplete", "singular"):
            self.register_buffer(name, torch.zeros((), dtype=torch.long))

    def forward(self, outputs: Outputs, batch: Batch) -> Tensor:
        """One number, the same on every process: Yᵀp is added up before the determinant."""
        probs = outputs.logits.float().softmax(dim=1).double()
        # A product with one-hot labels, since a GPU adds scattered rows up in no fixed order.
        own_KK = one_hot(batch.y, self.num_classes).to(probs).t() @ probs
        joint_KK = distributed.sum_of(own_KK)
        # Each example adds one to the sum of all entries, whichever process holds it.
        complete = joint_KK.detach().sum() > self.batch_size - 0.5
        singular = torch.linalg.slogdet(joint_KK.detach()).logabsdet == -torch.inf
        self.batches += 1
        self.incomplete += ~complete
        self.singular += complete & singular
        # A matrix of zeros is singular, and as such without a gradient.
        return dmi_from_joint(torch.where(complete, joint_KK, 0), eps=self.eps)
