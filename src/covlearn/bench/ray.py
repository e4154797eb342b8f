"""Cells of a table as tasks of a Ray cluster, each with a share of a GPU.

A worker that sees the table's folder works there as a local run would: what a dead machine had
begun goes on from its checkpoint, and a stage that cells have in common is trained once. One that
does not see it works in a folder of its own and hands the files back. Data and label files must be
where the job names them on every machine.
"""

import contextlib
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from covlearn import records
from covlearn.atomic import write_bytes
from covlearn.bench.execute import Ended, Task, attempt
from covlearn.locks import held
from covlearn.records import Result

HERE = ".folder-of-"  # how the name of a file begins by which a worker knows the table's folder
RETRIES = 5  # of a cell whose machine or process died
SECONDS_TO_DIE = 60  # which a worker may outlive its machine's part of the cluster


@dataclass(frozen=True)
class Returned:
    """What a worker hands back: the outcome, and the files if they are not in their place."""

    result: Result | None
    error: str | None
    files: dict[str, bytes]


@contextlib.contextmanager
def cluster(address: str, device: str, gpus: float | None) -> Iterator["Cluster"]:
    """Joins the cluster at an address, ``ray`` being that of this machine or a new one on it.

    ``gpus`` a cell takes default to one where the cluster has some and the device may be one.
    """
    ray = _import_ray()
    where = None if address == "ray" else address
    try:
        ray.init(where, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"there is no Ray cluster at {address} ({error}); start one with ray start --head, or "
            "leave the address to --on ray"
        ) from error
    try:
        most = max((node["Resources"].get("GPU", 0.0) for node in _alive(ray)), default=0.0)
        if gpus is None:
            gpus = 0.0 if device == "cpu" or not most else 1.0
        if gpus > most or (device == "cpu" and gpus > 0) or (device == "cuda" and gpus == 0):
            raise ValueError(
                f"--gpus {gpus:g} does not go with --device {device} in a cluster whose machines "
                f"have {most:g} GPUs at most; leave --gpus out, or use --device auto"
            )
        yield Cluster(ray, gpus)
    finally:
        ray.shutdown()


@dataclass(frozen=True)
class Cluster:
    """Runs tasks on a cluster that was joined."""

    ray: Any
    gpus: float

    def __call__(self, tasks: dict[str, Task], folder: Path) -> Iterator[Ended]:
        """Yields each task when it is done; what a machine took with it is run again elsewhere."""
        device = "cuda" if self.gpus else "cpu"
        run = self.ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=RETRIES)(work)
        with marked(folder) as mark:
            waiting = {}
            for path, task in tasks.items():
                if (task.folder / records.RESULT).exists():
                    yield path, *attempt(task)  # which reads it back
                else:
                    sent = run.remote(replace(task, device=device), folder, mark, Path.cwd())
                    waiting[sent] = path
            while waiting:
                (done,), _ = self.ray.wait(list(waiting), num_returns=1)
                path = waiting.pop(done)
                yield path, *self._taken(tasks[path], done)

    def _taken(self, task: Task, done: Any) -> tuple[Result | None, str | None]:
        """The outcome of a task that is done, its files in their place."""
        try:
            returned: Returned = self.ray.get(done)
        except self.ray.exceptions.RayError as error:
            first = str(error).strip().partition("\n")[0]
            return None, f"its machine or process died {RETRIES + 1} times: {first}"
        # The result comes last, for it says that the others are there.
        for name in sorted(returned.files, key=lambda name: name == records.RESULT):
            write_bytes(task.folder / name, returned.files[name])
        return returned.result, returned.error


def work(task: Task, table: Path, mark: str, cwd: Path) -> Returned:
    """Runs a task on a worker: in its own folder if the worker sees the table's, else apart."""
    with contextlib.chdir(cwd) if cwd.is_dir() else contextlib.nullcontext():
        if (table / f"{HERE}{mark}").exists():
            wait_until_free(task.folder)
            return Returned(*attempt(task), files={})
        with tempfile.TemporaryDirectory(prefix="covlearn-") as apart:
            own = replace(task, folder=Path(apart) / "run", shared=Path(apart) / "stages")
            result, error = attempt(own)
            made = own.folder.iterdir() if result is not None else iter(())
            files = {file.name: file.read_bytes() for file in made if file.is_file()}
            return Returned(result, error, files)


def wait_until_free(folder: Path) -> None:
    """Waits for a process that worked here on a machine the cluster has lost already."""
    deadline = time.monotonic() + SECONDS_TO_DIE
    while (folder / records.CONFIG).exists() and time.monotonic() < deadline:
        with contextlib.suppress(ValueError), held(folder):
            return
        time.sleep(0.5)


@contextlib.contextmanager
def marked(folder: Path) -> Iterator[str]:
    """A file in the folder by which others know that they see the same one."""
    mark = uuid.uuid4().hex
    file = folder / f"{HERE}{mark}"
    folder.mkdir(parents=True, exist_ok=True)
    file.touch()
    try:
        yield mark
    finally:
        file.unlink(missing_ok=True)


def _alive(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _import_ray() -> Any:
    try:
        import ray  # noqa: PLC0415  an extra
    except ImportError as error:
        raise ValueError(
            "a cluster needs Ray, which is not installed; pip install 'covlearn[ray]' brings it"
        ) from error
    return ray
