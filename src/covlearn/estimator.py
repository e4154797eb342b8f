"""The scikit-learn face: fit on labels that may be wrong, predict, and see which ones are.

from covlearn.estimator import NoisyLabelClassifier

model = NoisyLabelClassifier(random_state=0).fit(X, y)
model.predict(X_new)
model.label_issues_
"""

import copy
import datetime
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from covlearn.evaluation import said_of, unlabelled
from covlearn.fitting import Fit, Prepared, Settings, fit_split, set_up
from covlearn.inputs.examples import counted, some
from covlearn.inputs.labels import alone
from covlearn.kinds import shown

BLOCK = 4096


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that learns from labels some of which are wrong, and says which.

    Neither clean labels nor a noise rate nor a validation set are needed. ``X`` holds numbers
    (N, D), in an array or a DataFrame, or uint8 images (N, H, W, C); ``y`` any labels. Columns are
    standardised inside.

    Parameters: ``method`` is a name of ``covlearn methods``; ``preset`` is recommended (scaled with
    the data), paper or published; ``net`` is auto or a network by name; ``settings`` are those of
    ``covlearn train --set``, as ``{"plan.epochs": 40}``; ``device`` is auto, cpu or cuda.

    After ``fit``: ``refined_labels_``; ``label_quality_``, the probability that the given
    label is right; ``label_issues_``, a row an example (given, suggested, decision,
    quality, confidence, reason); ``evidence_`` for wrong labels; ``noise_rate_``; ``transition_``,
    with ``transition_[i, j]`` = P(given = j | refined = i); ``covariance_``; ``history_``.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = NoisyLabelClassifier(random_state=0, settings={"plan.epochs": 5}).fit(X, y)
    >>> model.label_issues_.columns.tolist()
    ['given', 'suggested', 'decision', 'quality', 'confidence', 'reason']

    ``settings`` is one parameter, so that ``settings__plan.epochs`` names none: a search goes over
    whole settings.

    >>> from sklearn.model_selection import GridSearchCV
    >>> grid = {"settings": [{"plan.epochs": epochs, "folds": 2} for epochs in (1, 5)]}
    >>> search = GridSearchCV(NoisyLabelClassifier(random_state=0), grid, cv=2).fit(X, y)
    >>> search.best_params_["settings"] in grid["settings"]
    True
    """

    def __init__(
        self,
        method: str = "cal",
        *,
        net: str = "auto",
        preset: str = "recommended",
        random_state: Any = None,
        settings: Settings | None = None,
        device: str = "auto",
    ) -> None:
        self.method = method
        self.net = net
        self.preset = preset
        self.random_state = random_state
        self.settings = settings
        self.device = device

    def fit(self, X: Any, y: Any, **unsupported: Any) -> Self:
        """Trains on the given labels and judges each of them."""
        if unsupported:
            raise TypeError(
                f"fit takes X and y only, got {', '.join(unsupported)}; sample_weight is not "
                "supported: the weight of an example is what this method finds out"
            )
        inputs, labels = self._checked(X, y)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have at least two classes, got one class, {self.classes_[0]}")
        sizes = dict(zip(self.classes_.tolist(), np.bincount(numbers).tolist(), strict=True))
        if single := alone(sizes):
            raise ValueError(
                f"each class of y must have at least two examples, got one each of {some(single)}; "
                "leave out classes of one example, or make them one class with another"
            )
        given = torch.from_numpy(numbers.astype(np.int64))
        prepared = Prepared.of(inputs, given, len(self.classes_))
        split, self.standardizer_ = prepared.split, prepared.standardizer
        self.augmentation_ = prepared.augmentation
        setup = set_up(
            self.method,
            split=split,
            preset=self.preset,
            net=self.net,
            settings=() if self.settings is None else self.settings,
            device=self.device,
        )
        self.machine_ = setup.machine
        fit = fit_split(split, setup, seed=_seed(self.random_state), classes=self.classes_.tolist())
        self._keep(fit, X)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each example."""
        probs = self.predict_proba(X)
        return np.asarray(self.classes_[probs.argmax(axis=1)])

    @torch.no_grad()
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities (N, K), in the order of ``classes_``."""
        check_is_fitted(self)
        inputs = self._inputs(X, reset=False)
        if self.standardizer_ is None:
            images = unlabelled(torch.from_numpy(inputs), self.augmentation_)
            logits, _ = said_of(self.model_, images)
            return np.asarray(logits.double().softmax(dim=1).numpy())
        # In float64, so that a row has the same probabilities in whatever company it comes.
        net = copy.deepcopy(self.model_).double().eval()
        rows = torch.from_numpy(self.standardizer_(inputs))
        logits = torch.cat([net(block) for block in rows.split(BLOCK)])
        return np.asarray(logits.softmax(dim=1).numpy())

    def _checked(self, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        _check_none_missing(y)
        if _is_images(X):
            inputs = self._inputs(X, reset=True)
            labels = np.asarray(y)
            if labels.shape != (len(inputs),):
                raise ValueError(
                    f"y must have one label an image, {len(inputs)}, got shape {labels.shape}"
                )
        else:
            inputs, labels = self._validated(X, y=y)
        try:
            check_classification_targets(labels)
        except (TypeError, ValueError):  # labels of several kinds cannot be sorted
            kinds = sorted({type(label).__name__ for label in labels.ravel().tolist()})
            if labels.dtype != object or len(kinds) == 1:
                raise
            raise ValueError(
                f"y must have labels of one kind, got {' and '.join(kinds)}; "
                "[str(label) for label in y] makes text of all"
            ) from None
        return inputs, labels

    def _validated(self, X: Any, **options: Any) -> Any:
        try:
            return validate_data(self, X, dtype=np.float64, **options)
        except (ValueError, TypeError):
            shape = np.shape(X) if isinstance(X, np.ndarray | torch.Tensor) else ()
            if len(shape) in (3, 4):
                more = "; X[..., None] adds the channel of grey ones" if len(shape) == 3 else ""
                raise ValueError(
                    f"X must be numbers (N, D) or uint8 images (N, H, W, C) in a NumPy array, got "
                    f"shape {tuple(shape)} of {X.dtype}{more}"
                ) from None
            if why := _no_numbers(X):
                raise ValueError(
                    f"X must be numbers, but {why}; covlearn fit reads a table with text, dates "
                    "and missing cells, and covlearn.inputs.read_examples makes numbers of it"
                ) from None
            raise

    def _inputs(self, X: Any, *, reset: bool) -> NDArray[Any]:
        if not _is_images(X):
            return np.asarray(self._validated(X, reset=reset))
        if reset:
            self.n_features_in_ = int(np.prod(X.shape[1:]))
        elif int(np.prod(X.shape[1:])) != self.n_features_in_:
            raise ValueError(
                f"images must be as in fit, {self.n_features_in_} values each, got {X.shape[1:]}"
            )
        return np.ascontiguousarray(X)

    def _keep(self, fit: Fit, X: Any) -> None:
        verdicts, classes = fit.verdicts, self.classes_
        self.model_ = fit.model
        self.refined_labels_ = classes[verdicts.refined]
        self.label_quality_ = verdicts.quality
        index = X.index if isinstance(X, pd.DataFrame) else None
        self.label_issues_ = pd.DataFrame(
            {
                "given": classes[verdicts.given],
                "suggested": classes[verdicts.suggested],
                "decision": verdicts.decision,
                "quality": verdicts.quality,
                "confidence": verdicts.confidence,
                "reason": verdicts.reason,
            },
            index=index,
        )
        self.evidence_ = fit.evidence
        self.noise_rate_ = fit.noise_rate
        self.transition_ = fit.transition.numpy()
        self.covariance_ = fit.covariance.numpy()
        self.history_ = fit.history


def _check_none_missing(y: Any) -> None:
    """Refuses missing labels, of whatever kind and wherever they stand, before anything sorts y."""
    values = list(y) if isinstance(y, tuple) else y
    missing = pd.isna(values.cpu().numpy() if isinstance(values, torch.Tensor) else values)
    if not np.ndim(missing):
        return  # no labels at all, for scikit-learn to refuse
    rows = np.flatnonzero(missing)
    if len(rows):
        raise ValueError(
            f"y must have a label for every example, got {len(rows)} missing (None, NaN or pd.NA) "
            f"of {np.size(missing)}, first at position {rows[0]}; fit on those with one, "
            "keep = pd.notna(y), and predict the others"
        )


def _no_numbers(X: Any) -> str | None:
    """The columns of a table that have text or dates, else those that have missing cells."""
    try:
        table = X if isinstance(X, pd.DataFrame) else np.asarray(X)
    except (ValueError, TypeError):
        return None
    if table.ndim != 2:
        return None
    columns = [(repr(name), column) for name, column in pd.DataFrame(table).items()]
    for kind, is_one in (("text", _is_text), ("a date", _is_date)):
        named = [(name, next(filter(is_one, column), None)) for name, column in columns]
        if bad := [(name, value) for name, value in named if value is not None]:
            return f"there is {kind}, as {str(bad[0][1])!r}, in {_columns(bad)}"
    gaps = [(name, int(column.isna().sum())) for name, column in columns]
    if bad := [(name, count) for name, count in gaps if count]:
        cells = counted(sum(count for _, count in bad), "cell is", "cells are")
        return f"{cells} missing (NaN) in {_columns(bad)}"
    return None


def _columns(named: list[tuple[str, Any]]) -> str:
    names = some([name for name, _ in named])
    return f"column {names}" if len(named) == 1 else f"columns {names}"


def _is_text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def _is_date(value: Any) -> bool:
    return isinstance(value, datetime.date | np.datetime64 | np.timedelta64) and not pd.isna(value)


def _is_images(X: Any) -> bool:
    return isinstance(X, np.ndarray) and X.dtype == np.uint8 and X.ndim == 4


def _seed(random_state: Any) -> int:
    """A seed of the run; the global state of NumPy is neither read nor moved."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise ValueError(
            "random_state must be None, an integer or a generator of NumPy, got "
            f"{shown(random_state)}"
        )
    if not 0 <= random_state < 2**32:
        raise ValueError(f"random_state must lie in 0…2³²−1, got {random_state}")
    return int(random_state)
