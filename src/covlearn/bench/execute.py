"""Runs the cells of a table: those that are not done, one after the other or side by side."""

import multiprocessing
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from covlearn import records
from covlearn.bench.table import Cell, Table
from covlearn.config import plain
from covlearn.data.sources import Source, load_data
from covlearn.evaluation import Progress
from covlearn.job import Job, run_job, settled
from covlearn.records import Result

SHARED = ".stages"  # below a column's folder, while its cells are run


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: a result, or a sentence that says what went wrong."""

    cell: Cell
    result: Result | None
    error: str | None = None


def job_of(table: Table, cell: Cell, *, published: Path | None, settings: Sequence[str]) -> Job:
    """What a cell is, as ``covlearn train`` would be told; trial 0 has the authors' own noise."""
    noise, column = cell.column.noise, cell.column
    if cell.trial == 0 and column.published is not None:
        noise = f"published:{column.rate:g}"
        if published is not None:
            noise = f"file:{published / column.published}"
    return Job(
        data=column.data,
        method=cell.row.method,
        noise=noise,
        preset=cell.row.preset or table.preset,
        seed=cell.trial,
        net=table.net,
        settings=merged(table.settings, column.settings, cell.row.settings, settings),
    )


def merged(*layers: Sequence[str]) -> tuple[str, ...]:
    """Settings of which the later go over the earlier."""
    last = {text.partition("=")[0].strip(): text for layer in layers for text in layer}
    return tuple(last.values())


def check_jobs(table: Table, cells: Sequence[Cell], *, settings: Sequence[str]) -> None:
    """Says what is wrong with any cell before the first one is run."""
    for cell in cells:
        try:
            settled(job_of(table, cell, published=None, settings=settings))
        except ValueError as error:
            raise ValueError(f"row {cell.row.name}: {error}") from error


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
) -> Iterator[Outcome]:
    """Runs what is not done, yields each cell when it is; one that fails stops no other."""
    by_path = {cell.path: cell for cell in cells}  # rows may share their runs
    jobs = {
        path: job_of(table, cell, published=published, settings=settings)
        for path, cell in by_path.items()
    }
    if processes == 1:
        for path, job in jobs.items():
            shown = None if progress is None else progress(by_path[path])
            result, error = attempt(job, folder / path, device, keep_models, shown)
            yield Outcome(by_path[path], result, error)
        _forget_shared(cells, folder)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_leave_ctrl_c) as pool:
        futures = {
            pool.submit(attempt, job, folder / path, device, keep_models): path
            for path, job in jobs.items()
        }
        try:
            for future in as_completed(futures):
                result, error = future.result()
                yield Outcome(by_path[futures[future]], result, error)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()  # what it had saved is there for the next time
            raise
    _forget_shared(cells, folder)


def attempt(
    job: Job, folder: Path, device: str, keep_models: bool, progress: Progress | None = None
) -> tuple[Result | None, str | None]:
    """A job's result, or what went wrong in words; what was cut off goes on."""
    try:
        if (folder / records.RESULT).exists():
            return finished(job, folder), None
        result = run_job(
            job,
            folder,
            device=device,
            resume=(folder / records.CONFIG).exists(),
            progress=progress,
            source=_loaded(job.data),
            # Beside the rows of a column: CAL and its variants have their sieve in common.
            shared_stages=folder.parents[1] / SHARED / folder.name,
        )
    except Exception as error:  # one cell's failure must not take the others with it
        return None, f"{type(error).__name__}: {error}"
    if not keep_models:
        for name in (records.MODEL, records.LABELS, records.PROBS):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / records.STAGES, ignore_errors=True)
    return result, None


def finished(job: Job, folder: Path) -> Result | None:
    """The result of a run that was made on whichever machine, if it was this job's."""
    there = records.read(folder)
    name = job.method
    here = {"method": {"name": name, **plain(settled(job)[0])}, "seed": job.seed}
    differing = records.differences({key: there.config.get(key) for key in here}, here)
    if differing:
        raise ValueError(
            f"{folder} holds a run of another configuration: {'; '.join(differing[:3])}; choose "
            "another --out, or delete it to run it again"
        )
    return there.result


def _forget_shared(cells: Sequence[Cell], folder: Path) -> None:
    for column in {cell.column.name for cell in cells}:
        shutil.rmtree(folder / column / SHARED, ignore_errors=True)


def _leave_ctrl_c() -> None:
    """A terminal sends Ctrl-C to all processes, and the first one looks after the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@lru_cache(maxsize=1)
def _loaded(name: str) -> Source:
    """Cells come by column, so that one data set at a time is enough."""
    return load_data(name)
