"""A reader of files, the limits it is held to, and small whole files to start from.

A reader is given a folder in which one file is hostile, and must return something or raise a
ValueError of one sentence.
"""

import io
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

SECONDS = 2.0
"""What no file of a few kilobytes may take to be read or refused."""
NUM, NUM_COLUMNS = 40, 6

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Reader:
    """What reads ``file`` of a folder; ``around`` are the other files there."""

    name: str
    file: str
    seeds: tuple[bytes, ...]
    read: Callable[[Path], object]
    around: Files = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        """The folder as it would be if nobody meant harm."""
        for name, content in {**self.around, self.file: self.seeds[0]}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    def attempt(self, folder: Path, content: bytes) -> str | None:
        """Reads hostile content: None if that gave a value, else the sentence of the refusal.

        Any other exception, two lines, and more than :data:`SECONDS` are the reader's fault.
        """
        (folder / self.file).write_bytes(content)
        try:
            with time_limit(SECONDS):
                self.read(folder)
        except ValueError as error:
            return self._sentence(error)
        return None

    def _sentence(self, error: ValueError) -> str:
        text = str(error)
        if not text.strip() or "\n" in text:
            raise AssertionError(
                f"{self.name} must refuse in one sentence, got {text!r}"
            ) from error
        return text


class TookTooLongError(BaseException):
    """Not an Exception, which a reader might take for damage."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Stops what takes longer, of the processor's time, so that a busy machine does not count.

    What the C code of a library does not let itself be stopped in is found out afterwards.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise TookTooLongError(f"over {seconds} seconds")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    began = time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if time.process_time() - began > seconds:
        raise TookTooLongError(f"over {seconds} seconds")


def saved(function: Callable[..., Any], *arguments: Any, **named: Any) -> bytes:
    """What ``function(buffer, …)`` writes."""
    buffer = io.BytesIO()
    function(buffer, *arguments, **named)
    return buffer.getvalue()


def picture(kind: str, side: int = 12, **options: Any) -> bytes:
    pixels = np.random.default_rng(0).integers(256, size=(side, side, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


X = np.random.default_rng(0).normal(size=(NUM, 3)).astype(np.float32)
Y = np.arange(NUM) % 2


def mixed_table() -> pd.DataFrame:
    when = pd.date_range("2024-01-01", periods=NUM).astype(str)
    words = np.array(["red", "green", "blue"])[np.arange(NUM) % 3]
    frame = pd.DataFrame({"key": [f"k{n}" for n in range(NUM)], "a": X[:, 0], "b": X[:, 1]})
    return frame.assign(colour=words, when=when, label=np.array(["=x", "y"])[Y])


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "report.html"}
