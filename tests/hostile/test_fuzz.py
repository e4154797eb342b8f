"""Whole files, damaged at random: every reader gives a value or one sentence, soon, in little room.

``python -m tests.hostile.fuzz --minutes 60`` goes on for longer; what it finds is kept in
``corpus``, by the name of the reader, and read again here.
"""

import json
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from tests.hostile.mutate import mutated
from tests.hostile.reader import Reader

CORPUS = Path(__file__).parent / "corpus"
EXAMPLES = 50  # of each reader
MOST_KIB = 2**20


@pytest.fixture(scope="module")
def places(
    readers: dict[str, Reader], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Reader, Path]]:
    """Each reader with a folder of its own."""
    made = {}
    for name, reader in readers.items():
        folder = tmp_path_factory.mktemp("fuzz")
        reader.prepare(folder)
        made[name] = (reader, folder)
    return made


def test_whole_files_are_read(places: dict[str, tuple[Reader, Path]]) -> None:
    """Else the fuzz would look at refusals alone."""
    refused = [
        (name, reason)
        for name, (reader, folder) in places.items()
        for seed in reader.seeds
        if (reason := reader.attempt(folder, seed)) is not None
    ]
    assert refused == []


def test_damage_ends_well(places: dict[str, tuple[Reader, Path]]) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(number=st.integers(0, 2**32 - 1))
    def damaged(number: int) -> None:
        rng = random.Random(number)
        for reader, folder in places.values():
            reader.attempt(folder, mutated(rng.choice(reader.seeds), rng))

    damaged()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KIB


def test_damage_that_coverage_guides_ends_well(tmp_path: Path) -> None:
    """Half a minute of what the hour was; not of the tests' own packages: ``covlearn[fuzz]``."""
    pytest.importorskip("atheris", reason="needs pip install 'covlearn[fuzz]'")
    command = [sys.executable, "-m", "tests.hostile.fuzz", "--minutes", "0.5", "--seed", "1"]
    done = subprocess.run(
        [*command, "--findings", str(tmp_path)],
        cwd=CORPUS.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["faults"] == [], done.stdout
    assert found["files"] > 100
    assert list(tmp_path.iterdir()) == []


DEEP = 100_000
ANYTHING = {
    "nothing": b"",
    "a zero": b"\0",
    "zeros": b"\0" * 4096,
    "text": b"hello\n",
    "lists": b"[" * DEEP,
    "objects": b'{"a":' * DEEP,
    "closed lists": b"[" * DEEP + b"]" * DEEP,
    "a TOML of lists": b"a = " + b"[" * DEEP,
    "quotes": b'"' * 4097,
    "commas": b"," * 2_000,
    "a long number": b"9" * 5_000,
    "half a zip": b"PK\x03\x04" + b"\xff" * 64,
    "half an image": b"\x89PNG\r\n\x1a\n" + b"\xff" * 64,
    "half a tar": b"\x1f\x8b\x08" + b"\xff" * 64,
    "half an array": b"\x93NUMPY\x01\x00\xff\xff",
    "half a Parquet": b"PAR1" + b"\xff" * 64 + b"PAR1",
    "UTF-16": "a,b\n".encode("utf-16"),
    "no UTF-8": b"\xff\xfe\xfd,\xfc\n",
}


@pytest.mark.parametrize("content", ANYTHING.values(), ids=ANYTHING)
def test_anything_ends_well(places: dict[str, tuple[Reader, Path]], content: bytes) -> None:
    for reader, folder in places.values():
        reader.attempt(folder, content)


def test_what_was_found_once_ends_well(places: dict[str, tuple[Reader, Path]]) -> None:
    found = sorted(CORPUS.glob("*/*"))
    assert found
    for path in found:
        reader, folder = places[path.parent.name.replace("_", " ")]
        reader.attempt(folder, path.read_bytes())


def test_a_fault_is_a_fault(places: dict[str, tuple[Reader, Path]], tmp_path: Path) -> None:
    """The harness sees what it looks for."""
    reader, _ = places["refined .txt"]

    def slow(folder: Path) -> None:
        while True:
            pass

    def wrong(folder: Path) -> None:
        raise KeyError("x")

    def two_lines(folder: Path) -> None:
        raise ValueError("one\ntwo")

    for read, fault in ((slow, BaseException), (wrong, KeyError), (two_lines, AssertionError)):
        bad = Reader("bad", reader.file, reader.seeds, read)
        bad.prepare(tmp_path)
        with pytest.raises(fault):
            bad.attempt(tmp_path, b"")
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
