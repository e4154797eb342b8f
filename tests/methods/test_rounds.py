"""CAL in rounds: what each trains on, where it starts, when they end, and what is recorded."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from covlearn import records
from covlearn.covariance import SecondOrder
from covlearn.methods import CAL
from covlearn.methods.crossfit import CrossFittedCAL
from covlearn.run import fit_and_evaluate
from covlearn.testing import NET_OPTIONS, make_toy, shortened
from tests.methods.cal_runs import Watched

SHORT = shortened(CAL(scores="averaged", threshold="argmax", rounds=3), epochs=4)
# A sieve that has hardly begun leaves something to the rounds.
ROUNDS = replace(SHORT, sieve_plan=replace(SHORT.sieve_plan, epochs=1))


def fitted(method: CAL) -> Watched:
    run = Watched(make_toy(240).split, net_options=NET_OPTIONS, seed=7)
    method.fit(run)
    return run


def test_each_round_trains_on_what_the_last_one_said_on_average() -> None:
    run = fitted(ROUNDS)
    assert list(run.calls) == ["sieve", "cal", "cal 2", "cal 3"]
    everyone, changed = torch.arange(240), []
    for before, after in (("sieve", "cal"), ("cal", "cal 2"), ("cal 2", "cal 3")):
        label = run.calls[before]["ledger"].memory.probs(everyone).argmax(dim=1)
        objective = run.calls[after]["objective"]
        assert torch.equal(objective.refined, label)
        stats = SecondOrder.from_labels(run.split.y, label, 3, empty_class="identity")
        assert torch.equal(objective.transition, stats.transition), "T̂ is counted again"
        if before != "sieve":
            used = run.calls[before]["objective"].refined
            changed.append(float((label != used).float().mean()))
    assert run.facts["rounds_changed"] == changed
    assert min(changed) < max(changed)
    assert run.refined is not None
    assert torch.equal(run.refined[0], run.calls["cal 3"]["objective"].refined)
    assert run.refined[2] == "averaged predictions of stage cal 2"


def test_one_round_is_what_it_was() -> None:
    once = fitted(replace(ROUNDS, rounds=1))
    assert list(once.calls) == ["sieve", "cal"]
    assert once.calls["cal"]["plan"].average_predictions is None
    assert "rounds_changed" not in once.facts
    assert torch.equal(once.calls["cal"]["end"], fitted(ROUNDS).calls["cal"]["end"])


@pytest.mark.parametrize("start", ["new", "last"])
def test_where_a_round_starts(start: Any) -> None:
    run = fitted(replace(ROUNDS, rounds_from=start))
    before = run.calls["cal"]["end"] if start == "last" else run.nets["cal 2"]
    assert torch.equal(run.calls["cal 2"]["start"], before)
    assert ("cal 2" in run.nets) is (start == "new")


def test_rounds_end_where_little_changes() -> None:
    first, _ = fitted(ROUNDS).facts["rounds_changed"]
    assert 0 < first < 1
    run = fitted(replace(ROUNDS, rounds_stop=1.0))
    assert list(run.calls) == ["sieve", "cal"]
    assert run.facts["rounds_changed"] == [first]
    assert run.refined is not None
    assert torch.equal(run.refined[0], run.calls["cal"]["objective"].refined), "D̂ is the one used"
    assert "cal 2" in fitted(replace(ROUNDS, rounds_stop=first)).calls, "not less, but as many"


def test_labels_of_people_stay_in_every_round() -> None:
    toy = make_toy(240)
    trusted = torch.arange(240) % 4 == 0
    run = Watched(replace(toy.split, trusted=trusted), net_options=NET_OPTIONS, seed=7)
    ROUNDS.fit(run)
    for stage in ("cal", "cal 2", "cal 3"):
        refined = run.calls[stage]["objective"].refined
        assert torch.equal(refined[trusted], run.split.y[trusted])


@pytest.mark.parametrize(
    ("settings", "stages"),
    [
        ({"relabel": True}, ["sieve", "relabel", "relabel 2", "relabel 3"]),
        ({"target": "posterior_rows"}, ["sieve", "cal", "cal 2", "cal 3"]),
    ],
)
def test_rounds_of_other_second_stages(settings: dict[str, Any], stages: list[str]) -> None:
    run = fitted(replace(ROUNDS, **settings))
    assert list(run.calls) == stages
    last, before = run.calls[stages[-1]], run.calls[stages[-2]]["ledger"].memory
    expected = before.probs(torch.arange(240))
    if "relabel" in settings:
        assert torch.equal(last["labels"], expected.argmax(dim=1))
    else:
        assert torch.equal(last["objective"].posterior, expected)


def test_how_good_the_labels_of_each_round_are_stands_in_the_record(tmp_path: Path) -> None:
    toy = make_toy(240)
    fit_and_evaluate(
        ROUNDS,
        toy.split,
        test=toy.test,
        clean=toy.clean,
        folder=tmp_path / "run",
        net_options=NET_OPTIONS,
    )
    record = records.read(tmp_path / "run")
    assert record.result is not None
    assert record.result.labels is not None
    right = {line["stage"]: line["averaged_right"] for line in record.metrics}
    assert list(right) == ["sieve", "cal", "cal 2", "cal 3"]
    assert record.result.labels["quality"]["share_right"] == right["cal 2"]
    assert len(record.result.facts["rounds_changed"]) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"rounds_stop": 2.0}, r"rounds_stop must lie in \[0, 1\], got 2.0; 1 % is written 0.01"),
        ({"rounds_from": "lst"}, "must be one of new, last, got 'lst'; did you mean 'last'"),
        ({"rounds": 2, "covariance": False}, "rounds=2 renew D̂, which nothing here looks at"),
        ({"rounds": 2, "balanced_batches": 3}, "rounds=2 takes every example once an epoch"),
        ({"rounds": 2, "balanced_subset": 3}, "rounds=2 takes every example once an epoch"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CAL(**settings)


def test_cross_fitted_sieves_have_no_rounds() -> None:
    with pytest.raises(ValueError, match="use method cal for rounds, or leave it out"):
        CrossFittedCAL(rounds=2)
