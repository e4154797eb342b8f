"""A reader of the official CIFAR pickles that can execute nothing.

They consist of the instructions that :mod:`covlearn.pickles` knows. The three NumPy names that
occur stand for two inert classes below, of which uint8 arrays are made; any other is refused.
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covlearn.pickles import Machine, Refused

ARRAY, DTYPE, RECONSTRUCT = "numpy ndarray", "numpy dtype", "numpy.core.multiarray _reconstruct"
NAMES = (ARRAY, DTYPE, RECONSTRUCT, "numpy._core.multiarray _reconstruct")


def read_pickle(content: bytes) -> Any:
    """The value that a pickle of plain values and uint8 arrays describes; text comes as bytes.

    >>> import pickle
    >>> read_pickle(pickle.dumps({1: [2, (3, None)]}, protocol=2))
    {1: [2, (3, None)]}
    """
    try:
        return _resolved(_CifarMachine(content).run())
    except Refused as refused:
        raise ValueError(f"not a pickle as CIFAR's official files are: {refused}") from None
    except (IndexError, KeyError, TypeError, AttributeError, struct.error):
        raise ValueError("not a pickle as CIFAR's official files are: it is damaged") from None


class _Name:
    """A NumPy name; it is compared, never called."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Array:
    """An array to be; its state comes later in the file."""

    state: Any = None


class _Dtype:
    """A type of numbers, of which uint8 alone is accepted."""

    def __init__(self, code: Any) -> None:
        self.code = code


class _CifarMachine(Machine):
    """NumPy's three names, and what they make."""

    def named(self, module: str, name: str) -> _Name:
        """A name stands for itself, if it is one of NumPy's three."""
        if f"{module} {name}" not in NAMES:
            raise Refused(f"it names {f'{module}.{name}'!r}, which is not allowed")
        return _Name(f"{module} {name}")

    def called(self, what: Any, arguments: Any) -> Any:
        """``_reconstruct(ndarray, …)`` and ``dtype(code, …)``, as inert objects."""
        name = what.name if type(what) is _Name else None
        if name == DTYPE:
            return _Dtype(arguments[0])
        if name is not None and name != ARRAY and arguments[0].name == ARRAY:
            return _Array()
        raise Refused("it calls something else than NumPy's array and dtype")

    def built(self, what: Any, state: Any) -> None:
        """State for an array; that of a dtype says nothing more about uint8."""
        if type(what) is _Array:
            what.state = state
        elif type(what) is not _Dtype:
            raise Refused("it gives a state to something else than an array")


def _resolved(value: Any) -> Any:
    """The value with its arrays made, which lie at the top or right below it."""
    if type(value) is dict:
        return {key: _array(item) if type(item) is _Array else item for key, item in value.items()}
    return _array(value) if type(value) is _Array else value


def _array(made: _Array) -> NDArray[np.uint8]:
    if type(made.state) is not tuple or len(made.state) != 5:
        raise Refused("it has an array without a state")
    _, shape, dtype, fortran_order, content = made.state
    if type(dtype) is not _Dtype or dtype.code not in (b"u1", "u1"):
        raise Refused("it has an array of something else than uint8")
    if (
        type(content) is not bytes
        or type(shape) is not tuple
        or not all(type(size) is int and size >= 0 for size in shape)
    ):
        raise Refused("it has an array without contents or shape")
    try:
        flat = np.frombuffer(content, dtype=np.uint8)
        return flat.reshape(shape, order="F" if fortran_order else "C")
    except ValueError:
        raise Refused(f"it has an array of shape {shape} in {len(content)} bytes") from None
