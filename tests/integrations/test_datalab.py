"""A run's probabilities and features reach Datalab in its order, and its issues come back as D̂."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from covlearn import records
from covlearn.covariance import CALLoss
from covlearn.inputs import read_examples
from covlearn.integrations.datalab import features_of, refined_from_datalab, to_datalab
from tests.integrations.conftest import WINES, Case

datalab = pytest.importorskip("cleanlab.datalab.datalab")


@pytest.fixture(scope="module")
def lab(wine: Case) -> object:
    return to_datalab(wine.fitted)


def test_issues_are_about_the_classes_of_the_run(wine: Case, lab: object) -> None:
    issues = lab.get_issues("label")  # type: ignore[attr-defined]
    assert lab.class_names == sorted(WINES)  # type: ignore[attr-defined]
    assert wine.fitted.classes == WINES  # another order, so that columns must have moved
    assert issues["given_label"].tolist() == wine.fitted.labels["given"]
    with np.load(wine.fitted.folder / records.PROBS) as file:
        best = [WINES[number] for number in file["probs"].argmax(axis=1)]
    found = issues["is_label_issue"].to_numpy()
    assert found.sum() >= 10
    assert issues["predicted_label"][found].tolist() == np.array(best)[found].tolist()
    wrong = np.array(wine.fitted.labels["decision"]) == "relabel"
    assert (wrong & found).sum() / found.sum() > 0.8  # the two agree on what is wrong


def test_features_are_what_the_head_sees(wine: Case, lab: object) -> None:
    examples = read_examples(str(wine.source), recipe=wine.fitted.recipe)
    hidden = torch.from_numpy(features_of(wine.fitted, examples))
    probs = wine.fitted.model.fc(hidden).softmax(dim=1)  # type: ignore[operator]
    expected = wine.fitted.probabilities(examples.x)
    np.testing.assert_allclose(probs.detach().numpy(), expected, atol=1e-5)
    assert "near_duplicate" in set(lab.get_issue_summary()["issue_type"])  # type: ignore[attr-defined]
    without = to_datalab(wine.fitted.folder, features=False)
    assert "near_duplicate" not in set(without.get_issue_summary()["issue_type"])


def test_issues_serve_as_refined_labels(wine: Case, lab: object) -> None:
    refined = refined_from_datalab(lab, classes=wine.fitted.classes)
    issues = lab.get_issues("label")  # type: ignore[attr-defined]
    found = torch.from_numpy(issues["is_label_issue"].to_numpy().copy())
    given = torch.tensor([WINES.index(name) for name in wine.fitted.labels["given"]])
    assert torch.equal(refined.keep, ~found)
    assert torch.equal(refined.label[~found], given[~found])
    assert bool((refined.label[found] != given[found]).all())
    assert refined.score[found].min() > refined.score[~found].median()
    criterion = CALLoss(given, refined.label, num_classes=3)
    assert not torch.equal(criterion.transition, torch.eye(3))
    with pytest.raises(ValueError, match="classes must hold every label"):
        refined_from_datalab(lab, classes=WINES[:2])


def test_classes_may_be_what_numpy_and_pandas_make_of_them(wine: Case, lab: object) -> None:
    """As of np.unique, of a classifier's classes_ or of a table's categories."""
    plain = refined_from_datalab(lab, classes=WINES)
    for classes in (np.array(WINES), pd.Series(WINES), pd.CategoricalIndex(WINES).unique()):
        assert torch.equal(refined_from_datalab(lab, classes=classes).label, plain.label)
    with pytest.raises(ValueError, match="classes must be a sequence of names, got"):
        refined_from_datalab(lab, classes=[WINES])


def test_a_lab_without_label_issues_is_refused() -> None:
    lab = datalab.Datalab({"label": [0, 1, 0, 1]}, label_name="label", verbosity=0)
    with pytest.raises(ValueError, match="must have looked for label issues"):
        refined_from_datalab(lab)


def test_data_that_is_gone_or_another_is_refused(wine: Case, tmp_path: Path) -> None:
    moved = wine.fitted.config | {"source": {"path": str(tmp_path / "gone.csv")}}
    fitted = replace(wine.fitted, config=moved)
    with pytest.raises(ValueError, match=r"gone\.csv is not there; pass source="):
        to_datalab(fitted)
    other = tmp_path / "other.csv"
    other.write_text(wine.source.read_text().replace(",1065.0,", ",1066.0,", 1))
    assert other.read_text() != wine.source.read_text()
    with pytest.raises(ValueError, match="178 that differ"):
        to_datalab(fitted, source=other)
