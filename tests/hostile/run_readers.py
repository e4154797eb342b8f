"""The readers of run folders: each file of a fit and of a training, the others whole."""

from pathlib import Path

import torch

from covlearn import cli, records
from covlearn.exports import clean_table
from covlearn.fitted import load
from covlearn.records_frame import read_runs
from covlearn.report.collect import collect
from covlearn.report.compare import compare
from covlearn.report.page import page
from tests.hostile.reader import NUM_COLUMNS, Files, Reader, Y, files_of, mixed_table
from tests.runs import fit as train


def run_readers(scratch: Path) -> list[Reader]:
    """Of both kinds of runs; ``scratch`` is a folder to make them in."""
    return [*_fit_files(_fitted(scratch)), *_train_files(_trained(scratch))]


def _fitted(scratch: Path) -> dict[str, bytes]:
    """The files of a small fit, with decisions of people in it."""
    frame = mixed_table()
    frame["a"] += 5 * Y
    frame.to_csv(scratch / "table.csv", index=False)
    (scratch / "trusted.csv").write_text("id,label\nk0,'=x\nk1,y\n")
    quick = [
        "--device",
        "cpu",
        "--set",
        "folds=2",
        "net.hidden=[4]",
        "plan.epochs=2",
        "sieve_plan.epochs=2",
    ]
    out = ["--id", "key", "--trusted", str(scratch / "trusted.csv"), "--out", str(scratch / "fit")]
    code = cli.main(["fit", str(scratch / "table.csv"), *out, *quick])
    assert code == 0
    return files_of(scratch / "fit")


def _trained(scratch: Path) -> dict[str, bytes]:
    train(scratch / "train")
    return files_of(scratch / "train")


def read_fit(folder: Path) -> object:
    """All that commands do with a run of ``covlearn fit``, but for reading its source again."""
    fitted = load(folder)
    fitted.probabilities(torch.zeros(2, NUM_COLUMNS))
    clean_table(fitted)
    page(collect(folder))
    compare([folder, folder])
    return read_runs(folder.parent if folder.name == "run" else folder)


def read_train(folder: Path) -> object:
    """The same of a run of ``covlearn train``."""
    page(collect(folder))
    compare([folder, folder])
    read_runs(folder, by="epoch")
    return read_runs(folder)


def _fit_files(files: Files) -> list[Reader]:
    names = sorted({*files} - {records.PROBS})
    return [Reader(f"fit {name}", name, (files[name],), read_fit, files) for name in names]


def _train_files(files: Files) -> list[Reader]:
    names = sorted({*files} - {records.PROBS, records.MODEL})
    return [Reader(f"train {name}", name, (files[name],), read_train, files) for name in names]
