"""Imports point one way, and the package is light where it promises to be."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "covlearn"

# A module may import those of lower floors, and on its own floor only those named before it.
FLOORS = [
    ["checks", "config", "npz", "plain_files", "records", "records_frame", "kernels"],
    ["losses", "noise", "transition", "sieve", "covariance", "reweight", "theory"],
    ["evidence", "calibration", "verdicts", "preparation", "cells"],
    ["schedules", "metrics"],
    ["data", "nets"],
    ["inputs"],
    [
        "distributed",
        "plan",
        "average",
        "committee",
        "memory",
        "ledger",
        "checkpoint",
        "capture",
        "flat",
        "engine",
        "kept",
    ],
    ["methods"],
    ["evaluation", "stages", "run", "testing"],  # clean labels: out of a method's reach
    ["job", "fitting", "estimator", "saved", "fitted", "diagnose", "exports", "report", "bench"],
    ["integrations"],
    ["cli", "__main__", "demo"],
]
ORDER = [name for floor in FLOORS for name in floor]
FILES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    """The module, or the package it is part of, below covlearn."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The rooms of covlearn that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path.name} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("covlearn.")}


def test_every_module_has_a_floor() -> None:
    assert {room(path) for path in FILES} - {"__init__"} == set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    here = room(path)
    if here == "__init__":
        assert not imported(path)
        return
    for other in imported(path) - {here}:
        assert ORDER.index(other) < ORDER.index(here), f"{here} must not import {other}"


def test_importing_the_package_imports_no_torch() -> None:
    # Records and reports will be read where torch is not wanted.
    code = "import covlearn, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_references_are_independent_of_the_package() -> None:
    for path in (Path(__file__).parent / "reference").glob("*.py"):
        assert "covlearn" not in path.read_text(encoding="utf-8"), path.name
