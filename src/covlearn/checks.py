"""What public functions ask of their input, in one place.

A message says what was expected, what came and what to do; nothing is repaired. Shapes and dtypes
are always checked. Values are checked where looking costs nothing: reading a tensor that lives on
an accelerator would make the host wait in the middle of a training step, and a step that is being
compiled has no values yet. The caller who moves data to an accelerator checks it once, before.
"""

import math
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covlearn.kinds import LARGEST, check_size, shown

Array: TypeAlias = Tensor | NDArray[Any]

ROW_SUM_TOLERANCE = 1e-4


def readable(values: Tensor) -> bool:
    """Whether the values can be looked at without making an accelerator or a compiler wait."""
    return (
        values.device.type == "cpu"
        and not torch.compiler.is_compiling()
        # Inside torch.func.vmap a tensor has no single value to look at.
        and not torch._C._functorch.is_functorch_wrapped_tensor(values)
    )


def at_least_float32(values: Tensor) -> Tensor:
    """Half-precision values as float32; float32 and float64 as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def as_tensor(values: Array, *, name: str = "the values") -> Tensor:
    """The numbers of a tensor, an array, a list or a column of a table, copied only if need be."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be numbers, got {shown(values)}; "
            "np.unique(labels, return_inverse=True) numbers classes of any type"
        )
    # Torch takes no negative strides, no foreign byte order and no read-only memory.
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def check_scores(values: Array, *, name: str = "logits", num_classes: int | None = None) -> Tensor:
    """Finite floating-point values of shape (B, K), K ≥ 2, in float32 at least."""
    values = as_tensor(values, name=name)
    if not values.is_floating_point():
        raise ValueError(
            f"{name} must be floating point, got {values.dtype}; convert with .float()"
        )
    if values.ndim != 2 or values.shape[0] == 0:
        raise ValueError(
            f"{name} must have shape (examples, classes) with at least one example, "
            f"got {tuple(values.shape)}; give one row an example and one column a class"
        )
    if values.shape[1] < 2:
        raise ValueError(
            f"{name} must have at least 2 classes, got {values.shape[1]}; "
            "a binary problem needs two columns, one a class"
        )
    if num_classes is not None and values.shape[1] != check_num_classes(num_classes):
        raise ValueError(
            f"{name} must have {num_classes} columns, one a class, got {values.shape[1]}; check "
            "that model, labels and num_classes belong together"
        )
    # One sum tells in nearly every case: it is finite only if all values are.
    if (
        readable(values)
        and not math.isfinite(values.detach().sum())
        and not bool(values.isfinite().all())
    ):
        bad = int((~torch.isfinite(values)).any(dim=1).nonzero()[0])
        raise ValueError(
            f"{name} must be finite, got NaN or infinity first in row {bad}; "
            "look for a learning rate that is too high or a division by zero in the model"
        )
    return at_least_float32(values)


def check_probs(probs: Array, *, name: str = "probs", num_classes: int | None = None) -> Tensor:
    """Probabilities of shape (B, K): finite, not negative, rows that sum to one."""
    values = as_tensor(probs, name=name)
    probs = check_scores(values, name=name, num_classes=num_classes)
    _check_rows(probs, name, "apply softmax to logits first", values.dtype)
    return probs


def check_transition(
    transition: Array, *, name: str = "transition", num_classes: int | None = None
) -> Tensor:
    """A K×K matrix whose row i is P(noisy = · | true = i), in float32 at least."""
    values = transition = as_tensor(transition, name=name)
    if transition.ndim != 2 or transition.shape[0] != transition.shape[1]:
        raise ValueError(f"{name} must be a square K×K matrix, got {tuple(transition.shape)}")
    transition = check_scores(transition, name=name, num_classes=num_classes)
    _check_rows(
        transition,
        name,
        "entry [i, j] is P(noisy = j | true = i): normalise the rows, or transpose a matrix whose "
        "columns sum to one",
        values.dtype,
    )
    return transition


def check_prior(prior: Array, *, num_classes: int, name: str = "prior") -> Tensor:
    """K non-negative class weights, in float32 at least.

    They need not sum to one: the published CIFAR-100 setting multiplies the prior by ten.
    """
    prior = as_tensor(prior, name=name)
    if prior.shape != (num_classes,) or not prior.is_floating_point():
        raise ValueError(
            f"{name} must hold {num_classes} floating-point class weights, "
            f"got {prior.dtype} of shape {tuple(prior.shape)}; divide class counts by their sum"
        )
    if readable(prior) and not _finite_and_not_negative(prior):
        raise ValueError(
            f"{name} must be finite and not negative, got {prior.tolist()}; "
            "divide class counts by their sum"
        )
    return at_least_float32(prior)


def check_labels(
    labels: Array,
    *,
    num_classes: int,
    length: int | None = None,
    name: str = "labels",
    dropped: bool = False,
) -> Tensor:
    """Labels 0…K−1 of shape (N,) as int64; −1 means dropped and is accepted if ``dropped``."""
    labels = as_tensor(labels, name=name)
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(
            f"{name} must be integer class numbers, got {labels.dtype}; "
            "np.unique(labels, return_inverse=True) numbers classes of any type"
        )
    check_num_classes(num_classes)
    if labels.ndim != 1 or labels.numel() == 0:
        raise ValueError(f"{name} must be a non-empty vector, got shape {tuple(labels.shape)}")
    if length is not None and labels.shape[0] != length:
        raise ValueError(
            f"{name} must have one entry an example, {length}, got {labels.shape[0]}; "
            "pass arrays that belong together"
        )
    labels = labels.long()
    if readable(labels):
        lowest, highest = (int(bound) for bound in labels.aminmax())
        least = -1 if dropped else 0
        if lowest < least or highest >= num_classes:
            bad = int(((labels < least) | (labels >= num_classes)).nonzero()[0])
            also = " (or −1 for a dropped example)" if dropped else ""
            raise ValueError(
                f"{name} must lie in 0…{num_classes - 1}{also}, got {int(labels[bad])} at position "
                f"{bad}; check num_classes={num_classes} and that classes are numbered from zero"
            )
    return labels


def check_pair(logits: Array, y: Array, *, name: str = "y") -> tuple[Tensor, Tensor]:
    """Logits (B, K) and the labels that belong to them, (B,) or (B, J)."""
    logits, y = check_scores(logits), as_tensor(y, name=name)
    num_examples, num_classes = logits.shape
    if y.ndim == 2:
        if y.shape[0] != num_examples:
            raise ValueError(
                f"{name} must have {num_examples} rows, one an example, got {y.shape[0]}"
            )
        flat = check_labels(y.reshape(-1), num_classes=num_classes, name=name)
        return logits, flat.view(y.shape)
    return logits, check_labels(y, num_classes=num_classes, length=num_examples, name=name)


def check_unreduced(loss: Tensor, *, length: int) -> Tensor:
    """What a loss returned for labels (B,): one value per example."""
    if not isinstance(loss, Tensor) or loss.shape != (length,):
        raise ValueError(
            f"the loss must return one value per example, shape ({length},), got {shown(loss)}; "
            'losses of PyTorch do with reduction="none"'
        )
    return loss


def check_same(logits: Array, other: Array, *, names: tuple[str, str]) -> None:
    """Two sets of logits of one batch."""
    logits, other = as_tensor(logits, name=names[0]), as_tensor(other, name=names[1])
    if other.shape != logits.shape:
        raise ValueError(
            f"{names[1]} must have the shape of the logits, {tuple(logits.shape)}, got "
            f"{tuple(other.shape)}; both are of one batch"
        )


def check_mask(mask: Array, *, length: int, name: str) -> Tensor:
    """True or False for each example."""
    mask = as_tensor(mask, name=name)
    if mask.dtype != torch.bool or mask.shape != (length,):
        raise ValueError(
            f"{name} must hold {length} times True or False, one an example, got {mask.dtype} "
            f"of shape {tuple(mask.shape)}; a comparison, as positions == 1, makes it"
        )
    return mask


def check_idx(idx: Array, *, num_examples: int, length: int) -> Tensor:
    """Positions of a batch in the training set, as int64 of shape (B,)."""
    idx = as_tensor(idx, name="idx")
    if idx.shape != (length,) or idx.is_floating_point() or idx.dtype == torch.bool:
        raise ValueError(
            f"idx must hold {length} integer positions, one an example of the batch, "
            f"got {idx.dtype} of shape {tuple(idx.shape)}; let the dataset return the index too"
        )
    idx = idx.long()
    if readable(idx) and not bool(((idx >= 0) & (idx < num_examples)).all()):
        raise ValueError(
            f"idx must lie in 0…{num_examples - 1}, positions in the training set, "
            f"got {int(idx.min())}…{int(idx.max())}; count them over the set the labels came from"
        )
    return idx


def check_num_classes(num_classes: int) -> int:
    """The number of classes, two or more."""
    if isinstance(num_classes, bool) or not isinstance(num_classes, int | np.integer):
        raise ValueError(
            f"num_classes must be an integer, got {shown(num_classes)}; convert with int()"
        )
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}; count all classes")
    check_size(num_classes, name="num_classes")
    return int(num_classes)


def is_number(value: object) -> bool:
    """Whether this is a number of Python's or NumPy's, as options of a loss are."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def check_rate(rate: float, *, name: str = "rate") -> float:
    """A noise rate in [0, 1)."""
    if not is_number(rate) or not 0 <= rate < 1:  # also refuses NaN
        raise ValueError(f"{name} must lie in [0, 1), got {shown(rate)}; 40 % is written 0.4")
    return float(rate)


def check_device(device: torch.device | str | None) -> torch.device | None:
    """A device that PyTorch knows; None stays."""
    try:
        return None if device is None else torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"device must be one of PyTorch's, as 'cpu' or 'cuda', got {shown(device)}"
        ) from None


def check_eps(eps: float, *, name: str = "eps") -> float:
    """A cut-off ε ≥ 0 in −ln(p + ε)."""
    if not is_number(eps) or not 0 <= eps <= LARGEST:  # also refuses NaN
        raise ValueError(
            f"{name} must lie in [0, {LARGEST:,}], got {shown(eps)}; leave it out for the default"
        )
    return eps


def check_strength(value: float | Tensor, *, name: str) -> float | Tensor:
    """One finite, non-negative number, as a float or a tensor without dimensions."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise ValueError(
                f"{name} must be one number, got a tensor of shape {tuple(value.shape)}; "
                "weigh examples where the losses are averaged"
            )
        if not readable(value):
            return value
    elif not is_number(value):
        raise ValueError(f"{name} must be a number, got {shown(value)}; convert with float()")
    number = value.item() if isinstance(value, Tensor) else value
    if not 0 <= number <= LARGEST:  # also refuses NaN
        raise ValueError(f"{name} must lie in [0, {LARGEST:,}], got {number}; 0 is off")
    return value


def check_weight(weight: Array, *, length: int, name: str = "weight") -> Tensor:
    """One finite, non-negative weight an example, in float32 at least."""
    weight = as_tensor(weight, name=name)
    if weight.shape != (length,) or not weight.is_floating_point():
        raise ValueError(
            f"{name} must hold {length} floating-point values, one an example, "
            f"got {weight.dtype} of shape {tuple(weight.shape)}; convert with .float()"
        )
    if readable(weight) and not _finite_and_not_negative(weight):
        raise ValueError(
            f"{name} must be finite and not negative, got {float(weight.min())}…"
            f"{float(weight.max())}; give a dropped example 0"
        )
    return at_least_float32(weight)


def _finite_and_not_negative(values: Tensor) -> bool:
    least, most = values.detach().aminmax()  # both NaN if any value is
    return float(least) >= 0 and float(most) < math.inf


def _check_rows(rows: Tensor, name: str, remedy: str, given: torch.dtype) -> None:
    if not readable(rows):
        return
    if bool((rows < 0).any()):
        bad = int((rows < 0).any(dim=1).nonzero()[0])
        raise ValueError(
            f"{name} must not be negative, got {float(rows[bad].min())} in row {bad}; {remedy}"
        )
    sums = rows.sum(dim=1)
    # Each entry was rounded to the dtype it came in, so a row may be off by as much.
    tolerance = max(ROW_SUM_TOLERANCE, torch.finfo(given).eps)
    if bool(((sums - 1).abs() > tolerance).any()):
        bad = int((sums - 1).abs().argmax())
        raise ValueError(
            f"rows of {name} must sum to 1, row {bad} sums to {sums[bad]:.6g}; {remedy}"
        )
