"""How right is D̂, by what of the sieve it is read from?

    python -m benchmarks.refined --column "cifar10/0.4" … [--trials 2]     # a GPU

Of each column of ``benchmarks/ingredients.toml`` the sieve of ``recommended`` is trained once, and
D̂ made of the average of each example's training passes, of an evaluation pass of the averaged
weights, of the mean of both, and of means of these over nearest neighbours by the sieve's
features. By clean labels: the share of D̂ that is right, that of its surer half, the probability
that the posterior itself gives to the right class, and how well wrong labels are found by D̂ and
ranked by its margin. Cells that the file has are not made again.
"""

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

from rich.progress import track
from sklearn.metrics import average_precision_score
from torch import Tensor

from benchmarks.job_runs import run_of
from benchmarks.out_of_fold import ROOT, TABLE, cell_of
from covlearn.bench.table import job_of, read_table
from covlearn.config import typed
from covlearn.data.sources import load_data, with_noise
from covlearn.evaluation import environment
from covlearn.job import Job, settled
from covlearn.local_run import LocalRun
from covlearn.methods import CAL
from covlearn.methods.base import view_of
from covlearn.methods.cal_sieve import build_refined
from covlearn.methods.posteriors import over_neighbours
from covlearn.sieve import refine_by_argmax

OUT = ROOT / "results" / "beyond" / "refined.json"
NEIGHBOURS = (5, 20, 100)


def judged(probs: Tensor, noisy: Tensor, clean: Tensor) -> dict[str, float]:
    """What D̂ of a posterior is worth, by clean labels."""
    refined = refine_by_argmax(probs, noisy)
    right, wrong = refined.label == clean, noisy != clean
    changed = refined.label != noisy
    surer = probs.max(dim=1).values.argsort(descending=True)[: len(probs) // 2]
    found = int((changed & wrong).sum())
    return {
        "right": float(right.double().mean()),
        "surer half right": float(right[surer].double().mean()),
        "probability of the right class": float(probs.gather(1, clean[:, None]).double().mean()),
        "f1": 2 * found / max(1, int(changed.sum()) + int(wrong.sum())),
        "average precision": float(average_precision_score(wrong.numpy(), refined.score.numpy())),
    }  # fmt: skip


def one(job: Job) -> dict[str, Any]:
    """The sieve of one cell, read in each way."""
    method, _ = settled(job)
    assert isinstance(method, CAL)
    source, _ = with_noise(load_data(job.data), job.noise, seed=job.seed)
    assert source.clean is not None
    run = run_of(job, source, LocalRun)
    _, sieve, averaged = build_refined(method, view_of(run))
    assert sieve is not None
    assert averaged is not None
    logits, features = run.predict(sieve, features=True)
    assert features is not None
    evaluated = logits.float().softmax(dim=1).cpu()
    ways = {"averaged": averaged, "evaluated": evaluated, "both": (averaged + evaluated) / 2}
    there = features.to(run.machine.device)
    for way, count in product(("averaged", "both"), NEIGHBOURS):
        ways[f"{way}, {count} neighbours"] = over_neighbours(ways[way], there, count)
    return {
        "environment": environment(run.machine),
        "given right": float((source.train.y == source.clean).double().mean()),
    } | {name: judged(probs, source.train.y, source.clean) for name, probs in ways.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--column", nargs="+", help="names of columns; default: all")
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    table = read_table(options.table)
    columns = options.column or [column.name for column in table.columns]
    cells: dict[str, Any] = {}
    if options.out.exists():
        cells = json.loads(options.out.read_text(encoding="utf-8"))
    names = [
        (f"{name}/{trial}", name, trial) for trial in range(options.trials) for name in columns
    ]
    for key, name, trial in track([each for each in names if each[0] not in cells]):
        cells[key] = one(typed(Job, job_of(table, cell_of(table, name, "recommended", trial))))
        options.out.write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
