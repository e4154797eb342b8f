"""Runs the cells of a table: those that are not done, one after the other or side by side."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from covlearn import records, shortage
from covlearn.bench.found import other_run
from covlearn.bench.published import check_published_file, published_file
from covlearn.bench.table import Cell, Table, job_of
from covlearn.config import typed
from covlearn.data.cifar import CIFAR
from covlearn.data.sources import Source, check_data_name, check_noise, is_folder, load_data
from covlearn.engine import Plan
from covlearn.evaluation import Progress
from covlearn.job import Job, make_machine, protocol_of, run_job, settled
from covlearn.locks import Held, in_use
from covlearn.methods import Method
from covlearn.nets import check_options
from covlearn.noise.files import path_and_name
from covlearn.noise.registry import published_entry, published_with
from covlearn.records import Result

Ended = tuple[str, Result | None, str | None]
"""A task's path, and its result or what went wrong in words."""
Runner = Callable[["dict[str, Task]", Path], Iterator[Ended]]
"""Runs the tasks of a table's folder elsewhere, and yields each when it is done."""
SHARED = ".stages"  # below a column's folder, while its cells are run
ELSEWHERE = "another process is at work on it, and it is left to that one"


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: a result, or a sentence that says what went wrong."""

    cell: Cell
    result: Result | None
    error: str | None = None


@dataclass(frozen=True)
class Task:
    """A job, its folder and how to run it; ``recorded`` is the job without paths of its own."""

    job: Job
    recorded: dict[str, Any]
    folder: Path
    shared: Path
    device: str
    keep_models: bool


def check_jobs(
    table: Table,
    cells: Sequence[Cell],
    *,
    settings: Sequence[str],
    published: Path | None = None,
    folder: Path | None = None,
) -> None:
    """Says what is wrong with any cell before the first one is run.

    With the ``folder`` of a table that is run on this machine, the files must be there of cells
    that are not finished.
    """
    looked_at = set()  # rows have their files in common
    for cell in cells:
        job = typed(Job, job_of(table, cell, settings))
        try:
            check_known_data(job.data)
            check_noise_of(job.data, job.noise)
            if folder is not None and not (folder / cell.path / records.RESULT).exists():
                check_files(job)
            file = published_file(cell, job, published)
            if file is not None and (file, job.noise, job.data) not in looked_at:
                check_published_file(file, job)
                looked_at.add((file, job.noise, job.data))
        except ValueError as error:
            raise ValueError(f"column {cell.column.name}: {error}") from error
        try:
            method, others = settled(job)
            make_machine("cpu", others["machine"])
            protocol = protocol_of(job)
            check_options(job.net or protocol.net, others["net"])
            share = protocol.holdout if job.holdout is None else job.holdout
            if not 0 <= share < 1:
                raise ValueError(f"holdout must lie in [0, 1), got {share:g}; a tenth is 0.1")
            check_figure_of(
                table.figure_of(cell.row), method, chosen=share > 0 or is_folder(job.data)
            )
        except ValueError as error:
            raise ValueError(f"row {cell.row.name}: {error}") from error


def check_figure_of(figure: str, method: Method, *, chosen: bool) -> None:
    """The figure of a row must be one that its runs will have."""
    epochs = [plan.epochs for plan in vars(method).values() if isinstance(plan, Plan)]
    kind, _, number = figure.partition(":")
    if kind == "epoch" and epochs and int(number) > max(epochs):
        raise ValueError(
            f"figure={figure} is of an epoch that no stage has, the longest has {max(epochs)}; "
            "lower it, or train for longer"
        )
    if figure == "selected" and not chosen:
        raise ValueError(
            "figure=selected is of the epoch that held-out labels choose, and none are held out; "
            "set holdout in the table, as holdout=0.1, or another figure"
        )


def check_known_data(name: str) -> None:
    """The data must be such as can be loaded; a table may leave its place to whoever runs it."""
    try:
        check_data_name(name)
    except ValueError as error:
        raise ValueError(f"{error}; --data PATH says where it is") from error


def check_noise_of(data: str, noise: str) -> None:
    """The noise must be one that the data can have."""
    kind, _, rate = check_noise(noise)
    if kind in ("published", "as_published"):
        if data in CIFAR:
            published_entry(data, rate)
        elif not data.endswith(".npz"):  # which may hold CIFAR
            raise ValueError(f"{kind} noise is for {' and '.join(CIFAR)}, got {data}")
        elif not published_with(data, rate):
            raise ValueError(
                f"no labels are published with the rate {rate:g}; labels of your own are "
                'noise = "file:PATH" in the table'
            )


def check_files(job: Job) -> None:
    """The files that a job names must be there."""
    kind, named, _ = check_noise(job.noise)
    if job.data.endswith(".npz") and not Path(job.data).is_file():
        raise ValueError(f"there is no file {job.data}; check the path")
    if kind == "file" and not Path(path := path_and_name(named)[0]).is_file():
        raise ValueError(f"there is no label file {path}; check the path")


def run_cells(
    table: Table,
    cells: Sequence[Cell],
    folder: Path,
    *,
    device: str,
    published: Path | None = None,
    settings: Sequence[str] = (),
    processes: int = 1,
    keep_models: bool = False,
    progress: Callable[[Cell], Progress | None] | None = None,
    runner: Runner | None = None,
) -> Iterator[Outcome]:
    """Runs what is not done, yields each cell when it is; one that fails stops no other.

    On this machine, so many ``processes`` at a time, or by a ``runner`` that has others. A cell
    that another process works at is put off to the end, and left to that process if it still does.
    """
    by_path = {cell.path: cell for cell in cells}  # rows may share their runs
    tasks = {}
    for path, cell in by_path.items():
        recorded = job_of(table, cell, settings)
        job = typed(Job, recorded)
        if (file := published_file(cell, job, published)) is not None:
            job = replace(job, noise=f"file:{file}")
        place = folder / path
        tasks[path] = Task(job, recorded, place, place.parents[1] / SHARED / place.name, device,
                           keep_models)  # fmt: skip
    for shared in {task.shared for task in tasks.values()}:
        clear(shared)  # of an earlier, cut off time
    waiting = [task.shared for task in tasks.values()]

    def ended(tasks: dict[str, Task]) -> Iterator[Ended]:
        if runner is not None:
            yield from runner(tasks, folder)
        elif processes == 1:
            for path, task in tasks.items():
                follower = None if progress is None else progress(by_path[path])
                yield (path, *attempt(task, follower))
        else:
            yield from side_by_side(tasks, processes)

    put_off: dict[str, Task] = {}
    failed: list[Path] = []
    try:
        for last in (False, True):
            now = put_off if last else tasks
            for path, result, error in ended(now) if now else ():
                if error == ELSEWHERE and not last:
                    put_off[path] = tasks[path]
                    continue
                shared = tasks[path].shared
                waiting.remove(shared)
                if shared not in waiting:
                    clear(shared)  # checkpoints are large, and nobody asks
                if result is None and error != ELSEWHERE:
                    failed.append(tasks[path].folder)
                yield Outcome(by_path[path], result, error)
    finally:  # not between cells: another one may just be making its folder there
        for place in failed:
            remove_if_empty(place, below=folder)


def clear(shared: Path) -> None:
    """Deletes shared stages, unless another process that runs cells of the table is at one."""
    if not any(in_use(lock) for lock in shared.glob("*.lock")):
        shutil.rmtree(shared, ignore_errors=True)
        with contextlib.suppress(OSError):  # other trials have theirs
            shared.parent.rmdir()


def remove_if_empty(place: Path, *, below: Path) -> None:
    """Removes a folder, and those above it that are empty then, as far as the table's."""
    for each in (place, *place.parents):
        if each == below:
            return
        try:
            each.rmdir()
        except FileNotFoundError:
            continue  # nothing was begun
        except OSError:
            return  # something is in it


def attempt(task: Task, progress: Progress | None = None) -> tuple[Result | None, str | None]:
    """A task's result, or what went wrong in words; what was cut off goes on."""
    folder = task.folder
    try:
        if (folder / records.RESULT).exists():
            result = finished(task)
            # A kill may have come between the result and the end.
            shutil.rmtree(folder / records.STAGES, ignore_errors=True)
            return result, None
        result = run_job(
            task.job,
            folder,
            device=task.device,
            resume=(folder / records.CONFIG).exists(),
            progress=progress,
            source=_loaded(task.job.data),
            shared_stages=task.shared,
            recorded=task.recorded,
            keep_model=task.keep_models,
        )
    except Held:
        return None, ELSEWHERE
    except Exception as error:  # one cell's failure must not take the others with it
        return None, in_words(error)
    return result, None


def in_words(error: Exception) -> str:
    """What a user can do something about as it says; else with what kind of error it is."""
    if shortage.is_shortage(error):
        return shortage.in_words(error)
    known = isinstance(error, ValueError | OSError) and str(error)
    return str(error) if known else f"{type(error).__name__}: {error}"


def finished(task: Task) -> Result | None:
    """The result of a run that was made on whichever machine, if it was this job's."""
    there = records.read(task.folder)
    differing = other_run(there.config, task.recorded)
    if differing:
        raise ValueError(
            f"{task.folder} holds a run of another configuration: {'; '.join(differing[:3])}; "
            "choose another --folder, or delete it to run it again"
        )
    return there.result


def side_by_side(tasks: dict[str, Task], processes: int) -> Iterator[Ended]:
    """Each task in a process of its own, so many at a time; one that dies is one that failed."""
    context = multiprocessing.get_context("spawn")
    waiting: list[str] = list(tasks)
    running: dict[Connection, tuple[str, Any, Connection]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                path = waiting.pop(0)
                results, send = context.Pipe(duplex=False)
                alive, lifeline = context.Pipe(duplex=False)
                child = context.Process(target=_child, args=(tasks[path], send, alive))
                child.start()
                send.close()
                alive.close()
                running[results] = (path, child, lifeline)
            # A child whose result is more than a pipe holds ends only when it is taken.
            ends = {end: results for results, (_, child, _) in running.items()
                    for end in (results, child.sentinel)}  # fmt: skip
            for results in {ends[end] for end in wait(list(ends))}:
                path, child, lifeline = running.pop(results)
                result = error = None
                with contextlib.suppress(EOFError):
                    if results.poll():
                        result, error = results.recv()
                lifeline.close()
                child.join()
                if result is None and error is None:
                    error = f"its process ended with exit code {child.exitcode}"
                yield path, result, error
    finally:
        for _, child, _ in running.values():
            child.terminate()  # what it had saved is there for the next time


def _child(task: Task, send: Connection, alive: Connection) -> None:
    # A terminal sends Ctrl-C to all processes, and the first one looks after the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()
    send.send(attempt(task))
    send.close()


def _end_with_parent(alive: Connection) -> None:
    """However the parent ends, its side of the line is closed then."""
    try:
        alive.recv()
    except (EOFError, OSError):
        os._exit(1)


@lru_cache(maxsize=1)
def _loaded(name: str) -> Source:
    """Cells come by column, so that one data set at a time is enough."""
    return load_data(name)
