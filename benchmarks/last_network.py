"""How right CAL's sieve and its second network are on the training examples, by clean labels.

    covlearn bench benchmarks/beyond.toml --folder runs --trials 1 --keep-models \\
        --only "column=cifar10/0.4,row=sieve alone" --only "column=cifar10/0.6,row=with the cut"
    python -m benchmarks.last_network \\
        "published 0.4, without a cut=runs/cifar10/0.4/sieve alone/0" \\
        "published 0.6, with the cut=runs/cifar10/0.6/with the cut/0"

The runs need a GPU, this reads their folders alone. The sieve's figures are in the records; the
second network's are made of labels.csv and probs.npz, which ``--keep-models`` keeps.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.judges import judged
from covlearn import npz, records
from covlearn.metrics import calibration_error
from covlearn.plain_files import read_json

OUT = Path(__file__).resolve().parents[1] / "results" / "beyond" / "last_network.json"
BY_THE_SIEVE = "sieve score above the threshold"
WHAT = (
    "{runs}: how right the sieve's averaged predictions and the second network's are on the "
    "training examples, by clean labels; from the records, labels.csv and probs.npz of runs. "
    "Average precision of the sieve by its score, of the second network by the margin of its "
    "largest rival."
)


def sieve_figures(folder: Path) -> dict[str, Any]:
    """What the records of a run say of the sieve, the only judge of its labels."""
    record = records.read(folder)
    labels = None if record.result is None else record.result.labels
    if labels is None or labels["quality"] is None:
        raise ValueError(f"{folder} must be a finished run of cal whose clean labels are known")
    stated = read_json(folder / records.REFINEMENT).get("reliability")
    averaged = record.config["method"].get("scores") == "averaged"
    if labels["reason"] != BY_THE_SIEVE or not averaged or stated is None:
        raise ValueError(
            f"{folder} must be a run whose labels the sieve's averaged predictions judge alone; "
            "train it with --set scores=averaged look_for_evidence=true judges=sieve"
        )
    return {
        "share right": labels["quality"]["share_right"],
        "f1": labels["quality"]["f1"],
        "average precision": labels["average_precision"],
        "quality off by, points": 100 * calibration_error(stated["quality"]),
        "confidence off by, points": 100 * calibration_error(stated["confidence"]),
    }


def network_figures(folder: Path) -> dict[str, Any]:
    """The same of the network that the method returned, by what it says of its own examples."""
    labels = records.read(folder).labels
    if labels is None or not (folder / records.PROBS).exists():
        raise ValueError(f"{folder} has no label table; covlearn bench keeps it with --keep-models")
    probs = torch.from_numpy(npz.read_arrays(folder / records.PROBS)["probs"])
    return judged(probs, torch.tensor(labels["given"]), torch.tensor(labels["clean"]))


def figures(runs: dict[str, Path]) -> dict[str, Any]:
    """The record of some runs by name, which must have one environment."""
    where = []
    for folder in runs.values():
        environment = records.read(folder).environment
        where.append({name: environment.get(name) for name in ("gpu", "torch", "commit")})
    if any(each != where[0] for each in where):
        raise ValueError(f"the runs must be of one GPU, torch and commit, got {where}")
    configs = [records.read_config(folder) for folder in runs.values()]
    described = {f"{each['preset']}, {each['data']['name']}" for each in configs}
    return {
        "what": WHAT.format(runs=f"CAL, {'; '.join(sorted(described))}"),
        "n": 1,
        "environment": where[0],
        "figures": {
            name: {
                "sieve, averaged predictions": sieve_figures(folder),
                "second network, evaluation pass": network_figures(folder),
            }
            for name, folder in runs.items()
        },
    }


def runs_by_name(
    arguments: list[str] | None, doc: str | None, out: Path
) -> tuple[dict[str, Path], Path]:
    """What a command line of NAME=FOLDER says: the folders, and where the record goes."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--out", type=Path, default=out)
    options = parser.parse_args(arguments)
    if bare := [run for run in options.runs if "=" not in run]:
        parser.error(f"runs must read NAME=FOLDER, got {bare[0]!r}")
    named = (run.rpartition("=") for run in options.runs)
    return {name: Path(folder) for name, _, folder in named}, options.out


def main(arguments: list[str] | None = None) -> None:
    runs, out = runs_by_name(arguments, __doc__, OUT)
    record = figures(runs)
    print(json.dumps(record["figures"], indent=1))
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
