"""Fills the generated parts of docs/ and draws its pictures of noise: ``python -m tools.pages``.

A generated part lies between ``<!-- generated: NAME ARGUMENT -->`` and ``<!-- end -->``. Settings
come from the code, figures from the files under results/. A test fails where a page is not what
this writes.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from covlearn.noise.registry import GENERATORS, PUBLISHED
from tools import command_page, fit_figures, method_pages, noise_pictures
from tools.markdown import table

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"(<!-- generated: (\w+) ?(\w*) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Writes every page and every picture."""
    for path in pages():
        text = path.read_text(encoding="utf-8")
        path.write_text(filled(text), encoding="utf-8")
    noise_pictures.write_all(DOCS / "pictures" / "noise")


def pages() -> Iterator[Path]:
    """All pages of docs/."""
    yield from sorted(DOCS.rglob("*.md"))


def filled(text: str) -> str:
    """A page with its generated parts made anew."""

    def made(match: re.Match[str]) -> str:
        name, argument = match[2], match[3]
        return f"{match[1]}{PARTS[name](argument).strip()}\n{match[4]}"

    return BLOCK.sub(made, text)


# ---- Noise ------------------------------------------------------------------------------------


def all_generators(_: str) -> str:
    """One row a generator."""
    rows = [
        [
            f"[`{name}`](#{name})",
            str(each.version),
            each.what,
            f"`--noise {name}:RATE`" if each.by_rate else "in Python",
        ]
        for name, each in GENERATORS.items()
    ]
    return table(["generator", "version", "where wrong labels go", "how to ask for it"], rows)


def card(name: str) -> str:
    """The noise card of a generator on the clouds of the pictures."""
    return f"```text\n{noise_pictures.drawn(name).labels.card}\n```"


def published(_: str) -> str:
    """The paper's label files, and which can be drawn again."""
    rows = [
        [
            f"`{each.name}.pt`",
            each.data,
            f"{each.rate:g}",
            "bit for bit" if each.bit_for_bit else "no, pass the file",
            each.note,
            f"`{each.sha256[:16]}…`",
        ]
        for each in PUBLISHED.values()
    ]
    return table(["file", "data", "rate", "drawn again", "note", "SHA-256 of its labels"], rows)


# ---- How good fit is --------------------------------------------------------------------------


def fit_table(name: str) -> str:
    """A table of what was measured of ``covlearn fit``."""
    columns, *rows = fit_figures.TABLES[name]()
    return table(columns, rows)


# ---- Versions ---------------------------------------------------------------------------------


def matrix(_: str) -> str:
    """One column an environment that was tried."""
    tried = json.loads((ROOT / "results" / "matrix.json").read_text(encoding="utf-8"))
    rows = [["Python", *(each["python"] for each in tried.values())]]
    for name in next(iter(tried.values()))["packages"]:
        rows.append([name, *(each["packages"][name] for each in tried.values())])
    for name in ("passed", "skipped", "failed"):
        rows.append([f"tests {name}", *(str(each["tests"][name]) for each in tried.values())])
    return table(["", *(name.partition(",")[0] for name in tried)], rows)


PARTS: dict[str, Callable[[str], str]] = {
    **method_pages.PARTS,
    "generators": all_generators,
    "card": card,
    "published": published,
    "fit": fit_table,
    "matrix": matrix,
    "commands": command_page.commands,
}


if __name__ == "__main__":
    main()
