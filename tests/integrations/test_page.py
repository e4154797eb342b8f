"""docs/plug_in.md: every snippet is part of the example that it names, and every link leads somewhere."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "plug_in.md").read_text(encoding="utf-8")


def test_snippets_are_parts_of_the_examples() -> None:
    # Each is in the example that was named last before it.
    parts = re.findall(r"\]\(\.\./(examples/\w+\.py)\)|```python\n(.*?)```", PAGE, re.DOTALL)
    example = ""
    checked = set()
    for path, snippet in parts:
        if path:
            example = path
        else:
            assert snippet in (ROOT / example).read_text(encoding="utf-8"), snippet
            checked.add(example)
    others = {"digits", "own_loss", "own_method"}
    names = {path.stem for path in (ROOT / "examples").glob("*.py")} - others
    assert {Path(path).stem for path in checked} == names


def test_links_exist() -> None:
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert len(links) > 5
    for link in links:
        assert (ROOT / "docs" / link).is_file(), link


def test_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set(re.findall(r"covlearn\[(\w+)\]", PAGE))
    assert len(named) > 5
    assert named <= set(project["optional-dependencies"])
