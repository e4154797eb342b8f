"""A table on a Ray cluster of two machines, one of which is lost in the middle."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covlearn import cli, records
from covlearn.bench import ray as on_ray
from covlearn.bench.execute import Task, run_cells
from covlearn.bench.table import cells_of, job_of, read_table
from covlearn.config import typed
from covlearn.job import Job
from tests.bench_table import small_table
from tests.runs import assert_same_run

pytest.importorskip("ray")

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 180
NET = "tests.mortal:Patient"
TOML = """
title = "A small table"
trials = 2
net = "tests.mortal:Patient"
settings = ["plan.epochs=3", "plan.batch_size=8", "plan.lr_milestones=()", "net.hidden=[4]"]

[[rows]]
name = "ce"
method = "ce"

[[rows]]
name = "gce"
method = "gce"

[[columns]]
name = "data/0.2"
data = "DATA"
noise = "symmetric:0.2"
"""
PATHS = [f"data/0.2/{row}/{trial}" for trial in (0, 1) for row in ("ce", "gce")]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows and two trials on forty examples."""
    return small_table(tmp_path_factory.mktemp("table"), TOML)


@pytest.fixture(scope="module")
def local(table: Path) -> Path:
    """The files of a local run."""
    folder = table.parent / "local"
    options = ["--folder", str(folder), "--device", "cpu", "--keep-models"]
    assert cli.main(["bench", str(table), "--allow", NET, *options]) == 0
    return folder


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """While it is there, no cell ends."""
    path = tmp_path / "gate"
    path.touch()
    return path


@pytest.fixture
def cluster(gate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two machines, as far as Ray can tell, that run one cell each at a time."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    monkeypatch.setenv("COVLEARN_GATE", str(gate))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, sys.path)]))
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    size = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    # A lost machine is noticed within seconds, not half a minute.
    noticed = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000}
    noticed |= {"health_check_timeout_ms": 5000, "health_check_failure_threshold": 3}
    made = Cluster(initialize_head=True, head_node_args={**size, "_system_config": noticed})
    try:
        yield made
    finally:
        made.shutdown()


def bench(table: Path, folder: Path, address: str) -> subprocess.Popen[str]:
    options = ["--folder", str(folder), "--device", "cpu", "--keep-models", "--on", address]
    options += ["--allow", NET]
    return subprocess.Popen(
        [sys.executable, "-m", "covlearn", "bench", str(table), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Any, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the cells must have begun by now"
        time.sleep(0.2)


def test_a_machine_that_dies_takes_nothing_with_it(
    table: Path, local: Path, cluster: Any, gate: Path, tmp_path: Path
) -> None:
    lost = cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    folder = tmp_path / "runs"
    process = bench(table, folder, cluster.address)
    try:
        # One cell on each machine has recorded an epoch, and neither can go on.
        wait_for(lambda: len(list(folder.rglob(records.METRICS))) == 2, process)
        cluster.remove_node(lost, allow_graceful=False)
        gate.unlink()
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert sorted(line.partition("] ")[2].partition(":")[0] for line in err.splitlines()) == sorted(
        PATHS
    )
    for path in PATHS:
        assert_same_run(folder / path, local / path)
    assert not list(folder.glob(f"{on_ray.HERE}*"))
    assert "A small table" in out


def test_machines_that_do_not_share_the_folder_hand_the_files_back(
    table: Path,
    local: Path,
    cluster: Any,
    gate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate.unlink()
    folder = tmp_path / "runs"
    # Workers look for a mark that is not in any folder they see.
    monkeypatch.setattr(on_ray, "HERE", "not-there-")
    cells = list(cells_of(read_table(table, allow=[NET]), trials=2, only=[]))
    with on_ray.cluster(cluster.address, "auto", None) as runner:
        outcomes = list(
            run_cells(
                read_table(table, allow=[NET]),
                cells,
                folder,
                device="auto",
                keep_models=True,
                runner=runner,
            )
        )
        again = list(
            run_cells(read_table(table, allow=[NET]), cells, folder, device="auto", runner=runner)
        )
    assert [outcome.error for outcome in outcomes] == [None] * 4
    for path in PATHS:
        assert_same_run(folder / path, local / path)
    assert sorted(o.cell.path for o in again) == sorted(PATHS)


def task_of(table: Path, folder: Path, **changes: Any) -> Task:
    cell = next(iter(cells_of(read_table(table, allow=[NET]), trials=1, only=[])))
    recorded = job_of(read_table(table, allow=[NET]), cell, []) | changes
    place = folder / cell.path
    return Task(typed(Job, recorded), recorded, place, folder / "shared", "cpu", keep_models=True)


def test_a_worker_that_sees_the_folder_works_in_it(
    table: Path, local: Path, tmp_path: Path
) -> None:
    task = task_of(table, tmp_path / "runs")
    with on_ray.marked(tmp_path / "runs") as mark:
        apart = on_ray.work(task, tmp_path / "runs", "another", Path.cwd())
        assert not task.folder.exists()
        there = on_ray.work(task, tmp_path / "runs", mark, Path.cwd())
    assert there.files == {}
    assert_same_run(task.folder, local / PATHS[0])
    assert apart.files["model.safetensors"] == (task.folder / records.MODEL).read_bytes()


def test_a_cell_that_fails_on_a_worker_leaves_nothing(table: Path, tmp_path: Path) -> None:
    task = task_of(table, tmp_path / "runs", data=str(tmp_path / "missing.npz"))
    returned = on_ray.work(task, tmp_path / "runs", "another", Path.cwd())
    assert returned.result is None
    assert returned.files == {}
    assert "missing.npz" in (returned.error or "")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--on", "ray", "--processes", "2"], "--processes is for this machine"),
        (["--gpus", "0.5"], "goes with --on"),
        (["--on", "ray", "--gpus", "-1"], "a share ≥ 0"),
    ],
)
def test_options_that_do_not_go_together(
    table: Path,
    tmp_path: Path,
    options: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "runs"
    assert cli.main(["bench", str(table), "--allow", NET, "--folder", str(folder), *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not folder.exists()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'covlearn\[ray\]'"):
        on_ray._import_ray()
