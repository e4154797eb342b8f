"""The diagnosis of a fit: of a run folder, or of a classifier with its training data."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covlearn import records
from covlearn.config import plain, typed
from covlearn.data.augment import Augmentation
from covlearn.diagnose.advice import LEVEL, Advice, advise
from covlearn.diagnose.dependence import Finding, Progress, at_most, instance_dependence_test
from covlearn.estimator import NoisyLabelClassifier
from covlearn.evaluation import digest, said_of, unlabelled
from covlearn.evidence import Evidence
from covlearn.fitted import Fitted
from covlearn.inputs import read_examples
from covlearn.kinds import checked, shown
from covlearn.saved import TABLE
from covlearn.verdicts import DROP, RELABEL

DIAGNOSIS = "diagnosis.json"
"""The file of a run folder that a diagnosis is written to."""
AGREES = 0.9  # below, the quick sieve of the test and the run's own see different classes
FEW = 200  # examples below which benchmarks/diagnose_power.py has little power
Reading = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Features:
    """What the test looks at, and what that is in words.

    Of many examples only those at ``rows`` have a row: the network's features of all may take long.
    """

    values: NDArray[Any]
    rows: NDArray[np.int64]
    what: str


@dataclass(frozen=True)
class Diagnosis:
    """Whether the noise depends on the instance, and the method that this speaks for."""

    features: str
    """What the test looked at."""
    classes: list[str]
    noise_rate: float
    """The share of labels that look wrong, by the fit."""
    evidence: str
    test: Finding
    agreement: float
    """The share of examples to which the test's sieve and the fit give the same class."""
    covariance: list[list[float]]
    """Cov(T_ij(X), ℓ_j(X) | ŷ = i) of the fit; NaN for a class that no refined label has."""
    methods: list[Advice]
    cautions: list[str]
    level: float = LEVEL
    kind: str = "diagnosis"
    format: int = records.FORMAT

    @property
    def recommended(self) -> str:
        """The method that the evidence speaks for."""
        return next(advice.method for advice in self.methods if advice.supported)

    @property
    def doubtful(self) -> bool:
        """Whether errors of a model may be taken for flips: two of them see different classes."""
        return self.agreement < AGREES

    def json(self) -> dict[str, Any]:
        """Plain values for diagnosis.json, without the vectors of the examples."""
        value: dict[str, Any] = plain(self) | {"recommended": self.recommended}
        for vector in ("refined", "chosen"):
            del value["test"][vector]
        return value


@checked
def diagnose_run(
    fitted: Fitted,
    *,
    draws: int = 199,
    seed: int = 0,
    progress: Progress | None = None,
    reading: Reading | None = None,
) -> Diagnosis:
    """The diagnosis of a finished run of ``covlearn fit``; its source is read again."""
    number = {name: position for position, name in enumerate(fitted.classes)}
    labels = {
        name: np.array([number[text] for text in fitted.labels[name]])
        for name in ("given", "suggested")
    }
    statistics = fitted.statistics
    known = {field.name for field in fields(Evidence)}
    evidence = {name: value for name, value in fitted.result.evidence.items() if name in known}
    return diagnosis(
        features_of_run(fitted, at_most(len(labels["given"]), seed), reading),
        labels["given"],
        suggested=labels["suggested"],
        decision=np.array(fitted.labels["decision"]),
        evidence=typed(Evidence, evidence),
        transition=statistics["transition"],
        covariance=statistics["covariance"],
        noise_rate=fitted.result.noise_rate,
        classes=fitted.classes,
        draws=draws,
        seed=seed,
        progress=progress,
    )


@checked
def diagnose_classifier(
    model: NoisyLabelClassifier,
    X: Any,
    *,
    draws: int = 199,
    seed: int = 0,
    progress: Progress | None = None,
) -> Diagnosis:
    """The diagnosis of a fitted classifier; ``X`` is what it was fitted to."""
    if not hasattr(model, "label_issues_"):
        raise ValueError("the classifier must be fitted, got one that is not; call fit first")
    issues = model.label_issues_
    shape = np.shape(X)
    if shape[:1] != (len(issues),):
        raise ValueError(
            f"X must be what the classifier was fitted to, {len(issues)} examples, got "
            f"{shape[0] if shape else shown(X)}"
        )
    inputs = model._inputs(X, reset=False)
    rows = at_most(len(inputs), seed)
    given, suggested = (
        np.searchsorted(model.classes_, issues[name].to_numpy()) for name in ("given", "suggested")
    )
    if model.standardizer_ is not None:
        values = model.standardizer_(inputs)[rows]
        features = Features(values, rows, columns(values.shape[1]))
    else:
        crossed = model.method == "cal" and model.preset == "recommended" and model.evidence_.found
        images = Images(torch.from_numpy(inputs[rows]), model.augmentation_)
        features = features_of_images(images, rows, model.model_, cross_fitted=crossed)
    return diagnosis(
        features,
        given,
        suggested=suggested,
        decision=issues["decision"].to_numpy(),
        evidence=model.evidence_,
        transition=model.transition_,
        covariance=model.covariance_,
        noise_rate=model.noise_rate_,
        classes=[str(name) for name in model.classes_],
        draws=draws,
        seed=seed,
        progress=progress,
    )


def diagnosis(
    features: Features,
    given: NDArray[np.int64],
    *,
    suggested: NDArray[np.int64],
    decision: NDArray[Any],
    evidence: Evidence,
    transition: NDArray[Any],
    covariance: NDArray[Any],
    noise_rate: float,
    classes: list[str],
    draws: int,
    seed: int,
    progress: Progress | None,
) -> Diagnosis:
    """The test, what it speaks for, and what to beware of."""
    num_classes = len(classes)
    finding = instance_dependence_test(
        features.values,
        given[features.rows],
        num_classes=num_classes,
        draws=draws,
        seed=seed,
        progress=progress,
    )
    agreement = float((suggested[features.rows] == finding.refined).mean())
    refined = np.where(decision == RELABEL, suggested, given)
    size_K = np.bincount(refined[decision != DROP], minlength=num_classes)
    return Diagnosis(
        features=features.what,
        classes=classes,
        noise_rate=noise_rate,
        evidence=evidence.sentence,
        test=finding,
        agreement=agreement,
        covariance=np.asarray(covariance, dtype=float).tolist(),
        methods=advise(evidence, finding, np.asarray(transition, dtype=float), size_K, classes),
        cautions=cautions(finding, evidence, agreement, len(given), classes),
    )


def cautions(
    finding: Finding, evidence: Evidence, agreement: float, num_examples: int, classes: list[str]
) -> list[str]:
    """What the reader should know of the test on these data, in sentences."""
    said = []
    if not evidence.found:
        said.append("there is no evidence of wrong labels: what is tested may be border cases")
    if len(classes) == 2:
        said.append("with two classes a flip has one place to go: only its rate can depend on x")
    if finding.examples < FEW:
        said.append(
            f"{finding.examples} examples are few: what depends on x is seldom found in fewer than "
            f"{FEW}, and a p-value above {LEVEL} says little"
        )
    if finding.examples < num_examples:
        said.append(f"{finding.examples:,} of {num_examples:,} examples were drawn for the test")
    untested = [
        name for name, value in zip(classes, finding.by_class, strict=True) if value is None
    ]
    if untested:
        said.append(
            f"{len(untested)} of {len(classes)} classes have too few sure or flipped examples to "
            f"be tested, {untested[0]!r} first"
        )
    if agreement < AGREES:
        said.append(
            f"the sieve of the test and the fit agree on the class of {agreement:.0%} of the "
            "examples: the features tell classes apart badly, and the p-value may be off"
        )
    return said


def features_of_run(
    fitted: Fitted, rows: NDArray[np.int64], reading: Reading | None = None
) -> Features:
    """The inputs of a run, read again and checked to be the same; of images see below."""
    source = fitted.config["source"]
    path, kept_table = Path(source.get("path") or "the source"), fitted.folder / TABLE
    if not path.exists() and fitted.recipe.get("kind") == "table" and kept_table.exists():
        path = kept_table
    if not path.exists():
        raise ValueError(f"{path} is missing, which {fitted.folder} was fitted to; bring it back")
    examples = read_examples(
        str(path),
        id=source.get("id"),
        image=source.get("image"),
        on_bad=source.get("on_bad") or "refuse",
        recipe=fitted.recipe,
        cache=fitted.folder.absolute().parent / ".covlearn-cache",
        progress=reading,
    )
    place = {name: position for position, name in enumerate(examples.ids)}
    found = [place.get(name, -1) for name in fitted.labels["id"]]
    x = examples.x[torch.tensor(found).clamp(min=0)]
    if fitted.standardizer is not None:
        x = torch.from_numpy(fitted.standardizer(x.numpy())).float()
    if min(found) < 0 or digest(x) != fitted.config["data"].get("x"):
        raise ValueError(
            f"{path} has changed since {fitted.folder} was fitted to it; fit again, or bring the "
            "old data back"
        )
    x = x[torch.from_numpy(rows)]
    if fitted.standardizer is not None:
        extractor = fitted.recipe.get("extractor")
        network = None if extractor is None else extractor["name"]
        return Features(x.numpy(), rows, columns(x.shape[1], network))
    facts, evidence = fitted.result.facts, fitted.result.evidence
    crossed = facts.get("refined_from") == "cross-fitted sieves" and evidence["found"]
    if reading is not None:
        reading(0, 1, "features of the network")
    images = Images(x, fitted.augmentation)
    return features_of_images(images, rows, fitted.model, cross_fitted=crossed)


@dataclass(frozen=True)
class Images:
    """uint8 images (N, H, W, C), and how they are made ready for a network."""

    x: Tensor
    augmentation: Augmentation | None


def features_of_images(
    images: Images, rows: NDArray[np.int64], model: nn.Module, *, cross_fitted: bool
) -> Features:
    """What the returned network makes of images, if it knows labels through other examples only.

    A network that was trained on the given labels may know them by heart, and its features with
    it: flips would then seem to depend on them. There the pixels must do.
    """
    if cross_fitted and hasattr(model, "features"):
        _, hidden = said_of(model, unlabelled(images.x, images.augmentation), features=True)
        assert hidden is not None
        what = f"{hidden.shape[1]} penultimate features of the run's network"
        return Features(hidden.numpy(), rows, what)
    pixels = images.x.flatten(1).float().numpy()
    what = f"{pixels.shape[1]} pixel values (the run's network was trained on the given labels)"
    return Features(pixels, rows, what)


def columns(count: int, network: str | None = None) -> str:
    """What a run's columns are, in words."""
    source = "of the source" if network is None else f"of images by {network}"
    return f"{count} features {source}, standardised"
