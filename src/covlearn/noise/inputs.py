"""What every generator asks of its labels, features, probabilities and seed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covlearn.checks import Array, check_labels


def as_numpy(values: Array, *, name: str) -> NDArray[Any]:
    """The numbers of an array or a CPU tensor, not copied where that can be avoided."""
    if isinstance(values, Tensor):
        if values.device.type != "cpu":
            raise ValueError(
                f"{name} must be a NumPy array or a CPU tensor, got a tensor on {values.device}; "
                "call .cpu() first"
            )
        values = values.detach()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must hold real numbers, got dtype {array.dtype}; "
            "np.unique(values, return_inverse=True) numbers classes of any type"
        )
    return array


def clean_labels(
    y: Array, *, num_classes: int, length: int | None = None, name: str = "y"
) -> NDArray[np.int64]:
    """The labels as int64, checked to lie in 0…K−1."""
    checked = check_labels(
        as_numpy(y, name=name), num_classes=num_classes, length=length, name=name
    )
    labels: NDArray[np.int64] = checked.numpy()
    return labels


def features(x: Array, *, length: int) -> NDArray[Any]:
    """Features of shape (N, …), one row an example."""
    array = as_numpy(x, name="x")
    if array.ndim < 2 or array.size == 0:
        raise ValueError(
            f"x must have shape (examples, features…), got {array.shape}; "
            "a single feature an example is x[:, None]"
        )
    if len(array) != length:
        raise ValueError(
            f"x must have one row an example, {length}, got {len(array)}; "
            "pass arrays that belong together"
        )
    return array


def flip_probability(e: Array | float, *, length: int, name: str) -> NDArray[np.float64]:
    """One probability an example, or one number for all."""
    array = as_numpy(np.asarray(e) if isinstance(e, float | int) else e, name=name)
    if array.shape not in ((), (length,)):
        raise ValueError(
            f"{name} must be one number or hold one an example, {length}, got shape {array.shape}"
        )
    values = np.broadcast_to(array.astype(np.float64), (length,))
    valid = (values >= 0) & (values <= 1)  # also refuses NaN
    if not valid.all():
        bad = int(np.flatnonzero(~valid)[0])
        raise ValueError(f"{name} must lie in [0, 1], got {values[bad]} at position {bad}")
    return values


def check_seed(seed: int) -> int:
    """A seed that both of NumPy's generators take; the card has to be able to name it."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ValueError(
            f"seed must be an integer, got {seed!r}; the noise card records it, so that a "
            "generator or None will not do"
        )
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must lie in 0…2³²−1, got {seed}")
    return int(seed)


def positions_by_value(values: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each value that occurs, from the smallest, with the positions that hold it, in order."""
    order = np.argsort(values, kind="stable")
    found, start = np.unique(values[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, start[1:]), strict=True)
