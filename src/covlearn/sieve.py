"""Constructions of D̂, the estimate of the Bayes-optimal labels (paper, Sec. 4.2.1 and Alg. 1).

All take a model's probabilities on the training examples, NumPy arrays or tensors, and give a
:class:`Refined`. In your own training loop, :class:`SieveRecorder` collects what they need.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from covlearn.checks import (
    Array,
    as_tensor,
    check_device,
    check_eps,
    check_idx,
    check_labels,
    check_mask,
    check_probs,
    check_rate,
    check_scores,
    readable,
)
from covlearn.kinds import checked, shown
from covlearn.losses import pick

# How far apart two groups must be, in units of their spread √((σ₁² + σ₂²)/2). Cut in two at best, a
# normal sample has 2.7 and a uniform one, the flattest single group, √12; a sample of N scatters
# around that by less than 7/√N (the 99th percentile from N = 50 to 5,000).
ONE_GROUP_APART = 12**0.5
APART_BY_CHANCE = 7.0
STATE = ("noisy", "score", "prediction")  # of a recorder
FEWEST_SCORES, FEWEST_IN_GROUP = 50, 10


@dataclass(frozen=True)
class Refined:
    """D̂: ``label`` (−1 where dropped), ``keep`` (its noisy label was believed), ``score``."""

    label: Tensor
    keep: Tensor
    score: Tensor

    @property
    def dropped(self) -> Tensor:
        """Examples that are not in D̂."""
        return self.label < 0


@checked
def hold_fixed(refined: Refined, noisy: Array, trusted: Array | None) -> Refined:
    """D̂ with the labels that a person decided on, where ``trusted`` is true, as they are.

    >>> made = Refined(torch.tensor([1, -1]), torch.tensor([False, False]), torch.zeros(2))
    >>> hold_fixed(made, torch.tensor([0, 0]), torch.tensor([True, False])).label.tolist()
    [0, -1]
    """
    if trusted is None:
        return refined
    length = len(refined.label)
    noisy = as_tensor(noisy, name="noisy")
    # D̂ does not say how many classes there are: no label is too large.
    whole = noisy.numel() and not noisy.is_floating_point()
    classes = max(2, int(noisy.max()) + 1) if whole else 2
    noisy = check_labels(noisy, num_classes=classes, length=length, name="noisy")
    trusted = check_mask(trusted, length=length, name="trusted")
    return Refined(
        torch.where(trusted, noisy, refined.label), refined.keep | trusted, refined.score
    )


@checked
def adjusted_loss(probs: Array, noisy: Array, *, eps: float = 1e-8) -> Tensor:
    """s_n = ℓ_ỹ(x_n) − mean_k ℓ_k(x_n), with ℓ_k = −ln(p_k + ε).

    This is ℓ_CORES² − α_{n,t} of Algorithm 1: both contain −β Σ_k π_k ℓ_k, which cancels. With
    ε = 0 it is −∞ where some other class was ruled out (p_k = 0) and +∞ where ỹ itself was.

    >>> adjusted_loss(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1]))
    tensor([-1.0986,  1.0986])
    """
    return _adjusted_loss(*_check_pair(probs, noisy), eps)


@checked
def rival_margin(probs: Array, noisy: Array) -> Tensor:
    """ln max_{k≠ỹ} p_k − ln p_ỹ: positive where another class is more probable than the label.

    >>> rival_margin(torch.tensor([[0.8, 0.1, 0.1], [0.8, 0.1, 0.1]]), torch.tensor([0, 1]))
    tensor([-2.0794,  2.0794])
    """
    return _rival_margin(*_check_pair(probs, noisy))


def _rival_margin(probs: Tensor, noisy: Tensor) -> Tensor:
    """The same of probabilities that were checked in the precision they came in."""
    log_p = probs.clamp(min=1e-12).log()
    own = log_p.gather(1, noisy.unsqueeze(1)).squeeze(1)
    return log_p.scatter(1, noisy.unsqueeze(1), -torch.inf).amax(dim=1) - own


@checked
def refine_by_argmax(probs: Array, noisy: Array) -> Refined:
    """The label where no other class is more probable, else the most probable one."""
    probs, noisy = _check_pair(probs, noisy)
    return refine_scores(_rival_margin(probs, noisy), probs.argmax(dim=1), noisy, lower=0.0)


@checked
def refine(
    probs: Array, noisy: Array, *, lower: float, upper: float | None = None, eps: float = 1e-8
) -> Refined:
    """Algorithm 1: keep ỹ where s ≤ L_min, take argmax p where s > L_max, drop between.

    ``upper=None`` means L_max = L_min: nothing is dropped; ``lower=-math.inf`` then takes argmax p
    everywhere. The paper's −8 for CIFAR is tied to ε = 1e−8 and K = 10; elsewhere see
    :func:`auto_threshold` and :func:`quantile_threshold`.
    """
    probs, noisy = _check_pair(probs, noisy)
    return refine_scores(
        _adjusted_loss(probs, noisy, eps), probs.argmax(dim=1), noisy, lower=lower, upper=upper
    )


@checked
def quantile_threshold(scores: Array, kept: float) -> float:
    """The threshold L with a share ``kept`` of the scores at or below it (Clothing1M: 0.6154).

    It is the ⌈kept·N⌉-th smallest score; of tied scores all are kept.

    >>> quantile_threshold(torch.tensor([3.0, -1.0, 2.0, 0.0]), kept=0.5)
    0.0
    """
    scores = _check_scores(scores)
    if not 0 < kept <= 1:
        raise ValueError(f"kept must lie in (0, 1], got {kept}; 61.54 % is written 0.6154")
    # Rounded first: 0.1 · 30 is 3.0000000000000004 in floating point.
    rank = max(1, -int(-round(kept * len(scores), 6) // 1))
    return float(scores.kthvalue(rank).values)


@checked
def auto_threshold(scores: Array) -> float:
    """A threshold read off the scores themselves: where they fall in two groups, the cut between.

    Of all cuts of the sorted scores it takes the one that explains most of their variance (the
    exact two-means split) and returns the middle of the gap there. It refuses, with a ValueError,
    fewer than 50 scores, a group of fewer than 10, and groups whose means are no further apart, in
    units of their spread, than those of a single flat group cut in two (√12, plus 7/√N for chance).
    Then the scores show no two groups: nothing was learned yet, the model memorised the labels, or
    labels are wrong too rarely to be seen (one in twenty is, one in fifty is not).

    >>> auto_threshold(torch.tensor([-9.0, -8.0] * 30 + [5.0, 6.0] * 10))
    -1.5
    """
    ordered = _check_scores(scores).double().sort().values
    num_scores = len(ordered)
    if num_scores < FEWEST_SCORES:
        raise ValueError(
            f"auto_threshold needs at least {FEWEST_SCORES} scores, got {num_scores}; "
            "pass a threshold (quantile_threshold gives one for a known noise rate)"
        )
    centred = ordered - ordered.mean()
    left = torch.arange(1, num_scores, dtype=torch.float64)
    right = num_scores - left
    left_sum, left_square = centred.cumsum(0)[:-1], centred.square().cumsum(0)[:-1]
    between = left_sum**2 / left + left_sum**2 / right  # the whole sums to zero
    cut = int(between.argmax())
    num_left, num_right = cut + 1, num_scores - cut - 1
    mean_left, mean_right = left_sum[cut] / num_left, -left_sum[cut] / num_right
    variance_left = left_square[cut] / num_left - mean_left**2
    variance_right = (centred.square().sum() - left_square[cut]) / num_right - mean_right**2
    spread = ((variance_left + variance_right) / 2).clamp(min=0).sqrt()
    needed = ONE_GROUP_APART + APART_BY_CHANCE / num_scores**0.5
    apart = float(mean_right - mean_left)
    if min(num_left, num_right) < FEWEST_IN_GROUP or not apart > needed * float(spread):
        raise ValueError(
            f"auto_threshold needs two groups of scores, each of {FEWEST_IN_GROUP} or more and "
            f"further apart than {needed:.2f} times their spread, got {num_left} and {num_right} "
            f"scores {apart:.3g} apart with spread {float(spread):.3g}; record the scores at "
            "another epoch, or pass a threshold (quantile_threshold gives one for a known rate)"
        )
    return float(ordered[cut] + ordered[cut + 1]) / 2


@checked
def refine_by_confidence(probs: Array, noisy: Array, *, confidence: float) -> Refined:
    """Distillation (Cheng et al. 2017): argmax p where max p > confidence, dropped elsewhere.

    If the model is the noisy posterior and no class receives more than a share ρ of any other,
    T_ij(x) ≤ ρ for i ≠ j, then confidence = (1 + ρ)/2 leaves only Bayes-optimal labels: were j not
    the most probable class, P(Y = j | x) ≤ ½ and P(ỹ = j | x) ≤ ½ + ½ρ.
    """
    probs, noisy = _check_pair(probs, noisy)
    _check_unit(confidence, "confidence")
    best = probs.max(dim=1)
    label = torch.where(best.values > confidence, best.indices, -1)
    return Refined(label=label, keep=label == noisy, score=-best.values.detach().log())


@checked
def refine_by_likelihood(probs: Array, noisy: Array, *, threshold: float) -> Refined:
    """Keeps ỹ where p_ỹ ≥ threshold and takes argmax p elsewhere; the score is −ln p_ỹ."""
    probs, noisy = _check_pair(probs, noisy)
    _check_unit(threshold, "threshold")
    likelihood = pick(probs, noisy)
    keep = likelihood >= threshold
    label = torch.where(keep, noisy, probs.argmax(dim=1))
    return Refined(label=label, keep=keep, score=-likelihood.detach().log())


@checked
def refine_by_small_loss(probs: Array, noisy: Array, *, kept: float) -> Refined:
    """Keeps the share ``kept`` of smallest loss −ln p_ỹ with their labels and drops the others.

    :func:`keep_share` gives the share as a function of the epoch (Han et al. 2018; searching for
    a better schedule is Yao et al. 2020).
    """
    probs, noisy = _check_pair(probs, noisy)
    likelihood = pick(probs, noisy)
    keep = -likelihood <= quantile_threshold(-likelihood, kept)
    label = torch.where(keep, noisy, -1)
    return Refined(label=label, keep=keep, score=-likelihood.detach().log())


@checked
def keep_share(epoch: int, *, rate: float, ramp_epochs: int = 10) -> float:
    """1 − rate·min(epoch / ramp_epochs, 1), epochs from zero: co-teaching's keep schedule."""
    check_rate(rate)
    if epoch < 0 or ramp_epochs < 1:
        raise ValueError(
            f"expected epoch ≥ 0 and ramp_epochs ≥ 1, got epoch={epoch}, ramp_epochs={ramp_epochs}"
        )
    return 1 - rate * min(epoch / ramp_epochs, 1)


class SieveRecorder:
    """Builds D̂ inside a training loop: the last score and prediction of each example, O(N).

    >>> recorder = SieveRecorder(noisy=torch.tensor([0, 1, 1]), num_classes=2)
    >>> recorder.update(torch.tensor([2, 0, 1]), torch.tensor([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0]]))
    >>> recorder.refine(lower=0.0).label
    tensor([0, 1, 0])
    """

    def __init__(
        self, noisy: Array, num_classes: int, *, device: torch.device | str | None = None
    ) -> None:
        labels = check_labels(noisy, num_classes=num_classes, name="noisy")
        device = check_device(device)
        self.num_classes = num_classes
        self.noisy = labels.to(device, copy=True)
        self.score = torch.full(labels.shape, torch.nan, device=device)
        self.prediction = torch.full_like(self.noisy, -1)

    @torch.no_grad()
    def update(self, idx: Tensor, logits: Tensor) -> None:
        """Records a batch: positions in the training set, and the logits the model gave there."""
        logits = check_logits(logits, num_classes=self.num_classes)
        idx = check_idx(idx, num_examples=len(self.noisy), length=len(logits))
        if logits.device != self.noisy.device:
            raise ValueError(
                f"logits must be on the recorder's device, {self.noisy.device}, got "
                f"{logits.device}; make it with SieveRecorder(…, device=…)"
            )
        probs = logits.softmax(dim=1)
        self.score[idx] = _adjusted_loss(probs, self.noisy[idx]).to(self.score.dtype)
        self.prediction[idx] = probs.argmax(dim=1)

    def state_dict(self) -> dict[str, Tensor]:
        """What a checkpoint keeps: tensors alone, so that it loads with ``weights_only=True``."""
        return {name: getattr(self, name).clone() for name in STATE}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes that up again, on this recorder's device; of other labels it is refused."""
        if not isinstance(state, Mapping) or set(state) != set(STATE):
            raise ValueError(
                f"state must be what state_dict() gave, with {', '.join(STATE)}, got {shown(state)}"
            )
        if not torch.equal(as_tensor(state["noisy"], name="noisy").cpu(), self.noisy.cpu()):
            raise ValueError(
                f"state must be that of a recorder of the same {len(self.noisy)} noisy labels, got "
                "others; make this one with the labels that the other one had"
            )
        for name in STATE:
            getattr(self, name).copy_(state[name])

    def refine(self, *, lower: float | None = None, upper: float | None = None) -> Refined:
        """D̂ by Algorithm 1; without ``lower`` the threshold is :func:`auto_threshold`'s."""
        missing = int((self.prediction < 0).sum())
        if missing:
            raise ValueError(
                f"every example must have been recorded, got {missing} of {len(self.noisy)} "
                "without a score: a loader that draws with replacement, drops its last batch or "
                "shares examples out among processes leaves some out; go over the data once in "
                "order, with update(idx, logits) for each batch, before refine()"
            )
        if lower is None:
            if upper is not None:
                raise ValueError(f"upper={upper} needs a lower; pass both, or neither")
            try:
                lower = auto_threshold(self.score)
            except ValueError as error:
                raise ValueError(
                    f"{error}; refine(lower=-math.inf) needs none: every label is then the most "
                    "probable class, whatever was given"
                ) from error
        return refine_scores(
            self.score.clone(), self.prediction, self.noisy, lower=lower, upper=upper
        )


def check_logits(logits: Array, *, num_classes: int | None = None) -> Tensor:
    """Scores that are no probabilities, whose softmax would be nearly uniform.

    Rows of one-hot numbers may be logits; of others that are not negative it is no chance if each
    sums to one. Looked at on the CPU alone, as values are in :mod:`covlearn.checks`.
    """
    logits = check_scores(logits, num_classes=num_classes)
    if not readable(logits) or len(logits) < 2 or bool(logits.detach().amin() < 0):
        return logits
    sums, tops = logits.detach().sum(dim=1), logits.detach().amax(dim=1)
    if bool(((sums - 1).abs() < 1e-2).all()) and bool((tops < 1).any()):
        raise ValueError(
            "logits must be what the network gives before softmax, got rows of probabilities, each "
            "with the sum 1; leave the softmax out, or pass (probs + 1e-8).log()"
        )
    return logits


def _adjusted_loss(probs: Tensor, noisy: Tensor, eps: float = 1e-8) -> Tensor:
    check_eps(eps)
    loss_BK = -(probs + eps).log()
    given = pick(loss_BK, noisy)
    return torch.where(given.isinf(), given, given - loss_BK.mean(dim=1))


@checked
def refine_scores(
    score: Tensor, prediction: Tensor, noisy: Tensor, *, lower: float, upper: float | None = None
) -> Refined:
    """Algorithm 1 from scores s_n and predicted classes that are already at hand."""
    upper = lower if upper is None else upper
    if not lower <= upper:  # also refuses NaN
        raise ValueError(f"expected lower ≤ upper, got lower={lower}, upper={upper}")
    if score.ndim != 1 or not score.shape == prediction.shape == noisy.shape:
        raise ValueError(
            "score, prediction and noisy must be vectors of one length, got shapes "
            f"{tuple(score.shape)}, {tuple(prediction.shape)} and {tuple(noisy.shape)}; pass "
            "tensors that belong together"
        )
    keep = score <= lower
    label = torch.where(keep, noisy, torch.where(score > upper, prediction, -1))
    # D̂ is data for the next training: kept, a graph would keep the whole batch's activations.
    return Refined(label=label, keep=keep, score=score.detach())


def _check_pair(probs: Array, noisy: Array) -> tuple[Tensor, Tensor]:
    probs = check_probs(probs)
    num_examples, num_classes = probs.shape
    return probs, check_labels(noisy, num_classes=num_classes, length=num_examples, name="noisy")


def _check_scores(scores: Array) -> Tensor:
    scores = as_tensor(scores).detach().cpu()
    if scores.ndim != 1 or len(scores) == 0 or not scores.is_floating_point():
        raise ValueError(
            f"scores must be a non-empty floating-point vector, got {scores.dtype} of shape "
            f"{tuple(scores.shape)}"
        )
    if not bool(scores.isfinite().all()):
        raise ValueError("scores must be finite, got NaN or infinity; use eps > 0")
    return scores


def _check_unit(value: float, name: str) -> None:
    if not 0 < value < 1:
        raise ValueError(
            f"{name} must lie in (0, 1), got {value}; it is compared with a probability"
        )
