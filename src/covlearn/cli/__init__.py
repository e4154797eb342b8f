"""The command line: one file a command, imported when it is asked for, so that help is quick.

Exit codes: 0 done, 1 a cell of a table failed, 2 bad input or no room on the disk or in memory, 3
an error of covlearn's own, 130 interrupted. What is wrong is one sentence on standard error;
``--debug`` shows where it happened.
"""

import argparse
import io
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import covlearn
from covlearn import records, shortage
from covlearn.cli import (
    bench,
    clean,
    data,
    diagnose,
    doctor,
    export,
    fit,
    methods,
    noise,
    predict,
    report,
    train,
)
from covlearn.cli.say import one_line, output, say_aside

COMMANDS = (
    *(fit, report, predict, clean, diagnose, export, doctor),
    *(train, methods, data, noise, bench),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code."""
    open_streams()
    argv = sys.argv[1:] if argv is None else list(argv)
    args = argparse.Namespace(debug=False)  # until they are read
    try:
        args = parsed(argv)
        find_named_code(args)
        code: int = args.command(args)
        end_output()
        return code
    except KeyboardInterrupt:
        how = getattr(args, "interrupted", None) or how_to_resume(args, argv)
        return failed(f"interrupted{how}", code=130)
    except BrokenPipeError:  # whoever read the output has gone
        return 1
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        return failed(*in_words(error, args, how_to_resume(args, argv)))
    finally:
        forget_broken_streams()


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The words of a command; help that is asked for must have been written, too."""
    try:
        return make_parser().parse_args(argv)
    except SystemExit as end:
        if not end.code:
            end_output()
        raise


def open_streams() -> None:
    """Output that was closed goes nowhere, and what a terminal cannot show is spelled out."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  until the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def find_named_code(args: argparse.Namespace) -> None:
    """Has pkg.mod:Class be looked for in the folder one stands in, too, as with python -m.

    Only where some was named: libraries look for optional modules, and a folder of data might have
    a file of such a name.
    """
    named = [getattr(args, name, None) for name in ("method", "net", "name")]
    named += getattr(args, "allow", None) or []
    if any(name and ":" in name for name in named) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def end_output() -> None:
    """Writes what is left of the output, or says that it could not be written."""
    with output():
        sys.stdout.flush()


def forget_broken_streams() -> None:
    """Python must not try again at exit what could not be written: it would tell of itself."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def in_words(error: Exception, args: argparse.Namespace, resume: str) -> tuple[str, int]:
    """What went wrong as a sentence, and the exit code."""
    if isinstance(error, ValueError | ImportError):
        return str(error), 2
    if isinstance(error, OSError) and error.errno is None:  # a library's, which says it in words
        return f"{error}{resume}", 2
    if isinstance(error, OSError):
        where = error.filename or getattr(args, "out", None) or "a file"
        return f"cannot read or write {where}: {error.strerror or error}{resume}", 2
    if shortage.is_shortage(error):
        return f"{shortage.in_words(error)}{resume}", 2
    return (
        f"an error that covlearn does not foresee, {type(error).__name__}: {error}; please report "
        f"it with what the same command prints with --debug{resume}"
    ), 3


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, as everything else here does."""

    def error(self, message: str) -> NoReturn:
        """Exits with code 2."""
        self.exit(2, f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """No empty text: as a path it would be the folder one is in, as a name the default."""
        if "" in arg_strings and not isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(action, "expected a value, got empty text")
        return super()._get_values(action, arg_strings)


def make_parser() -> argparse.ArgumentParser:
    """Commands and their options."""
    parser = Parser(
        prog="covlearn",
        description=(covlearn.__doc__ or "").strip(),
        epilog="covlearn COMMAND --help shows an example.",
    )
    parser.add_argument("--version", action="version", version=f"covlearn {covlearn.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    add_debug(parser)
    parser.set_defaults(debug=False)
    return parser


def add_debug(parser: argparse.ArgumentParser) -> None:
    """``--debug``, before the command or after it."""
    parser.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show where an error happened",
    )
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                add_debug(inner)


def how_to_resume(args: argparse.Namespace, argv: Sequence[str]) -> str:
    """The command that continues the run, where there is an unfinished one."""
    folder: Path | None = getattr(args, "out", None)
    try:
        if folder is None or not (folder / records.CONFIG).exists():
            return ""
        if (folder / records.RESULT).exists():
            return ""
    except OSError:  # a folder that cannot be looked into, or a name that is none
        return ""
    again = shlex.join(
        ["covlearn", *argv, *([] if getattr(args, "resume", True) else ["--resume"])]
    )
    return f"; nothing that was saved is lost, continue with: {again}"


def failed(message: str, code: int) -> int:
    """One sentence on standard error, if there is any."""
    say_aside(f"covlearn: {one_line(message)}")
    return code
