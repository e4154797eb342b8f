"""Memory that runs out: what to lower is named, and the run can be resumed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covlearn.cli import main
from covlearn.engine import _Step
from covlearn.methods import CAL
from covlearn.shortage import OutOfMemory, is_shortage
from covlearn.testing import shortened
from tests.runs import METHOD, PLAN, assert_same_run, fit

ROOT = Path(__file__).resolve().parents[2]
STEPS = 6 * PLAN.epochs
"""Of the first stage: 81 examples in batches of 16."""
GPU = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 1.00 GiB\nmore"


def failing(monkeypatch: pytest.MonkeyPatch, step: int, error: Exception) -> None:
    """A step of all steps of the run fails."""
    whole, count = _Step.__call__, [0]

    def counted(self: _Step, batch: Any) -> Any:
        count[0] += 1
        if count[0] == step:
            raise error
        return whole(self, batch)

    monkeypatch.setattr(_Step, "__call__", counted)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(GPU),
        MemoryError(),
        RuntimeError("cuBLAS error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    ],
    ids=["gpu", "host", "cublas"],
)
def test_a_step_without_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with monkeypatch.context() as patched:
        failing(patched, STEPS + 8, error)
        with pytest.raises(OutOfMemory) as caught:
            fit(tmp_path / "run")
    said = str(caught.value)
    assert said.startswith("stage cal: out of memory")
    assert "\n" not in said
    assert "lower the plan's batch_size (now 16) or take a smaller net than mlp, which" in said
    assert "average_classes" not in said
    assert said.endswith("cal.pt is kept")
    fit(tmp_path / "run", resume=True)
    fit(tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_averages_of_predictions_are_named_where_they_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, 1, torch.OutOfMemoryError(GPU))
    with pytest.raises(OutOfMemory, match=r"keep fewer average_classes in the plan \(now 3\)"):
        fit(tmp_path / "run", shortened(METHOD, average=0.9))


def test_where_nothing_was_trained_the_folder_is_free_for_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        failing(patched, 1, torch.OutOfMemoryError(GPU))
        with pytest.raises(OutOfMemory):
            fit(tmp_path / "run")
    fit(tmp_path / "run", shortened(CAL(), batch_size=8))


def test_other_failures_are_left_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert not is_shortage(error)
    assert not is_shortage(ValueError("out of memory"))
    failing(monkeypatch, 1, error)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        fit(tmp_path / "run")


def test_an_error_that_follows_from_a_shortage() -> None:
    """As the end of a CUDA graph whose capture ran out of memory."""
    with pytest.raises(RuntimeError) as caught:  # noqa: PT012
        try:
            raise torch.OutOfMemoryError(GPU)
        finally:
            raise RuntimeError("CUDA error: operation failed due to a previous error")
    assert is_shortage(caught.value)


# The system's own limit: a batch of 4,000 does not fit into what is left of the address space.
LIMITED = """
import resource, sys
import torch, torch._dynamo
from covlearn.cli import main
import covlearn.job
torch.set_num_threads(1)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (400 << 20), resource.RLIM_INFINITY))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_the_systems_limit(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    y = np.arange(4000) % 3
    x = (draw.normal(size=(4000, 4)) + 3 * np.eye(4)[y]).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=x, y=y, x_test=x[:60], y_test=y[:60])

    def argv(folder: Path) -> list[str]:
        plans = ["sieve_plan.epochs=1", "plan.epochs=1", "sieve_plan.batch_size=40"]
        plans += ["plan.batch_size=4000", "threshold=argmax", "net.hidden=[16000]", "plan.lr=0.01"]
        return [
            *["train", "--data", str(tmp_path / "a.npz"), "--method", "cal", "--device", "cpu"],
            *["--out", str(folder), "--set", *plans, "sieve_plan.lr=0.01"],
        ]

    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *argv(tmp_path / "run")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "stage cal: out of memory" in done.stderr
    assert "lower the plan's batch_size (now 4000) or take a smaller net than mlp" in done.stderr
    assert "nothing that was saved is lost, continue with: covlearn train" in done.stderr
    assert main([*argv(tmp_path / "run"), "--resume"]) == 0
    assert main(argv(tmp_path / "whole")) == 0
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_the_command_line_has_words_for_any_shortage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also before the first stage, as when the data is brought to a GPU."""

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError(GPU)

    monkeypatch.setattr("covlearn.run.LocalRun.batches", full)
    argv = ["train", "--data", "digits", "--method", "ce", "--out", str(tmp_path / "run")]
    assert main([*argv, "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("covlearn: out of memory (CUDA out of memory. Tried to allocate 2.00")
    assert said.count("\n") == 1
    assert "lower batch_size" in said
