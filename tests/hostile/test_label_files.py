"""A .pt file of labels takes time and room in proportion to its size, whatever it says."""

import io
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from covlearn.noise.files import read_label_file
from covlearn.noise.torch_files import INSTRUCTION, MAGIC, MOST_TIMES, VERSION, read_vectors
from tests.hostile.reader import time_limit

BEGIN = b"\x80\x02}"  # protocol 2, and a dictionary
ENCODE = b"c_codecs\nencode\n"
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
LARGEST = 100_000


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


PACKED, TIGHTER = zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2


def archive(program: bytes, numbers: bytes = b"", packed: int = zipfile.ZIP_STORED) -> bytes:
    """As ``torch.save`` writes it, but for the packing."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", packed, compresslevel=9) as file:
        file.writestr("a/data.pkl", program)
        file.writestr("a/data/0", numbers)
    return buffer.getvalue()


def old_form(program: bytes) -> bytes:
    before = (MAGIC, VERSION, {"little_endian": True})
    head = b"".join(pickle.dumps(each, protocol=2) for each in before)
    return head + program + pickle.dumps([], protocol=2)


def tensor(length: int) -> bytes:
    count = b"J" + struct.pack("<i", length)
    storage = b"(" + text("storage") + b"ctorch\nByteStorage\n" + text("0") + text("cpu") + count
    return TENSOR + b"(" + storage + b"tQK\x00" + count + b"\x85K\x01\x85\x89N" + b"tR"


def under_names(value: bytes, names: int) -> bytes:
    """One value that the file holds once, under many names."""
    first = BEGIN + b"(" + text("clean_label") + value + b"q\x05"
    return first + b"".join(text(f"{n:x}") + b"h\x05" for n in range(names)) + b"u."


def nested_key() -> bytes:
    return BEGIN + b")q\x00" + b"h\x00\x86q\x00" * 60 + b"K\x01s."


def deep_key() -> bytes:
    return BEGIN + b")" + b"\x85" * (LARGEST - 1000) + b"K\x01s."


def grown_bytes() -> bytes:
    start = ENCODE + b"q\x02" + text("x" * 1000) + text("latin1") + b"\x86Rq\x00" + text("hex")
    return b"\x80\x02" + start + b"q\x01" + b"h\x02h\x00h\x01\x86Rq\x00" * 30 + b"."


def long_text() -> bytes:
    start = b"\x80\x02" + ENCODE + b"q\x00" + text("x" * 40_000) + text("latin1") + b"\x86q\x01R"
    return start + b"h\x00h\x01R" * 10_000 + b"."


def arrays_of_less_than_nothing() -> bytes:
    """An array of a negative length, and then a tensor under many names."""
    array = b"cnumpy._core.multiarray\n_reconstruct\n)R"
    state = b"(K\x01J\x00\x00\x00\x80\x85cnumpy\ndtype\n" + text("i8") + b"\x85R\x89"
    state += ENCODE + text("") + text("latin1") + b"\x86Rtb"
    start = BEGIN + text("less") + array + state + b"s"
    return start + under_names(tensor(40_000), 6000)[len(BEGIN) :]


BOMBS: dict[str, Callable[[], bytes]] = {
    "a key of tuples in tuples": lambda: archive(nested_key()),
    "the same in the old form": lambda: old_form(nested_key()),
    "a key of a deep tuple": lambda: archive(deep_key()),
    "bytes that are only claimed": lambda: archive(
        BEGIN + text("a") + b"cbuiltins\nbytearray\n\x8a\x05\x00\x28\x6b\xee\x00\x85Rs."
    ),
    "a tensor that is only claimed": lambda: archive(
        BEGIN + text("a") + b"ctorch\nTensor\nJ\x00\xca\x9a\x3b\x85Rs."
    ),
    "bytes that grow": lambda: archive(grown_bytes()),
    "a text encoded again and again": lambda: archive(long_text()),
    "a tensor under many names": lambda: archive(under_names(tensor(40_000), 6000), bytes(40_000)),
    "a list under many names": lambda: archive(under_names(b"](" + b"K\x01" * 20_000 + b"e", 6000)),
    "a tensor that is packed": lambda: archive(
        under_names(tensor(60_000_000), 6), bytes(60_000_000), PACKED
    ),
    "a tensor that is packed otherwise": lambda: archive(
        under_names(tensor(90_000_000), 1), bytes(90_000_000), TIGHTER
    ),
    "arrays that give room": lambda: archive(arrays_of_less_than_nothing(), bytes(40_000)),
    "a program that is packed": lambda: archive(BEGIN + b"N0" * 20_000_000, packed=PACKED),
}


@pytest.mark.parametrize("made", BOMBS.values(), ids=BOMBS)
def test_a_small_file_is_refused_at_once(made: Callable[[], bytes], tmp_path: Path) -> None:
    content = made()
    assert len(content) < 1.1 * LARGEST
    (tmp_path / "labels.pt").write_bytes(content)
    with time_limit(2.0), pytest.raises(ValueError, match=r"labels\.pt must [^\n]+$"):
        read_label_file(tmp_path / "labels.pt")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="must"):
            read_label_file(tmp_path / "labels.pt")
        assert tracemalloc.get_traced_memory()[1] < 2**27
    finally:
        tracemalloc.stop()


def test_the_longest_program_that_is_read(tmp_path: Path) -> None:
    # Incompressible numbers make the file large, beside a program that unpacks to all it may.
    noise = np.random.default_rng(0).bytes(LARGEST - 2_000)
    length = MOST_TIMES * len(noise) // INSTRUCTION
    for times, message in ((1, "must hold a dictionary, got list"), (2, "times its size")):
        program = b"\x80\x02" + b"](NNNNNNNNNNe" * (times * length // 13)
        (tmp_path / "labels.pt").write_bytes(archive(program + b".", noise, PACKED))
        with time_limit(2.0), pytest.raises(ValueError, match=message):
            read_vectors(tmp_path / "labels.pt")


def test_what_an_honest_file_repeats_is_read(tmp_path: Path) -> None:
    labels = torch.arange(1000, dtype=torch.uint8) % 10
    torch.save({f"name {n}": labels for n in range(8)}, tmp_path / "labels.pt")
    found = read_vectors(tmp_path / "labels.pt").found
    assert len(found) == 8
    assert all(vector.tolist() == labels.tolist() for vector in found.values())
