"""Docstrings as Markdown, for the API pages: what reStructuredText marks becomes plain code."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")


class PlainRoles(griffe.Extension):
    """``:func:`covlearn.losses.cores``` and double back-quotes become code in Markdown."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring that was just read."""
        if obj.docstring is not None:
            text = ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = re.sub(r"``(.+?)``", r"`\1`", text)
