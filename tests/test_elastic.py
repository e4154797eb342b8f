"""torchrun: one machine, two machines, and a process that dies in the middle."""

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from covlearn.cli import main
from tests.runs import assert_same_run

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 240
"""After which torchrun has failed."""
EPOCHS, STEPS = 3, 12
"""Of each of two stages; steps an epoch: 1,500 of the digits in batches of 128."""


def train(folder: Path) -> list[str]:
    return [
        *["train", "--data", "digits", "--noise", "symmetric:0.2", "--method", "cal"],
        *["--net", "tests.mortal:Mortal", "--device", "cpu", "--json", "--out", str(folder)],
        *["--set", f"sieve_plan.epochs={EPOCHS}", f"plan.epochs={EPOCHS}", "threshold=argmax"],
    ]


def fit(folder: Path, source: Path) -> list[str]:
    return [
        *["fit", str(source), "--label", "label", "--out", str(folder), "--device", "cpu"],
        *["--json", "--set", "sieve_plan.epochs=2", "plan.epochs=2"],
    ]


def torchrun(*options: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *options, "-m", "covlearn"]


def start(command: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing disturbs, of one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert main(train(folder)) == 0
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing disturbs, of two processes."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    output_of(start([*torchrun("--standalone", "--nproc_per_node", "2"), *train(folder)]))
    return folder


def assert_close(folder: Path, other: Path) -> None:
    ours, theirs = (load_file(each / "model.safetensors") for each in (folder, other))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    ours, theirs = (json.loads((each / "result.json").read_text()) for each in (folder, other))
    assert ours["labels"] == theirs["labels"]  # D̂ against the clean labels
    assert ours["returned"] == theirs["returned"]


def test_two_processes_end_where_one_does(alone: Path, undisturbed: Path) -> None:
    assert_close(undisturbed, alone)


@pytest.mark.parametrize("dies", [0, 1])
def test_a_process_that_dies_loses_nothing(tmp_path: Path, undisturbed: Path, dies: int) -> None:
    folder, steps = tmp_path / "run", tmp_path / "steps"
    in_second_stage = (EPOCHS + 1) * STEPS + 5
    options = ["--standalone", "--nproc_per_node", "2", "--max-restarts", "1"]
    output_of(
        start(
            [*torchrun(*options), *train(folder)],
            COVLEARN_DIES=f"{dies}:{in_second_stage}",
            COVLEARN_STEPS=str(steps),
        )
    )
    begun = Counter(steps.read_text().split())
    assert begun["0"] >= in_second_stage - 1
    # The sieve, which was finished, is not trained again, and the second stage only in part if its
    # first checkpoint had reached the disk.
    assert STEPS < begun["1"] <= EPOCHS * STEPS
    assert_same_run(folder, undisturbed)


def test_two_machines(tmp_path: Path, alone: Path) -> None:
    port = free_port()
    options = ["--nnodes", "2", "--nproc_per_node", "1", "--rdzv-backend", "c10d"]
    options += ["--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "test"]
    machines = [start([*torchrun(*options), *train(tmp_path / "run")]) for _ in range(2)]
    outputs = [output_of(machine) for machine in machines]
    assert_close(tmp_path / "run", alone)
    (printed,) = [text for text in outputs if text]
    assert json.loads(printed)["method"] == "cal"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three clouds of points in a CSV file, a fifth of them labelled wrongly."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(240) % 3
    x = torch.randn(240, 4, generator=generator) + 4 * torch.eye(4)[y]
    y[::5] = (y[::5] + 1) % 3
    rows = [
        ",".join([*(f"{value:.4f}" for value in point), f"class {label}"])
        for point, label in zip(x.tolist(), y.tolist(), strict=True)
    ]
    path = tmp_path_factory.mktemp("table") / "points.csv"
    path.write_text("\n".join(["a,b,c,d,label", *rows]) + "\n", encoding="utf-8")
    return path


def test_fit_of_two_processes_is_that_of_one(
    tmp_path: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two, one = tmp_path / "two", tmp_path / "one"
    out = output_of(start([*torchrun("--standalone", "--nproc_per_node", "2"), *fit(two, table)]))
    assert main(fit(one, table)) == 0
    theirs, ours = json.loads(out), json.loads(capsys.readouterr().out)
    assert theirs["decisions"] == ours["decisions"]
    assert theirs["evidence"]["found"] == ours["evidence"]["found"]
    assert sorted(os.listdir(two)) == sorted(os.listdir(one))
    weights = (load_file(folder / "model.safetensors") for folder in (two, one))
    torch.testing.assert_close(*weights, rtol=1e-5, atol=1e-5)


def test_processes_with_different_data_are_refused(tmp_path: Path, table: Path) -> None:
    other = tmp_path / "points.csv"
    other.write_text(table.read_text(encoding="utf-8").replace("class 0", "class 1", 1))
    options = ["--nnodes", "2", "--nproc_per_node", "1", "--rdzv-backend", "c10d"]
    options += ["--rdzv-endpoint", f"localhost:{free_port()}", "--rdzv-id", "test"]
    machines = [
        start([*torchrun(*options), *fit(tmp_path / "run", source)]) for source in (table, other)
    ]
    errors = []
    for machine in machines:
        _, text = machine.communicate(timeout=SECONDS)
        errors.append(text)
        assert machine.returncode != 0
    assert any("all processes must be given the same run" in text for text in errors)
