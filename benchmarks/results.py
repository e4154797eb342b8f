"""Writes results/README.md and results/beyond/README.md: the tables with their pictures.

    python -m benchmarks.results

Records come from ``covlearn bench benchmarks/table1.toml --folder results/table1``, and those
beyond the paper from ``covlearn bench benchmarks/beyond.toml --folder results/beyond/beyond``.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from covlearn.bench.failed import still_failed
from covlearn.bench.figures import draw
from covlearn.bench.found import RunReader
from covlearn.bench.summary import Entry, write_summary
from covlearn.bench.table import Table, read_table

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
TABLES = (
    *sorted(HERE.glob("table*.toml")),
    HERE / "composed.toml",
    HERE / "cores_cifar100.toml",
    HERE / "differences_cifar10.toml",
)
BEYOND = tuple(
    HERE / name
    for name in (
        "beyond.toml",
        "ingredients.toml",
        "targets.toml",
        "targets_cifar10.toml",
        "reliability.toml",
    )
)


def page(tables: Sequence[Path], results: Path) -> str:
    """The page as Markdown; tables and pictures are written anew on the way."""
    contents, parts = [], []
    for path in tables:
        folder = results / path.stem
        if not folder.is_dir():
            continue
        table = read_table(path)
        entries = write_summary(RunReader(table, folder), still_failed(table, folder, ()))
        contents.append(contents_line(table, entries, folder.name))
        text = (folder / "table.md").read_text(encoding="utf-8")
        parts += ["", f'<a id="{folder.name}"></a>', ""]
        parts += [text.replace("\n## ", "\n### ").replace("# ", "## ", 1).rstrip()]
        pictures = draw(table, folder, folder / "figures")
        remove_others(folder / "figures", pictures)
        parts += folded(pictures, results)
    lines = [
        "# Results",
        "",
        "Made by `python -m benchmarks.results` from the records beside it.",
        "",
    ]
    lines += ["| table | cells | run | with three trials or more |", "|---|---|---|---|"]
    return "\n".join([*lines, *contents, *parts]) + "\n"


def contents_line(table: Table, entries: Sequence[Entry], name: str) -> str:
    """How much of a table there is, with a link to it."""
    trials = [len(entry.trials) for entry in entries]
    run, often = sum(n > 0 for n in trials), sum(n >= 3 for n in trials)
    return f"| [{table.title}](#{name}) | {len(entries)} | {run} | {often} |"


def folded(pictures: Sequence[Path], results: Path) -> list[str]:
    """The pictures of a table, which a reader unfolds."""
    if not pictures:
        return []
    lines = ["", f"<details markdown><summary>Pictures ({len(pictures)})</summary>"]
    for picture in pictures:
        name = picture.relative_to(results).as_posix()
        lines += ["", f"![{picture.stem.replace('_', ' ')}]({name})"]
    return [*lines, "", "</details>"]


def remove_others(folder: Path, drawn: Sequence[Path]) -> None:
    """Of rows that are no more, and of runs that were left out since, no picture stays behind."""
    for picture in folder.glob("*.png"):
        if picture not in drawn:
            picture.unlink()


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    for tables, folder in ((TABLES, RESULTS), (BEYOND, RESULTS / "beyond")):
        (folder / "README.md").write_text(page(tables, folder), encoding="utf-8")
        print(f"written: {folder / 'README.md'}")


if __name__ == "__main__":
    main()
