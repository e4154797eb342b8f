"""What a command prints: text in which no name of a file, label or id can steer the terminal."""

import argparse
import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any

# Control characters, what turns the direction of text around, line ends of Unicode, and halves of
# characters, which names of files that are no UTF-8 are made of.
UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]"
)


class Aside:
    """Standard error for what no run may end for: where nobody takes it any more, it is lost."""

    def __init__(self) -> None:
        self.stream = sys.stderr

    def write(self, text: str) -> int:
        """Writes what can be written."""
        with contextlib.suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Has what was written be seen."""
        with contextlib.suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def say(text: str) -> None:
    """Prints text of several lines."""
    with output():
        print(printable(text))


def say_aside(text: str) -> None:
    """Prints progress, remarks and errors, on standard error."""
    print(printable(text), file=Aside())


def show(*tables: Any) -> None:
    """Prints tables of rich; a file or a pipe has no width of its own."""
    from rich.console import Console  # noqa: PLC0415

    with output():
        console = Console(width=None if sys.stdout.isatty() else 160)
        for table in tables:
            console.print(table)


@contextlib.contextmanager
def output() -> Iterator[None]:
    """Has an error that comes of printing say so, and not name a file of the command."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        error.filename = "the output"
        raise


def printable(text: str) -> str:
    r"""The text with what is no plain character spelled out; line ends stay.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return UNSAFE.sub(lambda found: ascii(found.group())[1:-1], text)


def one_line(text: str) -> str:
    """The same of text that must not break its line."""
    return printable(text.strip()).replace("\n", "\\n")


def add_allow(parser: argparse.ArgumentParser, what: str) -> None:
    """The option by which a user lets a file name code."""
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="PKG.MOD:NAME",
        help=f"code that the {what} may import; it runs, so allow only what you trust",
    )
