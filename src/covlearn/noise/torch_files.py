"""Labels out of a .pt file that others published, which may hold anything.

PyTorch's own reader runs nothing that a file brings along, but a few hundred bytes can have it
reckon for ever or fill the memory, and it knows no NumPy arrays, which CIFAR-N's files are made of.
So the pickle within is interpreted here (:mod:`covlearn.pickles`): names stand for inert objects,
and vectors of integers are made of them, as tensors, arrays or lists. Other values are left. What a
file unfolds to is counted before it is made, and may be a hundred times its size.
"""

import io
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covlearn.pickles import Machine, Refused

MOST_TIMES = 100
INSTRUCTION = 20  # what a byte of a program counts, which takes longer than a byte of data
MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001  # of the form before PyTorch 1.6
INTEGERS = {f"{kind}{size}": size for kind in "iu" for size in (1, 2, 4, 8)}
STORAGES = {  # by what their names begin with; sizes are for stepping over them
    **{"Byte": "u1", "Char": "i1", "Short": "i2", "Int": "i4", "Long": "i8", "Untyped": "u1"},
    **{"Bool": "b1", "Half": "f2", "BFloat16": "V2", "Float": "f4", "Double": "f8"},
    **{"ComplexFloat": "c8", "ComplexDouble": "c16"},
}
KINDS = {
    **{"f": "floating-point numbers", "V": "floating-point numbers", "c": "complex numbers"},
    **{"b": "true and false", "i": "integers that is damaged", "u": "integers that is damaged"},
}
DTYPES = {f"torch.uint{8 * size}": f"u{size}" for size in (2, 4, 8)}
NAMES = {
    *("collections.OrderedDict", "_codecs.encode", "numpy.ndarray", "numpy.dtype"),
    *("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"),
}


@dataclass(frozen=True)
class _Name:
    """A name of PyTorch's or NumPy's; it is compared, never called."""

    name: str


@dataclass(frozen=True)
class _Storage:
    """Numbers beside the pickle, by their key."""

    key: str
    code: str


@dataclass(frozen=True)
class _Tensor:
    """A vector whose numbers follow each other in a storage."""

    storage: _Storage
    code: str
    offset: int
    length: int


class _Dtype:
    """What a file says about the numbers of an array."""

    def __init__(self, code: Any) -> None:
        self.code, self.order = code, "|"


class _Array:
    """What a file says about an array."""

    state: Any = None


class _Object:
    """What is no label."""


class _Room:
    """What a file may still unfold to, in bytes."""

    def __init__(self, size: int) -> None:
        self.left = MOST_TIMES * size

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise Refused(f"it would unfold to over {MOST_TIMES} times its size")


class _LabelMachine(Machine):
    """The instructions and names that tensors, arrays and plain values are made of."""

    keys = (str, bytes, int, bool, float, type(None))
    more: Mapping[bytes, Callable[[Any], Any]] = {
        b"X": lambda machine: machine.text(machine.number("<I")),
        b"G": lambda machine: struct.unpack(">d", machine.take(8))[0],
        b"\x8a": lambda machine: int.from_bytes(
            machine.take(machine.number("<B")), "little", signed=True
        ),
        b"Q": lambda machine: machine.stored(machine.stack.pop()),
        b"\x81": lambda machine: machine.called(machine.stack.pop(-2), machine.stack.pop()),
    }

    def __init__(self, content: bytes, room: _Room, at: int = 0) -> None:
        super().__init__(content, at)
        self.room = room
        self.storages: dict[str, _Storage] = {}

    def text(self, count: int) -> str:
        return bytes(self.take(count)).decode("utf-8", "surrogatepass")

    def stored(self, said: Any) -> Any:
        """A storage, of which the file says type, key, place and length."""
        match said:
            case ("storage", _Name(name), str() as key, _, _) | (
                ("storage", _Name(name), str() as key, _, _, None)
            ):
                kind = name.rpartition(".")[2].removesuffix("Storage")
                if kind in STORAGES:
                    return self.storages.setdefault(key, _Storage(key, STORAGES[kind]))
        raise Refused("it has a storage of an unknown kind")

    def named(self, module: str, name: str) -> _Name:
        full = f"{module}.{name}"
        if full not in NAMES and module.partition(".")[0] != "torch":
            raise Refused(f"it names {full!r}, which is not allowed")
        return _Name(full)

    def called(self, what: Any, arguments: Any) -> Any:
        """An inert object, or what is no more than another form of the arguments."""
        if type(what) is not _Name or type(arguments) is not tuple:
            raise Refused("it calls what is no name")
        match what.name.rpartition(".")[2], arguments:
            case "OrderedDict", ():
                return {}
            case "encode", (str() as text, "latin1"):
                self.room.take(len(text))
                return text.encode("latin1")
            case "dtype", (code, *_):
                return _Dtype(code)
            case "_reconstruct", _:
                return _Array()
            case "_rebuild_tensor" | "_rebuild_tensor_v2" | "_rebuild_tensor_v3", _:
                return _tensor(arguments)
        return _Object()

    def built(self, what: Any, state: Any) -> None:
        if type(what) is _Array:
            what.state = state
        elif type(what) is _Dtype:
            what.order = state[1]


def _tensor(arguments: tuple[Any, ...]) -> _Tensor | _Object:
    """A plain vector; few bytes may claim to be a long one, by repeating themselves."""
    match arguments[:4]:
        case (_Storage() as storage, int() as offset, (int() as length,), (1,)):
            dtype = arguments[-1]  # where it is not that of the storage
            code = DTYPES.get(dtype.name, "") if type(dtype) is _Name else storage.code
            return _Tensor(storage, code, offset, length)
    return _Object()


class _File:
    """The value in a .pt file of either form, and the storages beside it."""

    def __init__(self, content: bytes) -> None:
        self.room, self.order = _Room(len(content)), "<"
        self.read: dict[str, bytes] = {}
        self.archive: zipfile.ZipFile | None = None
        if not content:
            raise ValueError("it is empty")
        if content.startswith(b"PK"):
            self.archive = zipfile.ZipFile(io.BytesIO(content))
            self.folder = next(
                name.removesuffix("data.pkl")
                for name in [*self.archive.namelist(), "data.pkl"]
                if name.endswith("data.pkl")
            )
            program = self.member("data.pkl", INSTRUCTION)
            self.value = _LabelMachine(program, self.room).run()
            if f"{self.folder}byteorder" in self.archive.namelist():
                self.order = ">" if self.member("byteorder") == b"big" else "<"
        else:
            self.read_old(content)

    def member(self, name: str, times: int = 1) -> bytes:
        """A file of the archive, which is not unpacked if it is too large."""
        assert self.archive is not None
        info = self.archive.getinfo(self.folder + name)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Refused("it is packed in a way that PyTorch does not know")
        self.room.take(times * info.file_size)
        with self.archive.open(info) as file:
            return file.read(info.file_size)  # and no more, whatever is packed there

    def read_old(self, content: bytes) -> None:
        """Programs one after the other, then all storages."""
        at, values = 0, []
        storages: dict[str, _Storage] = {}
        for _ in range(5):
            machine = _LabelMachine(content, self.room, at)
            values.append(machine.run())
            at = machine.at
            storages |= machine.storages
        magic, version, system, self.value, keys = values
        if (magic, version) != (MAGIC, VERSION) or type(system) is not dict:
            raise Refused("it has no beginning of a .pt file")
        self.order = "<" if system.get("little_endian", True) else ">"
        for key in keys:
            size = np.dtype(storages[key].code).itemsize
            length = size * machine.number("<q")
            self.read[key] = bytes(machine.take(length))

    def storage(self, key: str) -> bytes:
        if key not in self.read:
            self.read[key] = self.member(f"data/{key}")
        return self.read[key]

    def vectors(self) -> "Vectors":
        """The integer vectors of the dictionary, by name, and what is none."""
        made = Vectors({}, {})
        for key, value in self.value.items():
            name = key.decode("utf-8", "replace") if type(key) is bytes else str(key)
            if (vector := self.vector(value)) is not None:
                made.found[name] = vector
            else:
                made.left_out[name if name.isprintable() else ascii(name)] = _what_it_is(value)
        return made

    def vector(self, value: Any) -> NDArray[np.int64] | None:
        match value:
            case _Tensor(storage, code, offset, length) if code in INTEGERS and length > 0:
                self.room.take(8 * length)
                numbers, start = self.storage(storage.key), INTEGERS[code] * offset
                return np.frombuffer(numbers, self.order + code, length, start).astype(np.int64)
            case list():
                self.room.take(8 * len(value))
                if value and all(type(item) is int for item in value):
                    return np.array(value, dtype=np.int64)
            case _Array(state=(_, (int() as length,), _Dtype() as dtype, _, bytes() as content)):
                self.room.take(8 * len(content))
                return _integers(dtype, length, content)
        return None


@dataclass(frozen=True)
class Vectors:
    """The integer vectors of a file by name, and what its other values are, in words."""

    found: dict[str, NDArray[np.int64]]
    left_out: dict[str, str]


def read_vectors(path: Path) -> Vectors:
    """The integer vectors of a dictionary of tensors or arrays, and a word on what else it has."""
    content = path.read_bytes()
    try:
        file = _File(content)
        found = file.vectors() if type(file.value) is dict else None
    except Refused as refused:
        raise ValueError(
            f"{path} must be a dictionary of tensors or arrays, and holds something that is not "
            f"safe to read, or is damaged: {refused}"
        ) from None
    except OverflowError:
        raise ValueError(f"{path} must hold labels of at most 64 bits") from None
    except Exception as error:  # a damaged file fails in every way there is
        said = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path} cannot be read as a .pt file: {said[:160]}") from None
    if found is None:
        kind = type(file.value).__name__.lstrip("_").lower()
        raise ValueError(f"{path} must hold a dictionary, got {kind}")
    for name in found.found:
        if not name.isprintable():
            raise ValueError(f"{path} must name its labels in one line of text, got {name!r}")
    return found


def _what_it_is(value: Any) -> str:
    """A value that holds no labels, in words."""
    match value:
        case _Tensor(code=code, length=length) if length > 0:
            kind = code[:1]  # none for a type that NumPy has not
        case _Array(state=(_, (int(),), _Dtype(code=bytes() | str() as code), _, _)):
            text = code.decode("latin1") if isinstance(code, bytes) else code
            kind = text.lstrip("<>|=")[:1]
        case list() if value:
            return "a list in which not every item is an integer"
        case _:
            return "no vector of numbers"
    return f"a vector of {KINDS.get(kind, 'something else than integers')}"


def _integers(dtype: _Dtype, length: int, content: bytes) -> NDArray[np.int64] | None:
    code = dtype.code.decode() if isinstance(dtype.code, bytes) else dtype.code
    order = dtype.order.decode() if isinstance(dtype.order, bytes) else dtype.order
    if type(code) is not str or code not in INTEGERS or order not in ("<", ">", "|"):
        return None
    if len(content) != length * INTEGERS[code]:
        return None
    return np.frombuffer(content, dtype=f"{order}{code}").astype(np.int64)
