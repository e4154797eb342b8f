"""Imports point one way, and the package is light where it promises to be."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "covlearn"

# A module may import those of lower floors, and on its own floor only those named before it.
FLOORS = [
    [
        "kinds",
        "checks",
        "config",
        "shortage",
        "npz",
        "pickles",
        "plain_files",
        "locks",
        "atomic",
        "records",
        "records_frame",
        "kernels",
    ],
    ["losses", "noise", "transition", "sieve", "covariance", "reweight", "theory"],
    ["evidence", "calibration", "verdicts", "preparation", "copies", "cells"],
    ["schedules", "metrics"],
    ["data", "nets"],
    ["inputs"],
    [
        "distributed",
        "threads",
        "plan",
        "average",
        "memory",
        "ledger",
        "checkpoint",
        "capture",
        "flat",
        "objective",
        "engine",
        "kept",
    ],
    ["methods"],
    [
        "evaluation",
        "stages",
        "local_run",
        "run",
        "testing",
    ],  # clean labels: out of a method's reach
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_is_longer_than_one_reads_in_a_sitting(path: Path) -> None:
    length = len(path.read_text(encoding="utf-8").splitlines())
    assert length <= 400, f"{path.name} has {length} lines; make it two"


def undocumented(path: Path) -> list[str]:
    """Public classes, functions and methods of a file that have no docstring."""
    found: list[str] = []
    waiting: list[tuple[str, ast.AST]] = [("", ast.parse(path.read_text(encoding="utf-8")))]
    while waiting:
        prefix, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            overload = any("overload" in ast.unparse(each) for each in child.decorator_list)
            if child.name.startswith("_") or overload:
                continue
            if ast.get_docstring(child) is None:
                found.append(prefix + child.name)
            if isinstance(child, ast.ClassDef):
                waiting.append((f"{child.name}.", child))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_public_name_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), "the module itself"
    assert undocumented(path) == []
