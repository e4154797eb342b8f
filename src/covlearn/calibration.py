"""What a classifier's logits and a given label together say of the right one, as probabilities.

A classifier that was trained on noisy labels is sure of itself to another degree than it is right.
Both halves of Bayes' rule are therefore estimated on the given labels:

    P(true = y | x, given) ∝ T[y, given] · softmax(a · logits)_y

T[i, j] = P(given = j | true = i) is counted where the classifier is surest, for there its errors
are rare and what contradicts it are wrong labels. The scale a (one over a temperature) is the most
likely one of the labels given that T: P(given | x) = Σ_y T[y, given] softmax(a · logits)_y. So
contradictions that are as frequent everywhere are noise, and those that grow in number where the
classifier is less sure are its own errors, or labels that are wrong where examples are hard:
:func:`wrong_by_sureness`. Nothing in the data tells the two apart, nor overlap of the classes.
"""

import math

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from covlearn.checks import Array, as_tensor, check_labels, check_scores, check_transition
from covlearn.evidence import surest_mask
from covlearn.kinds import checked

PRIOR_COUNT = 10.0  # a class's row of T counts as if it had so many examples of the average row
LOG_SCALES = (-3.0, 4.0)
MOST_VALUES = 4_000_000  # of logits that a scale is fitted to: enough for one number
PARTS = 4  # of the predictions of a class, from the surest on
BLAMED = 0.5  # of contradictions beyond T, on labels, else the classifier (benchmarks/counted.py)
MOST_WRONG = 0.9  # of the labels of a class, wherever
HEARD = 0.5  # of a label's evidence, in what a classifier says that learned it (counted.py)


@checked
def surest_transition(logits: Array, given: Array, *, surest: float = 0.25) -> Tensor:
    """T̂[i, j], the share of label j among the surest predictions of class i, (K, K), float64.

    Each row is drawn to the one of noise that is the same for all classes and labels at the rate
    of all surest predictions, by the weight of ten examples: a class may have few.

    >>> logits = torch.eye(2).repeat(50, 1)
    >>> surest_transition(logits, torch.tensor([0, 1] * 40 + [1, 1] * 10), surest=1.0)
    tensor([[0.8160, 0.1840],
            [0.0173, 0.9827]], dtype=torch.float64)
    """
    logits = check_scores(logits)
    num_classes = logits.shape[1]
    given = check_labels(given, num_classes=num_classes, length=len(logits), name="given")
    sure = surest_mask(logits, surest)
    cell = logits.argmax(dim=1)[sure] * num_classes + given[sure]
    count_KK = torch.bincount(cell, minlength=num_classes**2).double().reshape(num_classes, -1)
    # Half a contradiction is added, so that no label is impossible.
    rate = float(1 - (count_KK.trace() + 0.5) / (count_KK.sum() + 1))
    average_KK = torch.full_like(count_KK, rate / (num_classes - 1)).fill_diagonal_(1 - rate)
    return (count_KK + PRIOR_COUNT * average_KK) / (count_KK.sum(dim=1, keepdim=True) + PRIOR_COUNT)


@checked
def wrong_by_sureness(logits: Array, given: Array, transition: Array) -> Tensor:
    """How many times as often as T says the label of each example is wrong, (N,), at least once.

    The predictions of each class are cut into quarters, from the surest on, and contradictions are
    counted in each quarter of all classes together; their share is taken never to fall. Half of
    what it has above the rate of T is put down to the labels: that those of hard examples are wrong
    more often is assumed, for nothing in the data tells it from errors of the classifier.

    >>> logits = torch.eye(2).repeat(50, 1) * torch.linspace(5, 1, 100)[:, None]
    >>> given = torch.tensor([0, 1] * 45 + [1, 0] * 5)  # wrong among the least sure
    >>> known = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    >>> wrong_by_sureness(logits, given, known)[[0, 30, 60, 99]].round(decimals=1)
    tensor([1.0000, 1.0000, 1.0000, 2.5000], dtype=torch.float64)
    """
    logits = check_scores(logits)
    given = check_labels(given, num_classes=logits.shape[1], length=len(logits), name="given")
    transition = check_transition(transition, num_classes=logits.shape[1]).double()
    predicted = logits.argmax(dim=1)
    rate = max(float(1 - transition.diagonal()[predicted].mean()), 1e-9)
    times = torch.ones(len(given), dtype=torch.float64)
    most, inner = 1.0, torch.zeros(len(given), dtype=torch.bool)
    for part in range(1, PARTS + 1):
        outer = surest_mask(logits, part / PARTS)
        these, inner = outer & ~inner, outer
        wrong, count = int((predicted != given)[these].sum()), int(these.sum())
        # As if one more label were there, wrong as often as T says: a part may be empty.
        most = max(most, (wrong + rate) / (count + 1) / rate)
        times[these] = 1 + BLAMED * (most - 1)
    return times


@checked
def calibrated_scale(
    logits: Array,
    given: Array,
    transition: Array,
    *,
    times: Array | None = None,
    spread: float = math.inf,
) -> float:
    """The a that makes Σ_n ln Σ_y T[y, given_n] softmax(a · logits_n)_y largest.

    ``times`` are those of :func:`wrong_by_sureness`.

    With a finite ``spread``, ln a is normal around zero with that deviation before anything is
    seen. Of a few hundred labels a classifier that contradicts T nowhere may be sure to any degree,
    and the likelihood alone would make it sure without end.

    >>> logits = 10 * torch.eye(2).repeat(50, 1)  # right nine times of ten, and far too sure
    >>> given = torch.tensor([0, 1] * 45 + [1, 0] * 5)
    >>> round(10 * calibrated_scale(logits, given, torch.eye(2)), 3), round(math.log(9), 3)
    (2.197, 2.197)
    """
    if not spread > 0:
        raise ValueError(f"spread must be positive, got {spread}; math.inf is none")
    logits = check_scores(logits)
    given = check_labels(given, num_classes=logits.shape[1], length=len(logits), name="given")
    step = math.ceil(logits.numel() / MOST_VALUES)
    z_NK = logits[::step].double()
    transition = check_transition(transition, num_classes=logits.shape[1])
    times = None if times is None else _check_times(times, given)[::step]
    likely_NK = _likely(transition, given[::step], times)

    def cost(log_scale: float) -> float:
        probs = (math.exp(log_scale) * z_NK).softmax(dim=1)
        unlikely = -float((probs * likely_NK).sum(dim=1).clamp(min=1e-300).log().sum())
        return unlikely + 0.5 * (log_scale / spread) ** 2 / step

    # A coarse grid first: the likelihood may have more than one top.
    low, high = LOG_SCALES
    width = (high - low) / 14
    best = min((low + width * number for number in range(15)), key=cost)
    found = minimize_scalar(
        cost, bounds=(best - width, best + width), method="bounded", options={"xatol": 1e-3}
    )
    return math.exp(found.x)


@checked
def label_posterior(
    logits: Array,
    given: Array,
    transition: Array,
    *,
    times: Array | None = None,
    spread: float = math.inf,
    heard: Array | None = None,
    heard_share: float = HEARD,
) -> Tensor:
    """ln P(true = y | x, given), (N, K), with the scale that is the most likely one.

    ``times`` are those of :func:`wrong_by_sureness`, ``spread`` is :func:`calibrated_scale`'s.
    ``heard`` (N,) are the examples whose given label the classifier has learned from, or from a
    label that was made of it. What it says of them has that evidence in it already, all of it if
    it knows its labels by heart, none if it is held back from that: ``heard_share`` of it is taken
    to be, and the label's factor has the rest as its power. The scale is fitted as if nothing was
    heard.

    >>> logits = 10 * torch.eye(2).repeat(50, 1)
    >>> given = torch.tensor([0, 1] * 45 + [1, 0] * 5)
    >>> known = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    >>> label_posterior(logits, given, known).exp()[-1].round()
    tensor([0., 1.], dtype=torch.float64)
    """
    if not 0 <= heard_share <= 1:
        raise ValueError(f"heard_share must lie in [0, 1], got {heard_share}; a half is 0.5")
    scale = calibrated_scale(logits, given, transition, times=times, spread=spread)
    logits = check_scores(logits)
    given = check_labels(given, num_classes=logits.shape[1], length=len(logits), name="given")
    transition = check_transition(transition, num_classes=logits.shape[1])
    times = None if times is None else _check_times(times, given)
    # ln 0 of an impossible label would make every class impossible where the model agrees with it.
    likely_NK = _likely(transition, given, times).log().clamp(min=-700)
    if heard is not None:
        likely_NK[_check_heard(heard, given)] *= 1 - heard_share
    joint_NK = (scale * logits.double()).log_softmax(dim=1) + likely_NK
    return joint_NK.log_softmax(dim=1)


def _check_times(times: Array, given: Tensor) -> Tensor:
    times = as_tensor(times, name="times").double()
    if times.shape != given.shape or not bool(((times >= 0) & times.isfinite()).all()):
        raise ValueError(f"times must be {len(given)} finite numbers ≥ 0, one for each label")
    return times


def _check_heard(heard: Array, given: Tensor) -> Tensor:
    heard = as_tensor(heard, name="heard").cpu()
    if heard.shape != given.shape or heard.dtype != torch.bool:
        raise ValueError(
            f"heard must be {len(given)} booleans, one for each label, got "
            f"{tuple(heard.shape)} of {heard.dtype}"
        )
    return heard


def _likely(transition: Tensor, given: Tensor, times: Tensor | None) -> Tensor:
    """P(given | true = y), (N, K), wrong labels so many times as likely as T says."""
    transition = transition.double()
    if times is None:
        return transition.T[given]
    wrong_KK = transition.clone().fill_diagonal_(0)
    wrong_K = wrong_KK.sum(dim=1)
    # So many times at most, that of each class some labels are right; T itself may have fewer.
    most_K = (MOST_WRONG / wrong_K.clamp(min=1e-9)).clamp(min=1.0)
    likely_NK = torch.minimum(times[:, None], most_K).mul_(wrong_KK.T[given])
    right_N = 1 - torch.minimum(times, most_K[given]) * wrong_K[given]
    return likely_NK.scatter_(1, given[:, None], right_N[:, None])
