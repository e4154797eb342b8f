"""Stage 1 of CAL: the sieve, and D̂ from what it says."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from covlearn.methods.base import Run, noisy_prior, root_prior
from covlearn.methods.cores import Confident
from covlearn.methods.label_files import read_labels, read_probs
from covlearn.methods.posteriors import (
    averaged_probs,
    averaging_predictions,
    held_posterior,
    over_neighbours,
)
from covlearn.sieve import (
    Refined,
    adjusted_loss,
    auto_threshold,
    quantile_threshold,
    refine_by_argmax,
    refine_scores,
)

if TYPE_CHECKING:
    from covlearn.methods.cal import CAL


def build_refined(cal: "CAL", run: Run) -> tuple[Refined, nn.Module | None, Tensor | None]:
    """D̂ from labels or probabilities in a file or from the sieve; the sieve; the posterior."""
    noisy = run.split.y.cpu()
    if cal.labels is not None:
        label = read_labels(cal.labels, len(noisy), run.split.num_classes)
        run.note(refined_from=cal.labels)
        return Refined(label, keep=label == noisy, score=(label != noisy).float()), None, None
    if cal.probs is not None:
        probs = read_probs(cal.probs, len(noisy), run.split.num_classes)
        run.note(refined_from=cal.probs)
        return refine_probs(cal, run, probs), None, probs
    sieve = run.net("sieve")
    prior = root_prior(run.split) if cal.sieve_prior == "root" else noisy_prior(run.split)
    objective = Confident(
        run.split.y,
        prior,
        cal.sieve_beta,
        prior_scale=cal.prior_scale,
        regularizer_eps=cal.sieve_regularizer_eps,
    )
    averaged = cal.scores in ("averaged", "both")
    plan = averaging_predictions(cal.sieve_plan) if averaged else cal.sieve_plan
    ledger = run.train(
        "sieve",
        sieve,
        objective,
        plan,
        mixup=cal.sieve_mixup,
        balanced_batches=cal.sieve_balanced_batches,
        keep_best=cal.sieve_best,
    )
    run.note(refined_from="sieve", scores=cal.scores)
    if cal.scores == "evaluation":
        logits, _ = run.predict(sieve)
        probs = logits.float().softmax(dim=1)
        return refine_probs(cal, run, probs), sieve, probs
    missing = int((ledger.prediction < 0).sum())
    if missing:
        raise ValueError(
            f"{cal.scores} scores need a pass over every example, got {missing} of "
            f"{len(noisy)} without one; set scores=evaluation, or train the sieve for longer"
        )
    if averaged:
        probs = averaged_probs(ledger)
        return refine_probs(cal, run, probs), sieve, probs
    return refine(cal, run, ledger.score.cpu(), ledger.prediction.long().cpu()), sieve, None


def asked_again(cal: "CAL", run: Run, sieve: nn.Module, posterior: Tensor) -> Tensor:
    """The posterior with what the sieve says in evaluation mode (``both``), over neighbours.

    By the same pass, whose features say which examples are near; sure of what people decided, too.
    """
    logits, features = run.predict(sieve, features=cal.neighbours > 0)
    if cal.scores == "both":
        posterior = (posterior + logits.float().softmax(dim=1)) / 2
    if features is None:
        return posterior
    held = held_posterior(posterior, run.split)
    assert held is not None
    return over_neighbours(held, features.to(next(sieve.parameters()).device), cal.neighbours)


def refine_probs(cal: "CAL", run: Run, probs: Tensor) -> Refined:
    """D̂ from probabilities (N, K); the argmax is also what a margin above zero says."""
    noisy = run.split.y.cpu()
    if cal.threshold != "argmax":
        return refine(cal, run, adjusted_loss(probs, noisy), probs.argmax(dim=1))
    run.note(threshold=0.0)
    return refine_by_argmax(probs, noisy)


def refine(cal: "CAL", run: Run, score: Tensor, prediction: Tensor) -> Refined:
    """D̂ from scores and predictions, with the threshold that was asked for."""
    noisy = run.split.y.cpu()
    if cal.threshold == "argmax":
        run.note(threshold=-torch.inf)
        return Refined(prediction, keep=prediction == noisy, score=score)
    lower, upper = cal.lower, cal.upper
    if cal.threshold == "quantile":
        lower = quantile_threshold(score, cal.kept)
    elif cal.threshold == "auto":
        lower = auto_threshold(score)
    run.note(threshold=lower)
    return refine_scores(score, prediction, noisy, lower=lower, upper=upper)
