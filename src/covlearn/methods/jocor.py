"""JoCoR (Wei et al. 2020): two networks that learn from labels and from each other."""

from dataclasses import dataclass

from torch import Tensor, nn

from covlearn import distributed
from covlearn.committee import Committee
from covlearn.data import Batch
from covlearn.engine import Outputs, Plan
from covlearn.kinds import check_fields
from covlearn.losses import joint
from covlearn.methods.base import Run
from covlearn.methods.coteaching import Forgetting, check_forgetting, own_part, smallest
from covlearn.methods.estimate import estimate_rate
from covlearn.schedules import Ramp


@dataclass(frozen=True)
class JoCoR:
    """(1 − λ)(CE₁ + CE₂) + λ(KL₁₂ + KL₂₁), over the (1 − R) B examples where it is smallest.

    One set of examples for both networks. R(e) = τ min(e / ``forget_epochs``, 1) with τ the noise
    rate. The network that predicts is the first of the two. As of :class:`CoTeaching`, the authors'
    schedule of the learning rate and of Adam's β₁ is not in the preset ``published``.
    """

    plan: Plan = Plan(epochs=100, lr_milestones=(60,), weight_decay=5e-4)
    rate: float | None = None
    """τ; None: estimated with ``rate_plan``."""
    rate_plan: Plan = Plan(epochs=20, weight_decay=5e-4)
    forget_epochs: int = 10
    """The published code gets to τ in the tenth epoch already: 9."""
    agreement: float = 0.9
    """λ: 0.9 for CIFAR-10, 0.85 for CIFAR-100; the published code's default is 0.1."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_forgetting(self.rate, self.forget_epochs)
        if not 0 <= self.agreement <= 1:
            raise ValueError(f"agreement must lie in [0, 1], got {self.agreement}")

    def fit(self, run: Run) -> nn.Module:
        """One stage, after one for the rate if it is unknown."""
        rate = estimate_rate(run, self.rate_plan) if self.rate is None else self.rate
        pair = Committee([run.net("a"), run.net("b")])
        objective = Joint(Ramp(rate, end=self.forget_epochs), self.agreement)
        run.train("jocor", pair, objective, self.plan)
        return pair.members[0]


class Joint(Forgetting):
    """The joint loss of two networks over the examples where it is smallest."""

    def __init__(self, forget: Ramp, agreement: float) -> None:
        super().__init__(forget)
        self.agreement = agreement

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor]:
        """(B,) and as many weights, 0 or 1."""
        first, second = outputs.logits
        loss_B = joint(first, second, batch.y, weight=self.agreement)
        picked = smallest(distributed.gathered(loss_B), self.keep_share)
        return loss_B, own_part(picked)
