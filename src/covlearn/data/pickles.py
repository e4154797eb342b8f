"""A reader of the official CIFAR pickles that can execute nothing.

A pickle is a program, and Python's own reader runs it. This one knows the two dozen instructions
that the official files are made of, and builds bytes, integers, lists, tuples, dictionaries and
uint8 arrays. It imports no module and calls nothing that a file names: the three NumPy names that
occur stand for two inert classes below. Any other instruction or name is refused.
"""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

ARRAY, DTYPE, RECONSTRUCT = "numpy ndarray", "numpy dtype", "numpy.core.multiarray _reconstruct"
NAMES = (ARRAY, DTYPE, RECONSTRUCT, "numpy._core.multiarray _reconstruct")


def read_pickle(content: bytes) -> Any:
    """The value that a pickle of plain values and uint8 arrays describes; text comes as bytes.

    >>> import pickle
    >>> read_pickle(pickle.dumps({1: [2, (3, None)]}, protocol=2))
    {1: [2, (3, None)]}
    """
    try:
        return _resolved(_Machine(content).run())
    except _Refused as refused:
        raise ValueError(f"not a pickle as CIFAR's official files are: {refused}") from None
    except (IndexError, KeyError, TypeError, AttributeError, struct.error):
        raise ValueError("not a pickle as CIFAR's official files are: it is damaged") from None


class _Refused(Exception):
    """What the file asks for, and does not get."""


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


_MARK = object()


class _Machine:
    """A stack, a memo, and the instructions of the official files."""

    def __init__(self, content: bytes) -> None:
        self.content = memoryview(content)
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}  # a dictionary: a large index must not allocate

    def run(self) -> Any:
        """Up to the end instruction."""
        push = self.stack.append
        while True:
            code = bytes(self.take(1))
            if code == b".":
                return self.stack.pop()
            if code in _PUSHED:
                push(_PUSHED[code]())
            elif code in _NUMBERS:
                push(self.number(_NUMBERS[code]))
            elif code in _LENGTHS:
                push(bytes(self.take(self.number(_LENGTHS[code]))))
            elif code in _STEPS:
                _STEPS[code](self)
            else:
                raise _Refused(f"it has the instruction {code!r} at byte {self.at - 1}")

    def take(self, count: int) -> memoryview:
        """The next bytes of the file."""
        if count < 0 or self.at + count > len(self.content):
            raise _Refused("it ends before its end")
        self.at += count
        return self.content[self.at - count : self.at]

    def number(self, form: str) -> int:
        """A number of the file, little-endian."""
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def line(self) -> str:
        """Text up to the end of the line."""
        rest = bytes(self.content[self.at : self.at + 200])
        text, newline, _ = rest.partition(b"\n")
        if not newline:
            raise _Refused("it has a name without an end")
        self.take(len(text) + 1)
        return text.decode("ascii", "replace")

    def since_mark(self) -> list[Any]:
        """What lies above the last mark, which is taken away too."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                items = self.stack[place + 1 :]
                del self.stack[place:]
                return items
        raise _Refused("it closes what it has not opened")

    def protocol(self) -> None:
        """The official files have protocol 2."""
        if (protocol := self.number("<B")) != 2:
            raise _Refused(f"it has protocol {protocol}, expected 2")

    def name(self) -> None:
        """A name stands for itself, if it is one of NumPy's three."""
        name = f"{self.line()} {self.line()}"
        if name not in NAMES:
            raise _Refused(f"it names {name.replace(' ', '.', 1)!r}, which is not allowed")
        self.stack.append(_Name(name))

    def call(self) -> None:
        """``_reconstruct(ndarray, …)`` and ``dtype(code, …)``, as inert objects."""
        arguments, what = self.stack.pop(), self.stack.pop()
        name = what.name if type(what) is _Name else None
        if name == DTYPE:
            self.stack.append(_Dtype(arguments[0]))
        elif name is not None and name != ARRAY and arguments[0].name == ARRAY:
            self.stack.append(_Array())
        else:
            raise _Refused("it calls something else than NumPy's array and dtype")

    def build(self) -> None:
        """State for an array; that of a dtype says nothing more about uint8."""
        state, what = self.stack.pop(), self.stack[-1]
        if type(what) is _Array:
            what.state = state
        elif type(what) is not _Dtype:
            raise _Refused("it gives a state to something else than an array")

    def remember(self, form: str) -> None:
        """Into the memo."""
        self.memo[self.number(form)] = self.stack[-1]

    def recall(self, form: str) -> None:
        """Out of the memo."""
        self.stack.append(self.memo[self.number(form)])

    def tuple_of(self, count: int) -> None:
        """The last few values as a tuple."""
        items = tuple(self.stack[len(self.stack) - count :])
        if len(items) != count:
            raise _Refused("it takes what is not there")
        del self.stack[len(self.stack) - count :]
        self.stack.append(items)

    def append(self, items: list[Any]) -> None:
        """Values into the list below them."""
        if type(self.stack[-1]) is not list:
            raise _Refused("it appends to what is no list")
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        """Pairs into the dictionary below them."""
        if type(self.stack[-1]) is not dict or len(items) % 2:
            raise _Refused("it sets items of what is no dictionary")
        if any(type(key) not in (bytes, int) for key in items[::2]):  # a deep tuple has no hash
            raise _Refused("it has a dictionary with other keys than text and numbers")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))


_PUSHED: dict[bytes, Callable[[], Any]] = {
    b"N": lambda: None,
    b"\x88": lambda: True,
    b"\x89": lambda: False,
    b"]": list,
    b"}": dict,
    b")": tuple,
    b"(": lambda: _MARK,
}
_NUMBERS = {b"K": "<B", b"M": "<H", b"J": "<i"}
_LENGTHS = {b"U": "<B", b"T": "<i"}
_STEPS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _Machine.protocol,
    b"c": _Machine.name,
    b"R": _Machine.call,
    b"b": _Machine.build,
    b"q": lambda machine: machine.remember("<B"),
    b"r": lambda machine: machine.remember("<I"),
    b"h": lambda machine: machine.recall("<B"),
    b"j": lambda machine: machine.recall("<I"),
    b"\x85": lambda machine: machine.tuple_of(1),
    b"\x86": lambda machine: machine.tuple_of(2),
    b"\x87": lambda machine: machine.tuple_of(3),
    b"t": lambda machine: machine.stack.append(tuple(machine.since_mark())),
    b"a": lambda machine: machine.append([machine.stack.pop()]),
    b"e": lambda machine: machine.append(machine.since_mark()),
    b"s": lambda machine: machine.set_items([machine.stack.pop(-2), machine.stack.pop()]),
    b"u": lambda machine: machine.set_items(machine.since_mark()),
}


def _resolved(value: Any) -> Any:
    """The value with its arrays made, which lie at the top or right below it."""
    if type(value) is dict:
        return {key: _array(item) if type(item) is _Array else item for key, item in value.items()}
    return _array(value) if type(value) is _Array else value


def _array(made: _Array) -> NDArray[np.uint8]:
    if type(made.state) is not tuple or len(made.state) != 5:
        raise _Refused("it has an array without a state")
    _, shape, dtype, fortran_order, content = made.state
    if type(dtype) is not _Dtype or dtype.code not in (b"u1", "u1"):
        raise _Refused("it has an array of something else than uint8")
    if (
        type(content) is not bytes
        or type(shape) is not tuple
        or not all(type(size) is int and size >= 0 for size in shape)
    ):
        raise _Refused("it has an array without contents or shape")
    try:
        flat = np.frombuffer(content, dtype=np.uint8)
        return flat.reshape(shape, order="F" if fortran_order else "C")
    except ValueError:
        raise _Refused(f"it has an array of shape {shape} in {len(content)} bytes") from None
