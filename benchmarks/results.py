"""Writes results/README.md and results/beyond/README.md: the tables with their pictures.

    python -m benchmarks.results

Records come from ``covlearn bench benchmarks/table1.toml --folder results/table1``, and those
beyond the paper from ``covlearn bench benchmarks/beyond.toml --folder results/beyond/beyond``.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from covlearn.bench.figures import draw
from covlearn.bench.summary import write_summary
from covlearn.bench.table import read_table

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
    lines = ["# Results", "", "Made by `python -m benchmarks.results` from the records beside it."]
    for path in tables:
        folder = results / path.stem
        if not folder.is_dir():
            continue
        table = read_table(path)
        write_summary(table, folder)
        text = (folder / "table.md").read_text(encoding="utf-8")
        lines += ["", text.replace("\n## ", "\n### ").replace("# ", "## ", 1).rstrip()]
        pictures = draw(table, folder, folder / "figures")
        remove_others(folder / "figures", pictures)
        for picture in pictures:
            name = picture.relative_to(results).as_posix()
            lines += ["", f"![{picture.stem.replace('_', ' ')}]({name})"]
    return "\n".join(lines) + "\n"


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
