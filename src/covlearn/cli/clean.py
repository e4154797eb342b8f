"""``covlearn clean``."""

import argparse
from pathlib import Path
from typing import Any

from covlearn.cli.say import say

FORMS = ("csv", "parquet", "folder", "label-studio", "hf")
EXAMPLE = """\
example:
  covlearn clean runs/churn --out clean --as csv            clean/clean.csv
  covlearn clean runs/flowers --out clean --as folder       images under their refined class
  covlearn clean runs/flowers --out look --as label-studio  what a person should look at

Repaired labels take the place of the given ones, examples to drop are left out, and those to review
keep the label given. A folder export links images where the disk allows it, so that it takes no
room; --copy copies them. label-studio writes tasks.json and config.xml with the examples whose
label is not kept; hf a folder for datasets.load_dataset.
"""


def add_parser(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "clean",
        help="write data with repaired labels",
        description="Writes the data of a run of covlearn fit with its labels repaired.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=clean)
    add = parser.add_argument
    add("run", metavar="RUN", type=Path, help="folder of a run of covlearn fit")
    add("--out", required=True, type=Path, metavar="DIR", help="folder to write, new or empty")
    add("--as", dest="form", choices=FORMS, default="csv", help="default: csv")
    add("--copy", action="store_true", help="copy images instead of linking them")
    add("--dry-run", action="store_true", help="say what would be written, and stop")


def clean(args: argparse.Namespace) -> int:
    """Exports, and says how much."""
    from covlearn.exports import export  # noqa: PLC0415
    from covlearn.fitted import load  # noqa: PLC0415

    fitted = load(args.run)
    if args.dry_run:
        count = fitted.result.decisions
        say(
            f"{fitted.result.examples - count['drop']:,} examples, {count['relabel']:,} with a "
            f"repaired label, {count['drop']:,} left out; nothing was written"
        )
        return 0
    done = export(fitted, args.out, args.form, copy=args.copy)
    say(
        f"{done.examples:,} examples, {done.relabelled:,} with a repaired label, "
        f"{done.left_out:,} left out: {args.out}"
    )
    return 0
