"""Docstrings as Markdown, for the API pages: what reStructuredText marks becomes plain code."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")
DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)  # up to the next empty line


class AsMarkdown(griffe.Extension):  # type: ignore[misc]
    """Roles, double back-quotes and doctests become code of Markdown."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring that was just read."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """The docstring, rewritten."""
    text = re.sub(r"``(.+?)``", r"`\1`", ROLE.sub(r"`\1`", docstring))
    return DOCTEST.sub(lambda match: f"```pycon\n{match[0]}\n```", text)
