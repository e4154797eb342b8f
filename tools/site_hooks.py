"""Hooks of mkdocs.yml: what pages link to outside of docs/ (results, examples) joins the site.

On the disk a page says ``../results/peers.md``; in the site that file lies at ``results/peers.md``.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds what is linked to, and what that links to in turn."""
    for path in linked([DOCS / file.src_uri for file in files.documentation_pages()]):
        files.append(File.generated(config, in_site(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links as they are in the site."""
    source = Path(page.file.abs_src_path)
    here = os.path.dirname(in_site(source))

    def moved(match: re.Match[str]) -> str:
        target = target_of(source, match[2])
        if target is None or (inside(source) and inside(target)):
            return match[0]
        return f"{match[1]}{os.path.relpath(in_site(target), here or '.')}{match[3]}"

    return LINK.sub(moved, markdown)


def linked(pages: list[Path]) -> Iterator[Path]:
    """Every file outside of docs/ that can be reached from the pages by links, once."""
    seen = set(pages)
    while pages:
        source = pages.pop()
        for match in LINK.finditer(source.read_text(encoding="utf-8")):
            target = target_of(source, match[2])
            if target is None or inside(target) or target in seen:
                continue
            seen.add(target)
            if target.suffix == ".md":
                pages.append(target)
            yield target


def target_of(source: Path, link: str) -> Path | None:
    """The file that a page's link leads to; of a folder, its page. None: not one of ours."""
    target = Path(os.path.normpath(source.parent / link))
    if target.is_dir():
        pages = (target / name for name in ("README.md", "table.md"))
        target = next((page for page in pages if page.is_file()), target)
    return target if target.is_file() and target.is_relative_to(ROOT) else None


def inside(path: Path) -> bool:
    """Whether a file is under docs/."""
    return path.is_relative_to(DOCS)


def in_site(path: Path) -> str:
    """Where a file of the repository lies in the site."""
    return path.relative_to(DOCS if inside(path) else ROOT).as_posix()
