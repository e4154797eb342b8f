"""Every method passes the house checks, and each check catches what it is for."""

import itertools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covlearn.cli import main
from covlearn.committee import Committee
from covlearn.data import Batch
from covlearn.engine import Outputs, Plan
from covlearn.methods import CAL, CE, CORES, GCE, METHODS, PTD, Method, Run
from covlearn.methods.ce import CrossEntropy
from covlearn.run import LocalRun
from covlearn.schedules import Ramp
from covlearn.testing import CHECKS, RUN_MEMBERS, check_method, make_toy, shortened
from examples.own_method import SymmetricCE

ROOT = Path(__file__).resolve().parents[1]
ALL = {
    **{name: kind() for name, kind in METHODS.items()},
    # What the defaults leave out.
    "cal that drops": CAL(lower=-1.0, upper=0.0, scores="training"),
    "cal over forward": CAL(threshold="quantile", base="forward"),
    "gce that prunes": GCE(truncate=True),
    "examples/own_method.py": SymmetricCE(),
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ALL)
def test_methods(name: str, check: str) -> None:
    check_method(ALL[name], checks=[check])


# Methods that each break one rule.

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


class ReadsCleanLabels(Factor):
    def factor(self, run: Any) -> float:
        evaluator = getattr(run, "after_epoch", None)
        clean = getattr(evaluator, "clean", None)
        return 1.0 if clean is None else 1 + float((clean == run.split.y).float().mean())


class ChoosesByTestAccuracy(Factor):
    def fit(self, run: Any) -> nn.Module:
        model = super().fit(run)
        accuracy = run.history["factor"][-1].get("test_accuracy", 1.0)
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


BAD: list[tuple[Method, str, str]] = [
    (Counts(), "deterministic", r"two runs of one seed differ; .*run.seed \(network, records\)"),
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
    (ForgetsSteps(), "resumes", r"must be in buffers or parameters \(network, records\)"),
    (GoesOn(), "resumes", "epoch 0 of stage factor was interrupted, and fit went on"),
    (NamesStagesAnew(), "resumes", "epoch 0 of stage stage.* name stages alike"),
    (DrawsLabels(), "resumes", "cannot go on: .*another configuration"),
    (LearnsNothing(), "recovers", "an accuracy of 0.8 .* got 0"),
    (ReturnsCommittee(), "recovers", r"expected logits \(120, 3\), got \(2, 120, 3\)"),
    (ReadsHistory(), "needs_only_the_protocol", "keep_labels of a run and nothing else: .*history"),
    (AsksForTheClass(), "needs_only_the_protocol", "another class gives another network"),
]


@pytest.mark.parametrize(
    ("method", "check", "message"),
    BAD,
    ids=[f"{type(method).__name__}-{check}" for method, check, _ in BAD],
)
def test_a_bad_method_is_caught(method: Method, check: str, message: str) -> None:
    before = global_state()
    with pytest.raises(AssertionError, match=message) as caught:
        check_method(method, checks=[check])
    assert caught.value.__notes__ == [f"house check {check} of {type(method).__name__}"]
    assert global_state() == before


def global_state() -> list[object]:
    numpy_state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    own = [numpy_state["key"].tolist(), numpy_state["pos"]]
    return [random.getstate(), torch.get_rng_state().tolist(), *own]


def test_every_check_is_seen_to_fail() -> None:
    assert {check for _, check, _ in BAD} == set(CHECKS)


def test_what_the_bad_methods_add_to_passes() -> None:
    check_method(Factor())


def test_expected_failures_are_strict() -> None:
    reason = {"keeps_inputs": "scales in place"}
    check_method(ChangesInputs(), checks=["keeps_inputs"], expected_failures=reason)
    with pytest.raises(AssertionError, match=r"keeps_inputs was expected to fail \(scales in pl"):
        check_method(Factor(), checks=["keeps_inputs"], expected_failures=reason)
    with pytest.raises(AssertionError, match="state of torch"):
        check_method(SeedsTorch(), checks=["keeps_global_random_state"], expected_failures=reason)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"got 'resume'; did you mean 'resumes'\?"):
        check_method(Factor(), checks=["resume"])
    with pytest.raises(ValueError, match=r"got 'recover'; did you mean 'recovers'\?"):
        check_method(Factor(), expected_failures={"recover": "hard"})
    for wrong in (Factor, object(), Plan(epochs=1)):
        with pytest.raises(ValueError, match=r"must be an instance .* as check_method\(MyMethod"):
            check_method(wrong)  # type: ignore[arg-type]


def test_the_protocol_has_the_members_that_the_check_allows() -> None:
    methods = {name for name in vars(Run) if not name.startswith("_")}
    assert set(RUN_MEMBERS) == set(Run.__annotations__) | methods


@dataclass(frozen=True)
class Nested:
    inner: CORES = field(default_factory=CORES)
    rate: float = 0.5
    num_parts: int = 50
    warm_up_epochs: int = 0


def test_shortened_scales_what_counts_epochs() -> None:
    short = shortened(CORES(Plan(50, lr_milestones=(20, 30)), Ramp(2.0, 10, 40), 30), epochs=10)
    assert short == CORES(Plan(10, 32, lr_milestones=(4, 6)), Ramp(2.0, 2, 8), 6)
    assert shortened(CORES(sieve_from=None)).sieve_from is None
    gce = shortened(GCE(), epochs=4, batch_size=8, lr=0.5)
    assert (gce.plan.epochs, gce.plan.batch_size, gce.plan.lr) == (4, 8, 0.5)
    assert (gce.prune_from, gce.prune_every, gce.q) == (2, 1, 0.7)


def test_shortened_looks_inside_and_leaves_the_rest() -> None:
    assert shortened(Nested(), epochs=10) == Nested(shortened(CORES(), epochs=10))
    ptd = PTD(revision_plan=Plan(epochs=0, lr=5e-7))
    assert shortened(ptd).revision_plan == Plan(0, 32, lr=5e-7)
    assert shortened(ptd).parts == ptd.parts
    long = CE(Plan(epochs=2, lr_milestones=(1,), batch_size=32))
    assert shortened(long) == long


def test_the_toy_is_mildly_noisy_and_always_the_same() -> None:
    toy, again = make_toy(), make_toy()
    assert 0.1 < float((toy.split.y != toy.clean).float().mean()) < 0.3
    assert torch.equal(toy.split.x, again.split.x)
    assert torch.equal(toy.split.y, again.split.y)
    assert not torch.equal(toy.split.x, toy.test.x)


# The page about methods of your own.

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def test_the_page_shows_the_example() -> None:
    example, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert example == (ROOT / "examples" / "own_method.py").read_text(encoding="utf-8")


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, *others = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(others) == 2
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.chdir(tmp_path)
    for code in others:
        exec(code, {})


def test_the_command_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (command,) = re.findall(r"```sh\n(python -m covlearn .*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert main(command.replace("\\\n", "").split()[3:]) == 0
    assert "examples.own_method:SymmetricCE, seed 0" in capsys.readouterr().out


def test_the_page_names_every_check() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(CHECKS)
