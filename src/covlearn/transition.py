"""Estimates of the transition matrix ``transition[i, j] = P(noisy = j | true = i)``.

Estimates are summed in float64 and returned so; ``transition.to(logits)`` casts one. ``probs`` are
a model's probabilities of the *noisy* label, best from examples it was not trained on.
"""

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from covlearn.checks import (
    Array,
    as_tensor,
    check_labels,
    check_prior,
    check_probs,
    check_scores,
    check_transition,
    check_weight,
)
from covlearn.kinds import checked

EmptyClass: TypeAlias = Literal["error", "identity"]


@checked
def count_transition(
    refined: Array,
    noisy: Array,
    *,
    num_classes: int,
    weight: Array | None = None,
    empty_class: EmptyClass = "error",
) -> Tensor:
    """T̂[i, j] = Σ_n w_n 1{ŷ_n = i, ỹ_n = j} / Σ_n w_n 1{ŷ_n = i}, a K×K matrix.

    Paper: Eq. (est_T). Dropped examples (``refined`` −1) carry no weight; ``weight`` defaults to
    one an example, γ(x) of ``reweight`` corrects for the dropped ones. A class that no weighted
    example has is an error, unless ``empty_class="identity"`` says that nothing will read its row.
    O(N + K²) memory.

    >>> count_transition(torch.tensor([0, 0, 1, -1]), torch.tensor([0, 1, 1, 0]), num_classes=2)
    tensor([[0.5000, 0.5000],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    noisy = check_labels(noisy, num_classes=num_classes, name="noisy")
    length = noisy.shape[0]
    refined = check_labels(
        refined, num_classes=num_classes, length=length, name="refined", dropped=True
    )
    weight_N = None if weight is None else check_weight(weight, length=length).double()
    joint_KK = _count(refined, noisy, num_classes, weight_N)
    return _rows_to_one(joint_KK, empty_class, "refined example with a positive weight")


@checked
def anchor_transition(probs: Array, *, percentile: float | None = 97.0) -> Tensor:
    """T̂[i] = P̂(noisy = · | x^i), the posterior at the anchor x^i of class i; rows sum to one.

    Patrini et al. 2017. The anchor of class i has the ``percentile`` of column i as its p_i (no
    interpolation: the example at or next below that rank; of equals the first); ``None`` is the
    maximum, for classes with few examples (CIFAR-100). The published code finds the percentile by
    setting what is above it to zero in place, so that the rows of later classes read those zeros;
    here every row is a posterior as it was given.

    >>> probs = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]], dtype=torch.float64)
    >>> anchor_transition(probs, percentile=None)
    tensor([[0.9000, 0.1000],
            [0.2000, 0.8000]], dtype=torch.float64)
    """
    return _at_anchors(check_probs(probs), percentile)


def _at_anchors(probs: Tensor, percentile: float | None) -> Tensor:
    """The same of probabilities that were checked in the precision they came in."""
    if percentile is not None and not 0 <= percentile <= 100:
        raise ValueError(f"percentile must lie in [0, 100] or be None, got {percentile}")
    top = 100.0 if percentile is None else percentile
    rank = int(top * (probs.shape[0] - 1) / 100)
    value_K = probs.kthvalue(rank + 1, dim=0).values
    anchors = [int((probs[:, i] == value).nonzero()[0]) for i, value in enumerate(value_K)]
    posterior_KK = probs[anchors].double()
    return posterior_KK / posterior_KK.sum(dim=1, keepdim=True)


@checked
def confident_joint(probs: Array, noisy: Array, *, num_classes: int) -> Tensor:
    """K×K counts of (inferred true class, noisy class); column j sums to the examples labelled j.

    Northcutt et al. 2021, Eqs. 1–3, with p = P̂(noisy = · | x)::

        t_i    = mean of p_i over the examples labelled i            (self-confidence)
        C[i,j] = #{n : ỹ_n = j, i = argmax over {l : p_l ≥ t_l} of p_l}
        Q[i,j] = C[i,j] / Σ_i C[i,j] · #{n : ỹ_n = j}                (calibration)

    An example above several thresholds goes to its largest probability, one above none is not
    counted. The paper and cleanlab write noisy classes as rows: theirs is the transpose. cleanlab
    also raises an empty diagonal to one count; here it stays empty.

    >>> probs = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]])
    >>> confident_joint(probs, torch.tensor([0, 0, 1, 1]), num_classes=2)
    tensor([[1., 0.],
            [1., 2.]], dtype=torch.float64)
    """
    probs = check_probs(probs, num_classes=num_classes)
    noisy = check_labels(noisy, num_classes=num_classes, length=probs.shape[0], name="noisy")
    own = probs.gather(1, noisy[:, None]).flatten().double()
    labelled_K = torch.bincount(noisy, minlength=num_classes).double()
    empty = (labelled_K == 0).nonzero().flatten()
    if empty.numel():
        raise ValueError(
            f"each of the {num_classes} classes must have a noisy label, but {_name(empty)} has "
            "none, so that its threshold is undefined; leave the class out and renumber the rest"
        )
    threshold_K = torch.bincount(noisy, own, minlength=num_classes) / labelled_K
    # The mean of equal values may round up past them; the slack is far below any probability.
    threshold_K = (threshold_K * (1 - 1e-12)).to(probs.dtype)
    confident_NK = torch.where(probs >= threshold_K, probs, -1.0)
    largest_N, true_N = confident_NK.max(dim=1)
    count_KK = _count(torch.where(largest_N >= 0, true_N, -1), noisy, num_classes)
    # No column is empty: of the examples labelled j, one is not below their mean of p_j.
    return count_KK / count_KK.sum(dim=0) * labelled_K


@checked
def confident_transition(
    probs: Array, noisy: Array, *, num_classes: int, empty_class: EmptyClass = "error"
) -> Tensor:
    """T̂[i, j] = Q[i, j] / Σ_j Q[i, j] of the confident joint Q."""
    joint_KK = confident_joint(probs, noisy, num_classes=num_classes)
    return _rows_to_one(joint_KK, empty_class, "example that is confidently of the class")


@checked
def dual_transition(
    probs: Array,
    noisy: Array,
    *,
    percentile: float | None = None,
    empty_class: EmptyClass = "error",
) -> Tensor:
    """T̂ = T♣ T♠ through an intermediate class y' = argmax p (DualT, Yao et al. 2020).

    T♣[i, l] = P̂(y' = l | true = i) is read at anchor points (``anchor_transition``, where None,
    the maximum, is the paper's choice), T♠[l, j] = P̂(noisy = j | y' = l) is counted. This takes
    noisy given y' to be independent of the true class. ``empty_class="identity"`` lets an
    intermediate class that no example has stand for itself, as in the plain anchor estimate.
    """
    probs = check_probs(probs)
    length, num_classes = probs.shape
    noisy = check_labels(noisy, num_classes=num_classes, length=length, name="noisy")
    joint_KK = _count(probs.argmax(dim=1), noisy, num_classes)
    counted_KK = _rows_to_one(joint_KK, empty_class, "example whose largest probability it is")
    return _at_anchors(probs, percentile) @ counted_KK


def revised_transition(transition: Array, slack: Array) -> Tensor:
    """T + ΔT with each row projected on the probability simplex (T-revision, Xia et al. 2019).

    Differentiable in both; the result has the dtype and device of ``slack``. At ΔT = 0 it is T,
    and the slack has a gradient there even where T has zeros.

    >>> slack = torch.zeros(2, 2, requires_grad=True)
    >>> revised_transition(torch.eye(2), slack)[0, 1].backward()
    >>> slack.grad
    tensor([[-0.5000,  0.5000],
            [ 0.0000,  0.0000]])
    """
    transition = check_transition(transition)
    slack = as_tensor(slack)
    if slack.shape != transition.shape:
        raise ValueError(
            f"slack must have the shape of the transition, {tuple(transition.shape)}, "
            f"got {tuple(slack.shape)}"
        )
    slack = check_scores(slack, name="slack")
    return project_rows(transition.to(slack) + slack)


def project_rows(matrix: Array) -> Tensor:
    """The nearest valid rows: argmin ‖w − v‖² over w ≥ 0, Σ w = 1, for each row v.

    w_j = max(v_j − θ, 0), where θ makes the sum one. An entry exactly at the kink, v_j = θ, counts
    as free: its value is 0 and its derivative that of the inner side, so that a gradient can lift
    it again.
    """
    matrix = check_scores(matrix, name="matrix")
    with torch.no_grad():
        sorted_RK = matrix.double().sort(dim=1, descending=True).values
        count_K = torch.arange(1, matrix.shape[1] + 1, device=matrix.device)
        theta_RK = (sorted_RK.cumsum(dim=1) - 1) / count_K
        # The entries above their own θ come first in a sorted row; the last such θ is the answer.
        num_free_R1 = (sorted_RK > theta_RK).sum(dim=1, keepdim=True)
        theta_R1 = theta_RK.gather(1, num_free_R1 - 1)
        rounding = 4 * torch.finfo(matrix.dtype).eps
        free_RK = matrix >= theta_R1 - rounding * (1 + theta_R1.abs())
    free_sum_R1 = torch.where(free_RK, matrix, 0).sum(dim=1, keepdim=True)
    theta_R1 = (free_sum_R1 - 1) / free_RK.sum(dim=1, keepdim=True)
    projected_RK = torch.where(free_RK, matrix - theta_R1, 0)
    # Rounding may leave an entry at the kink a hair below zero: lift the value, not the gradient.
    return projected_RK - projected_RK.detach().clamp(max=0)


@checked
def transition_error(
    estimated: Array,
    true: Array,
    *,
    kind: Literal["entry", "row"] = "entry",
    class_weight: Array | None = None,
) -> float:
    """The distance of an estimate from the truth.

    ``"entry"`` is the mean absolute error of the K² entries. ``"row"`` is the total variation
    ½ Σ_j |T̂_ij − T_ij| of a row, the share of class i's noisy labels that is misplaced, averaged
    over classes with ``class_weight`` (default: equal), which compares across K.

    >>> transition_error(torch.eye(2), torch.tensor([[0.75, 0.25], [0.0, 1.0]]), kind="row")
    0.125
    """
    true = check_transition(true, name="true").double()
    num_classes = true.shape[0]
    estimated = check_transition(estimated, name="estimated", num_classes=num_classes)
    difference_KK = (estimated.to(true) - true).abs()
    if kind == "entry":
        if class_weight is not None:
            raise ValueError('class_weight is for kind="row"; "entry" weighs all entries equally')
        return float(difference_KK.mean())
    weight_K = torch.ones(num_classes).to(true)
    if class_weight is not None:
        weight_K = check_prior(class_weight, num_classes=num_classes, name="class_weight").to(true)
        if not float(weight_K.sum()) > 0:
            raise ValueError("class_weight must have a positive entry, got only zeros")
    return float((difference_KK.sum(dim=1) / 2) @ weight_K / weight_K.sum())


def _count(row_N: Tensor, noisy: Tensor, num_classes: int, weight: Tensor | None = None) -> Tensor:
    # Examples of row −1 land in a row of their own, cut off below: no masked copies of N values.
    cell_N = (row_N + 1).mul_(num_classes).add_(noisy)
    count = torch.bincount(cell_N, weight, minlength=(num_classes + 1) * num_classes)
    return count[num_classes:].reshape(num_classes, num_classes).double()


def _rows_to_one(joint_KK: Tensor, empty_class: EmptyClass, what: str) -> Tensor:
    mass_K = joint_KK.sum(dim=1)
    empty = (mass_K == 0).nonzero().flatten()
    if empty.numel() and empty_class == "error":
        raise ValueError(
            f"each of the {joint_KK.shape[0]} classes must have an example, but {_name(empty)} has "
            f"no {what}; give it some (a looser threshold, longer training, more data), or pass "
            'empty_class="identity" if nothing reads that row'
        )
    joint_KK[empty, empty] = 1.0
    mass_K[empty] = 1.0
    return joint_KK.div_(mass_K[:, None])  # in place: at K = 10,000 a copy weighs 800 MB


def _name(classes: Tensor) -> str:
    named = ", ".join(str(int(i)) for i in classes[:5])
    more = f" and {classes.numel() - 5} more" if classes.numel() > 5 else ""
    return f"class {named}{more}"
