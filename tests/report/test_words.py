"""What came out of a fit, in sentences."""

from typing import Any

import pytest

from covlearn.fitted import FitResult
from covlearn.report.words import of_fit
from covlearn.saved import is_evidence


def fitted(**evidence: Any) -> FitResult:
    return FitResult(
        method="cal",
        seed=0,
        examples=400,
        classes=3,
        skipped=[],
        noise_rate=0.3,
        decisions={"keep": 300, "relabel": 80, "drop": 10, "review": 10},
        evidence={"found": True, "sentence": "a sentence"} | evidence,
        facts={},
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("evidence", "said", "not_said"),
    [
        ({}, "About 30 % of the labels look wrong.", "Look at some"),
        ({"surest": 100, "contradicted": 50}, "About 30 %", "Look at some before you believe it"),
        ({"surest": 100, "contradicted": 51}, "Look at some before you believe it", "No evidence"),
        ({"found": False}, "No evidence that labels are wrong: none was changed.", "About"),
        ({"found": False, "learned": True}, "No evidence that labels are wrong", "be judged"),
        ({"found": False, "learned": False}, "The labels could not be judged: none", "No evidence"),
        ({"found": False}, "10 labels stand out and should be looked at by a person.", "repaired"),
        ({"found": False}, "Where 2 % or fewer of the labels are wrong", "judged"),
        ({"found": False, "tolerated": 0.005}, "Where 0.5 % or fewer of the labels", "2 %"),
        ({"found": False, "learned": False}, "10 labels stand out", "or fewer of the labels"),
    ],
)
def test_the_headline_says_what_was_found(
    evidence: dict[str, Any], said: str, not_said: str
) -> None:
    text = " ".join(of_fit(fitted(**evidence)))
    assert said in text
    assert not_said not in text
    assert text.endswith("Why: a sentence.")


@pytest.mark.parametrize(
    ("evidence", "right"),
    [
        ({"found": True, "sentence": "s"}, True),
        ({"found": True, "sentence": "s", "surest": 3, "contradicted": 1, "learned": True}, True),
        ({"found": True}, False),
        ({"found": True, "sentence": "s", "surest": "many"}, False),
        ({"found": True, "sentence": "s", "contradicted": None}, False),
        ({"found": True, "sentence": "s", "learned": "yes"}, False),
    ],
)
def test_evidence_of_a_damaged_run_is_told(evidence: dict[str, Any], right: bool) -> None:
    assert is_evidence(evidence) == right
