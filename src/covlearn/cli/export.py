"""``covlearn export``."""

import argparse
from pathlib import Path
from typing import Any

from covlearn.cli.say import add_allow, say
from covlearn.cli.targets import check_target

EXAMPLE = """\
example:
  covlearn export runs/cells --onnx cells.onnx
  covlearn export runs/cal-0 --tensorboard boards/cal-0     then: tensorboard --logdir boards

--onnx writes the network of a run of covlearn fit, with all that is done to inputs before it, and
compares it with onnxruntime first. --tensorboard writes the epochs of any run as curves. Data with
repaired labels comes from covlearn clean.
"""


def add_parser(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "export",
        help="write a run's network as ONNX, or its curves for TensorBoard",
        description="Writes what a run learned in the forms of other tools.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=export)
    add = parser.add_argument
    add("run", metavar="RUN", type=Path, help="folder of a run")
    add("--onnx", type=Path, metavar="FILE", help="ONNX file to write")
    add("--tensorboard", type=Path, metavar="DIR", help="folder for TensorBoard, new or empty")
    add_allow(parser, "run")


def export(args: argparse.Namespace) -> int:
    """Writes what was asked for."""
    if args.onnx is None and args.tensorboard is None:
        raise ValueError("name what to write: --onnx FILE, --tensorboard DIR, or both")
    if args.onnx is not None:
        from covlearn.integrations.onnx import to_onnx  # noqa: PLC0415

        check_target(args.onnx, ".onnx")
        difference = to_onnx(args.run, args.onnx, allow=args.allow)
        say(f"network: {args.onnx}, within {difference:.1g} of PyTorch by onnxruntime")
    if args.tensorboard is not None:
        from covlearn.integrations.tensorboard import write_tensorboard  # noqa: PLC0415

        epochs = write_tensorboard(args.run, args.tensorboard)
        say(f"curves of {epochs:,} epochs: {args.tensorboard}")
    return 0
