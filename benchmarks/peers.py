"""Ours against what one would take instead, on the same splits and with the same network.

    python -m benchmarks.peers --seeds 10                     # all cells that are not there yet
    python -m benchmarks.peers --only digits/cal:0.4 --seeds 3
    python -m benchmarks.peers --seeds 0                      # only writes the tables again

A cell is a data set, a kind of noise and a seed; each method's row is a line of JSON that is
written as soon as it is there, so that a run that was cut off goes on where it was. All networks
are ``recommended``'s for the data's size; ours trains each for half of the epochs, which is part of
the method. Cross-entropy is trained as its preset says, and so are
cleanlab's networks, alone and in ``CleanLearning``; its out-of-fold probabilities are computed once
for both, and counted in the seconds of both. ``cleanlab, our sieves`` is cleanlab's detection on
our out-of-fold probabilities; ``ce on D̂`` is cross-entropy on what our sieves predict.

Seconds are those of the processor, of one thread. Needs ``pip install covlearn[cleanlab]``, and
for Fashion-MNIST the IDX files of Debian's dataset-fashion-mnist (``--fashion``).
"""

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from cleanlab.classification import CleanLearning
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from numpy.typing import NDArray
from rich.progress import track
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.decomposition import PCA
from torch import Tensor, nn

from benchmarks.detection import (
    LOADERS,
    NOISES,
    detection,
    noisy_labels,
    reliability,
    split_of,
)
from benchmarks.peers_page import write_page
from covlearn.data import Split
from covlearn.engine import Machine, Plan
from covlearn.evaluation import commit, environment
from covlearn.fitting import fit_split, set_up
from covlearn.methods.base import view_of
from covlearn.methods.ce import CE
from covlearn.methods.crossfit import stratified_folds
from covlearn.methods.scaled import Choice, recommended
from covlearn.run import LocalRun

DATA = ("digits", "breast_cancer", "wine", "fashion")
FASHION = Path("/usr/share/datasets/fashion-mnist")
FASHION_IMAGES, FASHION_FEATURES = 10_000, 50
FOLDS = 5
AVERAGE_SHARE = 1 / 6  # of the steps, as ours
ALL_NOISES = (*NOISES, "confused:0.2", "confused:0.4")
Row = dict[str, Any]


# ---- Data -------------------------------------------------------------------------------------


@cache
def fashion(folder: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The first 10,000 training images as 50 principal components."""
    with gzip.open(folder / "train-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(folder / "train-labels-idx1-ubyte.gz") as file:
        y = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
    pixels = pixels[:FASHION_IMAGES].astype(np.float32)
    # Of all of them, test images too: no label takes part in it.
    x = PCA(FASHION_FEATURES, random_state=0).fit_transform(pixels)
    return x, y[:FASHION_IMAGES]


def load(name: str, seed: int, folder: Path = FASHION) -> tuple[Split, Tensor, Tensor]:
    """The training split with right labels, and the test inputs and labels; 7 to 3."""
    x, y = fashion(folder) if name == "fashion" else LOADERS[name](return_X_y=True)
    return split_of(x, y, seed)


# ---- Methods ----------------------------------------------------------------------------------


def train_ce(split: Split, seed: int, *, average: bool = False, plan: Plan | None = None) -> Any:
    """Cross-entropy with the network and plan that ``recommended`` has for so many examples."""
    choice = choice_for(split)
    assert isinstance(choice.method, CE)
    plan = plan or choice.method.plan
    if average:
        steps = plan.epochs * -(-len(split) // plan.batch_size)
        plan = replace(plan, average=1 - 1 / max(AVERAGE_SHARE * steps, 2.0))
    run = LocalRun(split, net_name=choice.net, net_options=choice.net_options, seed=seed)
    return replace(choice.method, plan=plan).fit(view_of(run)).eval()


def choice_for(split: Split) -> Choice:
    return recommended(
        "ce",
        num_examples=len(split),
        num_classes=split.num_classes,
        shape=tuple(split.x.shape[1:]),
    )


@torch.no_grad()
def probabilities(model: nn.Module, x: Tensor) -> NDArray[np.float64]:
    return np.asarray(model(x).double().softmax(dim=1).numpy())


def accuracy(model: nn.Module, test_x: Tensor, test_y: Tensor) -> float:
    return float((probabilities(model, test_x).argmax(axis=1) == test_y.numpy()).mean())


class Network(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The same network for CleanLearning, which asks for a scikit-learn classifier."""

    def __init__(self, num_classes: int = 2, seed: int = 0) -> None:
        self.num_classes = num_classes
        self.seed = seed

    def fit(self, x: Any, y: Any) -> "Network":
        """Cross-entropy on the labels."""
        self.classes_ = np.arange(self.num_classes)
        split = Split(
            torch.as_tensor(x).float(), torch.from_numpy(np.asarray(y)).long(), self.num_classes
        )
        self.model_ = train_ce(split, self.seed)
        return self

    def predict_proba(self, x: Any) -> NDArray[np.float64]:
        """(N, K)."""
        return probabilities(self.model_, torch.as_tensor(x).float())

    def predict(self, x: Any) -> NDArray[np.int64]:
        """The most probable classes."""
        return np.asarray(self.predict_proba(x).argmax(axis=1))


def out_of_fold(split: Split, seed: int) -> NDArray[np.float64]:
    """(N, K): each example's probabilities by a network that was trained on the other folds."""
    fold = stratified_folds(split.y, FOLDS, seed=seed)
    probs = np.empty((len(split), split.num_classes))
    for number in range(FOLDS):
        outside = fold == number
        model = train_ce(split.subset((~outside).nonzero().flatten()), seed)
        probs[outside.numpy()] = probabilities(model, split.x[outside])
    return probs


def cleanlab_detection(given: NDArray[Any], clean: NDArray[Any], probs: NDArray[Any]) -> Row:
    """``find_label_issues`` and label quality scores with cleanlab's defaults."""
    flagged = np.asarray(find_label_issues(given, probs, n_jobs=1))
    wrongness = 1 - get_label_quality_scores(given, probs)
    predicted = probs.argmax(axis=1)
    row = detection(given, clean, flagged, wrongness, np.where(flagged, predicted, given))
    return row | {"wrongness": reliability(wrongness, given != clean)}


def clean_learning(
    split: Split, clean: NDArray[Any], probs: NDArray[Any], seed: int
) -> tuple[nn.Module, Row]:
    """``CleanLearning``, given its out-of-fold probabilities."""
    given = split.y.numpy()
    learner = CleanLearning(
        Network(split.num_classes, seed), find_label_issues_kwargs={"n_jobs": 1}
    )
    learner.fit(split.x.numpy(), given, pred_probs=probs)
    issues = learner.get_label_issues()
    flagged = issues["is_label_issue"].to_numpy()
    refined = np.where(flagged, issues["predicted_label"].to_numpy(), given)
    wrongness = 1 - issues["label_quality"].to_numpy()
    return learner.clf.model_, detection(given, clean, flagged, wrongness, refined)


def peers(split: Split, clean: Tensor, test: tuple[Tensor, Tensor], seed: int) -> Iterator[Row]:
    """Everything that does not depend on ours."""
    given, right = split.y.numpy(), clean.numpy()
    for name, average in (("ce", False), ("ce, averaged", True)):
        model, seconds = timed(partial(train_ce, split, seed, average=average))
        yield {"method": name, "seconds": seconds, "accuracy": accuracy(model, *test)}
    probs, crossing = timed(lambda: out_of_fold(split, seed))
    row, seconds = timed(lambda: cleanlab_detection(given, right, probs))
    yield {"method": "cleanlab", "seconds": crossing + seconds, "cross_validation": crossing} | row
    (model, row), seconds = timed(lambda: clean_learning(split, right, probs, seed))
    yield {
        "method": "CleanLearning",
        "seconds": crossing + seconds,
        "accuracy": accuracy(model, *test),
    } | row
    assert (given == split.y.numpy()).all()


def ours(split: Split, clean: Tensor, test: tuple[Tensor, Tensor], seed: int) -> Iterator[Row]:
    """Ours, plain cross-entropy on its D̂, and cleanlab's detection on its sieves."""
    given, right = split.y.numpy(), clean.numpy()
    setup = set_up("cal", split=split, device="cpu")
    fit, seconds = timed(lambda: fit_split(split, setup, seed=seed))
    verdicts = fit.verdicts
    row = detection(
        given, right, verdicts.decision != "keep", 1 - verdicts.quality, verdicts.refined
    )
    yield {
        "method": "ours",
        "seconds": seconds,
        "accuracy": accuracy(fit.model.eval(), *test),
        "evidence": fit.evidence.found,
        "noise_rate": fit.noise_rate,
        "wrongness": reliability(1 - verdicts.quality, given != right),
        "confidence": reliability(verdicts.confidence, verdicts.suggested == right),
    } | row
    probs = fit.crossed.double().softmax(dim=1).numpy()
    yield {"method": "cleanlab, our sieves", **cleanlab_detection(given, right, probs)}
    refined = fit.crossed.argmax(dim=1)
    model = train_ce(replace(split, y=refined), seed)
    wrong = given != right
    yield {
        "method": "ce on D̂",
        "accuracy": accuracy(model, *test),
        "refined_right": float((refined.numpy() == right).mean()),
    } | ({"repaired": float((refined.numpy() == right)[wrong].mean())} if wrong.any() else {})


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    result = call()
    return result, time.process_time() - started


GROUPS = {"peers": (peers, ("ce", "ce, averaged", "cleanlab", "CleanLearning")),
          "ours": (ours, ("ours", "cleanlab, our sieves", "ce on D̂"))}  # fmt: skip


# ---- The run ----------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10, help="seeds 0 … N−1")
    parser.add_argument("--only", nargs="+", default=[], help="cells whose DATA/NOISE contain this")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--cells", type=Path, default=Path("runs/peers.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("results/peers.json"))
    parser.add_argument("--fashion", type=Path, default=FASHION)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in DATA if name != "fashion" or there(options.fashion)]
    options.cells.parent.mkdir(parents=True, exist_ok=True)
    done = {(row["data"], row["noise"], row["seed"], row["method"]) for row in rows(options.cells)}
    tasks = [
        (name, spec, seed, group)
        for name in names
        for seed in range(options.seeds)
        for spec in ALL_NOISES
        for group in options.groups
        if not options.only or any(part in f"{name}/{spec}" for part in options.only)
        if any((name, spec, seed, method) not in done for method in GROUPS[group][1])
    ]
    for name, spec, seed, group in track(tasks, description="cells"):
        clean, *test = load(name, seed, options.fashion)
        split = replace(clean, y=noisy_labels(clean, spec, seed))
        with options.cells.open("a") as file:
            for row in GROUPS[group][0](split, clean.y, (test[0], test[1]), seed):
                cell = {"data": name, "noise": spec, "seed": seed, "commit": commit()}
                file.write(json.dumps(cell | row, ensure_ascii=False) + "\n")
    write_page(rows(options.cells), environment(Machine()), options.out)


def there(folder: Path) -> bool:
    """Whether Fashion-MNIST is; says so if it is not."""
    found = (folder / "train-images-idx3-ubyte.gz").exists()
    if not found:
        print(f"SKIPPED: Fashion-MNIST, for {folder} has no train-images-idx3-ubyte.gz")
    return found


def rows(path: Path) -> list[Row]:
    """The rows of all cells; the latest of a method counts."""
    if not path.exists():
        return []
    kept = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        kept[row["data"], row["noise"], row["seed"], row["method"]] = row
    return list(kept.values())


if __name__ == "__main__":
    main()
