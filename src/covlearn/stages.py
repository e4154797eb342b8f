"""Stages of a run on the disk: where they are kept, and what tells one from another."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

try:
    import fcntl
except ImportError:  # Windows: a stage that two processes share may be trained twice there
    fcntl = None  # type: ignore[assignment]

from covlearn import distributed, records
from covlearn.atomic import without_links, write_bytes
from covlearn.checkpoint import Checkpoint
from covlearn.config import plain
from covlearn.engine import Objective, Record
from covlearn.evaluation import digest
from covlearn.locks import held

MODULE = frozenset(vars(nn.Module()))
"""What every module has."""


class FollowedCheckpoint(Checkpoint):
    """A checkpoint that shows the records so far to a follower; only the first process writes."""

    def __init__(
        self,
        path: Path,
        identity: str,
        *,
        seconds_between: float,
        follow: Callable[[list[Record]], None] | None,
        shared: Path | None = None,
    ) -> None:
        super().__init__(path, identity, seconds_between=seconds_between)
        self.follow = follow
        self.shared = shared
        self.loaded = False
        self._claim: IO[bytes] | None = None

    def claim(self) -> None:
        """Waits while another process trains this very stage; it is there to be read then."""
        if self.shared is None or fcntl is None or distributed.process() != 0:
            return
        place = self.shared.with_suffix(".lock")
        while self._claim is None:
            # Whoever else runs cells of this table may clear what it takes for left behind.
            with contextlib.suppress(FileNotFoundError):
                place.parent.mkdir(parents=True, exist_ok=True)
                self._claim = open(place, "ab", opener=without_links)  # noqa: SIM115  until release
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._claim, fcntl.LOCK_EX)

    def release(self) -> None:
        """Lets others train the stage, or read it if it is shared by now."""
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def load(self) -> dict[str, Any] | None:
        """The state that was saved last, by this run or one that shares the stage, or None.

        The first process reads it for all: each must start from the same epoch.
        """
        state = distributed.of_first(self._load)
        self.loaded = True
        return state

    def _load(self) -> dict[str, Any] | None:
        if self.shared is not None and not self.path.exists():
            with contextlib.suppress(FileNotFoundError):  # it may be cleared meanwhile
                write_bytes(self.path, self.shared.read_bytes())
        return super().load()

    def share(self) -> None:
        """Lets others have the stage, now that it is finished."""
        if self.shared is not None and not self.shared.exists() and distributed.process() == 0:
            with contextlib.suppress(FileNotFoundError):  # the same
                write_bytes(self.shared, self.path.read_bytes())
        self.release()

    def kept(self) -> str:
        """Words for what remains when training fails; nothing where the file itself is at fault."""
        return f"; {self.path} is kept" if self.loaded and self.path.exists() else ""

    def save(self, state: dict[str, Any], *, now: bool = False) -> None:
        """Called after each epoch."""
        try:
            if self.follow is not None:
                self.follow(state["history"])
        except KeyboardInterrupt:
            super().save(state, now=True)  # between two epochs nothing need be lost
            raise
        if distributed.process() == 0:
            super().save(state, now=now)


def identity_of(objective: Objective) -> dict[str, Any]:
    """What an objective minimises: its class, its settings and the tensors it starts with."""
    settings = {}
    for name, value in vars(objective).items():
        with contextlib.suppress(ValueError):  # what JSON cannot hold has no lasting name
            if not name.startswith("_"):
                settings[name] = plain(value)
    parts = {name: identity_of(part) for name, part in objective.named_children()}  # type: ignore[arg-type]
    kind = type(objective)
    return {
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "settings": settings,
        "tensors": digest_of(objective),
        "parts": parts,
    }


def has_lasting_name(objective: Objective) -> bool:
    """Whether ``identity_of`` tells this objective from every other that computes something else.

    What it is made of must be numbers, texts, tensors that are buffers and the like. A function, a
    private attribute or a class that was made inside of a function says nothing of what it does.
    """
    own = {name: value for name, value in vars(objective).items() if name not in MODULE}
    for name, value in own.items():
        try:
            plain(value)
        except ValueError:
            return False
        if name.startswith("_"):
            return False
    if "<locals>" in type(objective).__qualname__:
        return False
    return all(map(has_lasting_name, objective.children()))  # type: ignore[arg-type]


def digest_of(module: nn.Module) -> str:
    """A short name for all parameters and buffers of a module."""
    return fingerprint(
        {
            name: digest(value.view(torch.int16) if value.dtype == torch.bfloat16 else value)
            for name, value in module.state_dict().items()
            if isinstance(value, Tensor)
        }
    )[:16]


def digests_of_files(settings: Any) -> dict[str, str]:
    """A digest of each file that a setting names: what is in it decides what is computed."""
    if isinstance(settings, Mapping):
        settings = list(settings.values())
    if isinstance(settings, list):
        return {path: name for part in settings for path, name in digests_of_files(part).items()}
    if not isinstance(settings, str) or not Path(settings).is_file():
        return {}
    with Path(settings).open("rb") as file:
        return {settings: hashlib.file_digest(file, "sha256").hexdigest()[:16]}


def derived_seed(seed: int, *names: str) -> int:
    """A seed for one purpose, so that no two purposes share their randomness."""
    return int(fingerprint([seed, *names])[:8], 16)


def fingerprint(value: Any) -> str:
    """A digest of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Makes the folder and keeps other runs out; the first process does, for all of them."""
    with contextlib.ExitStack() as stack:

        def enter() -> None:
            records.check_place(folder)
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(folder))
            stack.callback(_remove_if_empty, folder)  # while nobody else can be in it

        distributed.of_first(enter)
        yield


def _remove_if_empty(folder: Path) -> None:
    """A run that was refused before it wrote anything leaves no folder."""
    with contextlib.suppress(OSError):  # something is there
        folder.rmdir()


def start_as(
    kind: type[records.Outcome], folder: Path, config: dict[str, Any], *, resume: bool
) -> records.Outcome | None:
    """The first process looks after the folder; the others are told what it found.

    Processes on machines of their own may have read other data: that is found here, too.
    """
    finished = distributed.of_first(lambda: records.start_as(kind, folder, config, resume=resume))
    differing = records.differences(distributed.of_first(lambda: plain(config)), plain(config))
    if differing:
        raise ValueError(
            f"all processes must be given the same run, process {distributed.process()} differs "
            f"from the first: {'; '.join(differing[:3])}"
        )
    return finished
