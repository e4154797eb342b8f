"""``covlearn train``."""

import argparse
import contextlib
import datetime
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covlearn import records
from covlearn.cli.progress import progress_bars, step_bars
from covlearn.cli.say import say, say_aside
from covlearn.config import as_text, leaves, plain

if TYPE_CHECKING:
    from covlearn.data import Split
    from covlearn.job import Job

# How long processes wait for each other: reading a source may take the first one hours, and where
# one has died torchrun ends the rest.
PATIENCE = datetime.timedelta(hours=12)
EXAMPLE = """\
example:
  covlearn train --data digits --noise cal:0.4 --method cal --preset recommended --out runs/cal-0
  covlearn train --data digits --noise cal:0.4 --method cal --seed 0 --out runs/cal-20 \\
    --set sieve_plan.epochs=20 plan.epochs=20 net.hidden=[64] machine.precision=bfloat16
  covlearn train --data digits --noise cal:0.4 --method cal --seed 0 --out runs/cal-ours \\
    --preset recommended --set plan.epochs=40
  torchrun --nproc_per_node 4 --max-restarts 3 -m covlearn train --data cifar10 --method cal \\
    --out runs/cal-4 --set machine.sync_batch_norm=true

--preset sets every field of the method for the data, the network and how images are moved: paper
(as its text says), published (as its code does) or recommended (ours; of small data it also holds
out 10 % of the labels). What --set says goes over it. The data counts as cifar10, cifar100 or
clothing1m if its file is called so, as clothing1m if it is a folder, as cifar10 (of 50 classes and
more as cifar100) if it has 10,000 images or more of 16 to 64 pixels a side, else as small.
--set changes a field of the method (covlearn methods NAME lists them), an option of the net
(net.…; net.pretrained=FILE loads weights), how it is computed (machine.…; on a GPU the precision
is bfloat16 unless it is set) or how images are moved (augmentation.…).
Data is digits, cifar10 or cifar100 (covlearn data fetch gets them), the folder of Clothing1M as it
is published (covlearn data check clothing1m PATH), or an .npz file with x, y, x_test, y_test and,
if they are known, clean labels. Images of a folder are read as they are needed, by machine.workers
processes.
Noise is none, symmetric:RATE, pair:RATE or, instance-dependent, cal:RATE, ptd:RATE, simifeat:RATE,
bltm:RATE, calibrated:RATE; published:RATE, the paper's own labels for CIFAR; as_published:RATE, new
ones drawn as those were; or file:PATH with labels of covlearn noise, of an .npz file with noisy and
perhaps clean, of the paper's files, or of CIFAR-N as file:PATH#worse_label.
covlearn noise --list says more.
Under torchrun the processes share each batch, and the first one writes. If one of them dies, they
are started again and go on from the last checkpoint.
"""
OWN_IMAGES = "--net resnet18 --set augmentation.crop=4 augmentation.flip=true"


def add_parser(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "train",
        help="train a method on noisy labels and evaluate it",
        description="Trains a method on noisy labels, evaluates each epoch, and records the run.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=train)
    add = parser.add_argument
    add("--data", required=True, help="digits, cifar10, cifar100, Clothing1M's folder, or an .npz")
    add(
        "--noise", default="none", metavar="KIND:RATE", help="noise to put on the labels; see below"
    )
    add("--method", required=True, help="a name of covlearn methods, or pkg.mod:Class")
    add("--out", required=True, type=Path, metavar="RUN", help="folder of the run")
    add("--seed", type=int, default=0, help="of noise, weights and order (default: 0)")
    add("--net", help="a network by name, or pkg.mod:factory (default: the preset's, or mlp)")
    add("--set", nargs="+", action="extend", default=[], metavar="PATH=VALUE", help="see below")
    add("--preset", metavar="NAME", help="paper, published or recommended settings; see below")
    add("--holdout", type=float, help="share of labels to select by (default: the preset's, or 0)")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: auto")
    add("--resume", action="store_true", help="continue the unfinished run in the folder")
    add("--json", action="store_true", help="print the result as one JSON object")


def train(args: argparse.Namespace) -> int:
    """Trains, evaluates and records one run."""
    from covlearn import records  # noqa: PLC0415
    from covlearn.data.sources import load_data  # noqa: PLC0415
    from covlearn.job import Job, run_job, settled  # noqa: PLC0415

    job = Job(
        data=args.data,
        method=args.method,
        noise=args.noise,
        preset=args.preset,
        seed=args.seed,
        net=args.net,
        holdout=args.holdout,
        settings=tuple(args.set),
    )
    warn_of_what_comes_too_late(settled(job)[0])
    finished = (args.out / records.RESULT).exists()
    with process_group(args.device) as device:
        with step_bars() as loading:
            source = load_data(job.data, loading)
        say_what_is_trained(job, source.train)
        with progress_bars() as progress:
            result = run_job(
                job,
                args.out,
                device=device,
                resume=args.resume or restarted(device),
                progress=progress,
                source=source,
            )
    if first_process():
        if finished and not args.json:
            say(f"{args.out} was finished already: nothing was trained.")
        say(json.dumps(plain(result)) if args.json else summary(result, args.out))
    return 0


def say_what_is_trained(job: "Job", split: "Split") -> None:
    """The network and how images are moved, which a preset chose by the kind of data."""
    if first_process() and sys.stderr.isatty():  # else all is quiet
        say_aside(f"covlearn: {what_is_trained(job, split)}")


def what_is_trained(job: "Job", split: "Split") -> str:
    """The same in words, with what to set where few images are taken for features."""
    from covlearn.job import augmented, protocol_of, settled  # noqa: PLC0415

    others, protocol = settled(job)[1], protocol_of(job)
    net = job.net or protocol.net
    how = augmented(split, protocol.augmentation, others["augmentation"]).augmentation
    if how is None:
        return f"network {net}; inputs as they are"
    changed = ("crop", "flip", "rotate", "window")
    moved = [f"{name}={as_text(value)}" for name in changed if (value := getattr(how, name))]
    text = f"network {net}; images {'moved by ' + ' '.join(moved) if moved else 'not moved'}"
    if job.preset is None or job.net is not None or how.moves:
        return text
    return f"{text}: {job.preset} takes them for small data; {OWN_IMAGES} set both"


def warn_of_what_comes_too_late(method: Any) -> None:
    """Says so where a schedule ends after the training does, since neither moves with the other."""
    values = {leaf.path: leaf.value for leaf in leaves(method)}
    longest = max((values[path] for path in values if path.endswith("plan.epochs")), default=0)
    late = []
    for path, value in values.items():
        stage, _, name = path.rpartition(".")
        epochs = values.get(f"{stage}.epochs", longest)
        last = max(value, default=0) if name == "lr_milestones" else value
        if name in ("lr_milestones", "end") and last > epochs > 0:
            late.append(f"{path}={as_text(value)} (of {epochs} epochs)")
    if late and sys.stderr.isatty():  # else all is quiet
        say_aside(
            f"covlearn: never reached: {', '.join(late)}; schedules do not move with the epochs, "
            "set them too"
        )


@contextlib.contextmanager
def process_group(device: str) -> Iterator[str]:
    """Joins the processes that torchrun started, if it did; gives this one's device."""
    import torch  # noqa: PLC0415

    from covlearn import distributed  # noqa: PLC0415
    from covlearn.job import resolve_device  # noqa: PLC0415

    device = resolve_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    distributed.join("gloo" if device == "cpu" else "nccl", timeout=PATIENCE)
    try:
        yield device
    finally:
        torch.distributed.destroy_process_group()


def restarted(device: str) -> bool:
    """Whether torchrun started the processes again because one of them, anywhere, had died."""
    import torch  # noqa: PLC0415

    from covlearn import distributed  # noqa: PLC0415

    times = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return bool(distributed.max_of(torch.tensor(times, device=device)) > 0)


def first_process() -> bool:
    """Whether it is this one that prints; torchrun's processes are numbered, others are alone."""
    return os.environ.get("RANK", "0") == "0"


def summary(result: records.Result, folder: Path) -> str:
    """The figures for a reader."""
    from covlearn.report import words  # noqa: PLC0415

    method = words.method(result.method)
    lines = [f"{method}, seed {result.seed}, {result.seconds:.1f} s; test accuracy:"]
    named = {
        field.name: getattr(result.test_accuracy, field.name)
        for field in fields(result.test_accuracy)
    }
    for name, figure in {**named, "returned": result.returned}.items():
        if figure is not None:
            at = "" if figure.epoch is None else f"epoch {figure.epoch}, "
            lines.append(f"  {name.replace('_', ' '):17}{figure.value:.4f}  ({at}{figure.rule})")
    if result.memorisation is not None:
        lines.append(f"wrong labels fitted: {result.memorisation:.1%}")
    quality = (result.labels or {}).get("quality")
    if quality is not None:
        shown = [
            f"{name.replace('_', ' ')} {value:.4f}"
            for name, value in quality.items()
            if value is not None
        ]
        lines.append(f"refined labels: {', '.join(shown)}")
    return "\n".join([*lines, f"files: {folder}"])
