"""What a command prints: text in which no name of a file, label or id can steer the terminal."""

import argparse
import re
import sys
from typing import TextIO

# Control characters, what turns the direction of text around, line ends of Unicode, and halves of
# characters, which names of files that are no UTF-8 are made of.
UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]"
)


def say(text: str, file: TextIO | None = None) -> None:
    """Prints text of several lines."""
    print(printable(text), file=file or sys.stdout)


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
