"""``covlearn predict``."""

import argparse
from pathlib import Path
from typing import Any

from covlearn.cli.fit import add_columns, read, skipped_lines
from covlearn.cli.say import add_allow, say
from covlearn.cli.targets import check_target

EXAMPLE = """\
example:
  covlearn predict runs/flowers new-flowers/ --out preds.csv
  covlearn predict runs/cells cells-today.csv --id case_no --out preds.csv --probabilities

The source is of the kind that the run was fitted to; labels are not needed. The file has the
columns id, predicted and confidence, the probability of the predicted class. A file that is there
is replaced.
"""


def add_parser(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "predict",
        help="predict new examples with a fitted run",
        description="Predicts the classes of new examples with what covlearn fit learned.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=predict)
    add = parser.add_argument
    add("run", metavar="RUN", type=Path, help="folder of a run of covlearn fit")
    add("source", metavar="SOURCE", help="examples as those that the run was fitted to")
    add("--out", required=True, type=Path, metavar="FILE", help="CSV file to write")
    add_columns(parser)
    add_allow(parser, "run")
    add("--probabilities", action="store_true", help="add a column for each class")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: auto")
    add("--dry-run", action="store_true", help="look at the data, say what would be done, and stop")


def predict(args: argparse.Namespace) -> int:
    """Reads by the run's recipe, predicts, writes."""
    from covlearn import cells  # noqa: PLC0415
    from covlearn.fitted import load  # noqa: PLC0415
    from covlearn.inputs.examples import counted  # noqa: PLC0415
    from covlearn.job import resolve_device  # noqa: PLC0415

    device = resolve_device(args.device)
    fitted = load(args.run, allow=args.allow)
    check_target(args.out, ".csv", args.source, fitted.config["source"].get("path"))
    examples = read(args, recipe=fitted.recipe, look=args.dry_run)
    remarks = skipped_lines([{"id": item.id, "reason": item.reason} for item in examples.skipped])
    remarks += [f"note: {note}" for note in examples.notes]
    if args.dry_run:
        say(
            "\n".join(
                [
                    f"{counted(len(examples), 'example')}, {len(fitted.classes):,} classes, on "
                    f"{device}",
                    *remarks,
                    f"nothing was written; without --dry-run it would be in {args.out}",
                ]
            )
        )
        return 0
    probs = fitted.probabilities(examples.x, device=device)
    best = probs.argmax(axis=1)
    names = ["id", "predicted", "confidence"]
    columns: list[Any] = [
        examples.ids,
        [fitted.classes[number] for number in best],
        [f"{value:.6g}" for value in probs.max(axis=1)],
    ]
    if args.probabilities:
        names += [f"p({name})" for name in fitted.classes]
        columns += [[f"{value:.6g}" for value in column] for column in probs.T]
    replaced = " (the file that was there is replaced)" if args.out.exists() else ""
    cells.write_cells(args.out, names, zip(*columns, strict=True))
    count = counted(len(examples), "prediction")
    say("\n".join([f"{count}: {args.out}{replaced}", *remarks]))
    return 0
