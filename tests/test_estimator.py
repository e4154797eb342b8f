"""The estimator: scikit-learn's own checks, what it promises beyond them, and bad input."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from covlearn.estimator import NoisyLabelClassifier
from covlearn.inputs import read_examples
from covlearn.noise import symmetric

# Two folds and few epochs: the checks ask for conventions, and fit a hundred times.
FAST: dict[str, Any] = {
    "device": "cpu",
    "settings": {
        "folds": 2,
        "sieve_plan.epochs": 2,
        "sieve_plan.lr_milestones": (),
        "plan.epochs": 12,
        "plain_plan.epochs": 12,
        "net.hidden": [16],
    },
}
NAMES = np.array(["ash", "birch", "cedar"])


@parametrize_with_checks([NoisyLabelClassifier(**FAST)])
def test_the_conventions_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def clouds(count: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds; the first column is on another scale than the rest."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 3
    x = rng.normal(size=(count, 4)) + 4 * np.eye(4)[y]
    return x * [1000, 1, 1, 1], y


@pytest.fixture(scope="module")
def fitted() -> tuple[NoisyLabelClassifier, pd.DataFrame, np.ndarray, np.ndarray]:
    x, y = clouds()
    noisy = symmetric(y, rate=0.3, num_classes=3, seed=0).label
    frame = pd.DataFrame(x, columns=list("abcd"), index=[f"row-{n}" for n in range(len(x))])
    model = NoisyLabelClassifier(device="cpu", random_state=0).fit(frame, NAMES[noisy])
    return model, frame, NAMES[noisy], NAMES[y]


def test_wrong_labels_are_found_and_repaired(fitted: Any) -> None:
    model, frame, noisy, clean = fitted
    wrong = noisy != clean
    issues = model.label_issues_
    assert list(issues.columns) == [
        "given", "suggested", "decision", "quality", "confidence", "reason",
    ]  # fmt: skip
    assert issues.index.equals(frame.index)
    assert (issues["given"] == noisy).all()
    flagged = (issues["decision"] != "keep").to_numpy()
    assert flagged[wrong].mean() > 0.9
    assert flagged[~wrong].mean() < 0.1
    assert (model.refined_labels_ == clean).mean() > max(0.9, (noisy == clean).mean() + 0.2)
    assert model.score(frame, clean) > 0.95
    assert abs(model.noise_rate_ - wrong.mean()) < 0.05
    assert np.median(model.label_quality_[wrong]) < 0.2  # what is below is repaired
    assert np.median(model.label_quality_[~wrong]) > 0.9
    np.testing.assert_allclose(model.transition_.sum(axis=1), 1, atol=1e-6)
    assert np.diag(model.transition_).mean() == pytest.approx(0.7, abs=0.1)
    assert model.covariance_.shape == (3, 3)
    assert {"sieve-0", "sieve-4", "relabel"} <= set(model.history_)
    assert model.evidence_.found


def test_the_same_random_state_is_the_same_model(fitted: Any) -> None:
    model, frame, noisy, _ = fitted
    again = clone(model).fit(frame, noisy)
    assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))
    pd.testing.assert_frame_equal(again.label_issues_, model.label_issues_)
    other = clone(model).set_params(random_state=1).fit(frame, noisy)
    assert not np.array_equal(other.predict_proba(frame), model.predict_proba(frame))


@pytest.mark.parametrize("random_state", [None, 0, np.random.RandomState(0)])
def test_the_global_random_state_stays(random_state: Any) -> None:
    x, y = clouds(60)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]  # noqa: NPY002
    NoisyLabelClassifier(**FAST, random_state=random_state).fit(x, y)
    after = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]  # noqa: NPY002
    assert before == after


def test_a_pickle_predicts_the_same(fitted: Any) -> None:
    model, frame, _, _ = fitted
    loaded = pickle.loads(pickle.dumps(model))
    assert np.array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    assert loaded.predict(frame).tolist() == model.predict(frame).tolist()


def test_it_stands_in_a_pipeline_and_a_search() -> None:
    x, y = clouds(90)
    pipeline = make_pipeline(MinMaxScaler(), NoisyLabelClassifier(**FAST, random_state=0))
    assert pipeline.fit(x, NAMES[y]).score(x, NAMES[y]) > 0.9
    idle, good = ({**FAST["settings"], "plain_plan.lr": lr} for lr in (1e-9, 0.1))
    search = GridSearchCV(
        NoisyLabelClassifier(device="cpu", random_state=0), {"settings": [idle, good]}, cv=2
    ).fit(x, y)
    assert search.best_params_["settings"] == good
    assert "settings__plan.epochs" in str(NoisyLabelClassifier.__doc__)  # and why it names nothing


def test_images_are_taken_as_they_are() -> None:
    images, y = load_digits(return_X_y=True)
    x = (images[:120] * 15).astype(np.uint8).reshape(-1, 8, 8, 1)
    settings = {"folds": 2, "plan.epochs": 3, "sieve_plan.epochs": 1, "net.widths": [4]}
    model = NoisyLabelClassifier(device="cpu", random_state=0, settings=settings).fit(x, y[:120])
    probs = model.predict_proba(x)
    assert probs.shape == (120, 10)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    with pytest.raises(ValueError, match="images must be as in fit, 64 values each"):
        model.predict(np.zeros((1, 4, 4, 1), np.uint8))


@pytest.mark.parametrize("method", ["ce", "forward"])
def test_other_methods_get_verdicts_too(method: str) -> None:
    x, y = clouds()
    noisy = symmetric(y, rate=0.3, num_classes=3, seed=0).label
    model = NoisyLabelClassifier(method, device="cpu", random_state=0).fit(x, noisy)
    flagged = (model.label_issues_["decision"] != "keep").to_numpy()
    assert flagged[noisy != y].mean() > 0.85
    assert "relabel" not in model.history_
    assert method in model.history_ or "estimation" in " ".join(model.history_)


def test_a_class_of_one_example_is_refused_as_covlearn_fit_does() -> None:
    x, y = clouds(60)
    y[:2] = 7
    NoisyLabelClassifier(**FAST, random_state=0).fit(x, y)
    y[0] = 8
    with pytest.raises(ValueError, match="at least two examples, got one each of 7, 8; leave out"):
        NoisyLabelClassifier(**FAST).fit(x, y)
    with pytest.raises(ValueError, match="its class '7' has no other example"):
        read_examples((x, y))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.zeros(30)}, "at least two classes, got one class, 0.0"),
        ({"X": np.full((30, 2), np.nan)}, "NaN"),
        ({"y": np.array([1, "a"] * 15, object)}, r"of one kind, got int and str; \[str"),
        ({"method": "cla"}, "did you mean 'cal'"),
        ({"preset": "recomended"}, "did you mean 'recommended'"),
        ({"net": "mpl"}, "unknown net 'mpl'; did you mean mlp"),
        ({"device": "tpu"}, "device must be auto, cpu or cuda, got 'tpu'"),
        ({"settings": {"plan.epoch": 1}}, "did you mean 'plan.epochs'"),
        (
            {"settings": "plan.epochs=1"},
            "settings must be a mapping or a sequence of text, got .*write them as",
        ),
        ({"random_state": "zero"}, "random_state must be None, an integer"),
    ],
)
def test_bad_input_is_a_sentence(changes: dict[str, Any], message: str) -> None:
    x, y = clouds(30)
    options: dict[str, Any] = {"device": "cpu"} | changes
    x, y = options.pop("X", x), options.pop("y", y)
    with pytest.raises(ValueError, match=message):
        NoisyLabelClassifier(**options).fit(x, y)


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize(
    "labels",
    [
        lambda values: np.array(values, object),
        lambda values: [np.nan if value is None else value for value in values],
        lambda values: pd.Series(values, dtype="string"),
        lambda values: pd.Series(values, dtype="category"),
        lambda values: pd.Series([{"a": 0, "b": 1}.get(v) for v in values], dtype="Int64"),
        lambda values: np.array([{"a": 0, "b": 1}.get(v, np.nan) for v in values]),
        lambda values: torch.tensor([{"a": 0, "b": 1}.get(v, torch.nan) for v in values]),
        lambda values: [1 if value == "a" else value for value in values],
    ],
)
def test_missing_labels_are_counted_whatever_they_are(labels: Any, first: int) -> None:
    x, _ = clouds(30)
    y = labels([None, "a", "b"] * 10 if first == 0 else ["a", "b", None] * 10)
    says = f"got 10 missing .* of 30, first at position {first}; fit on those with one, keep = "
    for inputs in (x, np.zeros((30, 8, 8, 1), np.uint8)):
        with pytest.raises(ValueError, match=says) as caught:
            NoisyLabelClassifier(device="cpu").fit(inputs, y)
        assert "\n" not in str(caught.value)


CITY = pd.DataFrame({"size": np.arange(30.0), "city": ["Ulm", "Bonn", None] * 10})
GAPS = pd.DataFrame({"size": np.arange(30.0), "rooms": [1.0, np.nan, 2.0] * 10})


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (CITY, "there is text, as 'Ulm', in column 'city'"),
        (CITY.to_numpy(), "there is text, as 'Ulm', in column 1"),
        (CITY.astype({"city": "category"}), "there is text, as 'Ulm', in column 'city'"),
        (CITY.assign(name="a"), "in columns 'city', 'name'"),
        ([[1, "Ulm"], [2, None]] * 15, "there is text, as 'Ulm', in column 1"),
        (
            CITY.assign(city=pd.Timestamp("2020-01-02")),
            "a date, as '2020-01-02 .* in column 'city'",
        ),
        (GAPS, r"10 cells are missing \(NaN\) in column 'rooms'"),
        (GAPS.astype({"rooms": "Int64"}), r"10 cells are missing \(NaN\) in column 'rooms'"),
        (GAPS.to_numpy(), r"10 cells are missing \(NaN\) in column 1"),
        (
            GAPS.assign(more=GAPS["rooms"]),
            r"20 cells are missing \(NaN\) in columns 'rooms', 'more'",
        ),
    ],
)
def test_a_table_that_is_not_numbers_is_told_what_reads_it(table: Any, says: str) -> None:
    _, y = clouds(30)
    names = "; covlearn fit reads a table .*covlearn.inputs.read_examples makes numbers of it"
    with pytest.raises(ValueError, match=f"X must be numbers, but .*{says}{names}") as caught:
        NoisyLabelClassifier(device="cpu").fit(table, y)
    assert "\n" not in str(caught.value)


def test_what_is_missing_in_prediction_is_named_too() -> None:
    full = GAPS.fillna(0)
    model = NoisyLabelClassifier(**FAST, random_state=0).fit(full, np.arange(30) % 2)
    with pytest.raises(ValueError, match=r"missing \(NaN\) in column 'rooms'"):
        model.predict(GAPS)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(full.rename(columns={"rooms": "beds"}))
    with pytest.raises(ValueError, match="Expected 2D array"):
        NoisyLabelClassifier(device="cpu").fit(np.full(30, np.nan), np.arange(30) % 2)


def test_weights_are_refused_with_a_sentence() -> None:
    x, y = clouds(30)
    with pytest.raises(TypeError, match="sample_weight is not supported"):
        NoisyLabelClassifier().fit(x, y, sample_weight=np.ones(30))


def test_missing_labels_of_a_tuple_are_counted() -> None:
    x = np.random.default_rng(0).normal(size=(6, 2))
    with pytest.raises(ValueError, match="got 2 missing"):
        NoisyLabelClassifier().fit(x, (None, "a", "b", None, "a", "b"))


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.zeros((6, 8, 8), np.uint8), r"\(6, 8, 8\) of uint8; X\[..., None\] adds the channel"),
        (np.zeros((6, 8, 8, 3), np.float32), r"\(6, 8, 8, 3\) of float32$"),
        (torch.zeros(6, 8, 8, 3, dtype=torch.uint8), r"\(6, 8, 8, 3\) of torch.uint8$"),
    ],
)
def test_images_of_another_form_are_told_which_is_read(x: Any, said: str) -> None:
    with pytest.raises(ValueError, match=r"uint8 images \(N, H, W, C\) in a NumPy array.*" + said):
        NoisyLabelClassifier(**FAST).fit(x, [0, 1] * 3)
