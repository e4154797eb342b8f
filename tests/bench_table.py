"""A small table, and the command that runs it."""

from pathlib import Path

import numpy as np

from covlearn import cli
from covlearn.bench.found import RunReader
from covlearn.bench.summary import Entry, collect, found_by_column
from covlearn.bench.table import read_table

TOML = """
title = "A small table"
preset = "paper"
trials = 2
pairs = [["gce", "ce"]]
settings = ["plan.epochs=3", "plan.batch_size=8", "plan.lr_milestones=()", "net.hidden=[4]"]

[[rows]]
name = "ce"
method = "ce"
title = "CE"

[[rows]]
name = "ce at 2"
method = "ce"
same_runs_as = "ce"
figure = "epoch:2"

[[rows]]
name = "gce"
method = "gce"
settings = ["plan.lr=0.01"]

[[columns]]
name = "data/0.2"
data = "DATA"
noise = "symmetric:0.2"
rate = 0.2

[[columns]]
name = "data/0.4"
data = "DATA"
noise = "symmetric:0.4"
rate = 0.4

[expected.ce]
"data/0.2" = [80.0, 1.5]
"data/0.4" = [70.0]
"""


def small_table(folder: Path, toml: str = TOML) -> Path:
    """A table on forty examples, of two rows and two columns unless told otherwise."""
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    np.savez(folder / "data.npz", x=x, y=y, x_test=x, y_test=y)
    path = folder / "small.toml"
    path.write_text(toml.replace("DATA", str(folder / "data.npz")))
    return path


def command(table: Path, *arguments: str) -> int:
    folder = str(table.parent / "runs")
    return cli.main(["bench", str(table), "--folder", folder, "--device", "cpu", *arguments])


def entries_of(path: Path) -> list[Entry]:
    """What is in the folder of a table, as ``command`` names it."""
    table, folder = read_table(path), path.parent / "runs"
    return collect(table, folder, found_by_column(RunReader(table, folder)))
