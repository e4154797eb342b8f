"""A library of an extra, imported when it is used, or a sentence that says how to get it."""

import importlib
from typing import Any


def library(name: str, *, extra: str, wanted: str) -> Any:
    """The module ``name``; without it an ImportError that names the extra.

    >>> library("no_such_library", extra="onnx", wanted="to_onnx")
    Traceback (most recent call last):
    ImportError: to_onnx needs no_such_library (No module named 'no_such_library'); install it \
with: pip install 'covlearn[onnx]'
    """
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError, OSError) as error:
        package = name.partition(".")[0] if not name.startswith("torch.") else extra
        raise ImportError(
            f"{wanted} needs {package} ({error}); install it with: pip install 'covlearn[{extra}]'"
        ) from error
