"""The sections of docs/commands.md: what the parser says of each command."""

import argparse
import re
import textwrap
from collections.abc import Iterator

from covlearn.cli import make_parser


def commands(_: str) -> str:
    """All commands with their options and examples."""
    return "\n\n".join(section("covlearn", make_parser(), level=1)).partition("\n\n")[2]


def section(name: str, parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """A command, and those below it."""
    yield f"{'#' * level} {name}"
    below = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    asked = [each for each in parser._actions if each.help != argparse.SUPPRESS]
    named = [each for each in asked if not each.option_strings and each not in below]
    options = [each for each in asked if each.option_strings and each.dest not in EVERYWHERE]
    if parser.description and level > 1:
        yield parser.description
    if level > 1:
        words = [shown(each) for each in [*named, *options] if each.required and each not in below]
        words += ["ACTION"] if below else ["[options]"]
        yield f"```text\n{' '.join([name, *words])}\n```"
    if (named or options) and level > 1:
        lines = ["|  | meaning |", "| --- | --- |"]
        for each in [*named, *options]:
            lines.append(f"| `{escaped(shown(each))}` | {escaped(meaning(each))} |")
        yield "\n".join(lines)
    if parser.epilog and level > 1:
        yield f"```text\n{narrow(parser.epilog.strip())}\n```"
    for action in below:
        for inner, each in action.choices.items():
            yield from section(f"{name} {inner}", each, level + 1)


def narrow(text: str) -> str:
    """Of an epilog's width on a page: examples closer to what they do, and shorter lines."""
    lines: list[str] = []
    prose = ""
    for line in [*text.splitlines(), ""]:
        if line and not line.startswith(" "):
            prose += f" {line}"
            continue
        lines += textwrap.wrap(prose.strip(), WIDTH, break_on_hyphens=False)
        prose = ""
        indent = len(line) - len(line.lstrip())
        lines.append(line[:indent] + re.sub(r" {3,}", "   ", line.lstrip()))
    return "\n".join(lines).strip()


WIDTH = 90  # characters of a code block that is seen whole on a usual screen
EVERYWHERE = ("help", "debug", "version")


def shown(action: argparse.Action) -> str:
    """An argument as one types it."""
    values = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    value = values if isinstance(values, str) else " ".join(values)
    if not action.option_strings:
        return value + (" …" if action.nargs in ("+", "*") else "")
    if action.nargs == 0:
        return ", ".join(action.option_strings)
    return f"{', '.join(action.option_strings)} {value}" + (" …" if action.nargs == "+" else "")


def meaning(action: argparse.Action) -> str:
    """Its help."""
    return (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")


def escaped(text: str) -> str:
    """In a cell of a table."""
    return text.replace("|", "\\|")
