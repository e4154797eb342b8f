"""Two processes that train together end where one does, for every method.

The house check does it for one method; here all share two processes.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from covlearn.cli import main
from covlearn.data import Batch
from covlearn.engine import Objective, Outputs, Plan
from covlearn.losses import cross_entropy
from covlearn.methods import CAL, DMI, GCE, METHODS, CoTeachingPlus, Method, Run
from covlearn.methods.coteaching import smallest
from covlearn.testing import fit_in_two_processes, require_two_equal_one

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


CASES: dict[str, Method] = {
    **{name: kind() for name, kind in METHODS.items()},
    "cal with a quantile": CAL(threshold="quantile"),
    "cal that drops": CAL(lower=-1.0, upper=0.0),
    "cal of averages": CAL(scores="averaged", threshold="argmax"),
    "cal over gce": CAL(base="gce", weighting="sample"),
    "cal that relabels": CAL(relabel=True, lower=-1.0, upper=0.0),
    "coteaching_plus of a known rate": CoTeachingPlus(rate=0.3),
    "dmi in balanced batches": DMI(balanced_batches=4),
    "gce that prunes": GCE(truncate=True),
    "careless": Careless(),
}

Outcome = dict[str, dict[str, Tensor]]


@pytest.fixture(scope="module")
def of_two() -> tuple[Outcome, ...]:
    """What each of two processes ends with; they are started once for all methods."""
    return fit_in_two_processes(CASES)


@pytest.mark.parametrize("name", [name for name in CASES if name != "careless"])
def test_two_processes_equal_one(of_two: tuple[Outcome, ...], name: str) -> None:
    require_two_equal_one(CASES[name], of_two[0][name], of_two[1][name])


def test_a_selection_that_is_not_gathered_is_noticed(of_two: tuple[Outcome, ...]) -> None:
    first, second = (outcome["careless"] for outcome in of_two)
    with pytest.raises(AssertionError, match="two processes end otherwise than one; what looks"):
        require_two_equal_one(CASES["careless"], first, second)


def test_two_processes_that_differ_are_noticed(of_two: tuple[Outcome, ...]) -> None:
    first = of_two[0]["ce"]
    second = first | {"score": first["score"] + 1e-6}
    with pytest.raises(AssertionError, match="two processes end otherwise than each other"):
        require_two_equal_one(CASES["ce"], first, second)


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
