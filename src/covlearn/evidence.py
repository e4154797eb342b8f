"""Is there any sign that labels are wrong at all? Asked before a label is changed.

A classifier disagrees with some labels on clean data, too: those near a border, and its own errors.
Where it is surest of itself its errors are rare, and labels that are wrong are about as frequent as
elsewhere. So only the surest examples count as evidence, and only those of a classifier that has
learned something: one that guesses contradicts labels, too. Classes that overlap everywhere look
like wrong labels, and nothing in the data tells the two apart.
"""

import math
from dataclasses import dataclass

import torch
from scipy.stats import binom, norm
from torch import Tensor

from covlearn.checks import Array, check_labels, check_scores
from covlearn.kinds import checked

__all__ = ["Evidence", "noise_evidence"]

FEWEST = 30  # surest examples that must be looked at
# The chance at which probabilities of other examples would fit the labels as well. Predictions of
# sieves that share examples are not independent, and their fit to random labels scatters more
# than that of independent ones would: hence no 5 %.
MOST = 0.8  # contradicted share of the surest, above which the model is at fault and not the labels
LEARNED = 0.01


@dataclass(frozen=True)
class Evidence:
    """How many of the surest predictions contradict the label, and whether that is beyond chance.

    ``p_value`` is the chance of so many or more if ``tolerated`` of the surest predictions were
    errors of the classifier itself. ``agreement`` is the share of all labels that it predicts,
    ``by_chance`` the share that guesses as frequent as its predictions would. ``contradictory``
    says whether ``p_value`` is significant, ``found`` whether labels may be called wrong for it:
    only by a classifier that has ``learned`` something.
    """

    surest: int
    contradicted: int
    tolerated: float
    p_value: float
    agreement: float
    by_chance: float
    learned: bool
    contradictory: bool
    found: bool

    @property
    def share(self) -> float:
        """The share of the surest predictions that contradict the label."""
        return self.contradicted / self.surest if self.surest else 0.0

    @property
    def sentence(self) -> str:
        """The evidence in words, with its numbers."""
        if self.surest < FEWEST:
            return "too few examples to tell wrong labels from errors of the model"
        if not self.learned:
            return (
                f"the model predicts {self.agreement:.1%} of the labels, and guesses would "
                f"{self.by_chance:.1%}: it has learned too little to tell which are wrong"
            )
        what = (
            f"of the {self.surest:,} examples that the model is surest of, {self.contradicted:,} "
            f"({self.share:.1%}) have another label"
        )
        against = f"(p = {self.p_value:.2g} if {100 * self.tolerated:.2g}% were errors of its own)"
        wrong = "wrong labels are there, classes that overlap, or outcomes by chance"
        verdict = wrong if self.found else "no evidence of wrong labels"
        return f"{what}: {verdict} {against}"


@checked
def noise_evidence(
    logits: Array,
    given: Array,
    *,
    surest: float = 0.25,
    tolerated: float = 0.02,
    significance: float = 0.01,
) -> Evidence:
    """Whether the surest predictions contradict the labels more often than errors would.

    ``logits`` (N, K) must come from a model that was not trained on the example's own label. The
    surest are the share ``surest`` of the examples of each predicted class with the largest gap
    between the two largest logits, at least 30 in all: fewer are no evidence.

    >>> logits = torch.eye(2).repeat(100, 1) * 5
    >>> given = torch.tensor([0, 1] * 90 + [1, 0] * 10)
    >>> noise_evidence(logits, given, surest=1.0).found
    True
    """
    for name, value in (
        ("surest", surest),
        ("tolerated", tolerated),
        ("significance", significance),
    ):
        if not 0 < value <= 1:
            raise ValueError(f"{name} must lie in (0, 1], got {value}")
    logits = check_scores(logits)
    given = check_labels(given, num_classes=logits.shape[1], length=len(logits), name="given")
    sure = surest_mask(logits, surest)
    count, wrong = int(sure.sum()), int((logits.argmax(dim=1) != given)[sure].sum())
    p_value, contradictory = beyond_chance(wrong, count, tolerated, significance)
    predicted, num_examples = logits.argmax(dim=1), len(given)
    same = int((predicted == given).sum())
    by_chance = float(
        (torch.bincount(given, minlength=logits.shape[1]) / num_examples)[predicted].mean()
    )
    learned = believable(wrong, count) and fits_by_chance(logits, given) < LEARNED
    return Evidence(
        surest=count,
        contradicted=wrong,
        tolerated=tolerated,
        p_value=p_value,
        agreement=same / num_examples,
        by_chance=by_chance,
        learned=learned,
        contradictory=contradictory,
        found=contradictory and learned,
    )


def beyond_chance(
    wrong: int, count: int, tolerated: float, significance: float = 0.01
) -> tuple[float, bool]:
    """The chance of so many contradictions among the surest, and whether they are evidence."""
    p_value = float(binom.sf(wrong - 1, count, tolerated)) if count else 1.0
    return p_value, believable(wrong, count) and count >= FEWEST and p_value < significance


def believable(wrong: int, count: int) -> bool:
    """Whether the labels can be at fault.

    A model that has fallen apart contradicts nearly all labels. Had they mostly been wrong, they
    could not have taught it what it is sure of.
    """
    return wrong <= MOST * count


def fits_by_chance(logits: Tensor, given: Tensor) -> float:
    """The chance that the labels in any other order would have as much probability.

    Σ_n p_n(given_n) over permutations of the labels has the mean that comes out with p centred
    over the examples as zero, and nearly the variance Σ_n Σ_k π_k p̃_n(k)²; it is nearly normal.
    Probabilities see more than counts of agreement do: a classifier that is right where it is sure
    has learned something, though 40 % of the labels are wrong.
    """
    probs = logits.double().softmax(dim=1)
    probs = probs - probs.mean(dim=0)
    share_K = torch.bincount(given, minlength=logits.shape[1]).double() / len(given)
    deviation = math.sqrt(float((probs**2 @ share_K).sum()))
    fit = float(probs.gather(1, given[:, None]).sum())
    return float(norm.sf(fit / deviation)) if deviation > 0 else 1.0


def surest_mask(logits: Tensor, share: float) -> Tensor:
    """A mask of the share of each predicted class with the largest gap between two logits."""
    if not 0 < share <= 1:
        raise ValueError(f"surest must lie in (0, 1], got {share}; a quarter is written 0.25")
    top = logits.double().topk(2, dim=1)
    gap, predicted = top.values[:, 0] - top.values[:, 1], top.indices[:, 0]
    share = min(1.0, max(share, FEWEST / len(logits)))
    rank, size = rank_in_class(gap, predicted)
    return rank < (share * size).ceil()


def rank_in_class(value: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Of each example the place in its class, from the largest value, and the size of its class."""
    order = value.argsort(descending=True, stable=True)
    order = order[label[order].argsort(stable=True)]  # class by class
    size_K = torch.bincount(label)
    rank = torch.empty_like(label)
    rank[order] = torch.arange(len(order)) - (size_K.cumsum(0) - size_K)[label[order]]
    return rank, size_K[label]
