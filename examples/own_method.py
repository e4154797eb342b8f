"""Symmetric cross-entropy (Wang et al. 2019), a method of your own outside covlearn."""

from dataclasses import dataclass

from torch import Tensor, nn

from covlearn.data import Batch
from covlearn.engine import Objective, Outputs, Plan
from covlearn.losses import cross_entropy
from covlearn.methods import Run


@dataclass(frozen=True)
class SymmetricCE:
    """Minimises α ℓ_ỹ + 4β (1 − p_ỹ), whose bounded part wrong labels pull less."""

    plan: Plan = Plan(epochs=100)
    alpha: float = 0.1
    beta: float = 1.0

    def fit(self, run: Run) -> nn.Module:
        """One stage."""
        model = run.net("symmetric")
        run.train("symmetric", model, Symmetric(self), self.plan)
        return model


class Symmetric(Objective):
    """α ℓ_ỹ + 4β (1 − p_ỹ), one value per example; the engine takes the mean."""

    def __init__(self, method: SymmetricCE) -> None:
        super().__init__()
        self.method = method

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        """(B,), and no weights."""
        loss = cross_entropy(outputs.logits, batch.y)
        return self.method.alpha * loss + 4 * self.method.beta * (1 - (-loss).exp()), None
