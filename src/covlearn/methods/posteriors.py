"""What a sieve says of each example on average, and of labels that a person decided on."""

from dataclasses import replace

import torch
from torch import Tensor

from covlearn.data import Split
from covlearn.engine import Plan
from covlearn.ledger import Ledger
from covlearn.sieve import Refined, hold_fixed, refine_by_argmax

AVERAGE_PREDICTIONS = 0.9
COMPARED = 2**26
"""How many pairs of examples are compared at a time: 256 MiB."""


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


@torch.no_grad()
def over_neighbours(probs: Tensor, features: Tensor, count: int) -> Tensor:
    """The mean of each example's probabilities (N, K) and those of its ``count`` nearest ones.

    Nearest by the angle between features (N, D), on whose device all pairs are compared.

    >>> features = torch.tensor([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0]])
    >>> over_neighbours(torch.tensor([[0.2, 0.8], [0.8, 0.2], [0.0, 1.0]]), features, 1)
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000],
            [0.4000, 0.6000]])
    """
    direction = torch.nn.functional.normalize(features.float(), dim=1)
    here = probs.to(features.device)
    means = []
    for rows in torch.arange(len(probs), device=here.device).split(max(1, COMPARED // len(probs))):
        alike = direction[rows] @ direction.t()
        # An example that has equals is still one of those that count.
        alike[torch.arange(len(rows), device=here.device), rows] = torch.inf
        means.append(here[alike.topk(count + 1, dim=1).indices].mean(dim=1))
    return torch.cat(means).to(probs)
