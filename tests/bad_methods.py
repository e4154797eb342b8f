"""Methods that each break one rule, with the check that must notice and what it says."""

import itertools
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from covlearn import distributed
from covlearn.covariance import SecondOrder
from covlearn.data import Batch, Split
from covlearn.engine import Outputs, Plan
from covlearn.ledger import Ledger
from covlearn.methods import CE, Method, Run
from covlearn.methods.ce import CrossEntropy
from covlearn.methods.coteaching import smallest
from covlearn.objective import Committee
from covlearn.run import LocalRun

drawn = itertools.count(1)


@dataclass(frozen=True)
class Factor:
    """Cross-entropy times a number that comes from where it should not."""

    plan: Plan = Plan(epochs=100)

    def factor(self, run: Any) -> float:
        return 1.0

    def fit(self, run: Run) -> nn.Module:
        model = run.net("factor")
        run.train("factor", model, Times(self.factor(run)), self.plan)
        return model


class Times(CrossEntropy):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        return self.factor * super().forward(outputs, batch)[0], None


class Dies(Factor):
    """Its process ends as one does that runs out of memory: no word, no trace."""

    def fit(self, run: Run) -> nn.Module:
        os._exit(3)


class Counts(Factor):
    def factor(self, run: Any) -> float:
        return 1.0 / next(drawn)


class DrawsFromTorch(Factor):
    def factor(self, run: Any) -> float:
        return float(torch.rand(()))


class DrawsFromNumPy(Factor):
    def factor(self, run: Any) -> float:
        return float(np.random.rand())  # noqa: NPY002


class DrawsFromRandom(Factor):
    def factor(self, run: Any) -> float:
        return random.random()


class SeedsTorch(Factor):
    """Gives the same bits, and to whoever draws next a state that is not theirs."""

    def factor(self, run: Any) -> float:
        torch.default_generator.manual_seed(run.seed)
        return 1.0


def behind(run: Any) -> Any:
    """The run itself, which a method has to dig for: it is handed a bare view of it."""
    train = run.train
    member = train if train.__closure__ is None else train.__closure__[0].cell_contents
    return member.__self__


class ReadsCleanLabels(Factor):
    def factor(self, run: Any) -> float:
        clean = behind(run).after_epoch.clean
        return 1 + float((clean == run.split.y).float().mean())


class ChoosesByTestAccuracy(Factor):
    def fit(self, run: Any) -> nn.Module:
        model = super().fit(run)
        accuracy = behind(run).history["factor"][-1]["test_accuracy"]
        return model if accuracy > 0.5 else run.net("other")


class ChangesInputs(Factor):
    def factor(self, run: Any) -> float:
        run.split.x.mul_(0.5)
        return 1.0


class ChangesLabels(Factor):
    def factor(self, run: Any) -> float:
        run.split.y[:2] = 0
        return 1.0


class ReplacesSplit(Factor):
    def factor(self, run: Any) -> float:
        run.split = replace(run.split, y=run.split.y.roll(1))
        return 1.0


class ChangesItself(Factor):
    def factor(self, run: Any) -> float:
        object.__setattr__(self, "plan", replace(self.plan, epochs=1))
        return 1.0


@dataclass
class NotFrozen:
    plan: Plan = Plan(epochs=100)

    def fit(self, run: Run) -> nn.Module:
        return CE(self.plan).fit(run)


@dataclass(frozen=True)
class HoldsFunction(Factor):
    activation: Callable[[Tensor], Tensor] = torch.relu


@dataclass(frozen=True)
class ReadBackOtherwise(Factor):
    sizes: Any = (1, 2)


class ForgetsSteps(Factor):
    def fit(self, run: Run) -> nn.Module:
        model = run.net("forgets")
        run.train("first", model, CrossEntropy(), self.plan)
        run.train("second", model, Counting(), self.plan)
        return model


class Counting(CrossEntropy):
    """Counts its steps where no checkpoint sees it."""

    steps = 0

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        self.steps += 1
        return super().forward(outputs, batch)[0] / self.steps, None


class WritesLedger(CrossEntropy):
    """Leaves the network alone, and in the ledger what no checkpoint knows."""

    epochs = 0

    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:
        self.epochs += 1
        ledger.learned.fill_(100 * self.epochs)


class LeavesItsMark(Factor):
    def fit(self, run: Run) -> nn.Module:
        model = run.net("mark")
        run.train("mark", model, WritesLedger(), self.plan)
        return model


class ForgetsStepsOfAverages(Factor):
    def fit(self, run: Run) -> nn.Module:
        model = run.net("forgets")
        averages = self.plan.average is not None
        run.train("a", model, Counting() if averages else CrossEntropy(), self.plan)
        return model


class GoesOn(Factor):
    def fit(self, run: Run) -> nn.Module:
        try:
            return super().fit(run)
        except KeyboardInterrupt:
            return run.net("factor")


class NamesStagesAnew(Factor):
    def fit(self, run: Run) -> nn.Module:
        model = run.net("a")
        run.train(f"stage{next(drawn)}", model, CrossEntropy(), self.plan)
        return model


class DrawsLabels(Factor):
    """Its second stage has other targets whenever it is asked."""

    def fit(self, run: Run) -> nn.Module:
        model = run.net("a")
        labels = run.split.y.roll(next(drawn))
        run.train("a", model, CrossEntropy(), self.plan, labels=labels)
        return model


class LearnsNothing(Factor):
    def factor(self, run: Any) -> float:
        return 0.0


class ReturnsCommittee(Factor):
    def fit(self, run: Run) -> nn.Module:
        return Committee([super().fit(run), run.net("other")])


class ReturnsNothing(Factor):
    def fit(self, run: Run) -> nn.Module:
        super().fit(run)
        return None  # type: ignore[return-value]


class ReadsHistory(Factor):
    def fit(self, run: Any) -> nn.Module:
        model = super().fit(run)
        run.note(epochs=len(run.history["factor"]))
        return model


class AsksForTheClass(Factor):
    def factor(self, run: Any) -> float:
        return 1.0 if isinstance(run, LocalRun) else 0.5


class Scheduled(CrossEntropy):
    """Cross-entropy times a number of the epoch, kept where a captured step does not find it."""

    scale: Any

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        return self.scale * super().forward(outputs, batch)[0], None


class Rebinds(Scheduled):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:
        self.scale = torch.tensor(1 / (1 + epoch))


class RebindsInForward(Rebinds):
    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:
        pass

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        self.scale = 0.9 * self.scale
        return super().forward(outputs, batch)


class KeepsNumber(Scheduled):
    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:
        self.scale = 1 / (1 + epoch)


class InPlace(Rebinds):
    def begin_epoch(self, epoch: int, ledger: Ledger) -> None:
        self.scale.fill_(1 / (1 + epoch))


class Honest(Rebinds):
    capturable = False


SCHEDULED: dict[str, type[Scheduled]] = {
    kind.__name__: kind for kind in (Rebinds, RebindsInForward, KeepsNumber, InPlace, Honest)
}


@dataclass(frozen=True)
class Schedules(Factor):
    objective: str = "Rebinds"

    def fit(self, run: Run) -> nn.Module:
        model = run.net("scheduled")
        # Where examples are dropped, the objective that is trained is not the one handed over.
        labels = run.split.y.where(torch.arange(len(run.split)) > 4, -1)
        run.train("a", model, SCHEDULED[self.objective](), self.plan, labels=labels)
        return model


class KeepsStatistics(CrossEntropy):
    """What it looks up in each step is where ``to(device)`` does not find it."""

    def __init__(self, split: Split) -> None:
        super().__init__()
        self.stats = SecondOrder.from_labels(split.y, split.y, split.num_classes)

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, None]:
        share = self.stats.class_weight[batch.y]
        return share * super().forward(outputs, batch)[0], None


class StaysOnTheHost(Factor):
    def fit(self, run: Run) -> nn.Module:
        model = run.net("host")
        run.train("host", model, KeepsStatistics(run.split), self.plan)
        return model


class OwnSmallest(CrossEntropy):
    """Picks small losses in its own share of the batch."""

    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        loss, _ = super().forward(outputs, batch)
        return loss, smallest(loss, 0.5)


class SeesItsOwnShare(Factor):
    def fit(self, run: Run) -> nn.Module:
        model = run.net("own")
        run.train("own", model, OwnSmallest(), self.plan)
        return model


class FailsWithTwo(Factor):
    def factor(self, run: Any) -> float:
        if distributed.active():
            raise ValueError("too many")
        return 1.0


def unimportable() -> Method:
    class Local(Factor):
        pass

    return Local()


BAD: list[tuple[Method, str, str]] = [
    (
        Counts(),
        "deterministic",
        r"two runs of one seed differ; .*run.seed \(network, records, ledger\)",
    ),
    (DrawsFromTorch(), "deterministic", "two runs of one seed differ"),
    (DrawsFromNumPy(), "deterministic", "two runs of one seed differ"),
    (DrawsFromRandom(), "deterministic", "two runs of one seed differ"),
    (ReturnsNothing(), "deterministic", "must return a network, got NoneType"),
    (DrawsFromTorch(), "keeps_global_random_state", "state of torch was changed"),
    (DrawsFromNumPy(), "keeps_global_random_state", "state of numpy was changed"),
    (DrawsFromRandom(), "keeps_global_random_state", "state of random was changed"),
    (SeedsTorch(), "keeps_global_random_state", "state of torch was changed"),
    (ReadsCleanLabels(), "ignores_clean_labels", "changes with the clean labels"),
    (ChoosesByTestAccuracy(), "ignores_clean_labels", r"changes with the .*\(network\)"),
    (ChangesInputs(), "keeps_inputs", r"split\.x was changed"),
    (ChangesLabels(), "keeps_inputs", r"split\.y was changed"),
    (ReplacesSplit(), "keeps_inputs", r"run\.split or run\.seed was replaced"),
    (ChangesItself(), "keeps_inputs", "changed the method's own fields"),
    (NotFrozen(), "config_round_trips", "NotFrozen must be frozen"),
    (HoldsFunction(), "config_round_trips", "HoldsFunction cannot be written and read back"),
    (ReadBackOtherwise(), "config_round_trips", r"read back .* as .*sizes=\[1, 2\]"),
    (ForgetsSteps(), "resumes", r"must be in buffers or parameters \(network, records, ledger\)"),
    (
        ForgetsStepsOfAverages(),
        "resumes",
        r"must be in buffers or parameters \(network, records, ledger\)",
    ),
    (LeavesItsMark(), "resumes", r"must be in buffers or parameters \(ledger\)"),
    (GoesOn(), "resumes", "epoch 0 of stage factor was interrupted, and fit went on"),
    (NamesStagesAnew(), "resumes", "epoch 0 of stage stage.* name stages alike"),
    (DrawsLabels(), "resumes", "cannot go on: .*another configuration"),
    (LearnsNothing(), "recovers", "an accuracy of 0.8 .* got 0"),
    (ReturnsCommittee(), "recovers", r"expected logits \(120, 3\), got \(2, 120, 3\)"),
    (
        ReadsHistory(),
        "needs_only_the_protocol",
        "keep_labels of a run and nothing else, got 'history'",
    ),
    (Schedules(), "keeps_buffers_in_place", r"Rebinds\.scale is another .* capturable = False"),
    (Schedules(objective="RebindsInForward"), "keeps_buffers_in_place", r"InForward\.scale is ano"),
    (
        Schedules(objective="KeepsNumber"),
        "keeps_buffers_in_place",
        r"KeepsNumber\.scale is another",
    ),
    (StaysOnTheHost(), "keeps_buffers_in_place", r"KeepsStatistics\.stats holds a .* is no buffer"),
    (SeesItsOwnShare(), "two_processes", "two processes end otherwise than one; what looks across"),
    (
        FailsWithTwo(),
        "two_processes",
        "one of two processes failed: .*\n(.*\n)*ValueError: too many",
    ),
    (unimportable(), "two_processes", "define it at the top of a module, .*Local"),
    (AsksForTheClass(), "needs_only_the_protocol", "another class gives another network"),
]
