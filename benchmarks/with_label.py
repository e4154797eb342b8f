"""What the given label adds to the last network's judgement of it, by Bayes' rule and clean labels.

    covlearn bench benchmarks/beyond.toml --folder runs --keep-models --only row=recommended
    python -m benchmarks.with_label "published 0.4=runs/cifar10/0.4/recommended/0" …

The runs need a GPU, this reads their folders alone. The last network was trained on D̂, so that
what it says of its own examples depends little on the labels as they were given. T is counted where
it is surest, or on all that it says, as CAL's own T̂ is on D̂ (:mod:`covlearn.calibration`).
"""

import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.judges import judged
from benchmarks.last_network import runs_by_name
from covlearn import npz, records
from covlearn.calibration import label_posterior, surest_transition

OUT = Path(__file__).resolve().parents[1] / "results" / "beyond" / "with_label.json"
SMALLEST = 1e-6  # float16 has no smaller ones that are exact to a digit


def figures(folder: Path) -> dict[str, Any]:
    """The judgement that the run wrote down, the last network's own, and that with the label."""
    record = records.read(folder)
    if record.result is None or record.result.labels is None or record.labels is None:
        raise ValueError(f"{folder} must be a finished run with its label table (--keep-models)")
    written = record.result.labels
    given, clean = (torch.tensor(record.labels[name]) for name in ("given", "clean"))
    kept = torch.from_numpy(npz.read_arrays(folder / records.PROBS)["probs"]).double()
    logs = kept.clamp(min=SMALLEST).log()
    by_bayes = {
        f"with the label, T of the surest {share:.0%}": label_posterior(
            logs, given, surest_transition(logs, given, surest=share)
        ).exp()
        for share in (0.25, 0.5, 1.0)
    }
    return {
        "environment": {name: record.environment.get(name) for name in ("gpu", "torch", "commit")},
        "written by the run": {
            "by": written["reason"],
            "share right": written["quality"]["share_right"],
            "f1": written["quality"]["f1"],
            "average precision": written["average_precision"],
        },
        "last network": judged(logs.softmax(dim=1).float(), given, clean),
        **{name: judged(each.float(), given, clean) for name, each in by_bayes.items()},
    }


def main(arguments: list[str] | None = None) -> None:
    runs, out = runs_by_name(arguments, __doc__, OUT)
    found = {name: figures(folder) for name, folder in runs.items()}
    print(json.dumps(found, indent=1))
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
