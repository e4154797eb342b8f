"""``covlearn bench``."""

import argparse
import contextlib
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covlearn.cli.progress import progress_bars
from covlearn.cli.say import add_allow, one_line, printable, say, say_aside, show

if TYPE_CHECKING:
    from covlearn.bench.execute import Outcome
    from covlearn.bench.summary import Entry
    from covlearn.bench.table import Cell, Table

EXAMPLE = """\
example:
  covlearn bench benchmarks/table1.toml --only row=cal,rate=0.4 --trials 5
  covlearn bench benchmarks/table1.toml --dry-run
  covlearn bench benchmarks/table1.toml --trials 0 --figures pictures
    runs nothing, and writes the table and pictures of what is there
  covlearn bench benchmarks/table1.toml --on ray --gpus 0.25
    runs four cells at a time on each GPU of the Ray cluster that this machine belongs to

Trial t draws its noise, weights and order with seed t; trial 0 has the noise that the authors
published, from --published FOLDER (their IDN_*.pt) or made anew where that gives the same labels.
What is done is not run again, what was cut off goes on, and a cell that fails stops no other.
The table is written to table.md, table.csv and table.json in the folder, from all the runs there,
with the cells that failed and why, and the figures of each trial to trials.csv.
--only takes row, method, column, data, noise or rate; given twice, either may hold.
--on needs pip install 'covlearn[ray]' on each machine of the cluster, and the data where the table
says. The folder may be shared by the machines or not; cells of a machine that dies are run again.
"""
WITHOUT_MPS = (
    "note: CUDA's multi-process service could not be started (nvidia-cuda-mps-control), so that "
    "processes take turns on the GPU: --processes 1 is faster"
)


def add_parser(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "bench",
        help="run the cells of a table and set them beside the paper's",
        description="Runs the cells of a table and sets them beside the paper's numbers.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=bench, interrupted="; the same command goes on from here")
    add = parser.add_argument
    add("table", type=Path, help="a TOML file, as benchmarks/table1.toml")
    add("--only", action="append", default=[], metavar="KEY=VALUE,…", help="see below")
    add("--trials", type=int, help="trials of each cell (default: the table's)")
    add("--folder", type=Path, help="of the runs (default: runs/NAME of the table)")
    add("--published", type=Path, metavar="FOLDER", help="the label files that the authors put out")
    add("--data", metavar="PATH", help="use this data in every column, as for covlearn train")
    add("--processes", type=int, default=1, help="cells at a time (default: 1; 4 pays on one GPU)")
    add("--on", metavar="CLUSTER", help="run on a Ray cluster: its address, or ray; see below")
    add("--gpus", type=float, metavar="SHARE", help="of a GPU a cell takes there (default: 1)")
    add_allow(parser, "table")
    add("--set", nargs="+", action="extend", default=[], metavar="PATH=VALUE", help="as in train")
    add(
        "--keep-models", action="store_true", help="keep weights and label tables, not records only"
    )
    add("--figures", type=Path, metavar="FOLDER", help="draw pictures of the runs there")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: auto")
    add("--json", action="store_true", help="print the table as JSON")
    add("--dry-run", action="store_true", help="say which cells would be run, and for how long")


def bench(args: argparse.Namespace) -> int:
    """Runs what is asked for, and writes the table; 1 if a cell failed."""
    from covlearn import records  # noqa: PLC0415
    from covlearn.bench.execute import check_jobs  # noqa: PLC0415
    from covlearn.bench.failed import failed_sentence  # noqa: PLC0415
    from covlearn.bench.figures import check_can_draw, draw  # noqa: PLC0415
    from covlearn.bench.summary import as_rows  # noqa: PLC0415
    from covlearn.bench.table import cells_of, read_table, with_data  # noqa: PLC0415

    table = with_data(read_table(args.table, allow=args.allow), args.data)
    trials = table.trials if args.trials is None else args.trials
    check_options(args, trials)
    cells = list(cells_of(table, trials=trials, only=args.only))
    folder = args.folder or Path("runs") / args.table.stem
    records.check_folder(folder)
    here = folder if args.on is None else None
    check_jobs(table, cells, settings=args.set, published=args.published, folder=here)
    if args.figures is not None:
        check_can_draw(args.figures)
    if args.dry_run:
        return forecast(table, cells, folder, args.set, args.published)
    standing = Standing(table, cells, folder, args.set)
    run(args, standing)
    if args.json:
        say(json.dumps(as_rows(standing.entries)))
    else:
        show_table(table, standing.entries, folder)
    if standing.failed:
        cells_failed = [outcome.cell for outcome in standing.failed]
        said = failed_sentence(cells_failed, len(standing.paths), folder)
        say_aside(f"covlearn: {one_line(said)}")
    if args.figures is not None:
        draw(table, folder, args.figures, args.set)
    return 1 if standing.failed else 0


class Standing:
    """The table as it stands while its cells are run: what is in the folder, and what failed."""

    def __init__(
        self, table: "Table", cells: "Sequence[Cell]", folder: Path, settings: list[str]
    ) -> None:
        from covlearn import records  # noqa: PLC0415
        from covlearn.bench.found import RunReader  # noqa: PLC0415

        self.table, self.cells, self.folder = table, cells, folder
        self.reader = RunReader(table, folder, settings)
        self.paths = {cell.path for cell in cells}
        self.done = {path for path in self.paths if (folder / path / records.RESULT).exists()}
        self.failed: list[Outcome] = []
        self.ended: set[str] = set()
        self.entries = self.written()

    def written(self) -> "list[Entry]":
        """Writes the table, of all records that are there.

        What failed before is in it until its cell ends, and what another command notes meanwhile.
        """
        from covlearn.bench.failed import failure_of, still_failed  # noqa: PLC0415
        from covlearn.bench.summary import write_summary  # noqa: PLC0415
        from covlearn.locks import held  # noqa: PLC0415

        now = [failure_of(each.cell, each.error or "") for each in self.failed]
        self.folder.mkdir(parents=True, exist_ok=True)
        with held(self.folder, wait=True):  # else what is noted after it was read would be lost
            others = still_failed(self.table, self.folder, self.ended)
            return write_summary(self.reader, [*others, *now])

    def follow(self, outcomes: "Iterable[Outcome]") -> None:
        """Tells of each outcome, and writes the table where it is news."""
        from covlearn.bench.execute import ELSEWHERE  # noqa: PLC0415

        for number, outcome in enumerate(outcomes, start=1):
            known = outcome.cell.path in self.done
            if outcome.error != ELSEWHERE:
                self.ended.add(outcome.cell.path)
            if outcome.error not in (None, ELSEWHERE):
                self.failed.append(outcome)
            if not known:
                self.entries = self.written()
            tell(outcome, number, len(self.paths), done_before=known)
        if any(each.cell.path in self.done for each in self.failed):  # there is another run
            self.entries = self.written()


def run(args: argparse.Namespace, standing: Standing) -> None:
    """Runs the cells where it is asked for."""
    from covlearn.bench.execute import run_cells  # noqa: PLC0415
    from covlearn.bench.mps import kernels_at_once  # noqa: PLC0415
    from covlearn.cli.train import process_group  # noqa: PLC0415

    # Of cells side by side nobody hears single epochs, and Ctrl-C ends at once.
    with contextlib.ExitStack() as stack:
        device, runner, progress = args.device, None, None
        if args.on is not None:
            from covlearn.bench.ray import cluster  # noqa: PLC0415

            runner = stack.enter_context(cluster(args.on, device, args.gpus))
        else:
            device = stack.enter_context(process_group(device))
            at_once = stack.enter_context(kernels_at_once(device, args.processes))
            if args.processes == 1:
                bars = progress_bars(lambda: grid(standing.table, standing.entries))
                progress = stack.enter_context(bars)
            elif device.startswith("cuda") and not at_once:
                say_aside(WITHOUT_MPS)
        outcomes = run_cells(
            standing.table,
            standing.cells,
            standing.folder,
            device=device,
            published=args.published,
            settings=args.set,
            processes=args.processes,
            keep_models=args.keep_models,
            progress=None if progress is None else named(progress),
            runner=runner,
        )
        standing.follow(outcomes)


def check_options(args: argparse.Namespace, trials: int) -> None:
    """What cannot be asked for together, or at all."""
    from covlearn.bench.table import check_trials  # noqa: PLC0415

    check_trials(trials, fewest=0)
    if args.processes < 1:
        raise ValueError(f"expected --processes ≥ 1, got {args.processes}")
    if args.on is not None and args.processes != 1:
        raise ValueError(
            "--processes is for this machine; with --on the cluster runs as many cells as it has "
            "CPUs, or shares of GPUs (--gpus)"
        )
    if args.gpus is not None and (args.on is None or not 0 <= args.gpus < math.inf):
        raise ValueError(f"--gpus is a share ≥ 0 of a GPU, and goes with --on, got {args.gpus:g}")


def forecast(
    table: "Table",
    cells: "Sequence[Cell]",
    folder: Path,
    settings: list[str],
    published: Path | None,
) -> int:
    """The cells that are not done, with the epochs of each; nothing is written.

    1 where a cell would fail, as the run would end with: its folder holds another run or a damaged
    one, or its labels cannot be drawn. The latter count, for they only want ``--published``.
    """
    from covlearn import records  # noqa: PLC0415
    from covlearn.bench.found import other_run  # noqa: PLC0415
    from covlearn.bench.published import check_labels_at_hand  # noqa: PLC0415
    from covlearn.bench.table import job_of  # noqa: PLC0415
    from covlearn.config import typed  # noqa: PLC0415
    from covlearn.engine import Plan  # noqa: PLC0415
    from covlearn.job import Job, settled  # noqa: PLC0415
    from covlearn.methods import CAL  # noqa: PLC0415
    from covlearn.methods.crossfit import CrossFittedCAL  # noqa: PLC0415

    by_path = {cell.path: cell for cell in cells}
    total = left = failing = without_labels = 0
    for path, cell in by_path.items():
        recorded, place = job_of(table, cell, settings), folder / path
        try:
            begun = (place / records.CONFIG).exists() or (place / records.RESULT).exists()
            if begun and (differing := other_run(records.read_config(place), recorded)):
                raise ValueError(
                    f"holds a run of another configuration: {'; '.join(differing[:3])}"
                )
            if begun and records.read_result(place) is not None:
                records.read(place)  # all of it, as the run would
                continue
        except ValueError as error:
            failing += 1
            say(f"{path}: {one_line(str(error))}; choose another --folder, or delete it")
            continue
        job = typed(Job, recorded)
        method = settled(job)[0]
        epochs = sum(value.epochs for value in vars(method).values() if isinstance(value, Plan))
        if isinstance(method, CrossFittedCAL):
            epochs = method.most_epochs
        elif isinstance(method, CAL):
            epochs += (method.rounds - 1) * method.plan.epochs
        total, left = total + epochs, left + 1
        more = ""
        try:
            check_labels_at_hand(job, published)
        except ValueError as error:
            without_labels += 1
            more = f", but {one_line(str(error))}"
        say(f"{path}: {epochs} epochs{more}")
    more = f"; {failing} would fail, as said above" if failing else ""
    if without_labels:
        more += f"; {without_labels} need --published FOLDER, as said above"
    say(f"{left} of {len(by_path)} cells are to be run, {total:,} epochs in all at most{more}")
    return 1 if failing or without_labels else 0


def named(progress: Any) -> Any:
    """The follower of a cell, whose stages carry the cell's name."""

    def of(cell: "Cell") -> Any:
        return lambda stage, epochs, history: progress(f"{cell.path} {stage}", epochs, history)

    return of


def tell(outcome: "Outcome", number: int, total: int, *, done_before: bool) -> None:
    """One line a finished cell, on standard error."""
    if outcome.result is None:
        text = outcome.error or "no result"
    else:
        best, last = outcome.result.test_accuracy.best, outcome.result.test_accuracy.last
        text = "no epochs"
        if best is not None and last is not None:
            text = f"best {best.value:.2%}, last {last.value:.2%}, {outcome.result.seconds:.0f} s"
        text = f"done before, {text}" if done_before else text
    say_aside(f"[{number}/{total}] {outcome.cell.path}: {one_line(text)}")


def grid(table: "Table", entries: "Sequence[Entry]") -> Any:
    """The table as it stands."""
    from rich.table import Column  # noqa: PLC0415
    from rich.table import Table as Shown  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from covlearn.bench.summary import compared_text, plain_text  # noqa: PLC0415

    def plain(text: str) -> Text:
        return Text(printable(text))  # which has no markup

    names = [Column(plain(column.name)) for column in table.columns]
    shown = Shown("method", *names, title=plain(table.title))
    by_place = {(each.row.name, each.column.name): each for each in entries}
    for row in table.rows:
        found = [by_place[row.name, column.name] for column in table.columns]
        cells = [
            compared_text(each) if table.expected else plain_text(each, each.compared)
            for each in found
        ]
        cells = [cell.replace("**", "").replace(" (paper", "\n(paper") for cell in cells]
        shown.add_row(*map(plain, (row.title or row.name, *cells)))
    return shown


def show_table(table: "Table", entries: "Sequence[Entry]", folder: Path) -> None:
    """The table on standard output, and what was left out of it."""
    show(grid(table, entries))
    for text in dict.fromkeys(text for each in entries for text in each.left_out):
        say(f"left out: {one_line(text)}")
    what = "ours (n) over the paper's and the difference" if table.expected else "mean ± std (n)"
    say(f"{table.figure.replace('_', ' ')}: {what}; files: {folder}")
