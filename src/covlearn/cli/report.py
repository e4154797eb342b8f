"""``covlearn report``."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from covlearn.cli.progress import step_bars
from covlearn.cli.say import say
from covlearn.cli.targets import check_target

EXAMPLE = """\
example:
  covlearn report runs/flowers                      writes runs/flowers/report.html anew
  covlearn report runs/first runs/second --out compared.html

The page opens in any browser, without a network. Of a run of covlearn fit it shows the labels that
look wrong; there a person accepts, rejects or relabels them and saves decisions.csv, which
covlearn fit --trusted takes. Several runs, of fit or of train, give one page that compares them.
"""
TABLE, FIGURES = "table.json", "table.md"  # of covlearn bench


def add_parser(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "report",
        help="write the page of a run, or one that compares several",
        description="Writes what a run found as one HTML page that opens offline.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=report)
    add = parser.add_argument
    add("runs", metavar="RUN", type=Path, nargs="+", help="folders of covlearn fit or train")
    # Not ``out``: that is the folder of a run that could be resumed.
    add(
        "--out",
        dest="file",
        type=Path,
        metavar="FILE",
        help="default: report.html in the run; comparison.html here for several",
    )


def report(args: argparse.Namespace) -> int:
    """Writes the page and says where it is."""
    from covlearn.report import write_comparison, write_report  # noqa: PLC0415
    from covlearn.report.page import COMPARISON, REPORT  # noqa: PLC0415

    several = len(args.runs) > 1
    file = args.file or (Path(COMPARISON) if several else args.runs[0] / REPORT)
    for run in args.runs:
        check_no_table(run)
    if args.file is not None or file.parent.is_dir():  # else there is no run, which is said below
        check_target(file, ".html")
    if several:
        write_comparison(args.runs, file)
    else:
        with step_bars() as show:
            write_report(
                args.runs[0],
                file,
                progress=lambda done, total, what: show(what, done, total),
            )
    say(f"{file} ({file.stat().st_size / 1e6:.1f} MB); open it in a browser")
    return 0


def check_no_table(folder: Path) -> None:
    """Refuses the folder of a table, and says how two of its runs are compared."""
    from covlearn.records import CONFIG  # noqa: PLC0415

    if (folder / CONFIG).exists() or not (folder / TABLE).exists():
        return
    first = next(iter(sorted(folder.glob(f"**/0/{CONFIG}"))), None)
    column = folder / "COLUMN" if first is None else first.parents[2]
    found = sorted(path.parent for path in column.glob(f"*/0/{CONFIG}"))[:2]
    runs = found if len(found) > 1 else [column / row / "0" for row in ("ROW", "OTHER")]
    raise ValueError(
        f"{folder} is the folder of a table, whose figures are in {folder / FIGURES}; its runs lie "
        f"below it, and are compared by: covlearn report {shlex.join(map(str, runs))}"
    )
