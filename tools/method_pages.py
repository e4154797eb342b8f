"""The generated parts of docs/methods/: settings from the code, figures from results/."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from covlearn.cli.methods import first_line, needs
from covlearn.config import Leaf, as_text, leaves, meanings
from covlearn.engine import Plan
from covlearn.methods import METHODS
from covlearn.methods.presets import DATA, PRESETS, Protocol, preset, protocol
from covlearn.schedules import Ramp
from tools import fit_figures
from tools.markdown import table
from tools.papers import ALSO, CODE, PAPERS

ROOT = Path(__file__).resolve().parents[1]
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

CALLED = {"table1": "Table 1", "table4": "Table 4", BEYOND: "beyond", "digits": "digits"}


def prose(text: str) -> str:
    """A docstring's sentence as Markdown: code stays code, formulas keep their underscores."""
    text = re.sub(r":[a-z]+:`~?([^`]+)`", r"`\1`", text)
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_])", r"\\\1", p) for p in parts)


# ---- All of them ------------------------------------------------------------------------------


def all_methods(_: str) -> str:
    """One row a method."""
    rows = [
        [
            f"[`{name}`]({name}.md)",
            f"[{PAPERS[name].cited}]({PAPERS[name].link()})" if name in PAPERS else "",
            prose(first_line(kind)),
            needs(kind()),
        ]
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
        figures = [
            f"{spread(cell, 'last')} ({cell['n']})" if cell and cell["n"] else "—"
            for source, columns in COMPARED.items()
            for cell in (found.get((source, column, name)) for column in columns)
        ]
        rows.append([f"[`{name}`]({name}.md)", *figures])
    return table(["last epoch", *titles], rows)


def protocols(_: str) -> str:
    """What the presets say of networks, images and held-out labels."""
    rows = []
    for data in DATA:
        for made, names in alike((name, protocol(name, data)) for name in PRESETS):
            rows.append([data, names, f"`{made.net}`", moved(made), f"{made.holdout:g}"])
    return table(["data", "preset", "network", "images in training", "share held out"], rows)


def moved(made: Protocol) -> str:
    """How images are moved, as ``--set`` takes it."""
    each = (f"`augmentation.{name}={as_text(value)}`" for name, value in made.augmentation.items())
    return " ".join(each) or "as they are"


def alike(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[Any, str]]:
    """Equal values once, with the names of all that have them."""
    found: list[tuple[Any, list[str]]] = []
    for name, value in named:
        names = next((names for other, names in found if other == value), None)
        if names is None:
            found.append((value, [name]))
        else:
            names.append(name)
    yield from ((value, ", ".join(names)) for value, names in found)


# ---- Settings ---------------------------------------------------------------------------------

INSIDE = {Plan: "a plan", Ramp: "a ramp"}
EXPLAINED = "index.md#plans-and-ramps"


def parts(name: str) -> str:
    """The fields of a plan or of a ramp."""
    kind = {each.__name__: each for each in INSIDE}[name]
    given = {each.name: each.default for each in fields(kind) if each.default is not MISSING}
    example = kind(**{each.name: 1 for each in fields(kind) if each.name not in given})
    rows = [
        [
            f"`{leaf.path}`",
            f"`{as_text(given[leaf.path])}`" if leaf.path in given else "",
            takes(leaf.kind, leaf.meaning),
        ]
        for leaf in leaves(example)
    ]
    return table(["field", "unless set", "takes"], rows)


def takes(kind: str, meaning: str) -> str:
    """A field's type and meaning."""
    return prose(f"{kind}. {meaning}".strip())


def defaults(name: str) -> str:
    """Every field of a method, and what the presets change of it."""
    method = METHODS[name]()
    said = meanings(type(method))
    rows = []
    for leaf in leaves_but_parts(method):
        if (inside := INSIDE.get(type(leaf.value))) is None:
            value = f"`{as_text(leaf.value)}`"
            rows.append([f"`{leaf.path}`", value, takes(leaf.kind, leaf.meaning)])
        else:
            set_here = " ".join(f"`{each}`" for each in own_settings(leaf.value))
            link = f"[{inside}]({EXPLAINED})"
            rows.append([f"`{leaf.path}`", link, prose(f"{said[leaf.path]} {set_here}")])
    return (
        table(["field", "default", "takes"], rows)
        + "\n\nOf a plan or a ramp only what is not its own default is shown. What presets change, "
        + "by kind of data; a row *all* holds for each of them:\n\n"
        + table(["data", "preset", "sets"], changes(name))
    )


def leaves_but_parts(method: Any) -> Iterator[Leaf]:
    """The fields of a method, with plans and ramps as one."""
    whole = {each.name: getattr(method, each.name) for each in fields(method)}
    seen = set()
    for leaf in leaves(method):
        field = leaf.path.partition(".")[0]
        if type(whole[field]) not in INSIDE:
            yield leaf
        elif field not in seen:
            seen.add(field)
            yield Leaf(field, "", whole[field], "")


def own_settings(value: Any) -> Iterator[str]:
    """What a plan or a ramp has that is not the default of its kind."""
    for field in fields(value):
        if (item := getattr(value, field.name)) != field.default:
            yield f"{field.name}={as_text(item)}"


def changes(name: str) -> Iterator[list[str]]:
    """What presets change, for each kind of data: what they have in common once."""
    own = {leaf.path: leaf.value for leaf in leaves(METHODS[name]())}
    for data in DATA:
        changed = {
            source: [
                f"`{leaf.path}={as_text(leaf.value)}`"
                for leaf in leaves(preset(source, name, data))
                if leaf.value != own[leaf.path]
            ]
            for source in PRESETS
        }
        first = changed[PRESETS[0]]
        common = [each for each in first if all(each in theirs for theirs in changed.values())]
        left = [
            (source, tuple(each for each in theirs if each not in common))
            for source, theirs in changed.items()
        ]
        if common or not any(theirs for _, theirs in left):
            yield [data, "*all*", " ".join(common) or "nothing"]
        for theirs, names in alike(left):
            if theirs or (not common and any(others for _, others in left)):
                more = "and " if common else ""
                yield [data, names, more + " ".join(theirs) if theirs else "nothing"]


# ---- What was measured ------------------------------------------------------------------------


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
    settings = f"[{row['preset']}](../../benchmarks/{toml_of(source).name})"
    ours = [spread(cell, rule) for rule in ("best", "last")]
    link = f"[{CALLED[source]}](../../results/{source}/table.md)"
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


# ---- Where it comes from ----------------------------------------------------------------------


def sources(name: str) -> str:
    """A method's paper and the code that its page speaks of."""
    paper = PAPERS.get(name) or ALSO[name]
    title = paper.title.replace("_", "\\_")
    lines = [f"- {paper.authors}: [{title}]({paper.link()}), {paper.venue}."]
    lines += [
        f"- [{each.repository.replace('_', chr(92) + '_')}]({each.link()}): {each.whose}."
        for each in CODE[name]
    ]
    return "\n".join(lines)


PARTS = {
    "methods": all_methods,
    "compared": compared,
    "protocols": protocols,
    "parts": parts,
    "defaults": defaults,
    "measured": measured,
    "sources": sources,
}
