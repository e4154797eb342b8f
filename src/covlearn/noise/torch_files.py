"""Labels out of a .pt file that others published, which may hold anything.

``torch.load(…, weights_only=True)`` runs nothing that a file brings along, but knows no NumPy
arrays, which CIFAR-N's files are made of. To allow NumPy's own classes would not be safe: the state
that a file gives to a dtype decides how the bytes of an array are read, as pointers too. Instead,
NumPy's names stand for the inert classes below, and only arrays of plain integers are made of them.
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class _Dtype:
    """What a file says about the numbers of an array."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code, self.order = code, "|"

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]


class _Array:
    """What a file says about an array."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _reconstruct(*_: Any) -> _Array:
    return _Array()


STAND_INS: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    (_Array, "numpy.ndarray"),
    (_Dtype, "numpy.dtype"),
    (_reconstruct, "numpy.core.multiarray._reconstruct"),  # as NumPy 1 calls it
    (_reconstruct, "numpy._core.multiarray._reconstruct"),
]


def read_torch_file(path: Path) -> dict[str, NDArray[np.int64]]:
    """The integer vectors of a dictionary of tensors or arrays, by name; other values are left."""
    try:
        with torch.serialization.safe_globals(STAND_INS):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} must be a dictionary of tensors or arrays, and holds something that is not "
            f"safe to read, or is damaged ({_first_sentence(error)})"
        ) from None
    except Exception as error:  # a damaged file fails in every way there is
        raise ValueError(f"{path} cannot be read as a .pt file: {_first_sentence(error)}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a dictionary, got {type(content).__name__}")
    try:
        vectors = {str(name): _vector(value) for name, value in content.items()}
    except OverflowError:
        raise ValueError(f"{path} must hold labels of at most 64 bits") from None
    found = {name: vector for name, vector in vectors.items() if vector is not None}
    for name in found:
        if not name.isprintable():
            raise ValueError(f"{path} must name its labels in one line of text, got {name!r}")
    return found


def _vector(value: Any) -> NDArray[np.int64] | None:
    if isinstance(value, Tensor):
        plain = value.layout == torch.strided and value.device.type == "cpu" and value.ndim == 1
        # A few bytes may claim to be a vector of any length, by repeating themselves.
        if not plain or value.numel() == 0 or value.stride() != (1,):
            return None
        whole = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
        return value.long().numpy() if whole else None
    if isinstance(value, list) and value and all(type(item) is int for item in value):
        return np.array(value, dtype=np.int64)
    match value.state if type(value) is _Array else None:
        case (_, (int() as length,), _Dtype() as dtype, _, bytes() as content):
            return _integers(dtype, length, content)
    return None


def _integers(dtype: _Dtype, length: int, content: bytes) -> NDArray[np.int64] | None:
    sizes = {f"{kind}{size}": size for kind in "iu" for size in (1, 2, 4, 8)}
    code = dtype.code.decode() if isinstance(dtype.code, bytes) else dtype.code
    order = dtype.order.decode() if isinstance(dtype.order, bytes) else dtype.order
    if code not in sizes or order not in ("<", ">", "|") or len(content) != length * sizes[code]:
        return None
    return np.frombuffer(content, dtype=f"{order}{code}").astype(np.int64)


def _first_sentence(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    start = text.rfind("WeightsUnpickler error: ")
    return text[start:][:160] if start >= 0 else text[:160]
