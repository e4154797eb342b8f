"""The reader of official pickles: what Python's own says, and nothing runs."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covlearn.data.pickles import read_pickle
from tests.data.lookalike import ARRAY_BEFORE, DTYPE, python2_pickle

FIELDS = {
    b"labels": [6, 9, 255],
    b"batch_label": b"training batch 1 of 5",
    b"data": np.arange(24, dtype=np.uint8).reshape(3, 8),
}
GOOD = python2_pickle(FIELDS)


def test_it_reads_what_python_reads() -> None:
    ours, theirs = read_pickle(GOOD), pickle.loads(GOOD, encoding="bytes")
    assert list(ours) == list(theirs) == list(FIELDS)
    np.testing.assert_array_equal(ours.pop(b"data"), theirs.pop(b"data"))
    assert ours == theirs


def test_an_array_in_column_order() -> None:
    value = read_pickle(GOOD.replace(b"tb\x89T", b"tb\x88T"))[b"data"]
    np.testing.assert_array_equal(value, np.arange(24).reshape(3, 8, order="F"))


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.integers(0, 1000), inner)
    ),
)


@given(plain_values)
def test_plain_values_come_back(value: Any) -> None:
    assert read_pickle(pickle.dumps(value, protocol=2)) == value


class Runs:
    """A pickle of this makes a file, when it is read by something that runs it."""

    def __init__(self, marker: Path, how: str) -> None:
        self.marker, self.how = marker, how

    def __reduce__(self) -> tuple[Any, ...]:
        code = f"open({str(self.marker)!r}, 'w').close()"
        if self.how == "eval":
            return eval, (code,)
        if self.how == "exec":
            return exec, (code,)
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("how", ["system", "eval", "exec"])
@pytest.mark.parametrize("nested", [False, True])
def test_nothing_runs(tmp_path: Path, protocol: int, how: str, nested: bool) -> None:
    marker = tmp_path / "ran"
    bomb: Any = Runs(marker, how)
    content = pickle.dumps({1: [2, (bomb,)]} if nested else bomb, protocol=protocol)
    with pytest.raises(ValueError, match="not a pickle as CIFAR's official files are"):
        read_pickle(content)
    assert not marker.exists()
    pickle.loads(content)
    assert marker.exists()  # it was a bomb


def called(name: bytes, arguments: bytes) -> bytes:
    return b"\x80\x02c" + name + b"\n" + arguments + b"R."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (called(b"os\nsystem", b"U\x04true\x85"), "names 'os.system'"),
        (called(b"numpy\nload", b"U\x01x\x85"), "names 'numpy.load'"),
        (called(b"builtins\neval", b"U\x011\x85"), "names 'builtins.eval'"),
        (called(b"numpy\nndarray", b"K\x05\x85"), "calls something else"),
        (called(b"numpy.core.multiarray\n_reconstruct", b"cnumpy\ndtype\n\x85"), "calls something"),
        (called(b"numpy.core.multiarray\n_reconstruct", b")"), "damaged"),
        (called(b"numpy.core.multiarray\n_reconstruct", b"K\x05\x85"), "damaged"),
        (b"\x80\x02U\x01xU\x01y\x85R.", "calls something else"),
        (b"\x80\x02ios\nsystem\n.", "instruction b'i'"),
        (b"\x80\x02(cos\nsystem\nU\x04trueo.", "names 'os.system'"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", r"instruction b'\\x81'"),
        (b"\x80\x02\x82\x01.", r"instruction b'\\x82'"),
        (b"\x80\x02Pname\n.", "instruction b'P'"),
        (b"\x80\x04U\x02osU\x06system\x93.", "protocol 4"),
        (b"\x80\x02U\x02osU\x06system\x93.", r"instruction b'\\x93'"),
        (b"\x80\x02]Nb.", "state to something else"),
        (b"", "ends before its end"),
        (b"\x80\x02U\xffab", "ends before its end"),
        (b"\x80\x02T\xff\xff\xff\xffab", "ends before its end"),
        (b"\x80\x02c" + b"a" * 300, "name without an end"),
        (b"\x80\x02e.", "closes what it has not opened"),
        (b"\x80\x02K\x01\x86.", "takes what is not there"),
        (b"\x80\x02K\x01K\x02a.", "appends to what is no list"),
        (b"\x80\x02]K\x02K\x03s.", "no dictionary"),
        (b"\x80\x02})K\x03s.", "other keys"),
        (b"\x80\x02h\x07.", "damaged"),
        (b"\x80\x02.", "damaged"),
        (GOOD.replace(b"U\x02u1", b"U\x02O8"), "something else than uint8"),
        (GOOD.replace(b"U\x02u1", b"U\x02f8"), "something else than uint8"),
        (GOOD.replace(b"(M\x03\x00", b"(M\x04\x00"), r"shape \(4, 8\) in 24 bytes"),
        (b"\x80\x02}U\x04data" + ARRAY_BEFORE + b")" + DTYPE + b"\x89Ntbs.", "without contents"),
        (
            b"\x80\x02}U\x04data" + ARRAY_BEFORE + b"]" + DTYPE + b"\x89U\x00tbs.",
            "without contents or shape",
        ),
        (b"\x80\x02}U\x04data" + ARRAY_BEFORE + b"tbs.", "without a state"),
    ],
)
def test_what_is_not_official_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_pickle(content)


def test_a_large_place_in_the_memo_costs_nothing() -> None:
    assert read_pickle(b"\x80\x02Nr\xff\xff\xff\xffj\xff\xff\xff\xff.") is None


def test_a_deep_value_does_not_overflow_the_stack() -> None:
    deep = b"\x80\x02})" + b"\x85" * 300_000
    with pytest.raises(ValueError, match="other keys"):
        read_pickle(deep + b"Ns.")


def ends_well(content: bytes) -> None:
    """Nothing else than a ValueError in our own words may come of any bytes."""
    message = "not a pickle as CIFAR's official files are: "
    said = message
    try:
        read_pickle(content)
    except ValueError as error:
        said = str(error)
    assert said.startswith(message)


@settings(max_examples=400)
@given(st.data())
def test_damaged_files_are_refused_or_read_and_nothing_else(data: st.DataObject) -> None:
    content = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    ends_well(bytes(content))


instructions = st.sampled_from(
    [
        *(b"N", b"]", b"}", b")", b"(", b"K\x01", b"U\x01x", b"R", b"b", b"q\x00", b"h\x00"),
        *(b"\x85", b"\x86", b"\x87", b"t", b"a", b"e", b"s", b"u"),
        *(ARRAY_BEFORE, DTYPE, b"cnumpy\nndarray\n"),
    ]
)


@settings(max_examples=400)
@given(st.lists(instructions, max_size=30))
def test_programs_of_known_instructions_end_well(program: list[bytes]) -> None:
    ends_well(b"\x80\x02" + b"".join(program) + b".")
