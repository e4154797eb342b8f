"""``covlearn methods``."""

import argparse
import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from covlearn.cli.say import show
from covlearn.config import as_text, leaves

EXAMPLE = """\
example:
  covlearn methods        the table
  covlearn methods cal    every field that --set can change
"""


def add_parser(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "methods",
        help="list the methods and their settings",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=methods)
    parser.add_argument("name", nargs="?", help="one method, with every field")


def methods(args: argparse.Namespace) -> int:
    """The table of all methods, or the fields of one."""
    from rich.table import Table  # noqa: PLC0415

    from covlearn.job import make_method  # noqa: PLC0415
    from covlearn.methods import METHODS  # noqa: PLC0415

    if args.name is not None:
        method = make_method(args.name)
        table = Table("field", "default", title=f"{args.name}: {first_line(type(method))}")
        table.add_column("takes", overflow="fold")
        for leaf in leaves(method):
            takes = f"{leaf.kind}. {leaf.meaning}" if leaf.meaning else leaf.kind
            table.add_row(leaf.path, as_text(leaf.value), takes)
    else:
        table = Table("name", "paper", show_lines=True)
        table.add_column("what it does, needs and has for defaults", overflow="fold")
        for name, kind in METHODS.items():
            method = kind()
            changed = " ".join(f"{path}={as_text(value)}" for path, value in own_defaults(method))
            paper = first_line(inspect.getmodule(kind)).partition(":")[0]
            table.add_row(name, paper, f"{first_line(kind)}\nneeds {needs(method)}\n{changed}")
    show(table)
    return 0


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
    return "the noise rate (estimated if none)" if hasattr(method, "rate") else "noisy labels"


def first_line(documented: Any) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(documented) or "").partition("\n")[0].replace("``", "")
