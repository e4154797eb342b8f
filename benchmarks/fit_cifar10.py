"""How right ``covlearn fit`` is on images it is trained on from scratch, by the clean labels.

    python -m benchmarks.fit_cifar10 runs/fit_cifar10    # a GPU, and covlearn data fetch cifar10

The first 20,000 training images with noise; ``fit`` sees the noisy labels alone. RUN is the folder
of the fit, and the files it reads lie beside it; of a finished one the figures are made again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covlearn import cli, records
from covlearn.config import plain
from covlearn.data.sources import Source, load_data, with_noise
from covlearn.fitted import Fitted, load
from covlearn.inputs import read_examples
from covlearn.job import resolve_device
from covlearn.metrics import average_precision, calibration_error
from covlearn.plain_files import read_json

RESULTS = Path(__file__).resolve().parents[1] / "results" / "beyond"
WHAT = (
    "covlearn fit on {examples:,} training examples of {data} with noise {noise}, seed {seed}; "
    "judged by the clean labels and the {test:,} test examples. Quality bins: from, labels, mean "
    "quality, share right."
)


def fitted_to(source: Source, run: Path, *, count: int, seed: int) -> tuple[Fitted, Path]:
    """The run of ``covlearn fit``, as its users start it, and a file of the test inputs."""
    train, test = (run.with_name(f"{run.name}-{part}.npz") for part in ("train", "test"))
    run.parent.mkdir(parents=True, exist_ok=True)
    images = source.train.augmentation is not None
    x, x_test = (
        part.whole("fit") if images else part.whole("fit").flatten(1)
        for part in (source.train, source.test)
    )
    np.savez(train, x=x[:count].numpy(), y=source.train.y[:count].numpy())
    np.savez(test, x=x_test.numpy())
    if cli.main(["fit", str(train), "--out", str(run), "--seed", str(seed)]):
        raise SystemExit(2)
    return load(run), test


def judged(fitted: Fitted, clean: torch.Tensor) -> dict[str, Any]:
    """The verdicts on the first examples, by their clean labels."""
    rows = torch.tensor([int(name) for name in fitted.labels["id"]])
    right = clean[rows].numpy()
    given, suggested = (
        np.array([int(name) for name in fitted.labels[column]]) for column in ("given", "suggested")
    )
    decision = np.array(fitted.labels["decision"])
    quality = np.array([float(text) for text in fitted.labels["quality"]])
    wrong, flagged = given != right, decision != "keep"
    if not wrong.any():
        raise ValueError("some labels must be wrong, to be found; choose another noise")
    place = np.minimum((10 * quality).astype(int), 9)
    bins = [
        (number / 10, int(own.sum()), float(quality[own].mean()), float((~wrong)[own].mean()))
        for number in range(10)
        if (own := place == number).any()
    ]
    return {
        "noise": float(wrong.mean()),
        "refined right": float((np.where(decision == "relabel", suggested, given) == right).mean()),
        "suggested right": float((suggested == right).mean()),
        "flagged": float(flagged.mean()),
        "precision": float(wrong[flagged].mean()) if flagged.any() else None,
        "recall": float(flagged[wrong].mean()),
        "ap": average_precision(torch.from_numpy(1 - quality), torch.from_numpy(wrong)),
        "decisions": fitted.result.decisions,
        "mean quality": float(quality.mean()),
        "right": float(1 - wrong.mean()),
        "quality bins": [[round(value, 3) for value in row] for row in bins],
        "quality off by, points": 100 * calibration_error([row[1:] for row in bins]),
    }


def accuracy_on(fitted: Fitted, file: Path, right: torch.Tensor) -> float:
    """Share of the test examples whose class ``covlearn predict`` would say."""
    examples = read_examples(file, recipe=fitted.recipe)
    probs = fitted.probabilities(examples.x, device=resolve_device("auto"))
    said = np.array([int(name) for name in fitted.classes])[probs.argmax(axis=1)]
    return float((said == right.numpy()).mean())


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--data", choices=["cifar10", "cifar100", "digits"], default="cifar10")
    parser.add_argument("--noise", default="calibrated:0.4")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: results/beyond/fit_DATA.json")
    options = parser.parse_args(arguments)
    source, _ = with_noise(load_data(options.data), options.noise, seed=options.seed)
    assert source.clean is not None
    fitted, test = fitted_to(source, options.run, count=options.count, seed=options.seed)
    where = read_json(options.run / records.ENVIRONMENT)
    record = {
        "what": WHAT.format(
            examples=fitted.result.examples, test=len(source.test), **vars(options)
        ),
        "environment": {name: where[name] for name in ("gpu", "torch", "commit")},
        "n": 1,
        "result": plain(fitted.result),
        "judged": judged(fitted, source.clean)
        | {"test accuracy": accuracy_on(fitted, test, source.test.y)},
    }
    print(json.dumps(record["judged"]))
    out = options.out or RESULTS / f"fit_{options.data}.json"
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
