"""``covlearn clean``."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covlearn.cli.say import say

if TYPE_CHECKING:
    from covlearn.exports import Exported

FORMS = ("csv", "parquet", "folder", "label-studio", "hf")
EXAMPLE = """\
example:
  covlearn clean runs/churn --out clean --as csv            clean/clean.csv
  covlearn clean runs/flowers --out clean --as folder       images under their refined class
  covlearn clean runs/flowers --out look --as label-studio  what a person should look at

Repaired labels take the place of the given ones, examples to drop are left out, and those to review
keep the label given. A folder export makes hard links where the disk allows it, which take no room:
an image in it is the very file of the source, and who edits one edits the other. --copy makes
copies. label-studio writes tasks.json and config.xml with the examples whose label is not kept; hf
a folder for datasets.load_dataset.
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
    add("--copy", action="store_true", help="copy images instead of making hard links")
    add("--dry-run", action="store_true", help="say what would be written, and stop")


def clean(args: argparse.Namespace) -> int:
    """Exports, and says how much."""
    from covlearn.exports import Exported, clean_table, export  # noqa: PLC0415
    from covlearn.fitted import load  # noqa: PLC0415

    fitted = load(args.run)
    if args.dry_run:
        said = summary(Exported.of(clean_table(fitted)), args)
        say("\n".join([*said, f"nothing was written; without --dry-run it would be in {args.out}"]))
        return 0
    said = summary(export(fitted, args.out, args.form, copy=args.copy), args)
    say("\n".join([*said, f"written to {args.out}"]))
    return 0


def summary(done: "Exported", args: argparse.Namespace) -> list[str]:
    """What is in an export, and what Label Studio needs to show it."""
    from covlearn.inputs.examples import counted  # noqa: PLC0415

    if args.form != "label-studio":
        return [
            f"{counted(done.examples, 'example')}, {done.relabelled:,} with a repaired label, "
            f"{done.left_out:,} left out"
        ]
    count = [f"{done.decisions.get(name, 0):,} to {name}" for name in ("relabel", "drop", "review")]
    lines = [
        f"{counted(done.tasks, 'task')} in tasks.json, the examples whose label is not kept: "
        f"{', '.join(count)}"
    ]
    if done.images is not None:
        lines += [
            "Label Studio shows the images if it is started with",
            "  LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true",
            f"  LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={done.images.parent}",
            f"and the project has the local storage {done.images}, not synced",
        ]
    return lines
