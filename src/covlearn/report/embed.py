"""JSON inside of HTML."""

import json
from typing import Any

# What would end the element that holds the data, or a line of an old parser.
ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def embedded(data: Any) -> str:
    """JSON that is inert inside of an HTML element.

    >>> embedded("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escape in ESCAPED.items():
        text = text.replace(character, escape)
    # A lone surrogate, of a file name that is no UTF-8, has no bytes of its own.
    return text.encode("utf-8", "backslashreplace").decode()
