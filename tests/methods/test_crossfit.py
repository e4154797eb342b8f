"""CAL with cross-fitted sieves: who sees which label, when labels are left alone, and scaling."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from covlearn.calibration import label_posterior, surest_transition
from covlearn.config import plain, typed
from covlearn.engine import Plan
from covlearn.fitting import set_up
from covlearn.methods import METHODS
from covlearn.methods.ce import CE, CrossEntropy
from covlearn.methods.cores import Confident
from covlearn.methods.crossfit import (
    CrossFittedCAL,
    share_predicted,
    stratified_folds,
    sure_labels,
)
from covlearn.methods.scaled import network, recommended, schedule
from covlearn.noise import symmetric
from covlearn.run import LocalRun
from covlearn.schedules import Ramp
from covlearn.sieve import Refined
from covlearn.testing import check_method
from tests.runs import NOISY, blobs

PLAN = Plan(epochs=4, batch_size=16, lr=0.05)
METHOD = CrossFittedCAL(
    sieve_plan=PLAN, sieve_beta=Ramp(0.0), plan=PLAN, threshold="argmax", relabel=True, folds=3
)


@pytest.mark.parametrize(
    "method",
    [
        METHOD,
        replace(METHOD, relabel=False, average_share=0.2),
        replace(METHOD, decays=(0.0,)),
        replace(METHOD, deals=2),
        replace(METHOD, plain_plan=PLAN, may_hold_back=True, tolerated=0.99),
    ],
)
def test_it_passes_the_house_checks(method: CrossFittedCAL) -> None:
    check_method(method)


def test_no_score_depends_on_the_labels_of_its_own_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    fold = stratified_folds(NOISY.y, 3, seed=3)
    monkeypatch.setattr("covlearn.methods.crossfit.folds_of", lambda *_, **__: fold)
    swapped = NOISY.y.clone()
    inside = fold == 1
    swapped[inside] = NOISY.y[inside].roll(1)
    before, after = (
        METHOD.cross_fitted(LocalRun(replace(NOISY, y=y), net_options={"hidden": [8]}, seed=3))[1]
        for y in (NOISY.y, swapped)
    )
    assert torch.equal(before[inside], after[inside])
    assert not torch.equal(before[~inside], after[~inside])


def test_a_sieve_is_trained_without_its_fold() -> None:
    seen = {}

    class Watched(LocalRun):
        def train(self, stage, model, objective, plan, *, labels=None, **options):  # type: ignore[no-untyped-def]
            seen[stage] = labels
            return super().train(stage, model, objective, plan, labels=labels, **options)

    run = Watched(NOISY, net_options={"hidden": [8]}, seed=3)
    _, logits = METHOD.cross_fitted(run)
    fold = stratified_folds(NOISY.y, 3, seed=3)
    for number in range(3):
        labels = seen[f"sieve-{number}"]
        assert torch.equal(labels < 0, fold == number)
        assert torch.equal(labels[fold != number], NOISY.y[fold != number])
    assert bool(logits.isfinite().all())


@pytest.mark.parametrize(("before", "decays", "chosen"), [
    (0.5, (0.4, 0.0), 0.0),  # so much that nothing is learned, twice
    (0.0, (0.5, 0.4), 0.0),
])  # fmt: skip
def test_the_weight_decay_is_the_one_whose_sieves_predict_most_labels(
    before: float, decays: tuple[float, ...], chosen: float
) -> None:
    plan = replace(PLAN, epochs=20, weight_decay=before)
    method = replace(METHOD, sieve_plan=plan, plan=plan, decays=decays)
    run = LocalRun(NOISY, net_options={"hidden": [8]}, seed=3)
    best, logits = method.cross_fitted(run)
    assert best == replace(
        method,
        sieve_plan=replace(plan, weight_decay=chosen),
        plan=replace(plan, weight_decay=chosen),
    )
    assert run.facts["weight_decay_of_sieves"] == chosen
    own = [f"sieve-{number}" for number in range(3)]
    others = [f"{name} with weight decay {decay:g}" for decay in decays for name in own]
    assert list(run.history) == [*own, *others]
    alone = LocalRun(NOISY, net_options={"hidden": [8]}, seed=3)
    first = replace(method, decays=()).cross_fitted(alone)[1]
    assert torch.equal(logits, first) is (before == chosen)


def test_of_many_examples_a_weight_decay_is_chosen_by_few_folds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("covlearn.methods.crossfit.ENOUGH", 100)
    run = LocalRun(blobs(300, seed=0), net_options={"hidden": [8]}, seed=3)
    heavy = replace(PLAN, weight_decay=5.0)  # nothing is learned
    method = replace(METHOD, sieve_plan=heavy, plan=heavy, decays=(0.0,))
    best, logits = method.cross_fitted(run)
    assert best.plan.weight_decay == 0.0
    assert list(run.history) == [
        "sieve-0",
        "sieve-0 with weight decay 0",
        "sieve-1 with weight decay 0",
        "sieve-2 with weight decay 0",
    ]
    assert bool((logits != 0).any(dim=1).all()), "every example has its sieve"


def test_clean_labels_are_left_as_they_are() -> None:
    clean = blobs(300, seed=0)
    run = LocalRun(replace(clean, x=clean.x * 2), net_options={"hidden": [8]})
    METHOD.fit(run)
    assert run.refined is not None
    assert torch.equal(run.refined[0], clean.y)
    assert not run.facts["evidence_found"]
    assert set(run.history) == {"sieve-0", "sieve-1", "sieve-2", "ce"}


@pytest.mark.parametrize(("plain_lr", "held_back"), [(1e-9, True), (0.05, False)])
def test_labels_without_evidence_are_trained_on_in_the_way_that_predicts_more(
    plain_lr: float, held_back: bool
) -> None:
    clean = blobs(300, seed=0)
    plain = replace(PLAN, epochs=8, lr=plain_lr)
    sieves = replace(PLAN, epochs=4) if held_back else replace(PLAN, epochs=1, lr=0.01)
    method = replace(METHOD, sieve_plan=sieves, plain_plan=plain, may_hold_back=True)
    run = LocalRun(replace(clean, x=clean.x * 2), net_options={"hidden": [8]}, seed=3)
    model = method.fit(run)
    assert not run.facts["evidence_found"]
    assert run.facts["held_back"] is held_back
    stages = [f"{kind}-{number}" for kind in ("sieve", "plain") for number in range(3)]
    assert list(run.history) == [*stages, "ce"]
    alone = LocalRun(run.split, net_options={"hidden": [8]}, seed=3)
    ce = CE(plan=sieves if held_back else plain).fit(alone)
    for ours, theirs in zip(model.parameters(), ce.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_what_is_compared_is_cross_entropy() -> None:
    clean = blobs(300, seed=0)
    method = replace(METHOD, sieve_beta=Ramp(0.5), plain_plan=PLAN, may_hold_back=True)
    run = LocalRun(replace(clean, x=clean.x * 2), net_options={"hidden": [8]}, seed=3)
    method.fit(run)
    assert "held_back" not in run.facts
    assert list(run.history) == ["sieve-0", "sieve-1", "sieve-2", "ce"]


def test_trained_plainly_it_is_the_cross_entropy_of_its_own_preset() -> None:
    for shape in ((5,), (500,), (32, 32, 3)):
        cal, ce = (
            recommended(name, num_examples=300, num_classes=3, shape=shape).method
            for name in ("cal", "ce")
        )
        assert isinstance(cal, CrossFittedCAL)
        assert isinstance(ce, CE)
        assert cal.plain_plan == ce.plan


@pytest.mark.parametrize(("shares", "chosen"), [
    ((0.5, 0.5, 0.5), 0.0), ((0.5, 0.51, 0.51), 0.1), ((0.5, 0.49, 0.51), 0.2),
])  # fmt: skip
def test_of_weight_decays_that_predict_as_much_the_first_is_taken(
    shares: tuple[float, ...], chosen: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(shares)
    monkeypatch.setattr("covlearn.methods.crossfit.share_predicted", lambda *_: next(left))
    run = LocalRun(NOISY, net_options={"hidden": [8]}, seed=3)
    best, _ = replace(METHOD, decays=(0.1, 0.2)).cross_fitted(run)
    assert best.plan.weight_decay == best.sieve_plan.weight_decay == chosen


@pytest.mark.parametrize(("more", "chosen"), [(0, 0.3), (4, 0.3), (5, 0.1), (60, 0.1)], ids=str)
def test_stage_2_is_held_back_less_where_that_clearly_predicts_more(
    more: int, chosen: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def heard(self: CrossFittedCAL, run: Any, *_: Any, labels: Any, **__: Any) -> torch.Tensor:
        asked.append((self.sieve_plan.weight_decay, labels))
        right = torch.nn.functional.one_hot(run.split.y, 3).float()
        count = more if self.sieve_plan.weight_decay < 0.3 else 0
        return torch.cat([right[:count], right[count:].roll(1, dims=1)])

    monkeypatch.setattr(CrossFittedCAL, "fold_logits", heard)
    plan = replace(PLAN, weight_decay=0.3)
    method = replace(METHOD, plan=plan, sieve_plan=plan)
    label = torch.where(torch.arange(len(NOISY)) % 2 == 0, NOISY.y, -1)
    refined = Refined(label, keep=label >= 0, score=torch.zeros(len(label)))
    run = LocalRun(NOISY, net_options={"hidden": [8]}, seed=3)
    best = method.held_back_less(run, refined, (0.1, 3.0, 0.3))  # the plan had 0.1
    assert best == replace(method, plan=replace(plan, weight_decay=chosen))
    assert run.facts["weight_decay_of_network"] == chosen
    assert [decay for decay, _ in asked] == [0.3, 0.1]
    assert all(labels is label for _, labels in asked)


@pytest.mark.parametrize(
    ("changes", "decays"),
    [
        ({}, (0.3, 0.1)),  # it is the plan's own
        ({"relabel": False}, (0.1,)),
        ({"sieve_beta": Ramp(1.0)}, (0.1,)),
        ({"sieve_mixup": True}, (0.1,)),
        ({"sieve_balanced_batches": 3}, (0.1,)),
        ({"balanced_batches": 3}, (0.1,)),
        ({"balanced_subset": 5}, (0.1,)),
    ],
    ids=str,
)
def test_stage_2_is_held_back_as_the_sieves_where_nothing_can_be_compared(
    changes: dict[str, Any], decays: tuple[float, ...]
) -> None:
    method = replace(METHOD, plan=replace(PLAN, weight_decay=0.3), **changes)
    refined = Refined(NOISY.y, keep=NOISY.y >= 0, score=torch.zeros(len(NOISY)))
    run = LocalRun(NOISY, net_options={"hidden": [8]}, seed=3)
    assert method.held_back_less(run, refined, decays) is method
    assert not run.history


def test_a_decay_that_is_named_twice_is_tried_once() -> None:
    plan = replace(PLAN, weight_decay=0.3)
    refined = Refined(NOISY.y, keep=NOISY.y >= 0, score=torch.zeros(len(NOISY)))
    run = LocalRun(NOISY, net_options={"hidden": [8]}, seed=3)
    replace(METHOD, plan=plan).held_back_less(run, refined, (0.1, 0.1 + 1e-9, 0.3, 0.3 - 1e-9))
    names = [f"refined-{number} with weight decay " for number in range(3)]
    assert list(run.history) == [f"{name}{decay}" for decay in (0.3, 0.1) for name in names]


def test_fit_trains_on_refined_labels_with_the_weight_decay_that_suits_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clean = blobs(300, seed=0)
    given = torch.from_numpy(symmetric(clean.y, rate=0.3, num_classes=3, seed=0).label)
    shares = iter([0.1, 0.9, 0.1])  # the sieves with the first of the other decays predict most
    monkeypatch.setattr("covlearn.methods.crossfit.share_predicted", lambda *_: next(shares))
    asked, plans = [], {}

    def suited(self: CrossFittedCAL, _: Any, __: Any, decays: tuple[float, ...]) -> CrossFittedCAL:
        asked.append((self.plan.weight_decay, decays))
        return replace(self, plan=replace(self.plan, weight_decay=0.017))

    monkeypatch.setattr(CrossFittedCAL, "held_back_less", suited)
    run = LocalRun(replace(clean, y=given, x=clean.x * 2), net_options={"hidden": [8]}, seed=3)
    train = run.train

    def watched(stage: str, model: Any, objective: Any, plan: Plan, **options: Any) -> Any:
        plans[stage] = plan.weight_decay
        return train(stage, model, objective, plan, **options)

    run.train = watched  # type: ignore[method-assign]
    plan = replace(PLAN, epochs=8, weight_decay=0.001)
    replace(METHOD, plan=plan, sieve_plan=plan, decays=(0.01, 0.0001)).fit(run)
    assert run.facts["evidence_found"]
    assert asked == [(0.01, (0.001, 0.01, 0.0001))]
    assert plans["relabel"] == 0.017


def test_networks_on_refined_labels_are_tried_without_their_fold() -> None:
    seen: dict[str, torch.Tensor] = {}
    plan = replace(PLAN, weight_decay=0.3)
    run = LocalRun(NOISY, net_options={"hidden": [8]}, seed=3)
    train = run.train

    def watched(stage: str, *arguments: Any, labels: Any = None, **options: Any) -> Any:
        seen[stage] = labels
        return train(stage, *arguments, labels=labels, **options)

    run.train = watched  # type: ignore[method-assign]
    label = NOISY.y.roll(1)
    refined = Refined(label, keep=label >= 0, score=torch.zeros(len(label)))
    replace(METHOD, plan=plan).held_back_less(run, refined, (0.0,))
    fold = stratified_folds(NOISY.y, 3, seed=3)
    assert list(seen) == [
        f"refined-{number} with weight decay {decay}"
        for decay in ("0.3", "0")
        for number in range(3)
    ]
    for stage, labels in seen.items():
        outside = fold == int(stage.split()[0][-1])
        assert torch.equal(labels, torch.where(outside, -1, label))


def test_every_class_counts_alike() -> None:
    given = torch.tensor([0] * 9 + [1])
    majority = torch.tensor([[1.0, 0.0]]).repeat(10, 1)
    both = majority.clone()
    both[8:] = torch.tensor([0.0, 1.0])
    assert share_predicted(majority, given) == 0.5
    assert share_predicted(both, given) == pytest.approx((8 / 9 + 1) / 2)


def test_the_mean_of_several_deals_counts() -> None:
    run, other = (LocalRun(NOISY, net_options={"hidden": [8]}, seed=3) for _ in range(2))
    method = replace(METHOD, deals=3)
    _, first = method.cross_fitted(run)
    assert METHOD.of_all_deals(run, first) is first
    probs = [first.double().softmax(dim=1)]
    for deal in (2, 3):
        fold = stratified_folds(NOISY.y, 3, seed=3, deal=deal)
        assert not torch.equal(fold, stratified_folds(NOISY.y, 3, seed=3, deal=deal - 1))
        again = method.fold_logits(other, fold, range(3), f" of deal {deal}")
        probs.append(again.double().softmax(dim=1))
    mean = method.of_all_deals(run, first).double().exp()
    torch.testing.assert_close(mean, torch.stack(probs).mean(dim=0), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("rows", "shape", "deals"), [(999, (5,), 3), (1_000, (5,), 1), (999, (16, 16, 1), 1)]
)
def test_few_rows_are_dealt_out_three_times(rows: int, shape: tuple[int, ...], deals: int) -> None:
    method = recommended("cal", num_examples=rows, num_classes=3, shape=shape).method
    assert isinstance(method, CrossFittedCAL)
    assert method.deals == deals


def test_wrong_labels_are_refined() -> None:
    clean = blobs(300, seed=0)
    noisy = torch.from_numpy(symmetric(clean.y, rate=0.3, num_classes=3, seed=0).label)
    run = LocalRun(replace(clean, y=noisy), net_options={"hidden": [32]})
    method = recommended("cal", num_examples=300, num_classes=3, shape=(5,)).method
    method.fit(run)
    assert run.refined is not None
    assert run.facts["evidence_found"]
    assert (run.refined[0] == clean.y).float().mean() > (noisy == clean.y).float().mean() + 0.1
    assert run.refined_by is not None
    refined, _, _ = run.refined
    kept = refined >= 0
    posterior = label_posterior(run.refined_by, noisy, surest_transition(run.refined_by, noisy))
    assert torch.equal(posterior.argmax(dim=1)[kept], refined[kept])
    assert kept.float().mean() > 0.6
    assert (posterior.exp().max(dim=1).values[~kept] < 0.7).all()
    sieves = [f"sieve-{number}" for number in range(5)]
    others = [f"{name} with weight decay {decay}" for decay in (0.3, 0.009) for name in sieves]
    others += [f"{name} of deal {deal}" for deal in (2, 3) for name in sieves]
    tried = {stage for stage in run.history if stage.startswith("refined-")}
    assert set(run.history) == {*sieves, *others, *tried, "relabel"}
    assert bool(tried) == (run.facts["weight_decay_of_sieves"] == 0.3)


def test_labels_that_nothing_can_be_learned_from_are_not_called_wrong() -> None:
    found = 0
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        noisy = torch.randint(3, (300,), generator=generator)
        run = LocalRun(replace(blobs(300, seed=0), y=noisy), net_options={"hidden": [8]}, seed=seed)
        METHOD.fit(run)
        assert run.facts["surest_contradicted"] > 20
        assert "relabel" in run.history  # labels are not trained on as they are, nor called wrong
        found += run.facts["evidence_found"]
    assert found <= 1


def test_without_its_regulariser_a_sieve_is_cross_entropy() -> None:
    run = LocalRun(NOISY, net_options={"hidden": [8]}, seed=3)
    assert isinstance(METHOD.sieve_objective(run), CrossEntropy)
    confident = replace(METHOD, sieve_beta=Ramp(2.0)).sieve_objective(run)
    assert isinstance(confident, Confident)


def test_the_surer_half_of_each_class_stays() -> None:
    probs = torch.tensor([[0.6, 0.4]] * 2 + [[0.55, 0.45]] * 2 + [[0.2, 0.8]] * 3 + [[0.45, 0.55]])
    noisy = torch.tensor([0, 1, 0, 0, 1, 1, 0, 1])
    refined = sure_labels(probs.log(), noisy, torch.zeros(8), sure=0.7)
    assert refined.label.tolist() == [0, 0, -1, -1, 1, 1, 1, -1]
    assert refined.keep.tolist() == [True, False, False, False, True, True, False, False]
    everything = sure_labels(probs.log(), noisy, torch.zeros(8), sure=0.0)
    assert everything.label.tolist() == [0] * 4 + [1] * 4


def test_the_average_spans_a_share_of_the_steps() -> None:
    made = replace(METHOD, average_share=0.25).averaging(160)
    assert made.plan.average == pytest.approx(1 - 1 / 10)  # a quarter of 4 epochs of 10 steps
    assert made.averaging(160) == made
    assert METHOD.averaging(160) is METHOD


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"folds": 1}, "folds must be at least 2"),
        ({"deals": 0}, "deals must be at least 1"),
        ({"labels": "file.npy"}, "makes D̂ itself"),
        ({"warm_start": True}, "makes D̂ itself"),
        ({"relabel": False, "target": "posterior"}, "use method cal for target=posterior"),
        ({"sieve_best": True, "scores": "evaluation"}, "use method cal for sieve_best"),
        ({"scores": "averaged", "look_for_evidence": True}, "for scores, look_for_evidence, or"),
        ({"average_share": 1.0}, "average_share must lie in"),
        ({"sure": 70}, "70 % is written 0.7"),
    ],
)
def test_settings_are_checked(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(METHOD, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("count", [2, 10, 500, 1297, 10_000, 100_000, 1_000_000])
def test_the_schedule_is_sane_at_every_size(count: int, images: bool) -> None:
    batch_size, epochs = schedule(count, images=images)
    steps = -(-count // batch_size) * epochs
    assert 8 <= batch_size <= 512
    assert epochs >= 20
    fewest = 600 if images else min(600, max(150, count // 2))
    assert fewest <= steps <= max(2 * fewest, 20 * -(-count // batch_size))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("count", [500, 100_000])
def test_every_method_is_stretched_as_a_whole(name: str, count: int) -> None:
    choice = recommended(name, num_examples=count, num_classes=10, shape=(64,))
    batch_size, epochs = schedule(count)
    for value in vars(choice.method).values():
        if isinstance(value, Plan):
            assert value.batch_size == batch_size
            assert 0 < value.epochs <= epochs
            assert all(0 < milestone <= value.epochs for milestone in value.lr_milestones)
        if isinstance(value, Ramp):
            assert value.end <= epochs
    assert typed(type(choice.method), plain(choice.method)) == choice.method
    if name == "ce":
        assert vars(choice.method)["plan"].epochs == epochs
        assert vars(choice.method)["plan"].lr_milestones == (round(epochs * 2 / 3),)


@pytest.mark.parametrize("name", ["cal", "ce", "coteaching_plus"])
def test_steps_shrink_with_many_features(name: str) -> None:
    def plans(shape: tuple[int, ...]) -> list[Plan]:
        made = recommended(name, num_examples=500, num_classes=10, shape=shape).method
        return [value for value in vars(made).values() if isinstance(value, Plan)]

    few, at_most, many, images = (plans(shape) for shape in ((13,), (128,), (1280,), (32, 32, 3)))
    assert few == at_most
    assert few
    for one, other, pixels in zip(few, many, images, strict=True):
        factor = 0.1 if one.optimizer == "sgd" else 1.0
        assert other.lr == pytest.approx(factor * one.lr)
        assert pixels.lr == one.lr


def test_the_network_fits_the_data() -> None:
    assert network((64,), 10, 500) == ("mlp", {"hidden": [256, 256], "shortcut": True})
    assert network((64,), 1000, 500) == ("mlp", {"hidden": [512, 512], "shortcut": True})
    assert network((32, 32, 3), 10, 20_000) == ("cnn", {})
    assert network((32, 32, 3), 10, 2_000) == ("cnn", {"widths": [16, 32, 64]})


def test_images_are_neither_held_back_by_weight_decay_nor_judged_as_features() -> None:
    options: Any = {"num_examples": 2_000, "num_classes": 10}
    features = recommended("cal", shape=(64,), **options).method
    images = recommended("cal", shape=(32, 32, 3), **options).method
    assert isinstance(features, CrossFittedCAL)
    assert isinstance(images, CrossFittedCAL)
    assert features.plan.weight_decay > 0.01
    assert features.decays[0] > features.plan.weight_decay > features.decays[1]
    assert images.decays == ()
    assert images.plan.weight_decay == images.sieve_plan.weight_decay == 5e-4
    assert (features.tolerated, images.tolerated) == (0.02, 0.05)  # they err where they are sure


@pytest.mark.parametrize("name", ["plan", "sieve_plan"])
def test_a_weight_decay_that_is_asked_for_is_kept(name: str) -> None:
    split = blobs(60, seed=0)
    chosen = set_up("cal", split=split, device="cpu").choice.method
    asked = set_up(
        "cal", split=split, settings=[f"{name}.weight_decay=0.5"], device="cpu"
    ).choice.method
    assert isinstance(chosen, CrossFittedCAL)
    assert isinstance(asked, CrossFittedCAL)
    assert len(chosen.decays) == 2
    assert chosen.may_hold_back
    assert asked.decays == ()
    assert asked.may_hold_back
    assert getattr(asked, name).weight_decay == 0.5


def test_plain_training_that_is_asked_for_is_kept() -> None:
    asked = set_up(
        "cal", split=blobs(60, seed=0), settings=["plain_plan.lr=0.02"], device="cpu"
    ).choice.method
    assert isinstance(asked, CrossFittedCAL)
    assert asked.plain_plan is not None
    assert asked.plain_plan.lr == 0.02
    assert not asked.may_hold_back
    assert len(asked.decays) == 2


@pytest.mark.parametrize("decays", [(0.1, 0.1), (0.1, -0.1), (float("inf"),)])
def test_weight_decays_that_make_no_sense_are_refused(decays: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="decays must"):
        CrossFittedCAL(decays=decays)


def test_parts_are_made_of_what_a_relu_has_made() -> None:
    options: Any = {"num_examples": 500, "num_classes": 3, "shape": (5,)}
    assert recommended("ptd", **options).net_options["shortcut"] is False
    assert recommended("ce", **options).net_options["shortcut"] is True
