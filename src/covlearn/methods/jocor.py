"""JoCoR (Wei et al. 2020): two networks that learn from labels and from each other."""

from dataclasses import dataclass

from torch import Tensor

from covlearn import distributed
from covlearn.data import Batch
from covlearn.engine import Outputs
from covlearn.losses import joint
from covlearn.methods.coteaching import Forgetting, SmallLosses, own_part, smallest
from covlearn.schedules import Ramp


@dataclass(frozen=True)
class JoCoR(SmallLosses):
    """(1 − λ)(CE₁ + CE₂) + λ(KL₁₂ + KL₂₁), over the (1 − R) B examples where it is smallest.

    One set of examples for both networks. R(e) = τ min(e / ``forget_epochs``, 1) with τ the noise
    rate. The network that predicts is the first of the two. As of :class:`CoTeaching`, the authors'
    schedule of the learning rate and of Adam's β₁ is not in the preset ``published``.
    """

    agreement: float = 0.9
    """λ: 0.9 for CIFAR-10, 0.85 for CIFAR-100; the published code's default is 0.1."""

    stage = "jocor"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.agreement <= 1:
            raise ValueError(f"agreement must lie in [0, 1], got {self.agreement}")

    def objective(self, forget: Ramp) -> "Joint":
        """One loss of both, over the examples where it is smallest."""
        return Joint(forget, self.agreement)


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
