"""Checkpoints that a run killed at any moment can be resumed from.

Written to a temporary file, flushed to the disk and renamed, by a thread of its own; read without
executing anything (tensors and plain values only). A digest at the end of the file shows that it is
whole: PyTorch's format would take a flipped bit of a weight for the weight.
"""

import hashlib
import io
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from covlearn.atomic import write_bytes
from covlearn.shortage import is_shortage

FORMAT = 2
DIGEST_BYTES = 32


class Checkpoint:
    """One file that holds the newest whole state.

    ``identity`` names the configuration: a file of another one is refused, not resumed from.
    """

    def __init__(self, path: Path, identity: str, *, seconds_between: float = 30.0) -> None:
        self.path = path
        self.identity = identity
        self.seconds_between = seconds_between
        self._written_at = -float("inf")
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def load(self) -> dict[str, Any] | None:
        """The state that was saved last, or None if there is none."""
        if not self.path.exists():
            return None
        try:
            whole = io.BytesIO(_undamaged(self.path.read_bytes()))
            saved = torch.load(whole, map_location="cpu", weights_only=True)
            format_, identity, state = saved["format"], saved["identity"], saved["state"]
        except Exception as error:
            if isinstance(error, OSError) or is_shortage(error):
                raise  # nothing is wrong with the file
            raise ValueError(
                f"{self.path} must be a checkpoint of covlearn, but it cannot be read "
                f"({_short(error)}); delete it to start this stage again"
            ) from error
        if format_ != FORMAT:
            raise ValueError(
                f"{self.path} must have checkpoint format {FORMAT}, got {str(format_)[:20]!r}; "
                "resume with the version of covlearn that wrote it"
            )
        if identity != self.identity:
            raise ValueError(
                f"{self.path} belongs to another configuration; use another folder, or delete it "
                "to start again"
            )
        return dict(state)

    def save(self, state: dict[str, Any], *, now: bool = False) -> None:
        """Saves a copy in the background, at most every ``seconds_between`` unless ``now``."""
        if not now and time.monotonic() - self._written_at < self.seconds_between:
            return
        self.wait()
        self._written_at = time.monotonic()
        whole = {"format": FORMAT, "identity": self.identity, "state": copied(state)}
        self._thread = threading.Thread(target=self._write, args=(whole,))
        self._thread.start()

    def wait(self) -> None:
        """Returns when what was saved is on the disk; raises what went wrong there."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _write(self, whole: dict[str, Any]) -> None:
        try:
            write_atomically(self.path, whole)
        except Exception as error:  # whatever it is, the run must not go on as if it were saved
            self._failure = error


def write_atomically(path: Path, value: Any) -> None:
    """``torch.save`` such that the file is either the old or the new one, never half of either."""
    # Through memory: torch.save hides a full disk behind a RuntimeError of its own.
    buffer = io.BytesIO()
    torch.save(value, buffer)
    digest = hashlib.sha256(buffer.getbuffer()).digest()
    buffer.seek(0, io.SEEK_END)
    buffer.write(digest)
    write_bytes(path, buffer.getbuffer())


def _undamaged(content: bytes) -> bytes:
    """What was saved, without its digest."""
    saved, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(saved).digest() != digest:
        raise ValueError("its bytes are not those that were written")
    return saved


def _short(error: Exception) -> str:
    """The reason in a line; PyTorch's own are pages long, and may quote the file."""
    text = str(error) if isinstance(error, ValueError) else ""
    return " ".join(text.split())[:300] or type(error).__name__


def copied(value: Any) -> Any:
    """The same nested value with tensors copied to the host, so that training can go on."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    return value
