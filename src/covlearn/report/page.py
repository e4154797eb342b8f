"""Gathered JSON, scripts and styles as one HTML file that asks nothing of the network."""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

import covlearn
from covlearn.atomic import write_bytes
from covlearn.inputs import Progress
from covlearn.kinds import checked
from covlearn.report.collect import collect
from covlearn.report.compare import compare
from covlearn.report.embed import embedded

REPORT, COMPARISON = "report.html", "comparison.html"
SCRIPTS = ("dom.js", "charts.js", "decisions.js", "gallery.js", "threshold.js", "report.js")


@checked
def write_report(
    folder: str | PathLike[str],
    file: str | PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
) -> Path:
    """Writes the page of a run, into its folder if no file is named."""
    folder = Path(folder)
    file = folder / REPORT if file is None else Path(file)
    write_bytes(file, page(collect(folder, progress)).encode())
    return file


@checked
def write_comparison(folders: Sequence[str | PathLike[str]], file: str | PathLike[str]) -> Path:
    """Writes the page that sets several runs side by side."""
    if not folders:
        raise ValueError("folders must name a run at least, got none")
    file = Path(file)
    write_bytes(file, page(compare([Path(folder) for folder in folders])).encode())
    return file


def page(data: dict[str, Any]) -> str:
    """The whole page, with a policy that lets in its own script and styles, and nothing else."""
    style, script = asset("report.css"), "\n".join(asset(name) for name in SCRIPTS)
    policy = (
        f"default-src 'none'; img-src data: blob:; script-src '{digest(script)}'; "
        f"style-src '{digest(style)}'; base-uri 'none'; form-action 'none'"
    )
    filled = {
        "policy": policy,
        "style": style,
        "data": embedded(data | {"covlearn": covlearn.__version__}),
        "script": script,
    }
    # One pass over the template: nothing that is filled in is looked at again.
    whole, *parts = asset("page.html").split("{{")
    for part in parts:
        name, rest = part.split("}}", 1)
        whole += filled[name] + rest
    return whole


def asset(name: str) -> str:
    """A file of the page's own."""
    return (resources.files("covlearn.report") / "assets" / name).read_text(encoding="utf-8")


def digest(content: str) -> str:
    """How a policy names a script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
