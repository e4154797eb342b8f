"""How good a network, its training and its refined labels are. Only evaluation calls these.

A share of nothing (precision when no label was called wrong) is None, not zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

import torch
from torch import Tensor

from covlearn.checks import Array, as_tensor, check_labels
from covlearn.kinds import checked, shown
from covlearn.records import Accuracy, Figure
from covlearn.transition import count_transition, transition_error

LAST = 10  # epochs in the mean at the end of training


@dataclass(frozen=True)
class LabelQuality:
    """How good D̂ is. "Found" are the examples whose refined label is not the given one.

    A dropped example (−1) is found, not repaired, and not in D̂.
    """

    share_right: float | None
    """τ = P(ŷ = y) over D̂, the quality that the paper's theorems ask for."""
    precision: float | None
    """Share of the found that are wrong."""
    recall: float | None
    """Share of the wrong that are found."""
    f1: float | None
    repaired: float | None
    """Share of the wrong whose refined label is the clean one."""
    transition_error: float
    """Mean absolute error of the entries of T̂, counted on D̂, against the true T."""


@checked
def accuracy(prediction: Array, true: Array) -> float:
    """Share of predictions, (N,), that are right.

    >>> accuracy(torch.tensor([0, 1, 1, 2]), torch.tensor([0, 1, 2, 2]))
    0.75
    """
    prediction, true = _pair(prediction, true)
    return int((prediction == true).sum()) / len(true)


@checked
def memorisation(prediction: Array, noisy: Array, clean: Array) -> float | None:
    """Share of the wrong labels that the network predicts: #{p = ỹ ≠ y} / #{ỹ ≠ y}.

    A prediction of −1, of an example that was not seen yet, fits nothing. None without a wrong
    label.
    """
    prediction, noisy = _pair(prediction, noisy)
    _, clean = _pair(prediction, clean)
    wrong = noisy != clean
    return _share((prediction == noisy) & wrong, wrong)


@checked
def label_quality(refined: Array, noisy: Array, clean: Array, *, num_classes: int) -> LabelQuality:
    """D̂ against the clean labels.

    >>> refined, noisy = torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    >>> label_quality(refined, noisy, torch.tensor([0, 1, 1, 0]), num_classes=2).precision
    0.5
    """
    noisy = check_labels(noisy, num_classes=num_classes, name="noisy")
    length = len(noisy)
    clean = check_labels(clean, num_classes=num_classes, length=length, name="clean")
    refined = check_labels(
        refined, num_classes=num_classes, length=length, name="refined", dropped=True
    )
    found, wrong = refined != noisy, noisy != clean
    hits, total = int((found & wrong).sum()), int(found.sum()) + int(wrong.sum())
    estimated, true = (
        count_transition(label, noisy, num_classes=num_classes, empty_class="identity")
        for label in (refined, clean)
    )
    return LabelQuality(
        share_right=_share(refined == clean, refined >= 0),
        precision=_share(found & wrong, found),
        recall=_share(found & wrong, wrong),
        f1=2 * hits / total if total else None,
        repaired=_share((refined == clean) & wrong, wrong),
        transition_error=transition_error(estimated, true),
    )


@checked
def average_precision(score: Array, wrong: Array) -> float | None:
    """Mean over the wrong labels of the precision at their rank, the highest score first.

    Examples of one score share the rank of the last of them. None without a wrong label.

    >>> average_precision(torch.tensor([0.9, 0.8, 0.1]), torch.tensor([True, False, True]))
    0.8333333333333333
    """
    score, wrong = as_tensor(score).cpu().double(), as_tensor(wrong).cpu().bool()
    if score.shape != wrong.shape or score.ndim != 1:
        raise ValueError(
            "score and wrong must be vectors of one length, a value for each label, got shapes "
            f"{tuple(score.shape)} and {tuple(wrong.shape)}; pass arrays that belong together"
        )
    if not bool(score.isfinite().all()):
        bad = int((~score.isfinite()).nonzero()[0])
        raise ValueError(
            f"score must be finite, got {float(score[bad])} at position {bad}; leave out labels "
            "that have none"
        )
    if not bool(wrong.any()):
        return None
    values, rank = score.neg().unique(return_inverse=True)
    size = torch.bincount(rank, minlength=len(values)).double()
    hits = torch.bincount(rank, weights=wrong.double(), minlength=len(values))
    precision = hits.cumsum(0) / size.cumsum(0)
    return float((precision * hits).sum() / hits.sum())


@checked
def reliability(stated: Array, right: Array, *, bins: int = 10) -> list[tuple[int, float, float]]:
    """Of each bin of stated probabilities: how many, their mean, and the share that was right.

    >>> reliability(torch.tensor([0.1, 0.9, 0.8]), torch.tensor([False, True, False]), bins=2)
    [(1, 0.1, 0.0), (2, 0.85, 0.5)]
    """
    stated, right = as_tensor(stated).cpu().double(), as_tensor(right).cpu().double()
    if (
        stated.ndim != 1
        or stated.shape != right.shape
        or not bool(((stated >= 0) & (stated <= 1 + 1e-6)).all())
    ):
        raise ValueError(
            f"stated must be a probability between 0 and 1 for each of {right.numel()} examples, "
            f"got {shown(stated)}; apply softmax to logits first"
        )
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    place = (stated * bins).long().clamp(max=bins - 1)
    rows = []
    for group in (place == number for number in range(bins)):
        if count := int(group.sum()):
            mean, share = (round(float(each[group].mean()), 4) for each in (stated, right))
            rows.append((count, mean, share))
    return rows


@checked
def calibration_error(rows: Sequence[Sequence[float]]) -> float:
    """Σ_bins (share of the examples) · |stated − right|, of what ``reliability`` gives."""
    total = sum(count for count, _, _ in rows)
    if not total:
        raise ValueError("rows must hold an example at least, got none; give what reliability says")
    return sum(count * abs(stated - right) for count, stated, right in rows) / total


@checked
def accuracy_of(
    history: Sequence[Mapping[str, float]], *, chosen_by: str = "held-out noisy labels"
) -> Accuracy:
    """A stage's test accuracy by each rule, from its records; the earliest epoch wins a tie.

    ``holdout_accuracy`` is that on ``chosen_by``, NaN where there is nothing to choose by.
    """
    if not history:
        return Accuracy(best=None, last=None, mean_of_last_ten=None, selected=None)

    def of(record: Mapping[str, float], rule: str) -> Figure:
        return Figure(record["test_accuracy"], int(record["epoch"]), rule)

    tail = history[-LAST:]
    span = f"{int(tail[0]['epoch'])}…{int(tail[-1]['epoch'])}"
    return Accuracy(
        best=of(
            max(history, key=lambda record: record["test_accuracy"]),
            "highest on the test labels themselves, so an upper bound",
        ),
        last=of(history[-1], "last epoch"),
        mean_of_last_ten=Figure(
            sum(record["test_accuracy"] for record in tail) / len(tail),
            int(tail[-1]["epoch"]),
            f"mean of the last {len(tail)} epochs, {span}",
        ),
        selected=of(
            max(history, key=lambda record: record["holdout_accuracy"]),
            f"highest on {chosen_by}",
        )
        if not isnan(history[0]["holdout_accuracy"])
        else None,
    )


def _pair(first: Array, second: Array) -> tuple[Tensor, Tensor]:
    first, second = as_tensor(first), as_tensor(second)
    if first.shape != second.shape or first.ndim != 1 or first.numel() == 0:
        raise ValueError(
            "expected two vectors of labels of the same length, at least one, got shapes "
            f"{tuple(first.shape)} and {tuple(second.shape)}; argmax(axis=1) makes labels of "
            "probabilities"
        )
    for labels in (first, second):
        if labels.is_floating_point() and not torch.equal(labels, labels.trunc()):
            raise ValueError(
                f"expected labels, which are whole numbers, got {shown(labels)}; compare "
                "probabilities with a threshold first, as probs > 0.5"
            )
    return first.to("cpu", torch.int64), second.to("cpu", torch.int64)


def _share(part: Tensor, whole: Tensor) -> float | None:
    """#(part ∩ whole) / #whole."""
    total = int(whole.sum())
    return int((part & whole).sum()) / total if total else None
