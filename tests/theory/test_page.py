"""docs/theory.md, results/theory.json, the pictures and the code say the same."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from covlearn import methods, theory
from covlearn.methods import targets
from covlearn.theory import Problem
from docs import draw_theory
from tests.methods import test_targets

PAGE = draw_theory.PAGE.read_text(encoding="utf-8")
NUMBERS = json.loads(draw_theory.NUMBERS.read_text(encoding="utf-8"))
PROSE = re.sub(draw_theory.BLOCK + "|```.*?```", "", PAGE, flags=re.DOTALL)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Every leaf of nested lists and dicts by its path."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        leaves = [flat(part, f"{path}/{key}") for key, part in items]
        return {place: leaf for each in leaves for place, leaf in each.items()}
    return {path: value}


def test_file_agrees_with_the_code() -> None:
    written, computed = flat(NUMBERS), flat(draw_theory.numbers())
    assert written.keys() == computed.keys()
    for path, value in computed.items():
        expected = pytest.approx(value, abs=1e-9) if isinstance(value, float) else value
        assert written[path] == expected, path


def test_page_agrees_with_the_file() -> None:
    assert draw_theory.fill(PAGE, NUMBERS) == PAGE, "run python docs/draw_theory.py"
    blocks = [match[2] for match in re.finditer(draw_theory.BLOCK, PAGE, flags=re.DOTALL)]
    assert sorted(blocks) == sorted(NUMBERS)  # each once


def test_prose_has_no_numbers_of_its_own() -> None:
    assert re.findall(r"(?<!Sec\. )\b\d+\.\d+", PROSE) == []


def test_page_names_functions_and_tests_that_exist() -> None:
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in [*Path(__file__).parent.glob("*.py"), Path(test_targets.__file__)]
    )
    names = set(re.findall(r"`([\w.]+)`", PROSE)) - {"covlearn.theory", "covlearn.methods.targets"}
    for name in names:
        if name.startswith("test_"):
            assert f"def {name}(" in tests, name
        else:
            owner: Any = theory
            for part in name.split("."):
                owners = (owner, Problem, targets, methods)
                owner = next(getattr(each, part) for each in owners if hasattr(each, part))
    assert set(re.findall(r"^def (test_\w+)", tests, flags=re.MULTILINE)) >= {
        name for name in names if name.startswith("test_")
    }
    statements = {n for n in theory.__all__ if "decoupling" in n or "bound" in n or "optimal" in n}
    assert statements <= names, "a statement without its place on the page"


def test_links_and_pictures_exist() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    links = re.findall(r"\]\(([^)]+)\)", PROSE)
    pictures = [link for link in links if link.endswith(".png")]
    assert len(pictures) == 3
    for link in links:
        if link.startswith("#"):
            assert link[1:] in anchors, link
        else:
            assert (draw_theory.PAGE.parent / link).is_file(), link
    for picture in pictures:
        assert (draw_theory.PAGE.parent / picture).stat().st_size < 100_000
