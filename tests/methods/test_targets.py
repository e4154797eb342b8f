"""What CAL is once D̂ is given: cross-entropy against T̂[ŷ], or with a posterior against q(x) T̂."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from covlearn import records
from covlearn.covariance import SecondOrder, cal
from covlearn.data import Batch, Mix, Split
from covlearn.engine import Outputs
from covlearn.kept import Kept
from covlearn.ledger import Ledger
from covlearn.methods import CAL, CE
from covlearn.methods.base import class_shares, view_of
from covlearn.methods.cal_loss import CovarianceAssisted
from covlearn.methods.ce import CrossEntropy
from covlearn.methods.targets import EPS, TARGETS, Targeted, soft_transition
from covlearn.run import LocalRun, fit_and_evaluate
from covlearn.schedules import Ramp
from covlearn.sieve import Refined
from covlearn.testing import make_toy, shortened

SIZE, CLASSES, BETA = 60, 4, 0.7


def drawn() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits, noisy labels, refined labels and a posterior."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(SIZE, CLASSES, generator=generator, dtype=torch.float64)
    y = torch.randint(CLASSES, (SIZE,), generator=generator)
    refined = torch.where(
        torch.rand(SIZE, generator=generator) < 0.6,
        y,
        torch.randint(CLASSES, (SIZE,), generator=generator),
    )
    posterior = torch.rand(SIZE, CLASSES, generator=generator, dtype=torch.float64)
    return logits, y, refined, posterior / posterior.sum(dim=1, keepdim=True)


def batch_of(y: Tensor) -> Batch:
    return Batch(torch.zeros(len(y), 1), y, torch.arange(len(y)))


def prior() -> Tensor:
    return torch.tensor([0.4, 0.3, 0.2, 0.1])


def sample_cal(logits: Tensor, y: Tensor, refined: Tensor, stats: SecondOrder) -> Tensor:
    """With one cut-off for all terms."""
    options: dict[str, Any] = {"eps": EPS, "regularizer_eps": EPS, "weighting": "sample"}
    return cal(logits, y, refined, stats, prior=prior(), beta=BETA, **options)


def targeted(refined: Tensor, of_class: Tensor, posterior: Tensor | None = None) -> Targeted:
    objective = Targeted(refined, of_class, prior=prior(), beta=Ramp(BETA), posterior=posterior)
    objective.begin_epoch(0, Ledger(SIZE))
    return objective


def test_cal_is_cross_entropy_against_the_row_of_the_refined_label() -> None:
    logits, y, refined, _ = drawn()
    stats = SecondOrder.from_labels(y, refined, CLASSES)
    expected = sample_cal(logits, y, refined, stats)
    found, weight = targeted(refined, stats.transition)(Outputs(logits), batch_of(y))
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    assert bool((weight == 1).all())


def test_over_another_base_it_is_that_loss_against_the_row() -> None:
    logits, y, refined, _ = drawn()
    stats = SecondOrder.from_labels(y, refined, CLASSES)
    both: dict[str, Any] = {"prior": prior(), "beta": Ramp(BETA), "base": "gce"}
    cal_over_gce = CovarianceAssisted(refined, stats, None, weighting="sample", **both)
    rows = Targeted(refined, stats.transition, **both)
    losses = []
    for objective in (cal_over_gce, rows):
        objective.begin_epoch(0, Ledger(SIZE))
        losses.append(objective(Outputs(logits.float()), batch_of(y))[0])
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("base", ["ce", "gce"])
def test_the_base_that_is_set_is_what_stage_2_is_trained_with(base: Any) -> None:
    method = CAL(target="refined", base=base, peer=False)
    y = torch.tensor([0, 1, 1, 0])
    run = LocalRun(Split(torch.zeros(4, 2), y, 2), seed=0)
    kept = Refined(y, keep=torch.ones(4).bool(), score=torch.zeros(4))
    assert method.targeted(view_of(run), kept, None).base == base


def test_another_base_is_refused() -> None:
    with pytest.raises(ValueError, match="base must be ce or gce, got 'forward'"):
        Targeted(torch.zeros(2).long(), torch.eye(2), prior=prior(), beta=Ramp(0.0),
                 base="forward")  # fmt: skip


def test_a_bounded_loss_is_pulled_less_by_a_target_that_the_network_is_sure_is_wrong() -> None:
    logits = torch.tensor([[8.0, 0.0]], requires_grad=True)
    options: dict[str, Any] = {"prior": torch.ones(2) / 2, "beta": Ramp(0.0)}
    pulls = []
    for base in ("ce", "gce"):
        objective = Targeted(torch.tensor([1]), torch.eye(2), base=base, **options)
        loss, _ = objective(Outputs(logits), batch_of(torch.tensor([1])))
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        pulls.append(float(gradient.norm()))
    p = float(logits.detach().softmax(dim=1)[0, 1])
    assert pulls[1] / pulls[0] == pytest.approx(p**0.7, rel=0.05)


def test_the_noisy_label_of_an_example_has_dropped_out() -> None:
    logits, y, refined, _ = drawn()
    stats = SecondOrder.from_labels(y, refined, CLASSES)
    other = (y + 1) % CLASSES  # with T̂ and D̂ as they were
    torch.testing.assert_close(
        sample_cal(logits, y, refined, stats), sample_cal(logits, other, refined, stats)
    )


def test_under_class_weights_it_stays_only_through_the_imbalance_of_the_batch() -> None:
    logits, y, refined, _ = drawn()
    stats = SecondOrder.from_labels(y, refined, CLASSES)
    options: dict[str, Any] = {"prior": prior(), "beta": BETA, "eps": EPS, "regularizer_eps": EPS}
    # A whole pass has each class as often as P says: there the two weightings are one.
    whole = cal(logits, y, refined, stats, weighting="class", **options)
    torch.testing.assert_close(whole, sample_cal(logits, y, refined, stats), rtol=1e-5, atol=1e-5)
    part = slice(0, 10)
    pieces = logits[part], y[part], refined[part]
    change = cal(
        logits[part], (y[part] + 1) % CLASSES, refined[part], stats, weighting="class", **options
    )
    by_class = cal(*pieces, stats, weighting="class", **options)
    assert not torch.allclose(by_class, change)
    # What is left of ℓ_ỹ has the factor 1 − P_ŷ · B / (examples of class ŷ in the batch).
    mass = torch.bincount(refined[part], minlength=CLASSES)[refined[part]]
    factor = 1 - stats.class_weight[refined[part]].double() * 10 / mass
    loss = -logits[part].softmax(dim=1).add(EPS).log()
    own = loss.gather(1, y[part, None])[:, 0] - loss.gather(1, (y[part, None] + 1) % CLASSES)[:, 0]
    torch.testing.assert_close(by_class - change, factor * own, rtol=1e-5, atol=1e-5)


def test_the_soft_transition_is_counted_with_the_posterior_as_weights() -> None:
    _, y, _, posterior = drawn()
    found = soft_transition(posterior, y)
    for i in range(CLASSES):
        for j in range(CLASSES):
            both = sum(float(posterior[n, i]) for n in range(SIZE) if int(y[n]) == j)
            assert float(found[i, j]) == pytest.approx(both / float(posterior[:, i].sum()))
    one_hot = torch.eye(CLASSES)[y]
    torch.testing.assert_close(soft_transition(one_hot, y), torch.eye(CLASSES))
    empty = torch.eye(3)[torch.tensor([0, 1])]
    assert soft_transition(empty, torch.tensor([0, 0])).tolist()[2] == [0.0, 0.0, 1.0]


def test_soft_cal_subtracts_the_covariance_given_a_label_drawn_from_the_posterior() -> None:
    """The mean of ℓ_ỹ less Σ_i P_i Σ_j Cov_q(1{ỹ = j}, ℓ_j | i), written out as loops."""
    logits, y, refined, posterior = drawn()
    loss = -logits.softmax(dim=1).add(EPS).log()
    covariance = 0.0
    for i in range(CLASSES):
        q = posterior[:, i]
        for j in range(CLASSES):
            flag = (y == j).double()
            means = [(q * value).sum() / q.sum() for value in (flag * loss[:, j], flag, loss[:, j])]
            covariance += float(q.mean() * (means[0] - means[1] * means[2]))
    own = loss.gather(1, y[:, None]).mean()
    peer = (loss * prior()).sum(dim=1).mean()
    objective = targeted(refined, soft_transition(posterior, y), posterior.float())
    found, _ = objective(Outputs(logits), batch_of(y))
    assert float(found.mean()) == pytest.approx(float(own - BETA * peer) - covariance, rel=1e-5)


def test_a_sure_posterior_is_the_refined_label() -> None:
    logits, y, refined, _ = drawn()
    sure = torch.eye(CLASSES)[refined]
    stats = SecondOrder.from_labels(y, refined, CLASSES)
    torch.testing.assert_close(soft_transition(sure, y), stats.transition)
    hard = targeted(refined, stats.transition)(Outputs(logits), batch_of(y))[0]
    soft = targeted(refined, stats.transition, sure)(Outputs(logits), batch_of(y))[0]
    torch.testing.assert_close(hard, soft)


def test_dropped_examples_have_no_weight() -> None:
    logits, y, refined, _ = drawn()
    refined[3] = -1
    _, weight = targeted(refined, torch.eye(CLASSES))(Outputs(logits), batch_of(y))
    assert weight.tolist() == [float(n != 3) for n in range(SIZE)]


def test_mixed_inputs_have_mixed_targets_and_no_weight_if_either_was_dropped() -> None:
    logits, y, refined, posterior = drawn()
    refined[3] = -1
    partner, share = torch.arange(SIZE).flip(0), torch.tensor(0.8)
    batch = batch_of(y)._replace(mix=Mix(torch.zeros(SIZE, 1), y.flip(0), share, partner))
    for q in (None, posterior):
        objective = targeted(refined, torch.eye(CLASSES).double(), q)
        own, theirs = torch.eye(CLASSES)[refined], torch.eye(CLASSES)[refined].flip(0)
        if q is not None:
            own, theirs = q, q.flip(0)
        log_p = (logits.float().softmax(dim=1) + EPS).log()
        expected = ((BETA * prior() - 0.8 * own - 0.2 * theirs) * log_p).sum(dim=1)
        loss, weight = objective(Outputs(logits), batch)
        assert weight.tolist() == [float(n not in {3, SIZE - 4}) for n in range(SIZE)]
        torch.testing.assert_close(loss[weight > 0].float(), expected[weight > 0].float())


def test_mixup_is_one_pass_over_mixed_inputs() -> None:
    toy = make_toy()
    method = shortened(CAL(threshold="argmax", target="refined", mixup=True), epochs=2)
    seen: dict[str, int] = {}
    mixed: dict[str, int] = {}

    class Counting(LocalRun):
        def train(self, stage: str, model: Any, *args: Any, **options: Any) -> Ledger:
            def count(_: Any, inputs: tuple[Tensor]) -> None:
                if model.training:
                    seen[stage] = seen.get(stage, 0) + 1
                    of_data = (inputs[0].unsqueeze(1) == toy.split.x).all(dim=2).any(dim=1)
                    mixed[stage] = mixed.get(stage, 0) + int((~of_data).sum())

            hook = model.register_forward_pre_hook(count)
            try:
                return super().train(stage, model, *args, **options)
            finally:
                hook.remove()

    for each in (method, replace(method, mixup=False)):
        seen.clear()
        mixed.clear()
        run = Counting(toy.split, seed=0)
        each.fit(view_of(run))
        assert seen["cal"] == seen["sieve"] > 0
        assert mixed["sieve"] == 0
        # Nearly all have another partner than themselves.
        assert (mixed["cal"] > 1.5 * len(toy.split)) == each.mixup


def test_nothing_is_said_of_inputs_that_were_only_seen_mixed(tmp_path: Path) -> None:
    toy = make_toy()
    method = shortened(CAL(threshold="argmax", target="refined", mixup=True), epochs=2)
    options: Any = {"test": toy.test, "clean": toy.clean}
    result = fit_and_evaluate(method, toy.split, folder=tmp_path / "mixed", **options)
    assert result.stages["sieve"].memorisation is not None
    assert result.stages["cal"].memorisation is None
    labels = records.read(tmp_path / "mixed").labels
    assert labels is not None
    assert set(labels["prediction"]) == set(labels["learned"]) == {None}
    assert None not in labels["suggested"]


def test_a_mix_with_an_example_that_is_left_out_has_no_weight() -> None:
    logits, y, *_ = drawn()
    partner = torch.arange(SIZE).flip(0)
    mix = Mix(torch.zeros(SIZE, 1), y.flip(0), torch.tensor(0.8), partner)
    kept = Kept(CrossEntropy(), torch.arange(SIZE) != 3)
    batch = batch_of(y)
    assert kept(Outputs(logits), batch)[1].tolist() == [float(n != 3) for n in range(SIZE)]
    _, weight = kept(Outputs(logits, plain=logits), batch._replace(mix=mix))
    assert weight.tolist() == [float(n not in {3, SIZE - 4}) for n in range(SIZE)]
    assert not Kept(targeted(y, torch.eye(CLASSES)), torch.ones(SIZE)).needs_plain


@pytest.mark.parametrize("target", TARGETS[1:])
def test_the_mean_of_a_target(target: Any) -> None:
    """Of rows of T̂ it is the prior of the noisy labels; of D̂ it is not."""
    _, y, refined, posterior = drawn()
    run = LocalRun(Split(torch.zeros(SIZE, 1), y, CLASSES))
    kept = Refined(refined, keep=refined == y, score=torch.zeros(SIZE))
    objective = CAL(target=target).targeted(view_of(run), kept, posterior.float())
    found = objective.target_of(torch.arange(SIZE))[0].mean(dim=0)
    noisy = class_shares(y, CLASSES)
    expected = {
        "refined": class_shares(refined, CLASSES),
        "posterior": posterior.mean(dim=0).float(),
    }.get(target, noisy)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(objective.prior, noisy)
    assert not torch.allclose(class_shares(refined, CLASSES), noisy)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("scores", ["evaluation", "averaged"])
def test_each_target_trains_on_the_same_refined_labels(target: Any, scores: Any) -> None:
    toy = make_toy()
    method = shortened(CAL(threshold="argmax", scores=scores, target=target), epochs=4)
    run = LocalRun(toy.split, seed=0)
    method.fit(view_of(run))
    base = LocalRun(toy.split, seed=0)
    replace(method, target="noisy").fit(view_of(base))
    assert run.refined is not None
    assert base.refined is not None
    assert torch.equal(run.refined[0], base.refined[0])
    if target != "noisy":
        assert run.history["cal"][-1]["loss"] != base.history["cal"][-1]["loss"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "rowz"}, "target must be one of noisy, refined, rows"),
        ({"target": "rows", "relabel": True}, "leave relabel and covariance as they are"),
        ({"target": "refined", "base": "forward"}, "set base to ce or gce"),
        ({"relabel": True, "base": "gce"}, "set target=refined, base=gce and peer=false"),
        ({"target": "posterior", "scores": "training"}, "needs the probabilities"),
        ({"target": "posterior", "labels": "a.npy"}, "needs the probabilities"),
        ({"mixup": True}, "set target=refined"),
        ({"mixup": True, "relabel": True}, "set target=refined"),
        ({"mixup": True, "target": "refined", "rounds": 2}, "rounds=1"),
        ({"balanced_batches": -1}, "balanced_batches must be positive, got -1"),
        ({"sieve_balanced_batches": 0}, "sieve_balanced_batches must be positive, got 0"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CAL(**settings)


@pytest.mark.parametrize("wrong", [True, False])
def test_labels_are_left_alone_where_there_is_no_evidence(wrong: bool) -> None:
    toy = make_toy(600)
    split = toy.split if wrong else replace(toy.split, y=toy.clean)
    method = shortened(CAL(scores="averaged", threshold="argmax", look_for_evidence=True), epochs=8)
    run = LocalRun(split, seed=0)
    method.fit(view_of(run))
    assert run.refined is not None
    assert run.refined_by is not None
    assert run.facts["evidence_found"] is wrong
    assert ("cal" if wrong else "ce") in run.history
    assert bool((run.refined[0] != split.y).any()) is wrong
    if not wrong:
        alone = LocalRun(split, seed=0)
        CE(replace(method.plan, divide_lr=False)).fit(view_of(alone))
        assert alone.history["ce"][-1]["loss"] == run.history["ce"][-1]["loss"]


def test_without_evidence_the_learning_rate_is_cut_as_the_sieves_is() -> None:
    toy = make_toy(600)
    method: Any = shortened(
        CAL(scores="averaged", threshold="argmax", look_for_evidence=True), epochs=8
    )
    uncut, cut = (replace(method.plan, lr_milestones=steps) for steps in ((), (6,)))
    run = LocalRun(replace(toy.split, y=toy.clean), seed=0)
    replace(method, sieve_plan=cut, plan=uncut).fit(view_of(run))
    rates = [line["lr"] for line in run.history["ce"]]
    assert rates == pytest.approx([0.1] * 6 + [0.01] * 2)


@pytest.mark.parametrize(("contradicted", "found"), [(2, False), (24, True)])
def test_one_wrong_label_in_a_hundred_of_the_surest_is_evidence(
    contradicted: int, found: bool
) -> None:
    """1.2 % of them: what labels are that are wrong for one hard image in ten."""
    y = torch.arange(4000) % 2
    posterior = torch.nn.functional.one_hot(y, 2) * 0.8 + 0.1
    given = y.clone()
    given[:contradicted] = 1 - given[:contradicted]  # equally sure, so that the first come first
    run = LocalRun(Split(torch.zeros(4000, 1), given, 2), seed=0)
    assert CAL().contradicted(view_of(run), posterior) is found
    assert run.facts["surest_contradicted"] == contradicted
