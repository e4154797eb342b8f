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
        )
        for often in (None, times)
    )  # fmt: skip
    expected, other = (by_sureness, alike) if fit.evidence.found else (alike, by_sureness)
    torch.testing.assert_close(fit.logits, expected)
    assert not torch.allclose(fit.logits, other)
