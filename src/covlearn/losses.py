"""Losses of the paper and of the methods it compares with.

A loss is a pure function ``(logits, y, *, …) -> (B,)``: one value per example, never reduced.
``y`` has shape (B,), or (B, J) to ask for J classes of each example at once, and then so has the
result; :func:`per_class` uses this to get ℓ(f(x), j) for all classes j in O(B·K). ``dmi``, one
number a batch by nature, is the exception, and ``peer``, which pairs examples.

Softmax and logarithms are computed in float32 at least, whatever the dtype of the logits.
With p = softmax(logits), the cut-off cross-entropy is ℓ_j = −ln(p_j + ε) (paper, Sec. 5.1).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from covlearn.checks import (
    as_tensor,
    check_eps,
    check_pair,
    check_prior,
    check_same,
    check_scores,
    check_strength,
    check_transition,
    check_unreduced,
    is_number,
    readable,
)
from covlearn.kinds import checked, shown

CACHED_VALUES = 1 << 16  # of each of a few arrays: 256 KiB of float32, within a core's own cache


def cross_entropy(logits: Tensor, y: Tensor, *, eps: float = 1e-8) -> Tensor:
    """ℓ_y = −ln(p_y + ε), the paper's cut-off cross-entropy.

    >>> cross_entropy(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0]))
    tensor([0.1269, 2.1269])
    """
    logits, y = check_pair(logits, y)
    return -_log_prob(logits, y, check_eps(eps))


def generalized_cross_entropy(logits: Tensor, y: Tensor, *, q: float = 0.7) -> Tensor:
    """L_q = (1 − p_y^q) / q (Zhang & Sabuncu 2018): cross-entropy for q → 0, half the MAE at 1."""
    logits, y = check_pair(logits, y)
    if not is_number(q) or not 0 < q <= 1:
        raise ValueError(f"q must lie in (0, 1], got {shown(q)}; for q → 0 use cross_entropy")
    # Through ln p rather than p: the derivative of p^q is infinite where p underflows to zero.
    return -torch.expm1(float(q) * _log_prob(logits, y, 0.0)) / float(q)


def truncated_generalized_cross_entropy(
    logits: Tensor, y: Tensor, *, q: float = 0.7, k: float = 0.5
) -> Tensor:
    """L_q where p_y > k, the constant L_q(k), without gradient, elsewhere."""
    if not is_number(k) or not 0 < k < 1:
        raise ValueError(f"k must lie in (0, 1), got {shown(k)}; examples with p_y ≤ k are cut off")
    loss = generalized_cross_entropy(logits, y, q=q)  # refuses a wrong q
    return loss.clamp(max=(1 - float(k) ** float(q)) / float(q))


def forward_corrected(
    logits: Tensor, y: Tensor, *, transition: Tensor, eps: float = 1e-8
) -> Tensor:
    """−ln((pᵀT)_y + ε) (Patrini et al. 2017): the model is asked for the noisy posterior."""
    logits, y = check_pair(logits, y)
    transition = check_transition(transition, num_classes=logits.shape[1])
    return -(_noisy_prob(logits.softmax(dim=1), y, transition) + check_eps(eps)).log()


def reweighted(
    logits: Tensor,
    y: Tensor,
    *,
    transition: Tensor,
    eps: float = 1e-8,
    constant_weight: bool = False,
) -> Tensor:
    """w·ℓ_y with the importance weight w = (p_y + ε) / ((pᵀT)_y + ε) (Liu & Tao 2016).

    The transition always gets a gradient, as T-revision (Xia et al. 2019) needs. With
    ``constant_weight`` the model sees w as a number: its gradient is w·∇ℓ_y, and it cannot lower
    the loss by lowering the weight.
    """
    logits, y = check_pair(logits, y)
    transition = check_transition(transition, num_classes=logits.shape[1])
    check_eps(eps)
    if not isinstance(constant_weight, bool):
        raise ValueError(f"constant_weight must be True or False, got {shown(constant_weight)}")
    probs = logits.softmax(dim=1)
    weighing = probs.detach() if constant_weight else probs
    weight = (pick(weighing, y) + eps) / (_noisy_prob(weighing, y, transition) + eps)
    return -weight * (pick(probs, y) + eps).log()


def dmi(logits: Tensor, y: Tensor, *, eps: float = 1e-3) -> Tensor:
    """L_DMI = −ln(|det(Yᵀp)| + ε), Y the one-hot labels: one number a batch (Xu et al. 2019).

    The paper divides Yᵀp by B, which adds a constant to ln|det| but lets ε drown the determinant
    (5e−11 at K = 10) and with it the gradient; here, as in its authors' code, it is not divided.
    A batch that misses a class is singular (any 128 examples are, at K = 100): its value is −ln ε
    and its gradient zero. Where |det| is far below ε, as for an untrained network with K = 100, the
    gradient vanishes too: start from a trained network.
    """
    logits, y = check_pair(logits, y)
    if y.ndim != 1:
        raise ValueError(f"dmi needs one label an example, got y of shape {tuple(y.shape)}")
    num_classes = logits.shape[1]
    probs = logits.softmax(dim=1).double()
    # A product with one-hot labels, since a GPU adds scattered rows up in no fixed order.
    joint_KK = torch.nn.functional.one_hot(y, num_classes).to(probs).t() @ probs
    return dmi_from_joint(joint_KK, eps=eps).to(logits.dtype)


def dmi_from_joint(joint: Tensor, *, eps: float = 1e-3) -> Tensor:
    """−ln(|det J| + ε) of J = Yᵀp, which parts of a batch that lie apart can be added up to.

    Its gradient at a singular J is zero.
    """
    joint = as_tensor(joint, name="joint")
    if joint.ndim != 2 or joint.shape[0] != joint.shape[1] or not joint.is_floating_point():
        raise ValueError(
            f"joint must be square and floating point, got {tuple(joint.shape)} of {joint.dtype}"
        )
    if not check_eps(eps) > 0:
        raise ValueError(f"eps must be positive, got {eps}; a singular batch has ln 0 otherwise")
    # slogdet's gradient is the inverse, NaN for a singular matrix: such a batch is swapped for the
    # identity before the determinant, so that no NaN is ever formed. A NaN that came stays one.
    usable = torch.linalg.slogdet(joint.detach()).logabsdet != -torch.inf
    identity = torch.eye(joint.shape[0], dtype=joint.dtype, device=joint.device)
    log_det = torch.linalg.slogdet(torch.where(usable, joint, identity)).logabsdet
    log_eps = torch.full_like(log_det, math.log(eps))
    return -torch.where(usable, torch.logaddexp(log_det, log_eps), log_eps)


def peer(
    logits: Tensor,
    y: Tensor,
    peer_logits: Tensor,
    peer_y: Tensor,
    *,
    alpha: float | Tensor,
    eps: float = 1e-8,
    peer_eps: float = 1e-5,
) -> Tensor:
    """ℓ(f(x_n), y_n) − α ℓ(f(x_n1), y_n2) with n1, n2 drawn independently (Liu & Guo 2020)."""
    check_same(logits, peer_logits, names=("logits", "peer_logits"))
    check_strength(alpha, name="alpha")
    check_pair(peer_logits, peer_y, name="peer_y")
    check_eps(peer_eps, name="peer_eps")
    return cross_entropy(logits, y, eps=eps) - alpha * cross_entropy(
        peer_logits, peer_y, eps=peer_eps
    )


def confidence(logits: Tensor, *, prior: Tensor, eps: float = 1e-5) -> Tensor:
    """Σ_k π_k ℓ_k, the expectation of the peer term over the labels (paper, Sec. 3.1)."""
    logits = check_scores(logits)
    prior = check_prior(prior, num_classes=logits.shape[1])
    # Not a matrix product: autocast would compute that in half precision.
    return -((logits.softmax(dim=1) + check_eps(eps)).log() * prior.to(logits.dtype)).sum(dim=1)


def cores(
    logits: Tensor,
    y: Tensor,
    *,
    prior: Tensor,
    beta: float | Tensor,
    eps: float = 1e-8,
    confidence_eps: float = 1e-5,
) -> Tensor:
    """ℓ_y − β Σ_k π_k ℓ_k, CORES² without its dynamic sieve (Cheng et al. 2021)."""
    check_strength(beta, name="beta")
    y = as_tensor(y)
    if y.ndim == 1:
        logits, y = check_pair(logits, y)
        prior = check_prior(prior, num_classes=logits.shape[1])
        factor_K = (beta * prior).to(logits.dtype)
        check_eps(eps)
        check_eps(confidence_eps, name="confidence_eps")
        return weighted_logs(logits, y, factor_K, eps=eps, all_eps=confidence_eps)
    return cross_entropy(logits, y, eps=eps) - _per_example(
        beta * confidence(logits, prior=prior, eps=confidence_eps), y
    )


class Rows(NamedTuple):
    """For each example a row of a matrix (K, K), and its share in the factors of the logarithms."""

    matrix: Tensor
    row: Tensor
    share: Tensor

    def part(self, examples: slice) -> "Rows":
        """Those of some examples."""
        return Rows(self.matrix, self.row[examples], self.share[examples])


def weighted_logs(
    logits: Tensor,
    y: Tensor,
    factor_K: Tensor,
    *,
    eps: float,
    all_eps: float,
    rows: Rows | None = None,
) -> Tensor:
    """−ln(p_y + ε) + Σ_j f_j ln(p_j + ε′) of inputs that were checked: CORES² and CAL, (B,).

    f_j is ``factor_K``, to which ``rows`` add share·(1{y = j} − M_ij) with i the example's row.
    """
    others = (factor_K,) if rows is None else (factor_K, rows.matrix, rows.share)
    in_blocks = (
        readable(logits)
        and logits.requires_grad
        and torch.is_grad_enabled()
        and not any(other.requires_grad for other in others)
    )
    if in_blocks:
        return _InBlocks.apply(logits, y, factor_K, eps, all_eps, rows)  # type: ignore[no-any-return, no-untyped-call]
    return _weighted_logs(logits, y, factor_K, eps, all_eps, rows)


def _factors(
    factor_K: Tensor, y_B1: Tensor, rows: Rows | None, out: Tensor | None = None
) -> Tensor:
    """f of each example, (B, K); the same for all of them, (K,), without rows."""
    if rows is None:
        return factor_K
    matrix, share_B1 = rows.matrix.to(factor_K.dtype), rows.share.unsqueeze(1)
    row_BK = torch.index_select(matrix, 0, rows.row, out=out)
    factor_BK = torch.addcmul(factor_K, share_B1, row_BK, value=-1, out=out)
    return factor_BK.scatter_add_(1, y_B1, share_B1)


def _weighted_logs(
    logits: Tensor, y: Tensor, factor_K: Tensor, eps: float, all_eps: float, rows: Rows | None
) -> Tensor:
    y_B1 = y.unsqueeze(1)
    # All that multiplies ln(p_j + ε′), gathered before the one product that needs a gradient.
    factor_BK = _factors(factor_K, y_B1, rows)
    probs = logits.softmax(dim=1)
    own_B1 = probs.gather(1, y_B1).add(eps).log()
    return (factor_BK * probs.add(all_eps).log()).sum(dim=1) - own_B1.squeeze(1)


def _value_and_gradient(
    loss_B1: Tensor,
    gradient: Tensor,
    logits: Tensor,
    y: Tensor,
    factor_K: Tensor,
    eps: float,
    all_eps: float,
    rows: Rows | None,
    scratch: list[Tensor],
) -> None:
    """Writes the losses of some examples and their gradients; ``scratch`` is three (B, K).

    With g_j = ∂ℓ/∂p_j = f_j/(p_j + ε′) − 1{y = j}/(p_y + ε), ∂ℓ/∂z_k = p_k (g_k − Σ_j p_j g_j).
    """
    factor_BK, shifted, slope = scratch
    y_B1 = y.unsqueeze(1)
    probs = torch.softmax(logits, 1, out=gradient)
    own_B1 = probs.gather(1, y_B1).add_(eps)
    factor_BK = _factors(factor_K, y_B1, rows, out=factor_BK)
    torch.add(probs, all_eps, out=shifted)
    torch.div(factor_BK, shifted, out=slope).scatter_add_(1, y_B1, -own_B1.reciprocal())
    slope.mul_(probs)
    logs = shifted.log_().mul_(factor_BK)
    torch.sub(logs.sum(dim=1, keepdim=True), own_B1.log_(), out=loss_B1)
    torch.addcmul(slope, probs, slope.sum(dim=1, keepdim=True), value=-1, out=gradient)


class _InBlocks(torch.autograd.Function):
    """The same on the CPU, value and gradient at once, for as many examples as fit its cache."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        y: Tensor,
        factor_K: Tensor,
        eps: float,
        all_eps: float,
        rows: Rows | None,
    ) -> Tensor:
        size, num_classes = logits.shape
        gradient, loss_B1 = torch.empty_like(logits), logits.new_empty(size, 1)
        how = (factor_K, eps, all_eps)
        step = max(1, CACHED_VALUES // num_classes)
        if size <= step:
            scratch = [torch.empty_like(logits) for _ in range(3)]
            _value_and_gradient(loss_B1, gradient, logits, y, *how, rows, scratch)
        else:
            whole = logits.new_empty(3, step, num_classes)  # once, as memory that is new costs
            for start in range(0, size, step):
                some = slice(start, min(start + step, size))
                own_rows = None if rows is None else rows.part(some)
                scratch = list(whole[:, : some.stop - start])
                parts = (loss_B1[some], gradient[some], logits[some], y[some])
                _value_and_gradient(*parts, *how, own_rows, scratch)
        ctx.save_for_backward(logits, gradient)
        ctx.others = (y, factor_K, eps, all_eps, rows)
        return loss_B1.squeeze(1)

    @staticmethod
    def backward(ctx: Any, outer_B: Tensor) -> tuple[Tensor | None, ...]:
        logits, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative will be asked for
            loss_B = _weighted_logs(logits, *ctx.others)
            (through,) = torch.autograd.grad(loss_B, logits, outer_B, create_graph=True)
        else:
            through = gradient * outer_B.unsqueeze(1)
        return (through, *[None] * 5)


def joint(
    logits_1: Tensor, logits_2: Tensor, y: Tensor, *, weight: float, eps: float = 1e-8
) -> Tensor:
    """(1 − λ)(ℓ_y¹ + ℓ_y²) + λ(KL(p¹‖p²) + KL(p²‖p¹)), JoCoR's loss of two networks (2020)."""
    if not is_number(weight) or not 0 <= weight <= 1:
        raise ValueError(
            f"weight must lie in [0, 1], got {shown(weight)}; 0 leaves the two CE terms"
        )
    check_same(logits_1, logits_2, names=("logits_1", "logits_2"))
    supervised = cross_entropy(logits_1, y, eps=eps) + cross_entropy(logits_2, y, eps=eps)
    log_1, log_2 = (check_scores(logits).log_softmax(dim=1) for logits in (logits_1, logits_2))
    # The two divergences share their factor: KL₁₂ + KL₂₁ = Σ_k (p¹_k − p²_k)(ln p¹_k − ln p²_k).
    divergence = ((log_1.exp() - log_2.exp()) * (log_1 - log_2)).sum(dim=1)
    return (1 - float(weight)) * supervised + float(weight) * _per_example(divergence, y)


WRAP = "wrap the loss in one_class_at_a_time(…) if it takes only one label an example"


def per_class(loss: Callable[..., Tensor], logits: Tensor, **options: Any) -> Tensor:
    """ℓ(f(x), j) of every example and every class j, shape (B, K).

    >>> per_class(cross_entropy, torch.zeros(1, 4))
    tensor([[1.3863, 1.3863, 1.3863, 1.3863]])
    """
    if not callable(loss):
        raise ValueError(f"loss must be a function of logits and labels, got {shown(loss)}")
    num_examples, num_classes = check_scores(logits).shape
    classes = torch.arange(num_classes, device=logits.device).expand(num_examples, -1)
    try:
        values = loss(logits, classes, **options)
    except (RuntimeError, IndexError, TypeError) as error:
        error.add_note(f"it was asked for all classes at once, y {tuple(classes.shape)}; {WRAP}")
        raise
    if values.shape != logits.shape:
        raise ValueError(
            f"the loss must return one value per example and class, {tuple(logits.shape)}, when y "
            f"has that shape, got {tuple(values.shape)}; {WRAP}"
        )
    return values


@checked
def one_class_at_a_time(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Lets a loss that takes labels of shape (B,) only also take (B, J), in J calls."""

    def each_column(logits: Tensor, y: Tensor, **options: Any) -> Tensor:
        columns = [y] if y.ndim == 1 else y.unbind(dim=1)
        values = [loss(logits, column, **options) for column in columns]
        values = [check_unreduced(value, length=len(y)) for value in values]
        return values[0] if y.ndim == 1 else torch.stack(values, dim=1)

    return each_column


def pick(values_BK: Tensor, y: Tensor) -> Tensor:
    """values[b, y[b]] for y (B,), values[b, y[b, j]] for y (B, J)."""
    return values_BK.gather(1, y if y.ndim == 2 else y.unsqueeze(1)).view(y.shape)


def _per_example(values_B: Tensor, y: Tensor) -> Tensor:
    """A value that is the same for all classes of an example, in the shape of y."""
    return values_B if y.ndim == 1 else values_B.unsqueeze(1).expand(y.shape)


def _log_prob(logits: Tensor, y: Tensor, eps: float) -> Tensor:
    if eps == 0:
        return pick(logits.log_softmax(dim=1), y)
    return (pick(logits.softmax(dim=1), y) + eps).log()


def _noisy_prob(probs: Tensor, y: Tensor, transition: Tensor) -> Tensor:
    """(pᵀT)_y: for one label an example only the columns that are asked for are formed."""
    transition = transition.to(probs.dtype)
    if y.ndim == 1:
        return (probs * transition.t()[y]).sum(dim=1)
    with torch.autocast(probs.device.type, enabled=False):  # which would round to half precision
        return pick(probs @ transition, y)
