"""Runs the notebooks and keeps what they print and draw: ``python -m examples.notebooks.run``.

Needs pip install 'covlearn[notebooks]'.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
SECONDS = 300  # of one cell, on a slow machine
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def execute(notebook: Any, folder: Path) -> Any:
    """The notebook with new outputs; it runs in a folder where it may write."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # small tensors: more threads cost time
    client = NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    client.execute()
    return notebook


def without_machine(notebook: Any) -> Any:
    """The notebook without what differs from machine to machine and from run to run."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
    return notebook


def main() -> None:
    """Every notebook, in place."""
    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            done = without_machine(execute(nbformat.read(path, as_version=4), Path(folder)))
        nbformat.write(done, path)
        print(path.name)


if __name__ == "__main__":
    main()
