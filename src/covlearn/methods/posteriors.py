"""What a sieve says of each example on average, and of labels that a person decided on."""

from dataclasses import replace

import torch
from torch import Tensor

from covlearn.data import Split
from covlearn.engine import Plan
from covlearn.ledger import Ledger
from covlearn.sieve import Refined, adjusted_loss, hold_fixed, refine_scores

AVERAGE_PREDICTIONS = 0.9


def averaging_predictions(plan: Plan) -> Plan:
    """The same plan, keeping an average of each example's predictions."""
    if plan.average_predictions is not None:
        return plan
    return replace(plan, average_predictions=AVERAGE_PREDICTIONS)


def averaged_scores(ledger: Ledger, noisy: Tensor) -> tuple[Tensor, Tensor]:
    """Score and prediction of each example by the average of its predictions, (N,) each."""
    assert ledger.memory is not None
    scores, predictions = [], []
    for idx in ledger.memory.chunks():  # all classes of all examples may not fit
        probs = ledger.memory.probs(idx)
        scores.append(adjusted_loss(probs, noisy[idx.cpu()].to(probs.device)).cpu())
        predictions.append(probs.argmax(dim=1).cpu())
    return torch.cat(scores), torch.cat(predictions)


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


def refined_again(ledger: Ledger, split: Split) -> tuple[Refined, Tensor]:
    """D̂ that is the argmax of the averages, and the averages themselves (N, K)."""
    noisy = split.y.cpu()
    again = refine_scores(*averaged_scores(ledger, noisy), noisy, lower=-torch.inf)
    posterior = held_posterior(averaged_probs(ledger), split)
    assert posterior is not None
    return hold_fixed(again, noisy, split.trusted), posterior
