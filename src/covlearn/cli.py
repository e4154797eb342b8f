"""The command line. What is slow to import is imported where it is needed, so that help is quick.

Exit codes: 0 done, 2 bad input or no room on the disk (one sentence on standard error), 130
interrupted.
"""

import argparse
import contextlib
import inspect
import json
import os
import pkgutil
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import covlearn
from covlearn import records
from covlearn.config import Tree, leaves, nearest, override, parse_settings, plain

if TYPE_CHECKING:
    from covlearn.evaluation import Progress
    from covlearn.methods import Method

TRAIN_EXAMPLE = """\
example:
  covlearn train --data digits --noise cal:0.4 --method cal --preset recommended --out runs/cal-0
  covlearn train --data digits --noise cal:0.4 --method cal --seed 0 --out runs/cal-20 \\
    --set sieve_plan.epochs=20 plan.epochs=20 net.hidden=[64] machine.precision=bfloat16
  covlearn train --data digits --noise cal:0.4 --method cal --seed 0 --out runs/cal-ours \\
    --preset recommended --set plan.epochs=40

--preset sets every field of the method for the data: paper (as its text says), published (as its
code does) or recommended (ours, which also holds out 10 % of the labels). What --set says goes
over it. The data counts as cifar10, cifar100 or clothing1m if its file is called so, else as small.
--set changes a field of the method (covlearn methods NAME lists them), an option of the net
(net.…), how it is computed (machine.…) or how images are moved (augmentation.…).
Data is digits or an .npz file with x, y, x_test, y_test and, if they are known, clean labels.
Noise is none, symmetric:RATE, pair:RATE or, instance-dependent, cal:RATE, ptd:RATE,
simifeat:RATE, bltm:RATE, calibrated:RATE.
"""
METHODS_EXAMPLE = """\
example:
  covlearn methods        the table
  covlearn methods cal    every field that --set can change
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    args = make_parser().parse_args(argv)
    try:
        code: int = args.command(args)
        return code
    except KeyboardInterrupt:
        return failed(f"interrupted{how_to_resume(args, argv)}", code=130)
    except BrokenPipeError:  # whoever read the output has gone; Python must not try again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, ImportError) as error:
        return failed(str(error))
    except OSError as error:
        where = error.filename or "a file"
        return failed(
            f"cannot read or write {where}: {error.strerror or error}{how_to_resume(args, argv)}"
        )


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, as everything else here does."""

    def error(self, message: str) -> NoReturn:
        """Exits with code 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """Commands and their options."""
    parser = Parser(
        prog="covlearn",
        description=(covlearn.__doc__ or "").strip(),
        epilog="covlearn COMMAND --help shows an example.",
    )
    parser.add_argument("--version", action="version", version=f"covlearn {covlearn.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    train_ = commands.add_parser(
        "train",
        help="train a method on noisy labels and evaluate it",
        description="Trains a method on noisy labels, evaluates each epoch, and records the run.",
        epilog=TRAIN_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    train_.set_defaults(command=train)
    add = train_.add_argument
    add("--data", required=True, help="digits, or the path of an .npz file")
    add("--noise", default="none", metavar="KIND:RATE", help="noise to put on the training labels")
    add("--method", required=True, help="a name of covlearn methods, or pkg.mod:Class")
    add("--out", required=True, type=Path, metavar="RUN", help="folder of the run")
    add("--seed", type=int, default=0, help="of noise, weights and order (default: 0)")
    add("--net", default="mlp", help="a network by name, or pkg.mod:factory (default: mlp)")
    add("--set", nargs="+", action="extend", default=[], metavar="PATH=VALUE", help="see below")
    add("--preset", metavar="NAME", help="paper, published or recommended settings; see below")
    add("--holdout", type=float, help="share of labels to select by (default: the preset's, or 0)")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: auto")
    add("--resume", action="store_true", help="continue the unfinished run in the folder")
    add("--json", action="store_true", help="print the result as one JSON object")

    methods_ = commands.add_parser(
        "methods",
        help="list the methods and their settings",
        epilog=METHODS_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    methods_.set_defaults(command=methods)
    methods_.add_argument("name", nargs="?", help="one method, with every field")
    return parser


def train(args: argparse.Namespace) -> int:
    """``covlearn train``."""
    from covlearn.data.sources import load_data, with_noise  # noqa: PLC0415
    from covlearn.engine import Machine  # noqa: PLC0415
    from covlearn.methods import presets  # noqa: PLC0415
    from covlearn.run import fit_and_evaluate  # noqa: PLC0415

    settings = parse_settings(args.set)
    method, holdout, preset = make_method(args.method), 0.0, None
    if args.preset is not None:
        kind = presets.data_kind(args.data)
        method = presets.preset(args.preset, args.method, kind)
        holdout, preset = presets.holdout(args.preset), f"{args.preset}/{kind}"
    # A field of the method goes before what else can be set under its name.
    own = {field.name for field in fields(method)}  # type: ignore[arg-type]
    others = {
        name: group(settings, name) if name not in own else {}
        for name in ("net", "machine", "augmentation")
    }
    method = override(method, settings)
    source, card = with_noise(load_data(args.data), args.noise, seed=args.seed)
    if others["augmentation"]:
        source = replace(source, train=augmented(source.train, others["augmentation"]))
    if "device" in others["machine"]:
        raise ValueError("machine.device is not a setting, choose it with --device")
    machine = override(Machine(), others["machine"], inside="machine.")
    with process_group(args.device) as device, progress_bars() as progress:
        result = fit_and_evaluate(
            method,
            source.train,
            test=source.test,
            clean=source.clean,
            noise_card=card,
            folder=args.out,
            machine=replace(machine, device=device),
            seed=args.seed,
            net=args.net,
            net_options={name: json_or_text(text) for name, text in others["net"].items()},
            data_name=source.name,
            preset=preset,
            holdout=holdout if args.holdout is None else args.holdout,
            resume=args.resume,
            progress=progress,
        )
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps(plain(result)) if args.json else summary(result, args.out))
    return 0


def methods(args: argparse.Namespace) -> int:
    """``covlearn methods``."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from covlearn.methods import METHODS  # noqa: PLC0415

    if args.name is not None:
        method = make_method(args.name)
        table = Table("field", "default", "type", title=f"{args.name}: {first_line(type(method))}")
        for path, kind, value in leaves(method):
            table.add_row(path, as_text(value), kind)
    else:
        table = Table("name", "paper", "what it does", "needs", show_lines=True)
        table.add_column("defaults", overflow="fold")
        for name, kind_ in METHODS.items():
            method = kind_()
            changed = " ".join(f"{path}={as_text(value)}" for path, value in own_defaults(method))
            paper = first_line(inspect.getmodule(kind_)).partition(":")[0]
            table.add_row(name, paper, first_line(kind_), needs(method), changed)
    # A file or a pipe has no width of its own.
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 0


def make_method(name: str) -> "Method":
    """A method with its defaults, by name or from ``pkg.mod:Class``."""
    from covlearn.methods import METHODS, Method  # noqa: PLC0415

    if name in METHODS:
        return METHODS[name]()
    if ":" not in name:
        raise ValueError(
            f"method must be one of {', '.join(METHODS)} or pkg.mod:Class, got {name!r}"
            f"{nearest(name, METHODS)}"
        )
    try:
        method = pkgutil.resolve_name(name)()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ValueError(
            f"cannot make the method {name!r}: {error}; write pkg.mod:Class, with pkg installed or "
            "on PYTHONPATH and a default for each field"
        ) from error
    if not isinstance(method, Method) or not is_dataclass(method):
        raise ValueError(f"{name!r} must be a dataclass with fit(run)")
    return method


def group(settings: Tree, name: str) -> Tree:
    """Takes the settings under a name out of all settings."""
    part = settings.pop(name, {})
    if not isinstance(part, dict):
        raise ValueError(f"{name} has parts that can be set, as {name}.…={part}, not as a whole")
    return part


def augmented(split: Any, settings: Tree) -> Any:
    """The split with another augmentation."""
    if split.augmentation is None:
        raise ValueError("augmentation is for uint8 images (N, H, W, C), and this data has none")
    how = override(split.augmentation, settings, inside="augmentation.")
    return replace(split, augmentation=how)


@contextlib.contextmanager
def process_group(device: str) -> Iterator[str]:
    """Joins the processes that torchrun started, if it did; gives this one's device."""
    import torch  # noqa: PLC0415

    available = torch.cuda.is_available()
    if device == "auto":
        device = "cuda" if available else "cpu"
    if device == "cuda" and not available:
        raise ValueError("device cuda is not there; use --device cpu, or auto")
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("gloo" if device == "cpu" else "nccl")
    try:
        yield device
    finally:
        torch.distributed.destroy_process_group()


@contextlib.contextmanager
def progress_bars() -> Iterator["Progress | None"]:
    """One bar a stage with loss, accuracy and time left; None where nobody watches."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  accuracy {task.fields[accuracy]:.1%}"),
        TimeRemainingColumn(),
    )
    tasks: dict[str, Any] = {}
    with Progress(*columns, console=console) as bars:

        def show(stage: str, epochs: int, history: list[dict[str, float]]) -> None:
            last = history[-1]
            shown: dict[str, Any] = {"loss": last["loss"], "accuracy": last["test_accuracy"]}
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=epochs, **shown)
            bars.update(tasks[stage], completed=len(history), **shown)

        yield show


def summary(result: records.Result, folder: Path) -> str:
    """The figures for a reader."""
    lines = [f"{result.method}, seed {result.seed}, {result.seconds:.1f} s; test accuracy:"]
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
            f"{name.replace('_', ' ')} {value:.4f}" for name, value in quality.items() if value
        ]
        lines.append(f"refined labels: {', '.join(shown)}")
    return "\n".join([*lines, f"files: {folder}"])


def own_defaults(method: Any) -> Iterator[tuple[str, Any]]:
    """The settings of a method that are not what their own class has for a default."""
    for field in fields(method):
        value = getattr(method, field.name)
        if not is_dataclass(value):
            yield field.name, value
            continue
        for part in fields(value):
            if (item := getattr(value, part.name)) != part.default:
                yield f"{field.name}.{part.name}", item


def needs(method: Any) -> str:
    """What a method asks for beside the noisy labels."""
    return "noise rate (estimated if none)" if hasattr(method, "rate") else "noisy labels"


def first_line(documented: Any) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(documented) or "").partition("\n")[0].replace("``", "")


def as_text(value: Any) -> str:
    """A value as --set takes it."""
    if isinstance(value, tuple | list):
        return ",".join(map(as_text, value)) or "()"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def json_or_text(text: Any) -> Any:
    """A value whose type is not known: JSON if it reads as such."""
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


def how_to_resume(args: argparse.Namespace, argv: Sequence[str]) -> str:
    """The command that continues the run, where there is an unfinished one."""
    folder: Path | None = getattr(args, "out", None)
    if folder is None or not (folder / records.CONFIG).exists():
        return ""
    if (folder / records.RESULT).exists():
        return ""
    again = shlex.join(["covlearn", *argv, *([] if args.resume else ["--resume"])])
    return f"; nothing that was saved is lost, continue with: {again}"


def failed(message: str, *, code: int = 2) -> int:
    """One sentence on standard error."""
    print(f"covlearn: {message}", file=sys.stderr)
    return code
