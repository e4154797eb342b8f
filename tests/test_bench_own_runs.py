"""Which runs are a table's own, what is refused before the first cell, and two at work at once."""

import fcntl
import importlib
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covlearn import cli, records
from covlearn.bench import execute
from covlearn.bench.execute import run_cells
from covlearn.bench.table import cells_of, read_table
from covlearn.locks import held
from covlearn.noise import registry
from tests.bench_table import TOML, command, small_table


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return small_table(tmp_path)


@pytest.fixture(autouse=True)
def forget_data() -> None:
    execute._loaded.cache_clear()


def cells_in(table: Path) -> dict[tuple[str, str], Any]:
    whole = json.loads((table.parent / "runs" / "table.json").read_text())
    return {(cell["row"], cell["column"]): cell for cell in whole["cells"]}


# ---- Which runs are its own -------------------------------------------------------------------


def test_runs_on_other_data_under_the_same_name_are_left_out(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(small, "--only", "row=ce,rate=0.2") == 0
    before = cells_in(small)["ce", "data/0.2"]
    arrays = dict(np.load(small.parent / "data.npz"))
    np.savez(small.parent / "data.npz", **(arrays | {"x": -arrays["x"]}))
    execute._loaded.cache_clear()
    capsys.readouterr()
    assert command(small, "--trials", "3", "--only", "row=ce,rate=0.2") == 0
    assert "data/0.2/ce/2: best" in capsys.readouterr().err
    after = cells_in(small)["ce", "data/0.2"]
    assert after["trials"] == "0 1"
    assert after["best mean"] == before["best mean"]
    said = (small.parent / "runs" / "table.md").read_text()
    assert "data/0.2/ce/2: inputs are not those of the other runs of this column" in said


def test_runs_on_other_labels_in_the_same_file_are_left_out(tmp_path: Path) -> None:
    labels = tmp_path / "labels.npz"
    toml = TOML.replace('noise = "symmetric:0.2"\nrate = 0.2', f'noise = "file:{labels}"')
    small = small_table(tmp_path, toml)
    make = ["noise", "--data", str(tmp_path / "data.npz"), "--seed", "0", "--out", str(labels)]
    assert cli.main([*make, "--kind", "symmetric:0.2"]) == 0
    only = ("--trials", "1", "--only", "column=data/0.2")
    assert command(small, *only) == 0
    assert cells_in(small)["gce", "data/0.2"]["n"] == 1
    assert cli.main([*make, "--kind", "pair:0.4"]) == 0
    shutil.rmtree(tmp_path / "runs" / "data/0.2" / "gce")
    assert command(small, *only) == 0
    found = cells_in(small)
    assert (found["ce", "data/0.2"]["n"], found["gce", "data/0.2"]["n"]) == (1, 0)
    assert found["ce at 2", "data/0.2"]["n"] == 1
    said = (tmp_path / "runs" / "table.md").read_text()
    assert "data/0.2/gce/0: labels are not those of the other runs of this column" in said


OWN = """
from dataclasses import dataclass
from covlearn.methods.ce import CE

@dataclass(frozen=True)
class Own(CE):
    beta: float = BETA
"""


def test_a_method_of_ones_own_that_has_changed_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "its_own_method.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module.write_text(OWN.replace("BETA", "1.0"))
    own = 'method = "its_own_method:Own"\npreset = "defaults"'
    small = small_table(tmp_path, TOML.replace('method = "gce"', own))
    asked = ("--only", "row=gce,rate=0.2", "--allow", "its_own_method:Own")
    assert command(small, "--trials", "1", *asked) == 0
    assert command(small, "--trials", "1", *asked) == 0, "nothing has changed"
    module.write_text(OWN.replace("BETA", "50.0"))
    importlib.invalidate_caches()
    importlib.reload(sys.modules["its_own_method"])
    capsys.readouterr()
    assert command(small, "--trials", "2", *asked) == 1
    said = capsys.readouterr()
    assert "another configuration: method.beta is 1.0 there, 50.0 here" in said.err
    assert cells_in(small)["gce", "data/0.2"]["trials"] == "1"
    monkeypatch.delitem(sys.modules, "its_own_method")


TWO_STAGES = """
from dataclasses import dataclass
from torch import nn
from covlearn.engine import Objective, Plan
from covlearn.losses import cross_entropy

class Any(Objective):
    def __init__(self, loss):
        super().__init__()
        self.HELD = loss
    def forward(self, outputs, batch):
        return self.HELD(outputs.logits, batch.y), None

@dataclass(frozen=True)
class Two:
    plan: Plan = Plan(epochs=2)
    factor: float = 1.0
    def fit(self, run) -> nn.Module:
        model = run.net("two")
        run.train("first", model, Any(lambda p, y: self.factor * cross_entropy(p, y)), self.plan)
        run.train("second", model, Any(cross_entropy), self.plan)
        return model
"""


@pytest.mark.parametrize("held", ["loss", "_loss"])
def test_stages_that_differ_in_a_function_alone_are_not_shared(
    held: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function has no lasting name; one row would be given what another one has trained."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "of_two_stages.py").write_text(TWO_STAGES.replace("HELD", held))
    row = '[[rows]]\nname = "{}"\nmethod = "of_two_stages:Two"\npreset = "defaults"\n{}\n'
    rows = row.format("one", "") + row.format("none", 'settings = ["factor=0"]')
    head, _, _ = TOML.partition("[[rows]]")
    columns = TOML[TOML.index("[[columns]]") : TOML.index("[expected.ce]")]
    head = head.replace('pairs = [["gce", "ce"]]\n', "").replace(', "plan.lr_milestones=()"', "")
    head = head.replace("title", 'net = "mlp"\ntitle', 1)
    small = small_table(tmp_path, head + rows + columns)
    asked = ("--trials", "1", "--only", "rate=0.2", "--allow", "of_two_stages:Two")
    assert command(small, *asked) == 0
    lost = {}
    for name in ("one", "none"):
        lines = (tmp_path / "runs" / "data/0.2" / name / "0" / "metrics.jsonl").read_text()
        lost[name] = json.loads(lines.splitlines()[0])["loss"]
    assert lost["none"] == 0 != lost["one"]
    monkeypatch.delitem(sys.modules, "of_two_stages")


def test_the_rate_is_in_the_files_where_the_noise_alone_says_it(small: Path) -> None:
    small.write_text(small.read_text().replace("rate = 0.4\n", ""))
    assert command(small, "--trials", "1", "--only", "row=ce") == 0
    assert cells_in(small)["ce", "data/0.4"]["rate"] == 0.4


# ---- Published labels ---------------------------------------------------------------------------


PUBLISHED_TOML = TOML.replace(
    'noise = "symmetric:0.2"\nrate = 0.2',
    'noise = "symmetric:0.2"\nrate = 0.2\npublished = "IDN_0.2_C10.npz"',
)
ONLY = ("--trials", "1", "--only", "row=ce,column=data/0.2")


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table whose trial 0 has published labels, and the folder with their file."""
    small = small_table(tmp_path, PUBLISHED_TOML)
    folder = tmp_path / "theirs"
    folder.mkdir()
    clean = np.load(tmp_path / "data.npz")["y"]
    noisy = np.where(np.arange(40) % 5 == 0, 1 - clean, clean)
    np.savez(folder / "IDN_0.2_C10.npz", noisy=noisy, clean=clean)
    entry = registry.PUBLISHED["IDN_0.2_C10"]
    entry = replace(entry, num_classes=2, sha256=registry.label_digest(noisy))
    monkeypatch.setitem(registry.PUBLISHED, "IDN_0.2_C10", entry)
    return small


def test_published_labels_are_those_of_the_registry(published: Path) -> None:
    theirs = ("--published", str(published.parent / "theirs"))
    assert command(published, *ONLY, *theirs) == 0
    assert cells_in(published)["ce", "data/0.2"]["n"] == 1
    config = records.read_config(published.parent / "runs/data/0.2/ce/0")
    assert (config["job"]["noise"], config["noise"]["variant"]) == ("published:0.2", "IDN_0.2_C10")
    assert command(published, *ONLY, *theirs, "--dry-run") == 0


@pytest.mark.parametrize(
    ("change", "came"),
    [
        (lambda noisy: np.where(np.arange(40) == 7, 1 - noisy, noisy), "none of the published"),
        (lambda noisy: np.roll(noisy, 1), "none of the published"),
        # Which a digest of bytes would not tell apart.
        (lambda noisy: np.where(np.arange(40) == 7, noisy + 256, noisy), "do not lie in 0…255"),
    ],
    ids=["one label", "another order", "beyond a byte"],
)
def test_another_file_under_the_name_of_a_published_one_is_refused(
    published: Path, capsys: pytest.CaptureFixture[str], change: Any, came: str
) -> None:
    file = published.parent / "theirs" / "IDN_0.2_C10.npz"
    arrays = dict(np.load(file))
    np.savez(file, **(arrays | {"noisy": change(arrays["noisy"])}))
    for options in (["--dry-run"], []):
        assert command(published, *ONLY, "--published", str(file.parent), *options) == 2
        said = capsys.readouterr().err
        assert f"column data/0.2: {file} must hold the labels published as IDN_0.2_C10" in said
        assert came in said
        assert "put the authors' file there" in said
        assert said.count("\n") == 1
    assert not (published.parent / "runs").exists()


def test_the_files_of_the_authors_are_told_apart(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = shutil.copytree(shared_data / "published", tmp_path / "theirs")
    table = Path(__file__).resolve().parents[1] / "benchmarks" / "table1.toml"
    asked = ("--trials", "1", "--dry-run", "--published", str(theirs))
    assert command_on(table, tmp_path, *asked) == 0
    # One file for two data sets cannot be right for both.
    same = tmp_path / "same.toml"
    same.write_text(table.read_text().replace('"IDN_0.4_C100.pt"', '"IDN_0.4_C10.pt"'))
    assert command_on(same, tmp_path, *asked) == 2
    assert "column cifar100/0.4: " in capsys.readouterr().err
    (theirs / "IDN_0.4_C10.pt").chmod(0o644)
    shutil.copyfile(theirs / "IDN_0.2_C10.pt", theirs / "IDN_0.4_C10.pt")
    assert command_on(table, tmp_path, *asked) == 2
    assert re.search(
        r"column cifar10/0.4: .*IDN_0.4_C10.pt must hold .* IDN_0.4_C10 .*, got those of "
        "IDN_0.2_C10 ",
        capsys.readouterr().err,
    )


def command_on(table: Path, folder: Path, *arguments: str) -> int:
    return cli.main(["bench", str(table), "--folder", str(folder / "runs"), *arguments])


def test_a_run_on_other_labels_does_not_count_as_one_on_published_ones(
    published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As runs were recorded whose file nobody had looked at."""
    theirs = ("--published", str(published.parent / "theirs"))
    assert command(published, *ONLY, *theirs) == 0
    place = published.parent / "runs/data/0.2/ce/0"
    config = json.loads((place / records.CONFIG).read_text())
    config["noise"]["variant"] = "file"
    (place / records.CONFIG).write_text(json.dumps(config))
    capsys.readouterr()
    assert command(published, *ONLY, *theirs, "--dry-run") == 1
    why = "the noisy labels are not those published as IDN_0.2_C10"
    assert why in capsys.readouterr().out
    assert command(published, *ONLY, *theirs) == 1
    assert f"holds a run of another configuration: {why}" in capsys.readouterr().err
    assert cells_in(published)["ce", "data/0.2"]["n"] == 0
    assert f"data/0.2/ce/0: {why}" in (published.parent / "runs/table.md").read_text()


def test_labels_that_cannot_be_drawn_need_the_folder_of_the_published_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Path(__file__).resolve().parents[1] / "benchmarks" / "table1.toml"
    only = ("--trials", "1", "--only", "row=cal,rate=0.4,data=cifar100", "--dry-run")
    assert command_on(table, tmp_path, *only) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("cifar100/0.4/cal/0: 166 epochs, but IDN_0.4_C100 cannot be drawn")
    assert said[0].endswith("as --published FOLDER")
    assert said[1].endswith("166 epochs in all at most; 1 need --published FOLDER, as said above")


# ---- What is refused before the first cell ------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("trials = 2", 'trials = 2\nfigure = "selected"', "none are held out; set holdout"),
        ('figure = "epoch:2"', 'figure = "epoch:50"', "the longest has 3; lower it"),
        ("trials = 2", 'trials = 2\nnet = "resnet35"', "did you mean resnet50 or resnet34"),
        ("trials = 2", "trials = 2\nholdout = 2.0", r"holdout must lie in [0, 1), got 2"),
        ("data.npz", "none.npz", "there is no file "),
        ("symmetric:0.2", "file:none.npz", "there is no label file none.npz; check the path"),
        ('"DATA"\nnoise = "symmetric:0.2"', '"digits"\nnoise = "published:0.2"', "is for cifar10"),
        (
            '"DATA"\nnoise = "symmetric:0.2"\nrate = 0.2',
            '"cifar10"\nnoise = "published:0.3"',
            "are published with the rates 0.2, 0.4, 0.6, got 0.3",
        ),
        (
            'noise = "symmetric:0.2"\nrate = 0.2',
            'noise = "symmetric:0.3"\nrate = 0.3\npublished = "mine.npz"',
            'no labels are published with the rate 0.3; labels of your own are noise = "file:PATH"',
        ),
    ],
)
def test_what_would_fail_every_cell_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    toml = TOML.replace(old, new) if old in TOML else TOML
    small = small_table(tmp_path, toml)
    if old not in TOML:
        small.write_text(small.read_text().replace(old, new))
    for options in (["--dry-run"], []):
        assert command(small, "--trials", "1", *options) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_says_what_a_run_would(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(small, "--trials", "1") == 0
    runs = small.parent / "runs" / "data"
    (runs / "0.2" / "ce" / "0" / records.RESULT).unlink()  # as if it had been cut off
    (runs / "0.2" / "gce" / "0" / records.RESULT).write_text("{")
    (runs / "0.4" / "gce" / "0" / records.CONFIG).unlink()
    capsys.readouterr()
    assert command(small, "--trials", "1", "--dry-run", "--set", "plan.batch_size=4") == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("data/0.2/ce/0: holds a run of another configuration")
    assert command(small, "--trials", "1", "--dry-run") == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "data/0.2/ce/0: 3 epochs"
    assert "result.json" in said[1]
    assert "config.json" in said[2]
    assert said[3] == (
        "1 of 4 cells are to be run, 3 epochs in all at most; 2 would fail, as said above"
    )


# ---- Two at work on one table -------------------------------------------------------------------


def test_a_cell_that_another_process_works_at_is_left_to_it(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = small.parent / "runs" / "data/0.2/ce/0"
    place.mkdir(parents=True)
    with held(place):
        assert command(small, "--trials", "1", "--only", "rate=0.2") == 0
    said = capsys.readouterr().err
    assert "[1/2] data/0.2/gce/0: best" in said
    assert "[2/2] data/0.2/ce/0: another process is at work on it, and it is left to" in said
    assert command(small, "--trials", "1", "--only", "rate=0.2") == 0
    assert cells_in(small)["ce", "data/0.2"]["n"] == 1


def test_a_cell_that_the_other_process_has_finished_meanwhile_is_read(small: Path) -> None:
    table, folder = read_table(small), small.parent / "runs"
    cells = list(cells_of(table, trials=1, only=["rate=0.2,row=ce", "rate=0.2,row=gce"]))
    place = folder / cells[0].path
    place.mkdir(parents=True)
    with held(place):
        outcomes = run_cells(table, cells, folder, device="cpu")
        assert next(outcomes).cell.row.name == "gce"
    assert command(small, "--trials", "1", "--only", "row=ce,rate=0.2") == 0
    last = next(outcomes)
    assert last.cell.row.name == "ce"
    assert last.result == records.read_result(place)


def test_stages_that_another_process_is_at_are_left_in_place(small: Path) -> None:
    shared = small.parent / "runs" / "data/0.2" / execute.SHARED / "0"
    shared.mkdir(parents=True)
    (shared / "sieve.pt").touch()
    with (shared / "sieve.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert command(small, "--trials", "1", "--only", "row=ce,rate=0.2") == 0
        assert (shared / "sieve.pt").exists()
    assert command(small, "--trials", "1", "--only", "row=ce,rate=0.2") == 0
    assert not shared.parent.exists()


def test_a_label_file_may_have_a_hash_in_its_path(tmp_path: Path) -> None:
    place = tmp_path / "run#1"
    place.mkdir()
    np.savez(place / "n.npz", noisy=np.arange(40) % 2)
    noise = f'noise = "file:{place / "n.npz"}#noisy"'
    small = small_table(tmp_path, TOML.replace('noise = "symmetric:0.2"\nrate = 0.2', noise))
    assert command(small, "--trials", "1", "--only", "row=ce,column=data/0.2") == 0


def test_a_dry_run_counts_all_that_cross_fitting_may_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = TOML.replace('preset = "paper"', 'preset = "recommended"')
    toml = toml.replace('method = "gce"\nsettings = ["plan.lr=0.01"]', 'method = "cal"')
    brief = 'settings = ["plan.epochs=3", "sieve_plan.epochs=2", "plain_plan.epochs=4"]'
    start = toml.index("settings = [")
    toml = toml[:start] + brief + toml[toml.index("\n", start) :]
    small = small_table(tmp_path, toml)
    only = ("--trials", "1", "--only", "row=gce,rate=0.2")
    assert command(small, *only, "--dry-run") == 0
    said = capsys.readouterr().out
    most = int(said.partition("data/0.2/gce/0: ")[2].partition(" epochs")[0])
    assert command(small, *only) == 0
    lines = records.read_metrics(tmp_path / "runs" / "data/0.2/gce/0")
    assert 20 < len(lines) <= most
