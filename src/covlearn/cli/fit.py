"""``covlearn fit``."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covlearn.cli.progress import progress_bars, step_bars
from covlearn.cli.say import one_line, say
from covlearn.cli.train import first_process, process_group, restarted
from covlearn.config import plain

if TYPE_CHECKING:
    from covlearn.fitted import FitResult
    from covlearn.inputs import Examples
    from covlearn.methods.crossfit import CrossFittedCAL

CACHE = ".covlearn-cache"
TRAINED = {
    "sieve_plan": "sieves, which judge the labels",
    "plan": "network, which predicts",
    "plain_plan": "the same where no label looks wrong",
}
EXAMPLE = """\
example:
  covlearn fit flowers/ --out runs/flowers            a folder with one folder of images a class
  covlearn fit cells.csv --label diagnosis --id case_no --out runs/cells
  covlearn fit reviews.parquet --label verdict --ignore batch --out runs/reviews
  covlearn fit embeddings.npz --out runs/mine --dry-run

No clean label, noise rate or validation set is needed. The run folder holds the model, result.json
and labels.csv: of each example the label given, the one suggested, and what to do (keep, relabel,
drop, or review: a person should look), with the reason. report.html shows all of it, and there a
person can decide; --trusted takes the file of decisions that it makes (a CSV with the columns id
and label), or Label Studio's JSON export. Those labels replace the given ones and are never
changed. covlearn predict and covlearn clean go on from there.
--set changes a field of the method (covlearn methods NAME lists them; those of the recommended cal
are listed by covlearn methods covlearn.methods.crossfit:CrossFittedCAL), an option of the net
(net.…) or how it is computed (machine.…), over the preset. Features of images are kept in
.covlearn-cache beside the run.
torchrun --nproc_per_node 4 -m covlearn fit … trains with four processes that share each batch.
"""


def add_parser(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "fit",
        help="learn from your own data and find the labels that are wrong",
        description="Trains on labels some of which are wrong, and says which.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=fit)
    add = parser.add_argument
    add("source", metavar="SOURCE", help="a folder of images, a CSV or Parquet file, or an .npz")
    add("--out", required=True, type=Path, metavar="RUN", help="folder of the run")
    add_columns(parser)
    add("--label", metavar="COLUMN", help="the column of labels")
    add(
        "--ignore",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column not to learn from, such as a batch; may be given again",
    )
    add("--trusted", type=Path, metavar="FILE", help="labels that a person decided on; see below")
    add("--features", default="auto", help="of images: auto, none (pixels), or a network's name")
    add("--method", default="cal", help="a name of covlearn methods (default: cal)")
    add("--preset", default="recommended", help="recommended (default), paper or published")
    add("--net", default="auto", help="a network by name, or pkg.mod:factory (default: auto)")
    add("--set", nargs="+", action="extend", default=[], metavar="PATH=VALUE", help="see below")
    add("--seed", type=int, default=0, help="of weights, folds and order (default: 0)")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: auto")
    add("--dry-run", action="store_true", help="look at the data, say what would run, and stop")
    add("--resume", action="store_true", help="continue the unfinished run in the folder")
    add("--json", action="store_true", help="print the result as one JSON object")


def add_columns(parser: argparse.ArgumentParser) -> None:
    """What ``fit`` and ``predict`` ask of a source alike."""
    add = parser.add_argument
    add("--id", metavar="COLUMN", help="the column that names examples")
    add("--image", metavar="COLUMN", help="the column of image paths")
    add(
        "--on-bad",
        choices=["refuse", "skip"],
        default="refuse",
        help="what to do with examples that cannot be read (default: refuse)",
    )


def fit(args: argparse.Namespace) -> int:
    """Reads, trains, judges, records and sums up."""
    from covlearn import distributed, records  # noqa: PLC0415
    from covlearn.fitted import check_place, fit_examples  # noqa: PLC0415
    from covlearn.inputs.trusted import read_trusted, with_trusted  # noqa: PLC0415
    from covlearn.job import make_method  # noqa: PLC0415
    from covlearn.noise.inputs import check_seed  # noqa: PLC0415
    from covlearn.report import write_report  # noqa: PLC0415

    check_place(args.out)
    finished = (args.out / records.RESULT).exists()
    make_method(args.method)  # reading may take hours, and a wrong name is wrong now
    check_seed(args.seed)
    decided = None if args.trusted is None else read_trusted(args.trusted)
    asked = {
        "path": str(Path(args.source).absolute()),
        "label": args.label,
        "id": args.id,
        "image": args.image,
        "features": args.features,
        "on_bad": args.on_bad,
    }
    reading = {"look": True} if args.dry_run else {"cache": args.out.absolute().parent / CACHE}
    with process_group(args.device) as device:
        # What the first process has read into the cache need not be read again.
        examples = distributed.in_turns(lambda: read(args, **reading))
        if decided is not None:
            examples = with_trusted(examples, decided, args.trusted)
        if args.dry_run:
            said = plan_of(examples, args, asked)
        else:
            with progress_bars() as progress:
                result = fit_examples(
                    examples,
                    args.out,
                    source=asked,
                    method=args.method,
                    preset=args.preset,
                    net=args.net,
                    settings=tuple(args.set),
                    seed=args.seed,
                    device=device,
                    resume=args.resume or restarted(device),
                    progress=progress,
                )
            lines = [f"{args.out} was finished already: nothing was trained."] if finished else []
            lines += summary(result, args.out, trusted_lines(examples, args.trusted))
            said = json.dumps(plain(result)) if args.json else "\n".join(lines)
    if first_process():
        if not args.dry_run:
            with step_bars() as show:
                write_report(args.out, progress=lambda done, total, what: show(what, done, total))
        say(said)
    return 0


def read(args: argparse.Namespace, **options: Any) -> "Examples":
    """The examples of the command's source, with a bar while they are read."""
    from covlearn.inputs import read_examples  # noqa: PLC0415

    with step_bars() as show:
        return read_examples(
            args.source,
            id=args.id,
            image=args.image,
            on_bad=args.on_bad,
            progress=lambda done, total, what: show(what, done, total),
            **{name: vars(args)[name] for name in ("label", "ignore", "features") if name in args},
            **options,
        )


def plan_of(examples: "Examples", args: argparse.Namespace, asked: dict[str, Any]) -> str:
    """What would be done, without doing it."""
    from covlearn.data import Split  # noqa: PLC0415
    from covlearn.data.sources import still  # noqa: PLC0415
    from covlearn.engine import Plan  # noqa: PLC0415
    from covlearn.fitted import look_at_run  # noqa: PLC0415
    from covlearn.fitting import Prepared, check_net, set_up  # noqa: PLC0415
    from covlearn.methods.crossfit import CrossFittedCAL  # noqa: PLC0415

    assert examples.y is not None
    augmentation = still(examples.x[:1].numpy())
    split = Split(examples.x, examples.y, len(examples.classes), augmentation)
    setup = set_up(
        args.method,
        split=split,
        preset=args.preset,
        net=args.net,
        settings=args.set,
        device=args.device,
    )
    check_net(split, setup)
    end = f"nothing was trained or written; without --dry-run the run would be in {args.out}"
    looked = Prepared(split, None, augmentation)
    how: dict[str, Any] = {"source": asked, "seed": args.seed, "preset": args.preset}
    if look_at_run(args.out, looked, setup, resume=args.resume, **how):
        end = f"{args.out} was finished already: without --dry-run nothing would be trained either"
    method = setup.choice.method
    plans = {name: value for name, value in vars(method).items() if isinstance(value, Plan)}
    kind = "images" if augmentation is not None else "features"
    shape = "×".join(map(str, examples.x.shape[1:]))
    lines = [
        f"{len(examples):,} examples, {len(examples.classes):,} classes, {shape} {kind}",
        *trusted_lines(examples, args.trusted),
        *skipped_lines([{"id": item.id, "reason": item.reason} for item in examples.skipped]),
        f"method {args.method} ({args.preset}), network {setup.choice.net} on "
        f"{setup.machine.device}",
        *(
            f"  {TRAINED.get(name, name)}: {plan.epochs} epochs in batches of {plan.batch_size}"
            + (times(name, method, len(examples)) if isinstance(method, CrossFittedCAL) else "")
            for name, plan in plans.items()
        ),
        *(f"note: {note}" for note in examples.notes),
        "labels were read, and of the inputs a sample at most: bad ones show when all are read",
        end,
    ]
    return "\n".join(lines)


def times(plan: str, method: "CrossFittedCAL", num_examples: int) -> str:
    """How often a plan is gone through, if more than once."""
    tried = method.folds_tried(num_examples)
    if plan == "sieve_plan":
        return f", {method.deals * method.folds + len(method.decays) * tried} times"
    if plan == "plan" and method.decays and method.may_hold_back_less:
        most = (1 + len(method.decays)) * tried
        return f", after up to {most} trials of that, if its sieves need the largest weight decay"
    if plan == "plain_plan" and method.may_hold_back:
        return f", after {tried} trials of that; or as the sieves, if these predict more"
    return ""


def trusted_lines(examples: "Examples", path: Path) -> list[str]:
    """How many decisions of a person were used, if there are any."""
    from covlearn.inputs.examples import counted  # noqa: PLC0415

    if examples.trusted is None or examples.given is None:
        return []
    before = examples.trusted.before
    changed = sum(
        before.get(key, label) != label
        for key, label in zip(examples.ids, examples.given, strict=True)
    )
    used, other = counted(len(before), "decision"), counted(changed, "label")
    return [f"Used {used} of {path}; {other} of the source differed."]


def summary(result: "FitResult", folder: Path, more: list[str]) -> list[str]:
    """The outcome for a reader who does not train networks."""
    from covlearn.report.words import of_fit  # noqa: PLC0415

    lines = [*of_fit(result), *more]
    lines += skipped_lines(result.skipped)
    lines += [f"Note: {one_line(note)}" for note in result.notes]
    lines += [
        f"Look and decide: {folder / 'report.html'}",
        f"Every label with its reason: {folder / 'labels.csv'}",
        "Next:",
        f"  covlearn diagnose {folder}                     what kind of noise it is",
        f"  covlearn clean {folder} --out DIR --as csv     the data with its labels repaired",
        f"  covlearn predict {folder} SOURCE --out FILE    classes of new examples",
    ]
    return lines


def skipped_lines(skipped: list[dict[str, str]]) -> list[str]:
    """What was left out of the source, if anything."""
    if not skipped:
        return []
    first = "; ".join(one_line(f"{item['id']} ({item['reason']})") for item in skipped[:3])
    more = f"; and {len(skipped) - 3:,} more, in result.json" if len(skipped) > 3 else ""
    return [f"{len(skipped):,} left out: {first}{more}"]
