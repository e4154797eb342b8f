"""The code blocks and command lines of docs/, read as a reader would type them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[1] / "docs"
FENCE = re.compile(r'^```(\w*)(?: title="(.*?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
CALLED = re.compile(r"(covlearn|(python|torchrun) .*-m covlearn) ")
INLINE = re.compile(r"`(covlearn [^`]+)`")


class Block(NamedTuple):
    """A fenced block of a page; one with a title is a file of that name."""

    language: str
    title: str
    text: str


def page(name: str) -> str:
    """The text of a page."""
    return (DOCS / name).read_text(encoding="utf-8")


def pages() -> list[str]:
    """The names of all pages."""
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def blocks(name: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(*found) for found in FENCE.findall(page(name))]


def typed(text: str) -> list[str]:
    """The lines of a block that are typed into a shell, whole and without comments."""
    lines = (line.partition(" #")[0].strip() for line in text.replace("\\\n", " ").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of each ``covlearn`` command line of a block."""
    for line in text.replace("\\\n", " ").splitlines():
        if CALLED.match(line):
            words = shlex.split(line, comments=True)
            yield words[words.index("covlearn") + 1 :]


def mentioned(name: str) -> list[list[str]]:
    """The words after ``covlearn`` wherever the prose of a page names a command in back-quotes."""
    prose = FENCE.sub("", page(name))
    return [found.split()[1:] for found in INLINE.findall(prose)]
