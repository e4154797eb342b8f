"""Labels as of three people, the worst of which is given; benchmarks/labels has them.

    python -m benchmarks.three_labellers cifar10
    covlearn train --data cifar10 --noise file:benchmarks/labels/three_labellers_0.4_cifar10.npz …

Three labellers each confuse what a linear classifier on ImageNet-pretrained features confuses that
was trained on the other half of the images (`covlearn.noise.confused`), and where any of them errs
one of the wrong labels is given. With its probabilities taken at a temperature of 3, such that 40 %
of the labels are wrong, each errs in 18 % and their majority in 9 %. That is as often as people do
in CIFAR-10N, by its paper: 17 to 18 % each, 9 % the majority, 40 % the worst of three.

CIFAR-100N has one labeller an image, who errs in 40 %: ``--labellers 1``, with a hundred classes.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.confused import LABELS
from covlearn.data.sources import load_data
from covlearn.inputs.extractors import LITE0, make_extractor
from covlearn.noise import confused
from covlearn.noise.card import with_card
from covlearn.noise.files import write_labels

RATE, TEMPERATURE = 0.4, 3.0
SIZE, BATCH, PENALTY = 128, 200, 1e-2
WORDS = {1: "one", 3: "three"}


def features_of(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """ImageNet-pretrained features of small images, enlarged."""
    extractor = make_extractor(LITE0)
    parts = []
    for start in track(range(0, len(images), BATCH), description="features"):
        part = torch.from_numpy(images[start : start + BATCH]).permute(0, 3, 1, 2).float()
        large = torch.nn.functional.interpolate(part, size=(SIZE, SIZE), mode="bicubic")
        pixels = large.round().clamp(0, 255).byte().permute(0, 2, 3, 1).contiguous()
        parts.append(extractor(pixels.numpy()))
    return np.concatenate(parts)


def probabilities(features: NDArray[np.float32], clean: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each half by a classifier of the other, at the temperature."""
    probs = np.empty((len(clean), int(clean.max()) + 1))
    halves = StratifiedKFold(2, shuffle=True, random_state=0).split(features, clean)
    for seen, labelled in halves:
        linear = LogisticRegression(C=1 / (PENALTY * len(seen)), max_iter=200)
        model = make_pipeline(StandardScaler(), linear).fit(features[seen], clean[seen])
        probs[labelled] = model.predict_proba(features[labelled])
    print(f"classifier right for {(probs.argmax(axis=1) == clean).mean():.1%}")
    softer: NDArray[np.float64] = probs ** (1 / TEMPERATURE)
    softer /= softer.sum(axis=1, keepdims=True)
    return softer


def labels_of(
    clean: NDArray[np.int64], probs: NDArray[np.float64], rate: float, *, labellers: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(M, N) labels of as many people, of whom each errs in such a share, and where, (N,)."""
    seeds = range(labellers * seed, labellers * (seed + 1))
    drawn = [confused(clean, probs=probs, rate=rate, seed=each) for each in seeds]
    return np.stack([each.label for each in drawn]), drawn[0].flip_rate


def worst(clean: NDArray[np.int64], labels: NDArray[np.int64], *, seed: int) -> NDArray[np.int64]:
    """One of the wrong labels, drawn at random, where there is any."""
    draw = np.random.default_rng([seed, 1]).random(labels.shape)
    chosen = np.where(labels != clean, draw, -1.0).argmax(axis=0)
    picked: NDArray[np.int64] = labels[chosen, np.arange(len(clean))]
    return picked


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--labellers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--features", type=Path, help="of an earlier time (.npy); made if not there"
    )
    parser.add_argument("--out", type=Path, default=LABELS)
    options = parser.parse_args(arguments)
    count = options.labellers
    split = load_data(options.data).train
    clean = split.y.numpy()
    if options.features is not None and options.features.exists():
        features = np.load(options.features)
    else:
        features = features_of(np.asarray(split.x))
        if options.features is not None:
            np.save(options.features, features)
    probs = probabilities(features, clean)

    def excess(rate: float) -> float:
        labels, _ = labels_of(clean, probs, rate, labellers=count, seed=options.seed)
        return float((labels != clean).any(axis=0).mean()) - RATE

    each = RATE if count == 1 else brentq(excess, 0.01, RATE, xtol=1e-4)
    labels, flip_rate = labels_of(clean, probs, each, labellers=count, seed=options.seed)
    noisy = worst(clean, labels, seed=options.seed)
    most = np.array([np.bincount(votes).argmax() for votes in labels.T])
    print(f"each errs in {each:.1%}, most of {count} in {(most != clean).mean():.1%}")
    made = with_card(
        clean, noisy, 1 - (1 - flip_rate) ** count, num_classes=split.num_classes,
        variant=f"worst of {WORDS.get(count, count)} confused", version=1, seed=options.seed,
        requested_rate=RATE,
    )  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    name = "one_labeller" if count == 1 else f"{WORDS.get(count, count)}_labellers"
    path = options.out / f"{name}_{RATE}_{Path(options.data).stem}.npz"
    write_labels(path, made, clean)
    print(f"{made.card.actual_rate:.1%} of the labels are wrong: {path}")


if __name__ == "__main__":
    main()
