"""``covlearn noise``."""

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covlearn.cli.progress import step_bars
from covlearn.cli.say import say, show
from covlearn.cli.targets import check_target

if TYPE_CHECKING:
    from covlearn.noise import NoiseCard

EXAMPLE = """\
example:
  covlearn noise --data cifar10 --kind cal:0.4 --seed 0 --out labels.npz
  covlearn train --data cifar10 --noise file:labels.npz --method cal --out runs/cal
  covlearn noise --list        every generator, and every published label file

The file holds the noisy and the clean labels, each example's flip rate, and the noise card as JSON.
--kind is what covlearn train takes for --noise; published:0.4 are the paper's own labels, drawn
again bit for bit where that is known to work, and file:PATH reads labels that others published.
"""
PRINTED_CLASSES = 12


def add_parser(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "noise",
        help="draw noisy labels, or list every kind of noise",
        description="Draws noisy labels for a data set and writes them with their noise card.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=noise)
    add = parser.add_argument
    add("--data", help="digits, cifar10, cifar100, or an .npz file")
    add("--kind", metavar="KIND:RATE", help="as --noise of covlearn train")
    add("--seed", type=int, default=0, help="default: 0")
    # Not ``out``: that is the folder of a run that could be resumed.
    add("--out", dest="file", type=Path, metavar="FILE.npz", help="where the labels go")
    add("--list", action="store_true", help="list generators and published files")
    add("--json", action="store_true", help="print one JSON object")


def noise(args: argparse.Namespace) -> int:
    """Draws and writes labels, or lists what there is."""
    if args.list:
        if args.data or args.kind or args.file:
            raise ValueError("--list goes without --data, --kind and --out")
        return list_noises(as_json=args.json)
    missing = [
        option
        for option, value in (("--data", args.data), ("--kind", args.kind), ("--out", args.file))
        if value is None
    ]
    if missing:
        raise ValueError(f"{', '.join(missing)} is missing; see covlearn noise --help")

    from covlearn.data.sources import load_data, noisy_labels  # noqa: PLC0415
    from covlearn.noise.files import write_labels  # noqa: PLC0415
    from covlearn.noise.registry import label_digest  # noqa: PLC0415

    if args.file.suffix != ".npz":
        raise ValueError(f"--out must end in .npz, got {str(args.file)!r}")
    check_target(args.file, ".npz", args.data, labels_of(args.kind))
    with step_bars() as progress:
        progress("drawing", 0, 0)
        source = load_data(args.data)
        labels = noisy_labels(source, args.kind, seed=args.seed)
    if labels is None:
        raise ValueError("noise none leaves the labels as they are, there is nothing to write")
    write_labels(args.file, labels, source.train.y.numpy())
    digest = label_digest(labels.label)
    if args.json:
        facts = {"file": str(args.file), "sha256": digest, "card": labels.card.to_dict()}
        say(json.dumps(facts, allow_nan=False))
    else:
        say(summary(labels.card, source.name))
        say(f"labels {digest[:12]}…, with their card, in {args.file}")
    return 0


def labels_of(kind: str) -> str | None:
    """The label file that a kind of noise names."""
    from covlearn.noise.files import path_and_name  # noqa: PLC0415

    return path_and_name(kind.removeprefix("file:"))[0] if kind.startswith("file:") else None


def summary(card: "NoiseCard", data: str) -> str:
    """What kind of noise it is, in four lines and what is worth a warning."""
    diagonal = [float(value) for value in card.transition.diagonal()]
    if card.num_classes <= PRINTED_CLASSES:
        shown = " ".join(f"{value:.3f}" for value in diagonal)
    else:
        known = sorted(value for value in diagonal if not math.isnan(value))  # a class may be empty
        shown = f"{known[0]:.3f} … {known[-1]:.3f}, mean {sum(known) / len(known):.3f}"
    seed = "" if card.seed is None else f", seed {card.seed}"
    lines = [
        f"{card.variant} (version {card.version}){seed} on {card.num_examples:,} labels of {data}",
        f"  wrong labels: {card.actual_rate:.2%}{aimed(card)}",
        f"  largest class: {card.largest_class} with {card.largest_share:.1%} of all labels",
        f"  diagonal of T: {shown}",
    ]
    return "\n".join([*lines, *(f"  warning: {text}" for text in card.warnings)])


def aimed(card: "NoiseCard") -> str:
    """The rate that was asked for, and the mean of the flip rates where labels were drawn."""
    known = {} if card.requested_rate is None else {"asked": card.requested_rate}
    if card.seed is not None:  # of labels that were read every one is wrong or right
        known["expected"] = card.expected_rate
    text = ", ".join(f"{name} {rate:.2%}" for name, rate in known.items())
    return f" ({text})" if text else ""


def list_noises(*, as_json: bool) -> int:
    """The registry."""
    from covlearn.noise.registry import GENERATORS, HUMAN, PUBLISHED  # noqa: PLC0415

    if as_json:
        from covlearn.config import plain  # noqa: PLC0415

        files = [{**plain(entry), "bit_for_bit": entry.bit_for_bit} for entry in PUBLISHED.values()]
        whole = {
            "generators": plain(list(GENERATORS.values())),
            "published": files,
            "human": plain(list(HUMAN.values())),
        }
        say(json.dumps(whole, allow_nan=False))
        return 0

    from rich.table import Table  # noqa: PLC0415

    generators = Table("--noise", "version", title="generators")
    generators.add_column("where wrong labels go", overflow="fold")
    for generator in GENERATORS.values():
        spec = f"{generator.name}:RATE" if generator.by_rate else "in Python"
        where = "" if generator.by_rate else f" (covlearn.noise.{generator.name})"
        generators.add_row(spec, str(generator.version), f"{generator.what}{where}")
    published = Table("file", "--noise", title="published label files")
    published.add_column("drawn again", overflow="fold")
    published.add_column("SHA-256 of its labels as bytes", overflow="fold")
    for entry in PUBLISHED.values():
        again = "bit for bit" if entry.bit_for_bit else "no, pass the file"
        again += f": {entry.note}" if entry.note else ""
        spec = f"published:{entry.rate:g}" if entry.bit_for_bit else "file:PATH"
        published.add_row(f"{entry.name}.pt", spec, again, entry.sha256)
    people = Table("labels of people", "data", title="read from their published files")
    people.add_column("--noise", overflow="fold")
    for human in HUMAN.values():
        specs = " ".join(f"file:PATH#{label}" for label in human.labels)
        people.add_row(human.name, human.data, specs)
    show(generators, published, people)
    return 0
