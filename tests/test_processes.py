"""Two processes that train together end where one does, for every method."""

import datetime
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from covlearn import distributed
from covlearn.cli import main
from covlearn.data import Batch
from covlearn.engine import Objective, Outputs, Plan
from covlearn.losses import cross_entropy
from covlearn.methods import CAL, DMI, GCE, METHODS, CoTeachingPlus, Method, Run
from covlearn.methods.coteaching import smallest
from covlearn.run import LocalRun
from covlearn.testing import NET_OPTIONS, make_toy, shortened

SECONDS = 90
"""After which a run that hangs has failed."""


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
    "cal over gce": CAL(base="gce", weighting="sample"),
    "cal that relabels": CAL(relabel=True, lower=-1.0, upper=0.0),
    "coteaching_plus of a known rate": CoTeachingPlus(rate=0.3),
    "dmi in balanced batches": DMI(balanced_batches=4),
    "gce that prunes": GCE(truncate=True),
    "careless": Careless(),
}

Outcome = dict[str, dict[str, Tensor]]


def fitted(name: str) -> dict[str, Tensor]:
    """The weights, D̂ with its scores, and the ledger."""
    # The last of four batches has 27 examples: one more for the first process.
    run = LocalRun(make_toy(123).split, net_options=NET_OPTIONS, seed=1)
    model = shortened(CASES[name]).fit(run)
    outcome = dict(model.state_dict())
    if run.refined is not None:
        outcome |= {"refined": run.refined[0], "refined score": run.refined[1]}
    assert run.last_ledger is not None
    return outcome | dict(run.last_ledger.named_buffers())


def work(process: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=process,
        world_size=2,
        timeout=datetime.timedelta(seconds=SECONDS),
    )
    assert distributed.num_processes() == 2
    torch.save({name: fitted(name) for name in CASES}, f"{folder}/{process}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """What each of two processes ends with; they are started once for all methods."""
    folder = tmp_path_factory.mktemp("processes")
    processes = spawn(work, args=(str(folder),), nprocs=2, join=False)
    # The first call returns when one has ended.
    if not (processes.join(timeout=SECONDS) or processes.join(timeout=SECONDS)):
        for process in processes.processes:
            process.kill()
        pytest.fail("two processes that train together hang")
    return [torch.load(folder / f"{process}.pt", weights_only=True) for process in (0, 1)]


@pytest.mark.parametrize("name", [name for name in CASES if name != "careless"])
def test_two_processes_equal_one(of_two: list[Outcome], name: str) -> None:
    first, second = of_two[0][name], of_two[1][name]
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    torch.testing.assert_close(first, fitted(name), rtol=1e-5, atol=1e-5)


def test_a_selection_that_is_not_gathered_is_noticed(of_two: list[Outcome]) -> None:
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(of_two[0]["careless"], fitted("careless"), rtol=1e-4, atol=1e-4)


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
