"""Every method passes the house checks, and each check catches what it is for."""

import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covlearn.cli import main
from covlearn.engine import Plan
from covlearn.methods import CAL, CE, CORES, GCE, METHODS, PTD, Method, Run
from covlearn.run import fit_and_evaluate
from covlearn.schedules import Ramp
from covlearn.testing import CHECKS, RUN_MEMBERS, check_method, make_toy, shortened
from examples.own_loss import SymmetricCAL
from examples.own_method import SymmetricCE
from tests.bad_methods import BAD, ChangesInputs, Factor, Schedules, SeedsTorch

ROOT = Path(__file__).resolve().parents[1]
ALL: dict[str, Method] = {
    **{name: kind() for name, kind in METHODS.items()},
    # What the defaults leave out.
    "cal that drops": CAL(lower=-1.0, upper=0.0, scores="training"),
    "cal over forward": CAL(threshold="quantile", base="forward"),
    "cal in rounds": CAL(scores="averaged", threshold="argmax", rounds=2, rounds_from="last"),
    "cal of two judges": CAL(scores="averaged", threshold="argmax", judges="both"),
    "cal of neighbours": CAL(scores="both", threshold="argmax", neighbours=3),
    "cal of mixed targets": CAL(target="rows", mixup=True, lower=-1.0, upper=0.0),
    "cal of gce on mixed labels": CAL(target="refined", base="gce", peer=False, mixup=True),
    "gce that prunes": GCE(truncate=True),
    "examples/own_method.py": SymmetricCE(),
}


# tests/test_processes.py has all methods in the same two processes: starting them takes seconds.
ONE_PROCESS = [check for check in CHECKS if check != "two_processes"]


@pytest.mark.parametrize("check", ONE_PROCESS)
@pytest.mark.parametrize("name", ALL)
def test_methods(name: str, check: str) -> None:
    check_method(ALL[name], checks=[check])


@pytest.mark.parametrize("dropped", [False, True])
def test_a_loss_of_ones_own_in_cal(dropped: bool) -> None:
    """Not among ALL: it is an example, and no method with a golden trajectory."""
    few = ["deterministic", "keeps_buffers_in_place", "recovers"]
    method = SymmetricCAL(lower=-1.0, upper=0.0) if dropped else SymmetricCAL()
    check_method(method, checks=few if dropped else ONE_PROCESS)


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


@pytest.mark.parametrize("objective", ["InPlace", "Honest"])
def test_a_schedule_in_place_or_without_capture_is_well(objective: str) -> None:
    check_method(Schedules(objective=objective), checks=["keeps_buffers_in_place", "resumes"])


def test_a_method_is_handed_no_way_to_the_evaluator(tmp_path: Path) -> None:
    handed: list[Any] = []

    class Keeps(Factor):
        def factor(self, run: Any) -> float:
            handed.append(run)
            return 1.0

    toy = make_toy()
    options: dict[str, Any] = {"test": toy.test, "clean": toy.clean, "folder": tmp_path / "run"}
    fit_and_evaluate(Keeps(Plan(epochs=1)), toy.split, **options)
    (view,) = handed
    assert {name for name in dir(view) if not name.startswith("__")} == set(RUN_MEMBERS)
    for name in ("after_epoch", "history", "folder", "facts", "__dict__", "_run"):
        with pytest.raises(AttributeError, match=f"nothing else, got '{name}'"):
            getattr(view, name)
    for name in RUN_MEMBERS:
        assert not hasattr(getattr(view, name), "__self__"), name
        with pytest.raises(AttributeError):
            setattr(view, name, None)


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


def test_the_next_page_shows_the_other_example() -> None:
    page = (ROOT / "docs" / "extending_parts.md").read_text(encoding="utf-8")
    (example,) = re.findall(r'```python title="own_loss.py"\n(.*?)```', page, re.DOTALL)
    assert example == (ROOT / "examples" / "own_loss.py").read_text(encoding="utf-8")


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
