"""The command line: a real run, an interrupted one, a killed one, and every kind of bad input."""

import contextlib
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.cells import cell_len

import covlearn
from covlearn import cli, records
from covlearn.evaluation import Evaluator
from covlearn.methods import METHODS
from tests.runs import assert_same_run

SETTINGS = ["sieve_plan.epochs=12", "plan.epochs=12", "plan.lr=0.05", "net.hidden=[32]"]
DIGITS = ["train", "--data", "digits", "--noise", "cal:0.4", "--method", "cal", "--seed", "0"]
DIGITS += ["--device", "cpu", "--holdout", "0.1", "--set", *SETTINGS]


def command(*arguments: str) -> subprocess.Popen[str]:
    """``python -m covlearn`` in a process of its own, with as many threads as the tests have."""
    source = str(Path(covlearn.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "covlearn", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert cli.main([*DIGITS, "--out", str(folder)]) == 0
    return folder


def test_a_run_in_a_process_of_its_own_is_the_same(tmp_path: Path, finished: Path) -> None:
    process = command(*DIGITS, "--out", str(tmp_path), "--json")
    output, errors = process.communicate(timeout=100)
    assert (process.returncode, errors) == (0, "")
    assert json.loads(output) == json.loads((tmp_path / "result.json").read_text())
    assert_same_run(tmp_path, finished)


def test_a_run_killed_at_a_random_moment_ends_with_the_same_bits(
    tmp_path: Path, finished: Path
) -> None:
    result = records.read(finished).result
    assert result is not None
    delay = random.uniform(0, 1.5 * result.seconds)  # may be after the end, which is a moment too
    process = command(*DIGITS, "--out", str(tmp_path))
    while process.poll() is None and not (tmp_path / "config.json").exists():
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert cli.main([*DIGITS, "--out", str(tmp_path), "--resume"]) == 0, f"killed after {delay} s"
    assert_same_run(tmp_path, finished)


def test_a_finished_run_says_that_nothing_was_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"{tmp_path} was finished already: nothing was trained.\n"
    again = [*DIGITS, "--out", str(tmp_path)]
    assert cli.main(again) == 0
    first = capsys.readouterr().out
    assert cli.main(again) == 0
    assert capsys.readouterr().out == line + first
    assert cli.main([*again, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "cal"


def test_ctrl_c_leaves_a_run_that_can_be_resumed(
    tmp_path: Path,
    finished: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextlib.contextmanager
    def interrupting() -> Iterator[Any]:
        def progress(stage: str, epochs: int, history: list[Any]) -> None:
            if stage == "cal" and len(history) == 3:
                signal.raise_signal(signal.SIGINT)

        yield progress

    arguments = [*DIGITS, "--out", str(tmp_path)]
    with monkeypatch.context() as patched:
        patched.setattr(cli.train, "progress_bars", interrupting)
        assert cli.main(arguments) == 130
    sentence = capsys.readouterr().err
    assert sentence.startswith("covlearn: interrupted; nothing that was saved is lost, continue")
    again = sentence.partition("with: ")[2]
    assert cli.main(shlex.split(again)[1:]) == 0
    assert_same_run(tmp_path, finished)


def test_ctrl_c_ends_the_epoch_and_saves_it(
    tmp_path: Path,
    finished: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*DIGITS, "--out", str(tmp_path)]
    evaluate, calls = Evaluator.__call__, []

    def interrupted(self: Evaluator, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 5:
            signal.raise_signal(signal.SIGINT)
        return evaluate(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Evaluator, "__call__", interrupted)
        assert cli.main(arguments) == 130
    errors = capsys.readouterr().err
    assert "stopping after this epoch; Ctrl-C again stops at once" in errors
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # Checkpoints are 30 seconds apart, and yet no epoch is trained again.
    saved = torch.load(tmp_path / "stages" / "sieve.pt", weights_only=True)
    assert len(saved["state"]["history"]) == 5
    assert cli.main([*arguments, "--resume"]) == 0
    assert_same_run(tmp_path, finished)


def test_a_second_ctrl_c_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def twice(*_: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second interrupt was swallowed")

    monkeypatch.setattr(Evaluator, "__call__", twice)
    assert cli.main([*quick(tmp_path), "--out", str(tmp_path / "run")]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_the_probabilities_of_one_run_can_be_the_sieve_of_another(tmp_path: Path) -> None:
    first, second = tmp_path / "ce", tmp_path / "cal"
    assert cli.main([*quick(tmp_path), "--out", str(first)]) == 0
    with np.load(first / "probs.npz") as file:
        probs, idx = file["probs"], file["idx"]
    assert probs.shape == (40, 2)
    assert np.allclose(probs.sum(axis=1), 1, atol=1e-6)
    assert idx.tolist() == list(range(40))
    run = [*quick(tmp_path, method="cal"), "--out", str(second)]
    settings = [f"probs={first / 'probs.npz'}", "threshold=argmax"]
    assert cli.main([*run, "--set", *settings]) == 0
    table = records.read(second).labels
    assert table is not None
    assert table["suggested"] == probs.argmax(axis=1).tolist()


def test_bad_input_that_a_method_finds_frees_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [*quick(tmp_path, method="cal"), "--out", str(tmp_path / "run")]
    np.save(tmp_path / "short.npy", np.zeros(39, dtype=int))
    assert cli.main([*run, "--set", f"labels={tmp_path / 'short.npy'}"]) == 2
    assert "40, got 39" in capsys.readouterr().err
    np.save(tmp_path / "whole.npy", np.arange(40) % 2)
    assert cli.main([*run, "--set", f"labels={tmp_path / 'whole.npy'}"]) == 0
    capsys.readouterr()
    # The file's contents belong to the configuration.
    np.save(tmp_path / "whole.npy", 1 - np.arange(40) % 2)
    assert cli.main([*run, "--set", f"labels={tmp_path / 'whole.npy'}"]) == 2
    assert "holds a run of another configuration: files." in capsys.readouterr().err


def test_the_result_is_printed_for_readers_and_for_machines(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*DIGITS, "--out", str(finished)]
    assert cli.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((finished / "result.json").read_text())
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    result = records.read(finished).result
    assert result is not None
    assert result.test_accuracy.selected is not None
    assert f"selected         {result.test_accuracy.selected.value:.4f}" in text
    assert "precision" in text
    assert f"files: {finished}" in text


def test_the_run_learns_something(finished: Path) -> None:
    record = records.read(finished)
    assert record.result is not None
    assert record.result.returned.value > 0.5
    assert record.result.labels is not None
    assert record.config["noise"]["variant"] == "cal"
    assert record.config["noise"]["seed"] == 0
    assert record.config["data"]["name"] == "digits"
    assert record.config["net"] == {"name": "mlp", "hidden": [32]}


def test_nobody_is_shown_a_bar_outside_of_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = quick(tmp_path)
    assert cli.main([*run, "--out", str(tmp_path / "quiet")]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    assert cli.main([*run, "--out", str(tmp_path / "shown")]) == 0
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert "loss" in shown
    assert "accuracy" in shown


def test_a_log_has_a_line_now_and_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covlearn.cli.progress.SECONDS_BETWEEN", 0)
    assert cli.main([*quick(tmp_path), "--json", "--out", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert re.fullmatch(r"covlearn: \w+: epoch 2 of 2, loss \d\.\d{4}, accuracy .*%", lines[-1])
    assert json.loads(captured.out)["method"] == "ce"  # the lines are not in the way
    assert sum("epoch" in line for line in lines) == 2


def quick(folder: Path, *, y: Any = None, method: str = "ce") -> list[str]:
    """The arguments of a run of two epochs on forty examples."""
    path = folder / "data.npz"
    if not path.exists():
        x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
        labels = np.arange(40) % 2
        np.savez(path, x=x, y=labels if y is None else y, x_test=x, y_test=labels)
    arguments = ["train", "--data", str(path), "--method", method, "--device", "cpu"]
    return [*arguments, "--set", "plan.epochs=2", "net.hidden=[4]"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "cee"], "method must be one of .*, got 'cee'; did you mean 'ce'"),
        (["--method", "no.such:Thing"], "cannot make the method 'no.such:Thing': No module"),
        (["--method", "builtins:dict"], "must be a dataclass with fit"),
        (["--net", "mpl"], "unknown net 'mpl'; did you mean mlp"),
        (["--data", "digit"], "data must be digits, .*did you mean 'digits'"),
        (["--data", "no.npz"], "data file no.npz does not exist"),
        (["--noise", "simetric:0.2"], "noise must be one of .*did you mean 'symmetric'"),
        (["--noise", "pair"], "noise must read KIND:RATE"),
        (["--set", "plan.epoch=3"], "plan.epoch cannot be set.*did you mean 'plan.epochs'"),
        (["--set", "lr=3"], "lr cannot be set.*did you mean 'plan.lr'"),
        (["--set", "plan.lr=fast"], "plan.lr: expected a number, got 'fast'"),
        (["--set", "plan.optimizer=sdg"], "one of sgd, adam, got 'sdg'; did you mean 'sgd'"),
        (["--set", "plan.lr=-1"], "plan: expected a finite lr > 0, got lr=-1"),
        (["--set", "net.hiden=[3]"], "unexpected keyword argument 'hiden'"),
        (["--set", "net=3"], "net has parts that can be set|net is set twice"),
        (["--set", "machine.precison=float32"], "did you mean 'machine.precision'"),
        (["--set", "machine.precision=half"], "expected one of float32, bfloat16, got 'half'"),
        (["--set", "augmentation.flip=true"], "augmentation is for uint8 images"),
        (["--holdout", "2"], r"holdout must lie in \[0, 1\), got 2.0"),
        (["--noise", "pair:0.1", "--seed", "-1"], "seed must lie in"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code = cli.main([*quick(tmp_path), "--out", str(tmp_path / "run"), *arguments])
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.startswith("covlearn: ")
    assert captured.err.count("\n") == 1
    assert re.search(message, captured.err), captured.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND; see covlearn --help"),
        (["trian"], "invalid choice: 'trian'"),
        (["train", "--data", "digits"], "required: --method, --out; see covlearn train --help"),
        (["train", "--sed", "1"], "required"),
        (["train", "--seed", "x"], "argument --seed: invalid int value: 'x'"),
    ],
)
def test_bad_options_are_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_labels_of_the_wrong_length_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = quick(tmp_path, y=np.zeros(39, dtype=int))
    assert cli.main([*run, "--out", str(tmp_path / "run")]) == 2
    assert "y must have one entry an example, 40, got 39" in capsys.readouterr().err


def test_a_folder_of_another_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [*quick(tmp_path), "--out", str(tmp_path / "run")]
    assert cli.main(run) == 0
    kept = (tmp_path / "run" / "result.json").read_bytes()
    assert cli.main([*run, "--seed", "1", "--set", "plan.lr=0.01"]) == 2
    error = capsys.readouterr().err
    assert "method.plan.lr is 0.1 there, 0.01 here; seed is 0 there, 1 here" in error
    assert (tmp_path / "run" / "result.json").read_bytes() == kept


def test_a_loss_that_is_not_finite_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [*quick(tmp_path), "plan.lr=1e30", "plan.batch_size=8", "--out", str(tmp_path / "run")]
    assert cli.main(run) == 2
    error = capsys.readouterr().err
    assert error.startswith("covlearn: stage ce: epoch 0, step 1: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_damaged_checkpoint_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = [*quick(tmp_path), "--out", str(tmp_path / "run")]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "run" / "labels.csv"))

    with monkeypatch.context() as patched:
        patched.setattr(records, "write_table", full)
        assert cli.main(run) == 2
    error = capsys.readouterr().err
    assert "labels.csv: No space left on device; nothing that was saved is lost" in error
    assert error.rstrip().endswith("--resume")
    (tmp_path / "run" / "stages" / "ce.pt").write_bytes(b"PK")
    assert cli.main([*run, "--resume"]) == 2
    assert "ce.pt must be a checkpoint of covlearn" in capsys.readouterr().err
    (tmp_path / "run" / "stages" / "ce.pt").unlink()
    assert cli.main([*run, "--resume"]) == 0


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert cli.main([*quick(tmp_path), "--out", str(tmp_path / "file" / "run")]) == 2
    assert "file" in capsys.readouterr().err


def test_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["methods"]) == 0
    table = capsys.readouterr().out
    for name in METHODS:
        assert f"│ {name} " in table
    assert "Cheng et al. 2021" in table
    assert "plan.epochs=100" in table


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["methods"], METHODS),
        (["methods", "cal"], ["sieve_plan.lr_milestones"]),
        (["data", "list"], ["digits", "cifar10", "cifar100", "clothing1m"]),
        (["noise", "--list"], ["cal:RATE", "IDN_0.4_C100.pt", "published:0.6", "CIFAR-100N"]),
    ],
)
def test_the_tables_fit_into_a_small_terminal(
    arguments: list[str],
    names: Iterable[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert cli.main(arguments) == 0
    text = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)  # bold and italics have no width
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    for name in names:
        assert name in text


def test_the_settings_of_a_method_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["methods", "cal"]) == 0
    table = capsys.readouterr().out
    for word in ("sieve_plan.lr_milestones", "one of sgd, adam", "-8.0", "a number or none"):
        assert word in table
    assert "Sieve scores from the last training pass" in " ".join(table.split())
    assert cli.main(["methods", "cla"]) == 2
    assert "did you mean 'cal'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["train"], ["methods"], ["data"], ["data", "fetch"], ["noise"]]
)
def test_help_has_an_example(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([*arguments, "--help"])
    assert caught.value.code == 0
    assert "example" in capsys.readouterr().out


def test_help_does_not_wait_for_torch() -> None:
    source = str(Path(covlearn.__file__).parents[1])
    code = (
        "import sys; sys.modules['torch'] = None; from covlearn.cli import main; main(['--help'])"
    )
    environment = os.environ | {"PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert "usage: covlearn" in done.stdout


def test_images_can_be_moved(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, size=(20, 4, 4, 1), dtype=np.uint8)
    y = np.arange(20) % 2
    np.savez(tmp_path / "images.npz", x=images, y=y, x_test=images, y_test=y)
    run = ["train", "--data", str(tmp_path / "images.npz"), "--method", "ce", "--device", "cpu"]
    run += ["--net", "linear", "--set", "plan.epochs=1"]
    assert cli.main([*run, "--out", str(tmp_path / "still")]) == 0
    assert cli.main([*run, "augmentation.crop=1", "--out", str(tmp_path / "moved")]) == 0
    still, moved = (records.read(tmp_path / name) for name in ("still", "moved"))
    assert still.config["data"]["augmentation"]["crop"] == 0
    assert moved.config["data"]["augmentation"]["crop"] == 1
    assert still.metrics[0]["loss"] != moved.metrics[0]["loss"]
