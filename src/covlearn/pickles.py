"""An interpreter of pickles that can execute nothing.

A pickle is a program, and Python's own reader runs it. This one knows the two dozen instructions
that plain values are made of, and builds bytes, integers, lists, tuples and dictionaries. It takes
time and room in proportion to the program. Any other instruction is refused.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any


class Refused(Exception):
    """What the file asks for, and does not get."""


MARK = object()


class Machine(ABC):
    """A stack, a memo, and the instructions of plain values; ``more`` are those of a subclass.

    Nothing is imported or called: what stands for a name, and for what a call would return, is a
    subclass's to say.
    """

    keys: tuple[type, ...] = (bytes, int)
    """What keys of dictionaries may be: a deep tuple would take for ever to be hashed."""
    more: Mapping[bytes, Callable[["Machine"], Any]] = {}

    def __init__(self, content: bytes, at: int = 0) -> None:
        self.content = memoryview(content)
        self.at = at
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}  # a dictionary: a large index must not allocate

    def run(self) -> Any:
        """The value of the program that begins here; ``at`` is then behind its end."""
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
            elif code in self.more:
                push(self.more[code](self))
            else:
                raise Refused(f"it has the instruction {code!r} at byte {self.at - 1}")

    def take(self, count: int) -> memoryview:
        """The next bytes of the file."""
        if count < 0 or self.at + count > len(self.content):
            raise Refused("it ends before its end")
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
            raise Refused("it has a name without an end")
        self.take(len(text) + 1)
        return text.decode("ascii", "replace")

    def since_mark(self) -> list[Any]:
        """What lies above the last mark, which is taken away too."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is MARK:
                items = self.stack[place + 1 :]
                del self.stack[place:]
                return items
        raise Refused("it closes what it has not opened")

    def name(self) -> None:
        """A name that the file would import."""
        self.stack.append(self.named(self.line(), self.line()))

    def call(self) -> None:
        """What the file would call, with its arguments."""
        arguments, what = self.stack.pop(), self.stack.pop()
        self.stack.append(self.called(what, arguments))

    def build(self) -> None:
        """A state for an object."""
        state = self.stack.pop()
        self.built(self.stack[-1], state)

    @abstractmethod
    def named(self, module: str, name: str) -> Any:
        """What stands for a name; never the thing itself."""

    @abstractmethod
    def called(self, what: Any, arguments: Any) -> Any:
        """What stands for the result of a call."""

    @abstractmethod
    def built(self, what: Any, state: Any) -> None:
        """Gives a state to what stands for an object."""

    def protocol(self) -> None:
        """Older and newer ones have other instructions."""
        if (protocol := self.number("<B")) != 2:
            raise Refused(f"it has protocol {protocol}, expected 2")

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
            raise Refused("it takes what is not there")
        del self.stack[len(self.stack) - count :]
        self.stack.append(items)

    def append(self, items: list[Any]) -> None:
        """Values into the list below them."""
        if type(self.stack[-1]) is not list:
            raise Refused("it appends to what is no list")
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        """Pairs into the dictionary below them."""
        if type(self.stack[-1]) is not dict or len(items) % 2:
            raise Refused("it sets items of what is no dictionary")
        if any(type(key) not in self.keys for key in items[::2]):
            raise Refused("it has a dictionary with other keys than text and numbers")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))


_PUSHED: dict[bytes, Callable[[], Any]] = {
    b"N": lambda: None,
    b"\x88": lambda: True,
    b"\x89": lambda: False,
    b"]": list,
    b"}": dict,
    b")": tuple,
    b"(": lambda: MARK,
}
_NUMBERS = {b"K": "<B", b"M": "<H", b"J": "<i"}
_LENGTHS = {b"U": "<B", b"T": "<i"}
_STEPS: dict[bytes, Callable[[Machine], None]] = {
    b"\x80": Machine.protocol,
    b"c": Machine.name,
    b"R": Machine.call,
    b"b": Machine.build,
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
