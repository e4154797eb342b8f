"""``covlearn clean``."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covlearn.cli.say import one_line, say

if TYPE_CHECKING:
    from covlearn.exports import Exported
    from covlearn.fitted import Fitted

FORMS = ("csv", "parquet", "folder", "label-studio", "hf")
EXAMPLE = """\
example:
  covlearn clean runs/cells --out clean --as csv            clean/clean.csv
  covlearn clean runs/flowers --out clean --as folder       images under their refined class
  covlearn clean runs/flowers --out look --as label-studio  what a person should look at

Repaired labels take the place of the given ones, examples to drop are left out, and those to review
keep the label given. csv, parquet and hf have the columns of the source; verdicts.csv beside them
has what the run says of every label. csv and parquet name image files by the link images beside
them, to the folder that all images lie in. So covlearn fit reads clean.csv and clean.parquet; the
command to type is printed.
A folder export makes hard links where the disk allows it, which take no room: an image in it is the
very file of the source, and who edits one edits the other. --copy makes copies.
label-studio writes tasks.json and config.xml with the examples whose label is not kept; hf a folder
for datasets.load_dataset.
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
    from covlearn.exports import export  # noqa: PLC0415
    from covlearn.fitted import load  # noqa: PLC0415

    fitted = load(args.run)
    done = export(fitted, args.out, args.form, copy=args.copy, dry_run=args.dry_run)
    end = f"written to {args.out}"
    if args.dry_run:
        end = f"nothing was written; without --dry-run it would be in {args.out}"
    say("\n".join([*summary(done, fitted, args), end]))
    return 0


def summary(done: "Exported", fitted: "Fitted", args: argparse.Namespace) -> list[str]:
    """What is in an export, and how to go on with it."""
    from covlearn.exports import VERDICTS_NAME  # noqa: PLC0415
    from covlearn.inputs.examples import counted  # noqa: PLC0415

    if args.form == "label-studio":
        return _tasks(done)
    lines = [
        f"{counted(done.examples, 'example')}, {done.relabelled:,} with a repaired label, "
        f"{done.left_out:,} left out"
    ]
    if skipped := len(fitted.result.skipped):
        lines.append(
            f"{counted(skipped, 'row')} that could not be used when it was fitted "
            f"{'is' if skipped == 1 else 'are'} not in it"
        )
    if args.form == "folder":
        changed = {name: place for name, place in done.folders.items() if name != place}
        return lines + [
            f"class '{one_line(name)}' is in the folder '{one_line(place)}': its own name is not "
            "safe on all systems, or differs from another's by case alone"
            for name, place in changed.items()
        ]
    lines.append(f"the verdict on every example, by id: {args.out / VERDICTS_NAME}")
    return lines + _fit_again(done, fitted, args)


def _fit_again(done: "Exported", fitted: "Fitted", args: argparse.Namespace) -> list[str]:
    """The command that fits a table again, where it has what is learned from."""
    from covlearn.exports import CSV_NAME, IMAGES_NAME, PARQUET_NAME, id_column  # noqa: PLC0415
    from covlearn.report.again import ignoring, option  # noqa: PLC0415

    name = {"csv": CSV_NAME, "parquet": PARQUET_NAME}.get(args.form)
    linked = done.images is not None and (args.dry_run or (args.out / IMAGES_NAME).exists())
    if name is None or not (linked or fitted.recipe.get("kind") == "table"):
        return []
    label = fitted.recipe.get("label") or "label"
    words = ["covlearn", "fit", str(args.out / name), *option("label", label)]
    for key, column in (("id", id_column(fitted)), ("image", fitted.recipe.get("image"))):
        if column:
            words += option(key, column)
    words += ignoring(fitted)
    return ["fit it again:", f"  {one_line(shlex.join([*words, '--out']))} RUN"]


def _tasks(done: "Exported") -> list[str]:
    """How many tasks there are, and what Label Studio needs to show them."""
    from covlearn.inputs.examples import counted  # noqa: PLC0415

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
