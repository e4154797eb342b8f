"""Two and four processes that train together end where one does, for every method.

The house check does it for one method; here all share the processes.
"""

import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from covlearn.cli import main
from covlearn.data import Batch
from covlearn.engine import Machine, Objective, Outputs, Plan
from covlearn.losses import cross_entropy
from covlearn.methods import CAL, DMI, GCE, METHODS, CoTeachingPlus, Method, Run
from covlearn.methods.coteaching import smallest
from covlearn.testing import fit_in_processes, require_equal_one

SECONDS = 90
"""After which torchrun has failed."""


@dataclass(frozen=True)
class Careless:
    """Picks small losses in its own share of the batch: what the tests here must notice."""

    plan: Plan = Plan(epochs=3, batch_size=32)

    def fit(self, run: Run) -> nn.Module:
        model = run.net("careless")
        run.train("careless", model, OwnSmallest(), self.plan)
        return model


class OwnSmallest(Objective):
    def forward(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor]:
        loss = cross_entropy(outputs.logits, batch.y)
        return loss, smallest(loss, 0.5)


@dataclass(frozen=True)
class Ended:
    """Is ended by a signal in one of the processes, as gloo ends one whose shapes do not fit."""

    plan: Plan = Plan(epochs=1, batch_size=32)

    def fit(self, run: Run) -> nn.Module:
        if torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return run.net("ended")


CASES: dict[str, Method] = {
    **{name: kind() for name, kind in METHODS.items()},
    "cal with a quantile": CAL(threshold="quantile"),
    "cal that drops": CAL(lower=-1.0, upper=0.0),
    "cal of averages": CAL(scores="averaged", threshold="argmax"),
    "cal in rounds": CAL(threshold="argmax", rounds=2),
    "cal of neighbours": CAL(threshold="argmax", neighbours=3),
    "cal of two judges": CAL(threshold="argmax", judges="both"),
    "cal of mixed targets": CAL(target="rows", mixup=True, lower=-1.0, upper=0.0),
    "cal of gce on mixed labels": CAL(target="refined", base="gce", peer=False, mixup=True),
    "cal over gce": CAL(base="gce", weighting="sample"),
    "cal that relabels": CAL(relabel=True, lower=-1.0, upper=0.0),
    "coteaching_plus of a known rate": CoTeachingPlus(rate=0.3),
    "dmi in balanced batches": DMI(balanced_batches=4),
    "gce that prunes": GCE(truncate=True),
    "careless": Careless(),
}

Outcome = dict[str, dict[str, Tensor]]


class Normed(nn.Module):
    """A network with both kinds of batch norm, of which one counts all steps alike."""

    def __init__(self, *, num_classes: int, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.first = nn.Linear(input_shape[0], 32)
        self.norm = nn.BatchNorm1d(32)
        self.maps = nn.BatchNorm2d(8, momentum=None)
        self.fc = nn.Linear(32, num_classes)

    def features(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.norm(self.first(x)).relu()
        return self.maps(hidden.view(-1, 8, 2, 2)).flatten(1)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x))  # type: ignore[no-any-return]


NORMED: dict[str, Any] = {"net_name": f"{__name__}:Normed", "net_options": {}}
SHARED: dict[str, Any] = {**NORMED, "machine": Machine(sync_batch_norm=True)}
WITH_NORM = {name: CASES[name] for name in ("ce", "cal", "jocor")}


@pytest.fixture(scope="module", params=[2, 4])
def together(request: pytest.FixtureRequest) -> list[Outcome]:
    """What each of the processes ends with; they are started once for all methods."""
    return fit_in_processes(CASES, request.param)


@pytest.mark.parametrize("name", [name for name in CASES if name != "careless"])
def test_processes_equal_one(together: list[Outcome], name: str) -> None:
    require_equal_one(CASES[name], [outcome[name] for outcome in together])


def test_a_selection_that_is_not_gathered_is_noticed(together: list[Outcome]) -> None:
    with pytest.raises(AssertionError, match="processes end otherwise than one; what looks"):
        require_equal_one(CASES["careless"], [outcome["careless"] for outcome in together])


def test_processes_that_differ_are_noticed(together: list[Outcome]) -> None:
    first = together[0]["ce"]
    second = first | {"score": first["score"] + 1e-6}
    with pytest.raises(AssertionError, match="two processes end otherwise than each other"):
        require_equal_one(CASES["ce"], [first, second])


def test_a_process_that_is_ended_at_its_work_is_no_matter_of_imports() -> None:
    says = "one of two processes was ended at its work, by SIGKILL, .* the same collectives"
    with pytest.raises(AssertionError, match=says):
        fit_in_processes({"": Ended()}, 2)


def test_a_process_that_never_began_could_not_import(monkeypatch: pytest.MonkeyPatch) -> None:
    made = type("Made", (Careless,), {"__module__": "only_here"})
    module = types.ModuleType("only_here")
    module.Made = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(AssertionError, match="define it at the top of a module"):
        fit_in_processes({"": made()}, 2)


@pytest.fixture(scope="module")
def normed() -> list[Outcome]:
    return fit_in_processes(WITH_NORM, 2, **SHARED)


@pytest.mark.parametrize("name", WITH_NORM)
def test_batch_norm_over_all_processes_is_that_of_one(normed: list[Outcome], name: str) -> None:
    require_equal_one(WITH_NORM[name], [outcome[name] for outcome in normed], **NORMED)


def test_batch_norm_of_each_its_own_ends_alike_but_not_as_one() -> None:
    # Nothing that is read off a network, as D̂ is, may differ from process to process.
    first, second = fit_in_processes({"cal": CASES["cal"]}, 2, **NORMED)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    with pytest.raises(AssertionError, match="end otherwise than one"):
        require_equal_one(CASES["cal"], [first["cal"], second["cal"]], **NORMED)


def test_torchrun_trains_as_one_process_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def arguments(folder: str) -> list[str]:
        return [
            *["train", "--data", "digits", "--noise", "symmetric:0.2", "--method", "cores"],
            *["--seed", "1", "--device", "cpu", "--json", "--out", str(tmp_path / folder)],
            *["--set", "plan.epochs=2", "net.hidden=[16]"],
        ]

    torchrun = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [sys.executable, "-m", *torchrun, "-m", "covlearn", *arguments("two")],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert main(arguments("one")) == 0
    # The first process alone prints, and one object.
    assert json.loads(done.stdout)["returned"] == json.loads(capsys.readouterr().out)["returned"]
    together, alone = (load_file(tmp_path / name / "model.safetensors") for name in ("two", "one"))
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
    environment = json.loads((tmp_path / "two" / "environment.json").read_text(encoding="utf-8"))
    assert environment["processes"] == 2
