"""covlearn: noisy labels in; a robust classifier, the wrong labels and their repairs out."""

import importlib
from typing import Any

__version__ = "0.1.0.dev0"

# Imported when they are asked for: ``import covlearn`` itself imports nothing.
LATER = {
    "NoisyLabelClassifier": "covlearn.estimator",
    "load": "covlearn.fitted",
    "read_runs": "covlearn.records_frame",
}


def __getattr__(name: str) -> Any:
    if name in LATER:
        return getattr(importlib.import_module(LATER[name]), name)
    raise AttributeError(f"module 'covlearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *LATER])
