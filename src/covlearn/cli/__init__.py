"""The command line: one file a command, imported when it is asked for, so that help is quick.

Exit codes: 0 done, 1 a cell of a table failed, 2 bad input or no room on the disk or in memory (one
sentence on standard error), 130 interrupted.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import covlearn
from covlearn import records
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
from covlearn.shortage import in_words, is_shortage

COMMANDS = (
    *(fit, report, predict, clean, diagnose, export, doctor),
    *(train, methods, data, noise, bench),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    args = make_parser().parse_args(argv)
    # As with python -m: pkg.mod:Class is also looked for in the folder one stands in.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        code: int = args.command(args)
        return code
    except KeyboardInterrupt:
        how = getattr(args, "interrupted", None) or how_to_resume(args, argv)
        return failed(f"interrupted{how}", code=130)
    except BrokenPipeError:  # whoever read the output has gone; Python must not try again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, ImportError) as error:
        return failed(str(error))
    except OSError as error:
        where = error.filename or getattr(args, "out", None) or "a file"
        return failed(
            f"cannot read or write {where}: {error.strerror or error}{how_to_resume(args, argv)}"
        )
    except (MemoryError, RuntimeError) as error:
        if not is_shortage(error):
            raise
        return failed(f"{in_words(error)}{how_to_resume(args, argv)}")


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
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def how_to_resume(args: argparse.Namespace, argv: Sequence[str]) -> str:
    """The command that continues the run, where there is an unfinished one."""
    folder: Path | None = getattr(args, "out", None)
    if folder is None or not (folder / records.CONFIG).exists():
        return ""
    if (folder / records.RESULT).exists():
        return ""
    again = shlex.join(
        ["covlearn", *argv, *([] if getattr(args, "resume", True) else ["--resume"])]
    )
    return f"; nothing that was saved is lost, continue with: {again}"


def failed(message: str, *, code: int = 2) -> int:
    """One sentence on standard error."""
    print(f"covlearn: {message}", file=sys.stderr)
    return code
