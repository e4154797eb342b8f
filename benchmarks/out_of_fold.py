"""Detection of wrong labels on CIFAR-10: ``recommended`` beside cleanlab on the same network.

    python -m benchmarks.out_of_fold train --folder runs/out_of_fold [--column cifar10/0.4 …]
    python -m benchmarks.out_of_fold judge --folder runs/out_of_fold

Of each column of ``benchmarks/ingredients.toml`` the first trains five networks, on a GPU, each
by cross-entropy on four fifths of the labels with the sieve's own plan, averaged weights too, and
keeps what they say of the fifth that they have not seen. Columns that are there are not trained
again. The second needs ``covlearn[cleanlab]``: what cleanlab makes of it, beside the records of
CAL, recommended and as published.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from benchmarks.job_runs import run_of
from covlearn import records
from covlearn.bench.table import Cell, Table, job_of, read_table
from covlearn.cells import safe_name
from covlearn.config import typed
from covlearn.data.sources import load_data, with_noise
from covlearn.evaluation import environment
from covlearn.job import Job, settled
from covlearn.local_run import LocalRun
from covlearn.methods import CAL
from covlearn.methods.crossfit import CrossFittedCAL, stratified_folds
from covlearn.npz import read_arrays
from covlearn.schedules import Ramp

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "benchmarks" / "ingredients.toml"
RECORDS = ROOT / "results" / "beyond" / "ingredients"
OUT = ROOT / "results" / "beyond" / "out_of_fold.json"
ROWS, FOLDS = ("recommended", "published"), 5
WHAT = (
    "Wrong labels found, by clean labels: by CAL, and by cleanlab on the probabilities of "
    f"{FOLDS} networks, each trained by cross-entropy without the fold that it is asked about. The "
    "same network and data; average precision of cleanlab by its label quality."
)


def cell_of(table: Table, column: str, row: str, trial: int) -> Cell:
    """A cell by its names."""
    (of_row,) = (each for each in table.rows if each.name == row)
    (of_column,) = (each for each in table.columns if each.name == column)
    return Cell(of_row, of_column, trial)


def out_of_fold(job: Job) -> dict[str, NDArray[Any]]:
    """Probabilities (N, K) by networks that were trained on other folds; labels; where."""
    method, _ = settled(job)
    assert isinstance(method, CAL)
    source, _ = with_noise(load_data(job.data), job.noise, seed=job.seed)
    assert source.clean is not None
    run = run_of(job, source, LocalRun)
    plan = replace(method.sieve_plan, divide_lr=False, average_predictions=None)
    networks = CrossFittedCAL(sieve_plan=plan, sieve_beta=Ramp(0.0), folds=FOLDS)
    fold = stratified_folds(source.train.y, FOLDS, seed=job.seed)
    logits = networks.fold_logits(run, fold, range(FOLDS), "")
    return {
        "probs": logits.softmax(dim=1).numpy(),
        "given": source.train.y.numpy().astype(np.int16),
        "clean": source.clean.numpy().astype(np.int16),
        "environment": np.frombuffer(json.dumps(environment(run.machine)).encode(), np.uint8),
    }


def by_cleanlab(kept: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """cleanlab with its defaults: its issues, and its scores of the labels."""
    # Here, since the machine that trains may not have cleanlab.
    from benchmarks.peers import cleanlab_detection  # noqa: PLC0415

    probs = kept["probs"].astype(np.float64)
    probs /= probs.sum(axis=1, keepdims=True)
    given, clean = kept["given"].astype(np.int64), kept["clean"].astype(np.int64)
    right = float((probs.argmax(axis=1) == clean).mean())
    return cleanlab_detection(given, clean, probs) | {"predicted_right": right}


def by_record(folder: Path) -> dict[str, Any] | None:
    """The same figures from the record of a run; None if there is none."""
    result = records.read(folder).result if folder.exists() else None
    if result is None:
        return None
    if result.labels is None or result.labels["quality"] is None:
        raise SystemExit(f"{folder} must be a run of cal whose clean labels are known")
    quality = result.labels["quality"]
    return {
        "refined_right": quality["share_right"],
        **{name: quality[name] for name in ("precision", "recall", "f1", "repaired")},
        "average_precision": result.labels["average_precision"],
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=["train", "judge"])
    parser.add_argument("--folder", type=Path, required=True, help="of the probabilities")
    parser.add_argument("--column", nargs="+", help="names of columns; default: all")
    parser.add_argument("--trial", type=int, default=0)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    table = read_table(options.table)
    columns = options.column or [column.name for column in table.columns]
    files = {name: options.folder / f"{safe_name(name)}_{options.trial}.npz" for name in columns}
    if options.step == "train":
        options.folder.mkdir(parents=True, exist_ok=True)
        for name in track([name for name in columns if not files[name].exists()]):
            cell = cell_of(table, name, ROWS[0], options.trial)
            made: Any = out_of_fold(typed(Job, job_of(table, cell)))
            np.savez_compressed(files[name], **made)
        return
    if missing := [name for name in columns if not files[name].exists()]:
        raise SystemExit(
            f"{files[missing[0]]} is not there; python -m benchmarks.out_of_fold train"
        )
    record: dict[str, Any] = {"what": WHAT, "columns": {}}
    if options.out.exists():
        record["columns"] = json.loads(options.out.read_text(encoding="utf-8"))["columns"]
    for name in columns:
        kept = read_arrays(files[name])
        record["columns"][f"{name}, trial {options.trial}"] = {
            "environment": json.loads(kept.pop("environment").tobytes()),
            "cleanlab": by_cleanlab(kept),
        } | {
            row: by_record(options.records / cell_of(table, name, row, options.trial).path)
            for row in ROWS
        }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record["columns"], indent=1))


if __name__ == "__main__":
    main()
