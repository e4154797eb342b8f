"""Fills the generated parts of docs/ and draws its pictures of noise: ``python -m tools.pages``.

A generated part lies between ``<!-- generated: NAME ARGUMENT -->`` and ``<!-- end -->``. Settings
come from the code, figures from the files under results/. A test fails where a page is not what
this writes.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from covlearn.cli.methods import first_line, needs
from covlearn.config import as_text, leaves
from covlearn.methods import METHODS
from covlearn.methods.presets import DATA, PRESETS, preset
from covlearn.noise.registry import GENERATORS, PUBLISHED
from tools import command_page, fit_figures, noise_pictures

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"(<!-- generated: (\w+) ?(\w*) -->\n).*?(<!-- end -->)", re.DOTALL)
BEYOND = "beyond/beyond"
TABLES = {
    "table1": "The paper's numbers are those of the best epoch.",
    "table4": "Table 4 is without augmentation.",
    BEYOND: "`recommended` for CIFAR-10 was chosen at its published 0.4, by clean labels.",
    "digits": (
        "The settings for digits were chosen on digits, by clean labels: those rows show that "
        "nothing falls apart, not a gain."
    ),
}


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


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown; a bar inside of a cell is escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
    )


# ---- Methods ----------------------------------------------------------------------------------


PAPERS = {
    "cal": "Zhu et al. 2021",
    "ce": "",
    "cores": "Cheng et al. 2021",
    "coteaching": "Han et al. 2018",
    "coteaching_plus": "Yu et al. 2019",
    "dmi": "Xu et al. 2019",
    "forward": "Patrini et al. 2017",
    "gce": "Zhang & Sabuncu 2018",
    "jocor": "Wei et al. 2020",
    "peer": "Liu & Guo 2020",
    "ptd": "Xia et al. 2020",
    "reweight_r": "Xia et al. 2019",
}


def all_methods(_: str) -> str:
    """One row a method."""
    rows = [
        [f"[`{name}`]({name}.md)", PAPERS[name], prose(first_line(kind)), needs(kind())]
        for name, kind in METHODS.items()
    ]
    return table(["name", "paper", "what it does", "needs"], rows)


COMPARED = {
    "table1": ("cifar10/0.2", "cifar10/0.4", "cifar10/0.6"),
    "digits": ("cal 0.4", "ptd 0.4", "calibrated 0.4"),
}


def compared(_: str) -> str:
    """The last epoch of every method, where there is a table of all of them."""
    found = {
        (source, cell["column"], cell["row"]): cell
        for source in COMPARED
        for cell in fit_figures.read(f"{source}/table.json")["cells"]
        if cell["row"] == cell["method"]
    }
    titles = [
        column.replace("cifar10/", "CIFAR-10, ") if "/" in column else f"digits, {column}"
        for columns in COMPARED.values()
        for column in columns
    ]
    rows = []
    for name in METHODS:
        row = [f"[`{name}`]({name}.md)"]
        for source, columns in COMPARED.items():
            cells = [found.get((source, column, name)) for column in columns]
            row += [
                f"{spread(cell, 'last')} ({cell['n']})" if cell and cell["n"] else "—"
                for cell in cells
            ]
        rows.append(row)
    return table(["last epoch", *titles], rows)


def prose(text: str) -> str:
    """A docstring's sentence as Markdown: code stays code, formulas keep their underscores."""
    text = re.sub(r":[a-z]+:`~?([^`]+)`", r"`\1`", text)
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_])", r"\\\1", p) for p in parts)


def defaults(name: str) -> str:
    """Every field of a method, and what the presets change of it."""
    own = {leaf.path: leaf for leaf in leaves(METHODS[name]())}
    fields = [
        [
            f"`{path}`",
            f"`{as_text(leaf.value)}`",
            prose(f"{leaf.kind}. {leaf.meaning or ''}".strip()),
        ]
        for path, leaf in own.items()
    ]
    changed = []
    for data in DATA:
        alike: dict[str, list[str]] = {}
        for source in PRESETS:
            made = leaves(preset(source, name, data))
            other = [
                f"`{leaf.path}={as_text(leaf.value)}`"
                for leaf in made
                if leaf.value != own[leaf.path].value
            ]
            alike.setdefault(" ".join(other) or "nothing", []).append(source)
        changed += [[data, ", ".join(sources), what] for what, sources in alike.items()]
    return (
        table(["field", "default", "takes"], fields)
        + "\n\nWhat a preset changes of that, by kind of data:\n\n"
        + table(["data", "preset", "sets"], changed)
    )


def measured(name: str) -> str:
    """What was measured of a method, from the tables under results/; what was not is a dash."""
    rows, remarks = [], ["Clean test accuracy in percent, mean ± standard deviation over trials."]
    remarks += ["—: not run, or not in the paper."]
    for source, remark in TABLES.items():
        path = ROOT / "results" / source / "table.json"
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found = [measured_row(cell, source) for cell in cells if shown(cell, name, source)]
        rows += found
        remarks += [remark] if found else []
    if not rows:
        return "— (not run yet)"
    columns = ["noise", "settings", "best epoch", "last epoch", "trials", "the paper", "from"]
    return " ".join(remarks) + "\n\n" + table(columns, rows)


def shown(cell: dict[str, Any], name: str, source: str) -> bool:
    """Whether a cell is the method's own: a row may have its name and be a variant of another."""
    if source == BEYOND:  # where most rows are what was tried of a preset
        return bool(cell["row"] == "recommended" and cell["method"] == name and cell["n"])
    return bool(cell["row"] == cell["method"] == name)


def measured_row(cell: dict[str, Any], source: str) -> list[str]:
    """One cell of a table of results."""
    column = cell["column"] if "/" in cell["column"] else f"{cell['data']}, {cell['column']}"
    row = row_of(source, cell["row"])
    settings = f"[`{row['preset']}`](../../benchmarks/{toml_of(source).name})"
    ours = [spread(cell, rule) for rule in ("best", "last")]
    link = f"[table](../../results/{source}/table.md)"
    return [column, settings, *ours, str(cell["n"]), spread(cell, "paper"), link]


def toml_of(source: str) -> Path:
    """The file of a table of results."""
    return ROOT / "benchmarks" / f"{source.partition('/')[0]}.toml"


def row_of(source: str, name: str) -> dict[str, Any]:
    """A row as the table's file has it, with its preset."""
    whole = tomllib.loads(toml_of(source).read_text(encoding="utf-8"))
    (found,) = (row for row in whole["rows"] if row["name"] == name)
    return {"preset": whole["preset"], "title": name, **found}


def spread(cell: dict[str, Any], what: str) -> str:
    """Mean ± standard deviation, as far as they are there, with the digits of results/."""
    mean, std = cell[f"{what} mean"], cell[f"{what} std"]
    if mean is None:
        return "—"
    return f"{mean:.2f}" + ("" if std is None else f" ± {std:.2f}")


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
    "methods": all_methods,
    "compared": compared,
    "defaults": defaults,
    "measured": measured,
    "generators": all_generators,
    "card": card,
    "published": published,
    "fit": fit_table,
    "matrix": matrix,
    "commands": command_page.commands,
}


if __name__ == "__main__":
    main()
