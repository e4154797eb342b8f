"""Runs that are killed at any moment, and many runs in one process.

    python -m benchmarks.faults --kills 200 --runs 200    # writes results/faults.json
    python -m benchmarks.faults --kills 10 --runs 0 --cases ce cal --out faults.json

Every method is run by its command line on a toy, killed with SIGKILL, resumed, perhaps killed
again, and ends in a folder that is compared with that of a run which was left alone: the same
files, and the same bits in them apart from seconds. A third of the kills comes at any moment of the
run, a third in the stage that was hit least, a third when the temporary file is seen of the file
that was hit least.

Runs are forked off a process that has imported everything and has trained nothing, so that a kill
costs no start of an interpreter. Then follow many runs in that process: memory, open files and
objects should be no more after the last than after the first few.
"""

import argparse
import gc
import itertools
import json
import mmap
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # of which the first optimizer makes use

import covlearn.fitted
import covlearn.job
import covlearn.report  # noqa: F401  what a command would import when it is called
from benchmarks.fault_cases import Case, cases
from benchmarks.measure import environment
from covlearn import records
from covlearn.atomic import PARTIAL
from covlearn.cli import main as covlearn_main
from covlearn.cli.progress import step_bars
from covlearn.evaluation import commit
from covlearn.methods import METHODS
from covlearn.run import LocalRun, fit_and_evaluate
from covlearn.stages import FollowedCheckpoint
from covlearn.testing import shortened
from covlearn.testing.toy import NET_OPTIONS, make_toy

RESULTS = Path(__file__).resolve().parents[1] / "results" / "faults.json"
WARM = 20
"""Runs after which a process should have all that it will ever need."""
LIVES = 3
"""How often a run is killed at most before it is let through."""
SECONDS = 120
"""After which a run has hung."""
AIMS = ("any moment", "stage", "writing")


@dataclass
class Tally:
    """What became of the runs of a case."""

    stages: dict[str, float]
    """Seconds each took in a run that was left alone."""
    files: list[str]
    """All that such a run writes, by name."""
    seconds: float
    runs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    """By the stage in which they hit, or what was before or after it."""
    writing: Counter[str] = field(default_factory=Counter)
    """Files that were left half written, by name; a kill may leave two."""
    moments: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


# --- a run in a process of its own


class Running:
    """A run that was forked off; ``where`` says in which stage it is."""

    def __init__(self, case: Case, folder: Path, log: Path, *, every_epoch: bool) -> None:
        self.folder = folder
        self._where = mmap.mmap(-1, 256)
        self.note("start")
        self.pid = os.fork()
        if self.pid == 0:
            self.work([*case.argv, case.place, str(folder), *case.again], log, every_epoch)

    def note(self, where: str) -> None:
        """Said by the run itself, in memory that outlives it."""
        self._where[:] = where.encode().ljust(256)

    @property
    def where(self) -> str:
        """The stage, or what is before or after it."""
        return self._where[:].decode().strip()

    def work(self, argv: list[str], log: Path, every_epoch: bool) -> None:
        """Never returns: nothing of the parent's is left to be done here."""
        code = 70
        try:
            with log.open("a", encoding="utf-8") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            train = LocalRun.train

            def noted(run: LocalRun, stage: str, *args: Any, **options: Any) -> Any:
                self.note(stage)
                ledger = train(run, stage, *args, **options)
                self.note(f"after {stage}")
                return ledger

            LocalRun.train = noted  # type: ignore[method-assign,assignment]
            if every_epoch:  # instead of every 30 seconds
                FollowedCheckpoint.seconds_between = property(lambda _: 0.0, lambda *_: None)  # type: ignore[assignment]
            code = covlearn_main(argv)
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def ended(self, until: Callable[[], bool]) -> int | None:
        """Waits until something is so; the exit code if the run ended before, else None."""
        deadline = time.monotonic() + SECONDS
        while not until():
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"{self.folder} hung in {self.where}")
        return None

    def finish(self) -> int:
        """Waits for the end."""

        def never() -> bool:
            time.sleep(0.002)
            return False

        code = self.ended(never)
        assert code is not None
        return code

    def kill(self) -> None:
        """At once, whatever it does."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def partials(self) -> list[str]:
        """Names of files that are being written."""
        return [
            name for _, _, names in os.walk(self.folder) for name in names if name.endswith(PARTIAL)
        ]


# --- kills


def hunted(case: Case, kills: int, place: Path, draw: random.Random) -> Iterator[Tally]:
    """Kills runs of a case so many times; the tally after each kill."""
    started = time.monotonic()
    # The name is in a report, and so it must be the same for all.
    whole, log = place / "whole" / "run", place / "log.txt"
    code = Running(case, whole, log, every_epoch=False).finish()
    if code:
        raise RuntimeError(f"{case.name} failed undisturbed:\n{log.read_text()}")
    stages: dict[str, float] = {}
    for metrics in whole.rglob(records.METRICS):  # of a table there are several
        for line in records.read_metrics(metrics.parent):
            stages[line["stage"]] = stages.get(line["stage"], 0.0) + line["seconds"]
    files = {path.name for path in whole.rglob("*") if path.is_file()}
    files |= {f"{stage}.pt" for stage in stages}
    tally = Tally(stages, sorted(files), time.monotonic() - started)
    aims = itertools.cycle(AIMS)
    while tally.kills.total() < kills:
        folder, log = place / str(tally.runs) / "run", place / f"log{tally.runs}.txt"
        every_epoch = draw.random() < 0.75
        lives = min(draw.randint(1, LIVES), kills - tally.kills.total())
        while lives:
            run = Running(case, folder, log, every_epoch=every_epoch)
            if run.ended(until(next(aims), run, tally, draw)) is not None:
                break  # it was quicker
            run.kill()
            lives -= 1
            tally.kills[run.where] += 1
            left = half_written(run)
            tally.writing.update(left)
            in_stage = "training" if run.where in stages else "before, between or after stages"
            tally.moments["writing" if left else in_stage] += 1
            yield tally
        code = Running(case, folder, log, every_epoch=every_epoch).finish()
        tally.runs += 1
        differing = differences(folder, whole) if code == 0 else [f"exit code {code}"]
        if differing:
            said = log.read_text(encoding="utf-8").strip()[-400:]
            tally.failures.append(f"run {tally.runs}: {', '.join(differing)}; {said}")
        else:
            shutil.rmtree(folder)


def until(aim: str, run: Running, tally: Tally, draw: random.Random) -> Callable[[], bool]:
    """Whether it is time to kill."""
    started = time.monotonic()
    if aim == "writing":
        there = {name for _, _, names in os.walk(run.folder) for name in names}
        names = [name for name in tally.files if name not in there] or tally.files
        name = min(names, key=lambda name: (tally.writing[name], draw.random()))
        return lambda: any(partial.startswith(f"{name}.") for partial in run.partials())
    if aim == "any moment":
        at = started + draw.uniform(0, 1) * tally.seconds
        return lambda: time.monotonic() >= at
    stage = min(tally.stages, key=lambda name: tally.kills[name])
    delay = draw.uniform(0, 1) * tally.stages[stage]
    seen: list[float] = []

    def in_stage() -> bool:
        if run.where == stage and not seen:
            seen.append(time.monotonic())
        return bool(seen) and time.monotonic() >= seen[0] + delay

    return in_stage


def half_written(run: Running) -> list[str]:
    """The files, by the names that they were to have, that a kill left half written."""
    names = [re.sub(r"\.[0-9a-f]+\.partial$", "", name) for name in run.partials()]
    unfinished = (m for m in run.folder.rglob(records.METRICS) if m.read_bytes()[-1:] != b"\n")
    return names + [metrics.name for metrics in unfinished]


def differences(folder: Path, other: Path) -> list[str]:
    """Files that only one of two run folders has, or that differ in more than seconds."""
    names = [
        {str(path.relative_to(each)) for path in each.rglob("*") if path.is_file()}
        for each in (folder, other)
    ]
    found = [f"{name} is in one only" for name in sorted(names[0] ^ names[1])]
    return found + [
        f"{name} differs"
        for name in sorted(names[0] & names[1])
        if content(folder, name) != content(other, name)
    ]


def content(folder: Path, name: str) -> Any:
    """What must be the same of a file."""
    path = folder / name
    if path.suffix == ".json":
        return timeless(json.loads(path.read_text(encoding="utf-8")))
    if path.suffix == ".jsonl":
        lines = path.read_text(encoding="utf-8").splitlines()
        return [timeless(json.loads(line)) for line in lines]
    if path.suffix == ".html":
        page = path.read_text(encoding="utf-8").replace(str(folder), "")
        return re.sub(r'"seconds": ?[\d.e-]+', "", page)
    return path.read_bytes()


def timeless(value: Any) -> Any:
    """Records without how long they took."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if not k.endswith("seconds")}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def kill_all(
    kills: int, names: list[str] | None, seed: int, show: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Divides the kills among the cases, by their weights; what came of it."""
    draw = random.Random(seed)
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="covlearn-faults-") as place:
        chosen = [c for c in cases(Path(place)) if names is None or c.name in names]
        done = 0
        for number, case in enumerate(chosen):
            folder = Path(place) / f"case{number}"
            folder.mkdir()
            share = (kills - done) * case.weight // sum(c.weight for c in chosen[number:])
            for tally in hunted(case, share, folder, draw):
                tallies[case.name] = tally
                done += 1
                show("kills", done, kills)
    writing = sum((tally.writing for tally in tallies.values()), Counter[str]())
    moments = sum((tally.moments for tally in tallies.values()), Counter[str]())
    return {
        "kills": sum(tally.kills.total() for tally in tallies.values()),
        "by_moment": dict(moments),
        "half_written": dict(writing.most_common()),
        "runs": sum(tally.runs for tally in tallies.values()),
        "mismatches": sum(len(tally.failures) for tally in tallies.values()),
        "stages_never_hit": [
            f"{name}: {stage}"
            for name, tally in tallies.items()
            for stage in tally.stages
            if not tally.kills[stage]
        ],
        "files_never_hit": sorted(
            {name for tally in tallies.values() for name in tally.files} - set(writing)
        ),
        "cases": {
            name: {
                "kills": dict(tally.kills),
                "half_written": dict(tally.writing),
                "runs": tally.runs,
                "mismatches": tally.failures,
            }
            for name, tally in tallies.items()
        },
    }


# --- soak


def soak(runs: int, show: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Small runs one after the other in this process: what of it grows."""
    toy = make_toy()
    methods = [shortened(METHODS[name]()) for name in ("ce", "cal", "coteaching")]
    memory: list[int] = []
    handles: list[int] = []
    objects: list[int] = []
    with tempfile.TemporaryDirectory(prefix="covlearn-soak-") as place:
        for number in range(runs):
            fit_and_evaluate(
                methods[number % len(methods)],
                toy.split,
                test=toy.test,
                clean=toy.clean,
                folder=Path(place) / str(number),
                net_options=NET_OPTIONS,
                seed=number,
            )
            shutil.rmtree(Path(place) / str(number))
            gc.collect()
            memory.append(resident_kib())
            handles.append(len(os.listdir("/proc/self/fd")))
            objects.append(len(gc.get_objects()))
            show("runs in one process", number + 1, runs)
    warm = min(WARM, runs // 3)
    return {
        "runs": runs,
        "warm_after": warm,
        "kib_a_run": slope(memory[warm:]),
        "kib": [min(memory[warm:]), max(memory[warm:])],
        "handles": [min(handles[warm:]), max(handles[warm:])],
        "objects_a_run": slope(objects[warm:]),
    }


def resident_kib() -> int:
    """Memory that this process holds, counted page by page: other figures are of late estimates."""
    rollup = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Rss:"))


def slope(values: list[int]) -> float:
    """Growth a step, by least squares."""
    return round(float(np.polyfit(np.arange(len(values)), values, 1)[0]), 3)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--runs", type=int, default=200, help="of the soak")
    parser.add_argument("--cases", nargs="+", help="names of cases (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["COVLEARN_COMMIT"] = str(commit())  # the same for all runs, without asking again
    record: dict[str, Any] = {"environment": environment(), "seed": args.seed}
    with step_bars() as show:
        if args.kills:
            record["sigkill"] = kill_all(args.kills, args.cases, args.seed, show)
        if args.runs:  # only now: what has trained must not be forked
            record["soak"] = soak(args.runs, show)
    records.write_json(args.out, record)
    print(json.dumps(record, indent=2))
    return int(bool(record.get("sigkill", {}).get("mismatches")))


if __name__ == "__main__":
    sys.exit(main())
