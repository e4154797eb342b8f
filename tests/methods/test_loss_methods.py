"""GCE, peer loss, L_DMI, Forward and Reweight-R: what they have in common."""

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from torch import nn

from covlearn.engine import Objective, Plan, reduced
from covlearn.ledger import Ledger
from covlearn.methods.base import Method, Run
from covlearn.methods.ce import CE
from covlearn.methods.dmi import DMI, Determinant
from covlearn.methods.forward import Forward, ForwardCorrected
from covlearn.methods.gce import GCE, Generalized
from covlearn.methods.peer import Peer, TornApart
from covlearn.methods.reweight_r import Revised, Reweighted, ReweightR
from covlearn.run import LocalRun
from covlearn.schedules import Ramp
from tests.methods.loss_cases import (
    TINY,
    batch_of,
    noisy_toy,
    shapes,
    tiny_run,
    toy,
    transition_of,
    values,
)
from tests.methods.toy import rebuilt, weights
from tests.reference import losses as reference

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


STAGES = {
    "gce": ["gce"],
    "gce truncated": ["gce"],
    "peer": ["peer"],
    "dmi": ["warm_up", "dmi"],
    "forward": ["estimation", "forward"],
    "reweight_r": ["estimation", "reweight", "revision"],
}


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
