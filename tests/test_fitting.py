"""What `fit` reads its verdicts off."""

from dataclasses import replace

import pytest
import torch

from covlearn.calibration import label_posterior, surest_transition, wrong_by_sureness
from covlearn.fitting import COUNTED, SCALE_SPREAD, fit_split, set_up
from covlearn.noise import symmetric
from tests.runs import blobs


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_labels_count_as_wrong_more_often_on_hard_examples_if_there_is_evidence(
    rate: float,
) -> None:
    clean = blobs(300, seed=0)
    given = torch.from_numpy(symmetric(clean.y, rate=rate, num_classes=3, seed=0).label)
    split = replace(clean, y=given)
    fit = fit_split(split, set_up("cal", split=split, device="cpu"), seed=0)
    assert fit.evidence.found == (rate > 0)
    transition = surest_transition(fit.crossed, given, surest=COUNTED)
    times = wrong_by_sureness(fit.crossed, given, transition)
    assert float(times.max()) > 1.1
    alike, by_sureness = (
        label_posterior(
            fit.own_logits if fit.evidence.found else fit.crossed,
            given, transition, times=often, spread=SCALE_SPREAD,
            heard=fit.heard,
        )
        for often in (None, times)
    )  # fmt: skip
    expected, other = (by_sureness, alike) if fit.evidence.found else (alike, by_sureness)
    torch.testing.assert_close(fit.logits, expected)
    assert not torch.allclose(fit.logits, other)


def test_labels_that_a_person_decided_on_are_not_counted_as_contradictions() -> None:
    clean = blobs(300, seed=0)
    given = torch.from_numpy(symmetric(clean.y, rate=0.3, num_classes=3, seed=0).label)
    trusted = torch.arange(300) < 150
    split = replace(clean, y=torch.where(trusted, clean.y, given), trusted=trusted)
    fit = fit_split(split, set_up("cal", split=split, device="cpu"), seed=0)
    assert fit.evidence.found
    asked = ~trusted
    transition = surest_transition(fit.crossed[asked], split.y[asked], surest=COUNTED)
    times = torch.ones(300, dtype=torch.float64)
    times[asked] = wrong_by_sureness(fit.crossed[asked], split.y[asked], transition)
    among_all = wrong_by_sureness(fit.crossed, split.y, transition)
    assert not torch.allclose(times, among_all, rtol=0.01)  # else the test would see nothing
    assert fit.heard is not None
    expected = label_posterior(
        fit.own_logits, split.y, transition,
        times=times, spread=SCALE_SPREAD, heard=fit.heard,
    )  # fmt: skip
    torch.testing.assert_close(fit.logits, expected)


def test_a_given_label_that_the_network_has_learned_is_half_the_evidence_again() -> None:
    clean = blobs(300, seed=0)
    given = torch.from_numpy(symmetric(clean.y, rate=0.4, num_classes=3, seed=0).label)
    split = replace(clean, y=given)
    fit = fit_split(split, set_up("cal", split=split, device="cpu"), seed=0)
    assert fit.heard is not None
    heard = fit.heard
    assert 150 <= int(heard.sum()) < 300  # else the test would see nothing
    transition = surest_transition(fit.crossed, given, surest=COUNTED)
    times = wrong_by_sureness(fit.crossed, given, transition)
    whole = label_posterior(fit.own_logits, given, transition, times=times, spread=SCALE_SPREAD)
    torch.testing.assert_close(fit.logits[~heard], whole[~heard])
    believed, of_whole = (
        said.gather(1, given[:, None]).flatten()[heard] for said in (fit.logits, whole)
    )
    assert float((believed < of_whole).double().mean()) > 0.99


@pytest.mark.parametrize(
    ("settings", "fewest", "most"),
    [
        (["relabel=false"], 300, 300),  # CAL's loss is of all given labels
        (["balanced_subset=20"], 30, 60),  # a part of D̂
        (["relabel=false", "target=refined"], 150, 299),  # D̂ where it has a label
    ],
)
def test_what_the_network_has_heard_is_what_its_last_stage_learned(
    settings: list[str], fewest: int, most: int
) -> None:
    clean = blobs(300, seed=0)
    given = torch.from_numpy(symmetric(clean.y, rate=0.4, num_classes=3, seed=0).label)
    split = replace(clean, y=given)
    fit = fit_split(split, set_up("cal", split=split, settings=settings, device="cpu"), seed=0)
    assert fit.heard is not None
    assert fewest <= int(fit.heard.sum()) <= most


def test_wrong_labels_that_were_copied_are_found_as_if_they_were_not() -> None:
    clean = blobs(120, seed=0)
    given = torch.from_numpy(symmetric(clean.y, rate=0.3, num_classes=3, seed=0).label)
    split = replace(clean, x=clean.x.repeat(3, 1), y=given.repeat(3))
    fit = fit_split(split, set_up("cal", split=split, device="cpu"), seed=0)
    flagged = torch.from_numpy(fit.verdicts.decision != "keep")
    wrong = split.y != clean.y.repeat(3)
    assert fit.evidence.found
    assert fit.evidence.surest == 31  # a quarter of the 120, for copies are no further evidence
    assert float((flagged & wrong).sum() / wrong.sum()) > 0.7
    assert float((flagged & wrong).sum() / flagged.sum()) > 0.7
