"""What becomes of each label, and why: keep, relabel, drop or review.

Pure functions of the given labels and of what a model says of each example; whether there are wrong
labels at all is :mod:`covlearn.evidence`'s to say.

``quality`` is the probability that the given label is right, ``confidence`` that the suggested one
is, which is the most probable class. They mean what they say as far as the probabilities do that
they are read off: those of :mod:`covlearn.calibration` are fitted to the given labels.

Where there is evidence of wrong labels:

- *keep*: quality ≥ 1/2;
- *relabel*: quality < ``RELABEL_BELOW`` and confidence ≥ 1/2, the suggestion is taken;
- *drop*: quality < ``RELABEL_BELOW``, but no class reaches 1/2: the label is likely wrong, and what
  would be right is not known;
- *review*: between them, a person should look.

Where there is none, no label is changed: those of quality < ``REVIEW_BELOW`` are for *review*, the
worst ``REVIEW_SHARE`` of all examples at most, and all others are kept.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from covlearn.checks import Array, check_labels, check_scores
from covlearn.kinds import checked

KEEP, RELABEL, DROP, REVIEW = DECISIONS = ("keep", "relabel", "drop", "review")
__all__ = ["Verdicts", "decided", "judge"]

RELABEL_BELOW = 0.3  # 0.2 leaves more labels wrong, 0.4 spoils data with few (docs/log.md)
REVIEW_BELOW, REVIEW_SHARE = 0.5, 0.02
BY_A_PERSON = "decided by a person"


@dataclass(frozen=True)
class Verdicts:
    """One entry an example; ``suggested`` are class numbers."""

    given: NDArray[np.int64]
    suggested: NDArray[np.int64]
    decision: NDArray[np.str_]
    quality: NDArray[np.float64]
    confidence: NDArray[np.float64]
    reason: list[str]

    def count(self, decision: str) -> int:
        """How many examples a decision was made for."""
        return int((self.decision == decision).sum())

    @property
    def refined(self) -> NDArray[np.int64]:
        """The labels after all repairs: the suggested one where it is taken, else the given."""
        return np.where(self.decision == RELABEL, self.suggested, self.given)


@checked
def judge(
    given: Array,
    logits: Array,
    *,
    evidence: bool,
    classes: Collection[Any] | None = None,
) -> Verdicts:
    """A verdict on each label from what is known of its example.

    ``logits`` (N, K), or logarithms of probabilities, best those of ``label_posterior``;
    ``evidence`` says whether labels may be called wrong at all; ``classes`` are the names for the
    reasons.

    >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.4, 0.0]])
    >>> verdicts = judge(torch.tensor([0, 1, 1]), logits, evidence=True, classes=["cat", "dog"])
    >>> verdicts.decision.tolist()
    ['keep', 'relabel', 'review']
    >>> verdicts.reason[1]
    'given dog has 1.8 % against 98.2 % for cat: quality 0.018 is below 0.3'
    """
    log_NK = check_scores(logits).detach().cpu().double().log_softmax(dim=1)
    num_classes = log_NK.shape[1]
    if classes is not None and len(classes) != num_classes:
        raise ValueError(f"classes must name {num_classes} classes, got {len(classes)}")
    given = check_labels(given, num_classes=num_classes, length=len(log_NK), name="given").cpu()
    quality = log_NK.gather(1, given[:, None]).flatten().exp()
    rival_share, rival = log_NK.scatter(1, given[:, None], -torch.inf).max(dim=1)
    suggested = torch.where(rival_share.exp() > quality, rival, given)
    confidence = torch.maximum(rival_share.exp(), quality)
    decision = np.full(len(given), KEEP, dtype="<U7")
    if evidence:
        low, wrong = (quality < 0.5).numpy(), (quality < RELABEL_BELOW).numpy()
        sure = (confidence >= 0.5).numpy()
        decision[low], decision[wrong & sure], decision[wrong & ~sure] = REVIEW, RELABEL, DROP
    else:
        most = int(REVIEW_SHARE * len(given))
        worst = quality.argsort(stable=True)[:most].numpy()
        decision[worst[quality.numpy()[worst] < REVIEW_BELOW]] = REVIEW
    names = [str(name) for name in (range(num_classes) if classes is None else classes)]
    facts = zip(
        *(part.tolist() for part in (given, quality, rival, rival_share.exp())),
        decision.tolist(),
        strict=True,
    )
    limit = RELABEL_BELOW if evidence else REVIEW_BELOW
    return Verdicts(
        given=given.numpy(),
        suggested=suggested.numpy(),
        decision=decision,
        quality=quality.numpy(),
        confidence=confidence.numpy(),
        reason=[
            reason(decision, names[label], quality, names[other], share, limit)
            for label, quality, other, share, decision in facts
        ],
    )


@checked
def decided(verdicts: Verdicts, trusted: NDArray[np.bool_]) -> Verdicts:
    """The verdicts with the labels that a person decided on kept: they are right, of quality 1."""
    return Verdicts(
        given=verdicts.given,
        suggested=np.where(trusted, verdicts.given, verdicts.suggested),
        decision=np.where(trusted, KEEP, verdicts.decision),
        quality=np.where(trusted, 1.0, verdicts.quality),
        confidence=np.where(trusted, 1.0, verdicts.confidence),
        reason=[
            BY_A_PERSON if fixed else text
            for fixed, text in zip(trusted.tolist(), verdicts.reason, strict=True)
        ],
    )


def reason(
    decision: str,
    given: str,
    quality: float,
    rival: str,
    rival_share: float,
    limit: float,
) -> str:
    """The decision in a sentence with its numbers."""
    against = f"given {given} has {_percent(quality)} against {_percent(rival_share)} for {rival}"
    low = f"quality {quality:.3f}"
    match decision:
        case "relabel":
            return f"{against}: {low} is below {limit:g}"
        case "drop":
            return f"{against}: {low} is below {limit:g}, and no class reaches 50 %"
        case "review" if quality >= limit:
            return f"{against}: {low} is below 0.5, but not below {limit:g}"
        case "review":
            return f"{against}, though labels are right on the whole: {low} is below {limit:g}"
    if quality >= 0.5:
        return f"{against}: {low} is at least 0.5"
    return f"{against}, but there is too little evidence of wrong labels to act on {low}"


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")
