"""GCE, peer loss, L_DMI, Forward and Reweight-R: their objectives, and their runs."""

import dataclasses
import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from covlearn import distributed
from covlearn.data import Batch, Split
from covlearn.engine import Objective, Outputs, Plan, reduced
from covlearn.ledger import Ledger
from covlearn.losses import cores, dmi_from_joint
from covlearn.methods.base import Method, Run
from covlearn.methods.ce import CE
from covlearn.methods.dmi import DMI, Determinant
from covlearn.methods.forward import Forward, ForwardCorrected
from covlearn.methods.gce import GCE, Generalized
from covlearn.methods.peer import Peer, TornApart
from covlearn.methods.reweight_r import Revised, Reweighted, ReweightR
from covlearn.noise import class_dependent
from covlearn.run import LocalRun
from covlearn.schedules import Ramp
from tests.reference import losses as reference
from tests.reference.transition import anchor_transition

NOISE = torch.tensor([[0.60, 0.35, 0.05], [0.05, 0.60, 0.35], [0.35, 0.05, 0.60]])


def toy(num_examples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three clouds far apart, in ten dimensions, where a network can also learn noise by heart."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.arange(num_examples) % 3
    x = torch.randn(num_examples, 10, generator=generator)
    x[torch.arange(num_examples), clean] += 4
    return x, clean


def noisy_toy(num_examples: int, seed: int = 1) -> Split:
    x, clean = toy(num_examples, seed)
    noisy = class_dependent(clean, transition=NOISE.double(), seed=seed).label
    return Split(x, torch.from_numpy(noisy), 3)


# ---- The methods as such ----------------------------------------------------------------------

LONG = Plan(epochs=20, batch_size=32)
SHORT = Plan(epochs=4, batch_size=32, lr=0.02)
REVISION = Plan(epochs=3, batch_size=32, optimizer="adam", lr=1e-4)
RECOVERING: dict[str, Method] = {
    "gce": GCE(LONG, q=0.9),
    "gce truncated": GCE(LONG, truncate=True, k=0.4, prune_from=4, prune_every=4),
    "peer": Peer(dataclasses.replace(LONG, divide_lr=True), Ramp(1.0, start=2, end=8)),
    "dmi": DMI(SHORT, Plan(epochs=20, batch_size=64, lr=1e-2)),
    "forward": Forward(SHORT, plan=LONG),
    "reweight_r": ReweightR(SHORT, plan=LONG, revision_plan=REVISION),
}


def accuracy(method: Method) -> float:
    x, clean = toy(900, seed=101)
    model = method.fit(LocalRun(noisy_toy(400), seed=1, net_options={"hidden": [64]}))
    return float((model(x).argmax(dim=1) == clean).float().mean())


@cache
def accuracy_of_cross_entropy() -> float:
    return accuracy(CE(LONG))


@pytest.mark.parametrize("name", RECOVERING)
def test_recovers_a_separable_toy_where_cross_entropy_learns_the_noise(name: str) -> None:
    assert accuracy(RECOVERING[name]) > accuracy_of_cross_entropy() + 0.1


BRIEF = Plan(epochs=4, batch_size=16)
TINY: dict[str, Method] = {
    "gce": GCE(BRIEF),
    # Prunes once, so that a resumed run must have kept what was pruned.
    "gce truncated": GCE(BRIEF, truncate=True, k=0.3, prune_from=1, prune_every=3),
    "peer": Peer(dataclasses.replace(BRIEF, divide_lr=True), Ramp(1.0, start=0, end=3)),
    "dmi": DMI(BRIEF, dataclasses.replace(BRIEF, lr=1e-3)),
    "forward": Forward(BRIEF, 90.0, BRIEF),
    "reweight_r": ReweightR(
        BRIEF, None, BRIEF, revision_plan=dataclasses.replace(BRIEF, optimizer="adam", lr=1e-3)
    ),
}
STAGES = {
    "gce": ["gce"],
    "gce truncated": ["gce"],
    "peer": ["peer"],
    "dmi": ["warm_up", "dmi"],
    "forward": ["estimation", "forward"],
    "reweight_r": ["estimation", "reweight", "revision"],
}


def tiny_run(**options: Any) -> LocalRun:
    return LocalRun(noisy_toy(70), net_options={"hidden": [8]}, **options)


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("name", TINY)
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    before = torch.random.get_rng_state()
    runs = [tiny_run(seed=seed) for seed in (3, 3, 4)]
    kept = runs[0].split.x.clone(), runs[0].split.y.clone()
    first, again, other = (weights(TINY[name].fit(run)) for run in runs)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert runs[0].facts == runs[1].facts
    assert list(runs[0].history) == STAGES[name]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(runs[0].split.x, kept[0])
    assert torch.equal(runs[0].split.y, kept[1])


@pytest.mark.parametrize(
    ("name", "stage"), [(name, stage) for name, stages in STAGES.items() for stage in stages]
)
def test_a_run_that_was_cut_off_ends_with_the_same_bits(
    name: str, stage: str, tmp_path: Path
) -> None:
    whole = tiny_run()
    expected = weights(TINY[name].fit(whole))

    def cut_off(at: str, epoch: int, model: nn.Module, ledger: Ledger) -> dict[str, float]:
        if (at, epoch) == (stage, 2):
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        TINY[name].fit(tiny_run(folder=tmp_path, checkpoint_seconds=0.0, after_epoch=cut_off))

    seen: list[tuple[str, int]] = []

    def watch(at: str, epoch: int, model: nn.Module, ledger: Ledger) -> dict[str, float]:
        seen.append((at, epoch))
        return {}

    resumed = tiny_run(folder=tmp_path, checkpoint_seconds=0.0, after_epoch=watch)
    assert torch.equal(weights(TINY[name].fit(resumed)), expected)
    assert resumed.facts == whole.facts
    later = STAGES[name][STAGES[name].index(stage) + 1 :]
    assert seen == [(stage, 2), (stage, 3), *((at, e) for at in later for e in range(4))]


@pytest.mark.parametrize("name", TINY)
def test_needs_nothing_but_what_a_run_offers(name: str) -> None:
    # No clean label is behind Run: permuting clean labels cannot reach a method.
    offered = {*get_type_hints(Run), *(part for part in vars(Run) if not part.startswith("_"))}
    assert offered == {"split", "seed", "net", "train", "predict", "note", "keep_labels"}
    run = tiny_run()

    class Offered:
        def __getattr__(self, part: str) -> Any:
            if part not in offered:
                raise AttributeError(part)
            return getattr(run, part)

    TINY[name].fit(Offered())


def rebuilt(kind: Any, value: Any) -> Any:
    """A dataclass from what JSON made of it."""
    if not dataclasses.is_dataclass(kind):
        return tuple(value) if isinstance(value, list) else value
    hints = get_type_hints(kind)
    assert isinstance(kind, type)
    return kind(**{name: rebuilt(hints[name], part) for name, part in value.items()})


@pytest.mark.parametrize("name", TINY)
def test_the_settings_round_trip_through_json(name: str) -> None:
    for method in (TINY[name], type(TINY[name])()):
        assert isinstance(method, Method)
        text = json.dumps(dataclasses.asdict(method))  # type: ignore[call-overload]
        assert rebuilt(type(method), json.loads(text)) == method


class NamedNets(LocalRun):
    """A run that notes which networks were asked for."""

    def net(self, name: str) -> nn.Module:
        self.note(nets=[*self.facts.get("nets", []), name])
        return super().net(name)


@pytest.mark.parametrize(
    ("method", "nets"),
    [
        (TINY["dmi"], ["dmi"]),  # goes on from its own warm-up
        (TINY["forward"], ["estimation", "forward"]),
        (TINY["reweight_r"], ["estimation"]),
        (
            dataclasses.replace(TINY["reweight_r"], warm_start=False),  # type: ignore[type-var]
            ["estimation", "reweight"],
        ),
    ],
)
def test_a_stage_starts_from_a_new_network_where_the_method_says_so(
    method: Method, nets: list[str]
) -> None:
    run = NamedNets(noisy_toy(70), net_options={"hidden": [8]})
    method.fit(run)
    assert run.facts["nets"] == nets


def test_defaults_are_the_common_protocol() -> None:
    common = Plan(epochs=100, batch_size=128, lr=0.1, lr_milestones=(60,), weight_decay=5e-4)
    assert [GCE().plan, Forward().plan, ReweightR().plan] == [common] * 3
    assert [DMI().warm_up_plan, Forward().estimation_plan] == [common] * 2
    assert Peer().plan == dataclasses.replace(common, divide_lr=True)
    assert Peer().alpha == Ramp(1.0, start=10, end=40)
    assert DMI().plan.lr == 1e-6
    assert ReweightR().estimation_plan.epochs == 20
    assert (ReweightR().revision_plan.optimizer, ReweightR().revision_plan.lr) == ("adam", 5e-7)


# ---- The objectives ---------------------------------------------------------------------------


def batch_of(seed: int, size: int, num_classes: int) -> tuple[Outputs, Batch]:
    """Logits and labels of examples in random places of a training set of 3·size."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(size, num_classes, generator=generator)
    y = torch.randint(num_classes, (size,), generator=generator)
    idx = torch.randperm(3 * size, generator=generator)[:size]
    return Outputs(logits.requires_grad_()), Batch(torch.zeros(size, 1), y, idx)


def transition_of(seed: int, num_classes: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(num_classes, num_classes, generator=generator).double()
    rows = rows + num_classes * torch.eye(num_classes)
    return rows / rows.sum(dim=1, keepdim=True)


def values(objective: Objective, outputs: Outputs, batch: Batch) -> Tensor:
    """The losses of a batch; none of these objectives weighs examples against each other."""
    loss, weight = objective(outputs, batch)
    assert weight is None
    assert loss.shape == batch.y.shape
    return loss  # type: ignore[no-any-return]


shapes = partial(
    given,
    seed=st.integers(0, 10**6),
    size=st.integers(1, 9),
    num_classes=st.integers(2, 5),
)


@shapes()
def test_objectives_agree_with_the_loops(seed: int, size: int, num_classes: int) -> None:
    outputs, batch = batch_of(seed, size, num_classes)
    transition = transition_of(seed, num_classes)
    z, y = outputs.logits.detach().double().numpy(), batch.y.numpy()
    pairs: list[tuple[Objective, Any]] = [
        (Generalized(3 * size, GCE(q=0.6)), reference.generalized_cross_entropy(z, y, 0.6)),
        (ForwardCorrected(transition), reference.forward_corrected(z, y, transition.numpy())),
    ]
    pairs += [
        (kind(transition, constant_weight=constant), reference.reweighted(z, y, transition.numpy()))
        for kind in (Reweighted, Revised)
        for constant in (True, False)
    ]
    for objective, expected in pairs:
        loss = values(objective, outputs, batch)
        np.testing.assert_allclose(loss.detach().numpy(), expected, rtol=3e-5, atol=1e-6)


@pytest.mark.parametrize(
    "objective",
    [
        Generalized(36, GCE()),
        TornApart(torch.arange(36) % 4, Ramp(1.0), seed=0),
        Determinant(4, 12),
        ForwardCorrected(transition_of(0, 4)),
        Reweighted(transition_of(0, 4), constant_weight=True),
        Revised(transition_of(0, 4), constant_weight=True),
    ],
    ids=lambda objective: type(objective).__name__,
)
def test_a_step_reads_no_values(objective: Objective) -> None:
    outputs, batch = batch_of(0, 12, 4)
    assert objective.capturable
    compiled = torch.compile(objective, backend="eager", fullgraph=True)
    torch.testing.assert_close(
        reduced(compiled(outputs, batch)), reduced(objective(outputs, batch))
    )


# ---- GCE --------------------------------------------------------------------------------------


def ledger_of(prob: list[float]) -> Ledger:
    """What the ledger holds after a pass in which the noisy labels had these probabilities."""
    ledger = Ledger(len(prob))
    ledger.write(
        torch.arange(len(prob)),
        torch.tensor([[p, 1 - p] for p in prob]).log(),
        torch.zeros(len(prob), dtype=torch.long),
    )
    return ledger


def test_truncation_prunes_what_the_last_pass_found_unlikely_and_takes_it_back() -> None:
    method = GCE(truncate=True, k=0.5, prune_from=4, prune_every=3)
    objective = Generalized(4, method)
    first, second = ledger_of([0.2, 0.49, 0.51, 0.9]), ledger_of([0.6, 0.1, 0.9, 0.4])
    kept = {}
    for epoch in range(9):
        objective.begin_epoch(epoch, first if epoch < 6 else second)
        kept[epoch] = objective.keep.tolist()
    early, middle, late = [1.0] * 4, [0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0]
    assert kept == {**dict.fromkeys(range(4), early), 4: middle, 5: middle, 6: middle, 7: late, 8: late}  # fmt: skip


def test_truncation_is_off_unless_asked_for() -> None:
    objective = Generalized(2, GCE(prune_from=1, prune_every=1))
    objective.begin_epoch(5, ledger_of([0.1, 0.9]))
    assert objective.keep.tolist() == [1.0, 1.0]


def test_pruned_examples_have_the_constant_loss_and_no_gradient() -> None:
    outputs, batch = batch_of(4, 20, 3)
    z, y = outputs.logits.detach(), batch.y
    prob = torch.ones(60)
    prob[batch.idx] = z.softmax(dim=1)[torch.arange(20), y]
    pruned = prob[batch.idx] <= 0.4
    assert 0 < int(pruned.sum()) < 20
    objective = Generalized(60, GCE(truncate=True, q=0.8, k=0.4, prune_from=1))
    ledger = Ledger(60)
    ledger.write(batch.idx, z, y)
    objective.begin_epoch(1, ledger)
    assert int(objective.keep.sum()) == 60 - int(pruned.sum())  # rows without a pass stay
    loss = values(objective, outputs, batch)
    expected = reference.truncated_generalized_cross_entropy(
        z.double().numpy(), y.numpy(), 0.8, 0.4
    )
    np.testing.assert_allclose(loss.detach().numpy(), expected, rtol=1e-5)
    loss.mean().backward()
    assert outputs.logits.grad is not None
    assert torch.equal(outputs.logits.grad.abs().sum(dim=1) > 0, ~pruned)


def test_pruning_everything_is_refused() -> None:
    objective = Generalized(2, GCE(truncate=True, prune_from=1))
    with pytest.raises(ValueError, match=r"epoch 1: no example has p > k = 0.5.*lower k"):
        objective.begin_epoch(1, ledger_of([0.1, 0.2]))


def test_truncation_records_how_much_is_kept() -> None:
    run = tiny_run()
    TINY["gce truncated"].fit(run)
    assert 0 < run.facts["kept_share"] < 1


# ---- Peer loss --------------------------------------------------------------------------------

CLASSES = torch.tensor([0] * 10 + [1] * 50 + [2] * 140)  # of a training set of 200


def peer_labels(objective: TornApart, idx: Tensor) -> Tensor:
    """The labels that were drawn, read off the losses alone."""
    logits = torch.tensor([0.0, 1.0, 3.0]).expand(len(idx), 3)
    loss_B = values(objective, Outputs(logits), Batch(logits, CLASSES[idx], idx))
    loss_K = torch.from_numpy(reference.cross_entropy(logits[:3].double().numpy(), np.arange(3)))
    candidates = loss_K[CLASSES[idx]].unsqueeze(1) - float(objective.alpha) * loss_K
    distance = (loss_B.double().unsqueeze(1) - candidates).abs()
    assert float(distance.min(dim=1).values.max()) < 1e-3
    return distance.argmin(dim=1)


def peer_at(epoch: int, seed: int = 0) -> TornApart:
    objective = TornApart(CLASSES, Ramp(1.0, start=2, end=6), seed=seed)
    objective.begin_epoch(epoch, Ledger(0))
    return objective


def test_peer_loss_agrees_with_the_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(40, 3, generator=generator)
    idx = torch.randperm(200, generator=generator)[:40]
    for epoch, alpha in {0: 0.0, 2: 0.0, 3: 0.25, 6: 1.0, 90: 1.0}.items():
        objective = peer_at(epoch)
        assert objective.strength(epoch) == alpha
        loss = values(objective, Outputs(logits), Batch(logits, CLASSES[idx], idx))
        z = logits.double().numpy()
        drawn = peer_labels(objective, idx) if alpha else torch.zeros(40, dtype=torch.long)
        expected = reference.cross_entropy(z, CLASSES[idx].numpy())
        expected -= alpha * reference.cross_entropy(z, drawn.numpy(), 1e-5)
        np.testing.assert_allclose(loss.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_peer_labels_follow_the_noisy_prior_whatever_the_own_label_is() -> None:
    idx = torch.arange(200)
    drawn = torch.stack([peer_labels(peer_at(epoch), idx) for epoch in range(6, 206)])
    for label in range(3):
        share = torch.bincount(drawn[:, label == CLASSES].flatten(), minlength=3)
        share = share / share.sum()
        # 2,000 draws or more: three standard errors are 0.034 at most.
        torch.testing.assert_close(share, torch.tensor([0.05, 0.25, 0.70]), atol=0.034, rtol=0)


def test_peer_labels_change_with_epoch_and_seed() -> None:
    idx = torch.arange(200)
    draws = [peer_labels(peer_at(e, seed), idx) for e, seed in ((6, 0), (7, 0), (6, 1))]
    assert torch.equal(draws[0], peer_labels(peer_at(6), idx))
    for other in draws[1:]:
        # Independent draws agree with probability 0.05² + 0.25² + 0.7² = 0.555, ± 0.035.
        assert 0.4 < float((draws[0] == other).float().mean()) < 0.7


def test_the_expectation_of_the_peer_term_is_the_confidence_regulariser() -> None:
    idx = torch.arange(200)
    logits = torch.tensor([2.0, 0.0, -1.0]).expand(200, 3)
    batch = Batch(logits, CLASSES, idx)
    mean = torch.stack([values(peer_at(e), Outputs(logits), batch) for e in range(6, 66)]).mean()
    expected = cores(logits, CLASSES, prior=torch.tensor([0.05, 0.25, 0.70]), beta=1.0).mean()
    # 12,000 draws of a loss with a standard deviation of 0.8.
    assert mean.item() == pytest.approx(expected.item(), abs=3 * 0.8 / 12_000**0.5)


def test_peer_pairs_do_not_depend_on_how_a_batch_is_dealt_out() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, idx = (
        torch.randn(9, 3, generator=generator),
        torch.randperm(200, generator=generator)[:9],
    )
    objective = peer_at(8)
    whole = values(objective, Outputs(logits), Batch(logits, CLASSES[idx], idx))
    for process in range(2):
        share = slice(process, None, 2)
        part = values(
            objective, Outputs(logits[share]), Batch(logits, CLASSES[idx[share]], idx[share])
        )
        assert torch.equal(part, whole[share])


def test_peer_divides_the_learning_rate_by_one_plus_alpha() -> None:
    run = tiny_run()
    TINY["peer"].fit(run)
    assert [record["lr"] for record in run.history["peer"]] == pytest.approx(
        [0.1, 0.1 / (4 / 3), 0.1 / (5 / 3), 0.05]
    )


# ---- L_DMI ------------------------------------------------------------------------------------


def dmi_batch(seed: int, size: int) -> tuple[Outputs, Batch]:
    """With all three classes."""
    outputs, batch = batch_of(seed, size, 3)
    return outputs, batch._replace(y=torch.arange(size) % 3)


def test_dmi_agrees_with_the_loop() -> None:
    outputs, batch = dmi_batch(0, 12)
    objective = Determinant(3, 12, eps=1e-2)
    expected = reference.dmi(outputs.logits.detach().double().numpy(), batch.y.numpy(), 1e-2)
    assert objective(outputs, batch).item() == pytest.approx(expected, rel=1e-5)
    assert [int(count) for count in objective.buffers()] == [1, 0, 0]


def misses_a_class(outputs: Outputs, batch: Batch) -> tuple[Outputs, Batch]:
    return outputs, batch._replace(y=batch.y.clamp(max=1))


def falls_short(outputs: Outputs, batch: Batch) -> tuple[Outputs, Batch]:
    return Outputs(outputs.logits[:11]), Batch(batch.x, batch.y[:11], batch.idx[:11])


@pytest.mark.parametrize(
    ("spoil", "counts"),
    [
        (misses_a_class, [1, 0, 1]),
        (falls_short, [1, 1, 0]),
        (lambda *whole: falls_short(*misses_a_class(*whole)), [1, 1, 0]),
    ],
)
def test_dmi_batches_without_a_gradient_are_counted(
    spoil: Callable[[Outputs, Batch], tuple[Outputs, Batch]], counts: list[int]
) -> None:
    outputs, batch = dmi_batch(1, 12)
    objective = Determinant(3, 12)
    loss = objective(*spoil(outputs, batch))
    loss.backward()
    assert loss.item() == pytest.approx(-np.log(1e-3))
    assert outputs.logits.grad is not None
    assert not outputs.logits.grad.any()
    assert [int(objective.batches), int(objective.incomplete), int(objective.singular)] == counts


def test_dmi_does_not_take_nan_for_a_singular_batch() -> None:
    # Where values are not looked at, on an accelerator, the loss itself must tell.
    assert dmi_from_joint(torch.full((3, 3), torch.nan)).isnan()


def test_dmi_adds_up_the_joint_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, batch = dmi_batch(2, 12)
    whole = Determinant(3, 12)(outputs, batch)
    whole.backward()
    assert outputs.logits.grad is not None
    for process in range(2):
        shares = [slice(p, None, 2) for p in (process, 1 - process)]
        logits, others = (outputs.logits.detach()[share] for share in shares)
        joint = torch.zeros(3, 3, dtype=torch.float64)
        joint.index_add_(0, batch.y[shares[1]], others.softmax(dim=1).double())
        monkeypatch.setattr(distributed, "sum_of", lambda own, joint=joint: own + joint)
        logits.requires_grad_()
        objective = Determinant(3, 12)
        loss = objective(Outputs(logits), Batch(batch.x, batch.y[shares[0]], batch.idx[shares[0]]))
        loss.backward()
        assert int(objective.incomplete) == 0
        torch.testing.assert_close(loss, whole)
        torch.testing.assert_close(logits.grad, outputs.logits.grad[shares[0]])


def test_a_dmi_run_records_the_batches_without_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = toy(100, seed=0)
    split = Split(x, torch.tensor([0] * 48 + [1] * 48 + [2] * 4), 3)
    plan = Plan(epochs=3, batch_size=16, lr=1e-4)
    shown: list[Tensor] = []
    forward = Determinant.forward

    def watched(self: Determinant, outputs: Outputs, batch: Batch) -> Tensor:
        shown.append(batch.y)
        return forward(self, outputs, batch)

    run = LocalRun(split, net_options={"hidden": [8]})
    with monkeypatch.context() as patched:
        patched.setattr(Determinant, "forward", watched)
        DMI(plan, plan).fit(run)
    singular = sum(len(y) == 16 and len(y.unique()) < 3 for y in shown)
    assert 0 < singular < 18
    assert run.facts == {"batches": 21, "incomplete_batches": 3, "singular_batches": singular}

    balanced = LocalRun(split, net_options={"hidden": [8]})
    DMI(plan, plan, balanced_batches=5).fit(balanced)
    assert balanced.facts == {"batches": 15, "incomplete_batches": 0, "singular_batches": 0}


def test_dmi_learns_from_a_hundred_classes_when_batches_are_large_enough() -> None:
    generator = torch.Generator().manual_seed(0)
    split = Split(torch.randn(1000, 4, generator=generator), torch.arange(1000) % 100, 100)
    for size, singular in ((128, 7), (1000, 0)):
        run = LocalRun(split, net_name="linear")
        start = weights(run.net("dmi"))
        model = DMI(Plan(epochs=0), Plan(epochs=1, batch_size=size, lr=1e-6), eps=1e-300).fit(run)
        assert run.facts["singular_batches"] == singular
        assert torch.equal(weights(model), start) == (singular > 0)


# ---- Forward and Reweight-R -------------------------------------------------------------------


@pytest.mark.parametrize("percentile", [90.0, None])
def test_the_transition_is_read_off_the_estimation_network_and_recorded(
    percentile: float | None,
) -> None:
    run = tiny_run()
    Forward(Plan(epochs=0), percentile, Plan(epochs=0)).fit(run)
    logits, _ = run.predict(run.net("estimation"))
    probs = logits.double().softmax(dim=1).numpy()
    expected = anchor_transition(probs, 100.0 if percentile is None else percentile)
    np.testing.assert_allclose(run.facts["transition"], expected, rtol=1e-12)
    rate = sum(1 - expected[p.argmax(), p.argmax()] for p in probs) / len(probs)
    assert run.facts["estimated_rate"] == pytest.approx(rate, rel=1e-6)


def test_the_estimate_is_near_the_truth_on_plenty_of_easy_data() -> None:
    run = LocalRun(noisy_toy(3000), net_options={"hidden": [16]})
    plan = Plan(epochs=6, batch_size=64, lr=0.02)
    # A third of the examples are of a class: the 85th percentile of p_i lies amid those of class i.
    Forward(plan, 85.0, Plan(epochs=0)).fit(run)
    torch.testing.assert_close(torch.tensor(run.facts["transition"]), NOISE, atol=0.12, rtol=0)
    assert run.facts["estimated_rate"] == pytest.approx(0.4, abs=0.05)


@shapes()
def test_the_slack_has_the_gradient_of_the_loop(seed: int, size: int, num_classes: int) -> None:
    outputs, batch = batch_of(seed, size, num_classes)
    transition = transition_of(seed + 1, num_classes)
    for constant_weight in (True, False):
        objective = Revised(transition, constant_weight=constant_weight)
        values(objective, outputs, batch).sum().backward()
        assert objective.slack.grad is not None
        # Along a direction that keeps the sums of rows, T + ΔT needs no projection.
        step = np.random.default_rng(seed).normal(size=(num_classes, num_classes))
        step -= step.mean(axis=1, keepdims=True)
        z, y = outputs.logits.detach().double().numpy(), batch.y.numpy()
        ahead, behind = (
            reference.reweighted(z, y, transition.numpy() + h * step).sum() for h in (1e-5, -1e-5)
        )
        slope = float((objective.slack.grad.double().numpy() * step).sum())
        assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-3, abs=1e-4)


def test_a_constant_weight_is_a_number_to_the_network_and_not_to_the_slack() -> None:
    outputs, batch = batch_of(3, 6, 3)
    transition = transition_of(3, 3)
    z, y = outputs.logits.detach(), batch.y
    prob = z.softmax(dim=1)
    weight = prob[torch.arange(6), y] / (prob @ transition.float())[torch.arange(6), y]
    by_hand = weight.unsqueeze(1) * (prob - torch.nn.functional.one_hot(y, 3))
    for constant_weight in (True, False):
        objective = Revised(transition, constant_weight=constant_weight)
        (grad,) = torch.autograd.grad(values(objective, outputs, batch).sum(), outputs.logits)
        assert torch.allclose(grad, by_hand, atol=1e-5) == constant_weight


def test_revision_moves_the_transition_and_keeps_it_one() -> None:
    run = tiny_run()
    TINY["reweight_r"].fit(run)
    start, end = (torch.tensor(run.facts[key]) for key in ("transition", "revised_transition"))
    assert float((start - end).abs().max()) > 1e-3
    assert bool((end >= 0).all())
    torch.testing.assert_close(end.sum(dim=1), torch.ones(3))

    unrevised = tiny_run()
    dataclasses.replace(  # type: ignore[type-var]
        TINY["reweight_r"], revision_plan=Plan(epochs=0)
    ).fit(unrevised)
    torch.testing.assert_close(torch.tensor(unrevised.facts["revised_transition"]), start)


# ---- Bad input --------------------------------------------------------------------------------

BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "q": (lambda: GCE(q=0.0), r"q in \(0, 1\].*q=0.0"),
    "k": (lambda: GCE(k=1.0), r"k in \(0, 1\).*k=1.0"),
    "prune_from": (lambda: GCE(prune_from=0), "prune_from ≥ 1.*got 0 and 10"),
    "prune_every": (lambda: GCE(prune_every=0), "prune_every ≥ 1.*got 40 and 0"),
    "eps": (lambda: DMI(eps=0.0), "eps must be positive, got 0.0"),
    "forward percentile": (lambda: Forward(percentile=101.0), "percentile must lie in.*101"),
    "reweight percentile": (lambda: ReweightR(percentile=-1.0), "percentile must lie in.*-1"),
    "few a batch": (lambda: DMI(plan=Plan(epochs=1, batch_size=2)).fit(tiny_run()), "at least the number of classes, 3, got 2"),
    "batch too large": (lambda: DMI().fit(tiny_run()), "number of examples, 70, got 128.*balanced_batches"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_a_reason(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()
