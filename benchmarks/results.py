"""Writes results/README.md: every table that has records there, with its pictures.

    python -m benchmarks.results

Records come from ``covlearn bench benchmarks/table1.toml --folder results/table1``.
"""

import argparse
from pathlib import Path

from covlearn.bench.figures import draw
from covlearn.bench.summary import write_summary
from covlearn.bench.table import read_table

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"


def page(results: Path = RESULTS) -> str:
    """The page as Markdown; tables and pictures are written anew on the way."""
    lines = ["# Results", "", "Made by `python -m benchmarks.results` from the records beside it."]
    for path in sorted(HERE.glob("table*.toml")):
        folder = results / path.stem
        if not folder.is_dir():
            continue
        table = read_table(path)
        write_summary(table, folder)
        text = (folder / "table.md").read_text(encoding="utf-8")
        lines += ["", text.replace("\n## ", "\n### ").replace("# ", "## ", 1).rstrip()]
        for picture in draw(table, folder, folder / "figures"):
            name = picture.relative_to(results).as_posix()
            lines += ["", f"![{picture.stem.replace('_', ' ')}]({name})"]
    return "\n".join(lines) + "\n"


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    (RESULTS / "README.md").write_text(page(), encoding="utf-8")
    print(f"written: {RESULTS / 'README.md'}")


if __name__ == "__main__":
    main()
