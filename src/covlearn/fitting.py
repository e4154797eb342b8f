"""Fitting without a test set: a classifier, and a verdict on each label.

No clean label, noise rate or validation set is asked for. Whether labels are wrong is said by
networks that were not trained on the label they judge: the method's own cross-fitted sieves or, if
it has none, such sieves trained for the verdicts alone. If some are, which ones is read off the
network that learned from D̂. With many images, where one sieve is trained for so few epochs that it
memorises little, verdicts are what it said of each image on average over them, and what the network
says that learned from D̂.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covlearn.calibration import label_posterior, surest_transition, wrong_by_sureness
from covlearn.config import override, parse_settings
from covlearn.covariance import SecondOrder, covariance_table
from covlearn.data import Augmentation, Split
from covlearn.data.sources import still
from covlearn.engine import Machine, Plan, Record
from covlearn.evaluation import Progress
from covlearn.evidence import Evidence, noise_evidence
from covlearn.job import augmented, make_machine, make_method, resolve_device, take_beside
from covlearn.kinds import checked, nearest
from covlearn.ledger import Ledger
from covlearn.local_run import input_shape
from covlearn.methods import METHODS, Method, presets
from covlearn.methods.base import view_of
from covlearn.methods.cal import SUREST, TOLERATED
from covlearn.methods.crossfit import CrossFittedCAL
from covlearn.methods.scaled import (
    Choice,
    from_scratch,
    left_to_choose,
    movement,
    network,
    recommended,
)
from covlearn.nets import build_net
from covlearn.nets.choice import worth_training
from covlearn.preparation import Standardizer
from covlearn.run import LocalRun
from covlearn.verdicts import DROP, Verdicts, decided, judge

Settings = Mapping[str, Any] | Sequence[str]
SCALE_SPREAD = 0.5
"""How far, as a logarithm, a network's sureness may be off (``benchmarks/calibration.py``)."""
COUNTED = 0.75
"""The share of the sieves' predictions, the surest of each class, that verdicts count T on.
Labels that are wrong where examples are hard are not among the surest (``benchmarks/counted.py``).
What sieves make of the pixels of few images is too often wrong for that (``benchmarks/pixels.py``):
there T is counted where evidence is looked for."""


@dataclass(frozen=True)
class Fit:
    """What came out: the network to predict with, the verdicts and what they rest on."""

    model: nn.Module
    verdicts: Verdicts
    logits: Tensor
    """What the verdicts were read off, ln P(true = y | x, given), (N, K)."""
    crossed: Tensor
    """What the cross-fitted sieves say, or the judges of CAL's own, (N, K)."""
    own_logits: Tensor
    """What the returned network says, (N, K)."""
    heard: Tensor | None
    """Of which examples the returned network learned the given label, or one made of it, (N,);
    None where verdicts are not read off it."""
    evidence: Evidence
    noise_rate: float
    """The expected share of wrong labels; zero where there is no evidence that any is."""
    transition: Tensor
    """T̂ (K, K), counted on the refined labels."""
    covariance: Tensor
    """Cov(T_ij(X), ℓ_j(X) | ŷ = i) (K, K); NaN for a class that no refined label has."""
    history: dict[str, list[Record]]
    facts: dict[str, Any]


@dataclass(frozen=True)
class Setup:
    """How it is fitted: the method and its network, the machine, and how images are moved."""

    choice: Choice
    machine: Machine
    augmentation: Augmentation | None = None


@dataclass(frozen=True)
class Prepared:
    """Examples as a network takes them, and how to make others alike."""

    split: Split
    standardizer: Standardizer | None
    augmentation: Augmentation | None

    @classmethod
    def of(
        cls, x: NDArray[Any], y: Tensor, num_classes: int, trusted: Tensor | None = None
    ) -> "Prepared":
        """Features are standardised, images normalised by channel."""
        augmentation = still(x)
        standardizer = Standardizer.of(x) if augmentation is None else None
        ready = torch.from_numpy(x if standardizer is None else standardizer(x))
        x_of_net = ready if standardizer is None else ready.float()
        split = Split(x_of_net, y, num_classes, augmentation, trusted)
        return cls(split, standardizer, augmentation)


@checked
def set_up(
    method: str,
    *,
    split: Split,
    preset: str = "recommended",
    net: str = "auto",
    settings: Settings = (),
    device: str = "auto",
) -> Setup:
    """The method for data of this size, with every setting that was asked for.

    ``settings`` are those of ``covlearn train --set``: fields of the method, ``net.…``,
    ``machine.…``.
    """
    tree = parse_settings(as_lines(settings))
    device = resolve_device(device)
    shape, num_classes = tuple(split.x.shape[1:]), split.num_classes
    scratch = preset == "recommended" and worth_training(len(split), shape, device)
    choice = Choice(make_method(method), *network(shape, num_classes, len(split)))
    if preset not in presets.PRESETS:
        raise ValueError(
            f"preset must be one of {', '.join(presets.PRESETS)}, got {preset!r}"
            f"{nearest(preset, presets.PRESETS)}"
        )
    if scratch and method in METHODS:
        choice = from_scratch(method, num_examples=len(split), num_classes=num_classes)
    elif method in METHODS:
        choice = recommended(method, num_examples=len(split), num_classes=num_classes, shape=shape)
        if preset != "recommended":
            choice = replace(choice, method=presets.preset(preset, method, "small"))
    if net not in ("auto", choice.net):
        choice = replace(choice, net=net, net_options={})
    if isinstance(choice.method, CrossFittedCAL):
        choice = replace(choice, method=left_to_choose(choice.method, tree))
    others = take_beside(choice.method, tree)
    moved = movement(shape[0]) if scratch else {}
    chosen = override(choice.method, tree)
    check_trains(chosen)
    return Setup(
        replace(choice, method=chosen, net_options=choice.net_options | others["net"]),
        make_machine(device, others["machine"]),
        augmented(split, moved, others["augmentation"]).augmentation,
    )


def check_trains(method: Method) -> None:
    """Refuses to judge labels, or to predict, by a network that was never trained."""
    made = any(getattr(method, name, None) is not None for name in ("labels", "probs"))
    without = {"plan": getattr(method, "warm_start", False), "sieve_plan": made}
    for name, possible in without.items():
        plan = getattr(method, name, None)
        if isinstance(plan, Plan) and plan.epochs == 0 and not possible:
            raise ValueError(
                f"{name}.epochs must be at least 1, got 0: its network would stay as it was drawn; "
                f"leave {name}.epochs out for a number that suits the data"
            )


def as_lines(settings: Settings) -> list[str]:
    """``{"plan.epochs": 3}`` and ``["plan.epochs=3"]`` as the latter."""
    if isinstance(settings, Mapping):
        return [f"{path}={_text(value)}" for path, value in settings.items()]
    return list(settings)


def fit_split(
    split: Split,
    setup: Setup,
    *,
    seed: int,
    classes: Sequence[Any] | None = None,
    folder: Path | None = None,
    follow: Callable[[dict[str, list[Record]]], Progress] | None = None,
) -> Fit:
    """Trains the method on the given labels and judges each of them.

    With a folder the stages are kept there until they are finished, so that a run that was cut off
    can go on; ``follow`` is then told of each epoch.
    """
    choice = setup.choice
    split = replace(split, augmentation=setup.augmentation)
    run = LocalRun(
        split,
        net_name=choice.net,
        net_options=dict(choice.net_options),
        machine=setup.machine,
        seed=seed,
        folder=folder,
        after_epoch=Agreement(split.y),
    )
    if follow is not None:
        run.follow = follow(run.history)
    model = choice.method.fit(view_of(run))
    own_logits, _ = run.predict(model)
    if run.refined_by is not None:
        crossed, sieves = run.refined_by, choice.method
    else:
        sieves = recommended(
            "cal",
            num_examples=len(split),
            num_classes=split.num_classes,
            shape=tuple(split.x.shape[1:]),
        ).method
        assert isinstance(sieves, CrossFittedCAL)
        chosen, first = sieves.cross_fitted(view_of(run))
        crossed = chosen.of_all_deals(view_of(run), first)
    given, judged, these = split.y.cpu(), split.judged, split.counted
    surest = sieves.surest if isinstance(sieves, CrossFittedCAL) else SUREST
    evidence = noise_evidence(
        crossed[these],
        given[these],
        surest=surest,
        tolerated=getattr(sieves, "tolerated", TOLERATED),
        significance=getattr(sieves, "significance", 0.01),
    )
    heard = None
    if run.refined_by is not None and not isinstance(sieves, CrossFittedCAL):
        # Averages of training passes have seen the given label, and mean what they say
        # (results/beyond/reliability); Bayes' rule would count it twice. So with both judges.
        logits = crossed
    else:
        # The network that was trained on D̂ finds more wrong labels than the sieves that D̂ came
        # from (benchmarks/detection.py); how often labels are wrong is the sieves' to say.
        relearned = evidence.contradictory and run.refined_by is not None
        share = surest if len(split.x.shape) == 4 else COUNTED
        transition = surest_transition(crossed[these], given[these], surest=share)
        times = None
        if evidence.found:
            times = torch.ones(len(given), dtype=torch.float64)
            times[judged] = wrong_by_sureness(crossed[judged], given[judged], transition)
        judge_by = crossed
        if relearned:
            judge_by, heard = own_logits, heard_by(run, choice.method)
        logits = label_posterior(
            judge_by, given, transition, times=times, spread=SCALE_SPREAD, heard=heard
        )
    verdicts = judge(split.y, logits, evidence=evidence.found, classes=classes)
    if split.trusted is not None:
        verdicts = decided(verdicts, split.trusted.numpy())
    return assembled(split, run, model, (logits, crossed, own_logits), heard, verdicts, evidence)


def heard_by(run: LocalRun, method: Method) -> Tensor:
    """Of which examples the network that was trained last learned the given label, or one of D̂,
    which is made of the given labels, (N,)."""
    if run.last_labels is not None:
        return run.last_labels.cpu() >= 0
    if getattr(method, "target", "noisy") != "noisy" and run.refined is not None:
        return run.refined[0] >= 0
    return torch.ones(len(run.split), dtype=torch.bool)


def assembled(
    split: Split,
    run: LocalRun,
    model: nn.Module,
    said: tuple[Tensor, Tensor, Tensor],
    heard: Tensor | None,
    verdicts: Verdicts,
    evidence: Evidence,
) -> Fit:
    """The verdicts with the statistics of the refined labels."""
    logits, crossed, own_logits = said
    given = split.y.cpu()
    refined = torch.from_numpy(verdicts.refined)
    refined[torch.from_numpy(verdicts.decision == DROP)] = -1
    stats = SecondOrder.from_labels(given, refined, split.num_classes, empty_class="identity")
    wrong = float((1 - verdicts.quality).mean()) if evidence.found else 0.0
    return Fit(
        model=model.cpu(),
        verdicts=verdicts,
        logits=logits,
        crossed=crossed,
        own_logits=own_logits,
        heard=heard,
        evidence=evidence,
        noise_rate=wrong,
        transition=stats.transition,
        covariance=covariance_table(own_logits, given, refined, stats),
        history=run.history,
        facts=run.facts,
    )


class Agreement:
    """After each epoch: the share of the given labels that its pass predicted."""

    def __init__(self, y: Tensor) -> None:
        self.y = y

    def __call__(self, stage: str, epoch: int, model: nn.Module, ledger: Ledger) -> Record:  # noqa: ARG002
        """One number; examples that took no part do not count. NaN where none did unmixed."""
        seen = ledger.prediction >= 0
        same = (ledger.prediction == self.y.to(ledger.prediction.device)) & seen
        return {"agreement": float(same.sum() / seen.sum())}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_text, value))}]"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def check_net(split: Split, setup: Setup) -> None:
    """Builds the network once: what is wrong with it is said before there is a folder."""
    build_net(
        setup.choice.net,
        num_classes=split.num_classes,
        input_shape=input_shape(split),
        seed=0,
        options=setup.choice.net_options,
    )
