"""What a sieve says of each example on average, and of labels that a person decided on."""

from dataclasses import replace

import torch
from torch import Tensor

from covlearn.data import Split
from covlearn.engine import Plan
from covlearn.ledger import Ledger
from covlearn.sieve import Refined, hold_fixed, refine_by_argmax

AVERAGE_PREDICTIONS = 0.9


def averaging_predictions(plan: Plan) -> Plan:
    """The same plan, keeping an average of each example's predictions."""
    if plan.average_predictions is not None:
        return plan
    return replace(plan, average_predictions=AVERAGE_PREDICTIONS)


def logs(probs: Tensor) -> Tensor:
    """ln p, finite where p is zero."""
    return probs.clamp(min=1e-12).log()


def held_posterior(posterior: Tensor | None, split: Split) -> Tensor | None:
    """The posterior, sure of the labels that a person decided on."""
    if posterior is None or split.trusted is None:
        return posterior
    sure = torch.eye(split.num_classes, dtype=posterior.dtype)[split.y.cpu()]
    return torch.where(split.trusted.cpu().unsqueeze(1), sure, posterior)


def averaged_probs(ledger: Ledger) -> Tensor:
    """The averages of all examples, (N, K)."""
    assert ledger.memory is not None
    return torch.cat([ledger.memory.probs(idx).cpu() for idx in ledger.memory.chunks()])


def refined_by(probs: Tensor, split: Split) -> tuple[Refined, Tensor]:
    """D̂ that is the argmax of probabilities (N, K), and these, sure where a person decided."""
    noisy, posterior = split.y.cpu(), held_posterior(probs, split)
    assert posterior is not None
    return hold_fixed(refine_by_argmax(probs, noisy), noisy, split.trusted), posterior
