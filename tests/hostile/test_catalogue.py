"""Every command and every public function has bad input in the catalogue, which ends in a sentence."""

import argparse
import importlib
import inspect
import json
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covlearn import cli
from covlearn.cli.targets import OF_A_RUN
from tests.hostile.catalogue import ANY_KIND, CHECKED_ELSEWHERE, ROWS
from tests.hostile.reader import Reader
from tests.hostile.readers import TOML
from tests.hostile.rows_formulas import Row

DOCS = Path(__file__).resolve().parents[2] / "docs"
OLD_RUNS = Path(__file__).resolve().parents[1] / "fixtures" / "old_run"
THEORY = ("theory.", "theory.examples.", "theory.objectives.")
WRONG: dict[str, Any] = {
    "nothing": None,
    "text": "no such thing",
    "a negative number": -1,
    "no number": float("nan"),
    "an empty list": [],
    "an object": object(),
    "an array of NaN": np.array([[np.nan]]),
    "a dict": {},
}


# ---- Functions --------------------------------------------------------------------------------


def public() -> dict[str, Any]:
    """What the API pages document, by its name below covlearn."""
    found = {}
    for page in sorted((DOCS / "api").glob("*.md")):
        for module_name in re.findall(
            r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE
        ):
            module = importlib.import_module(module_name)
            names = getattr(module, "__all__", None) or [
                name
                for name, value in vars(module).items()
                if not name.startswith("_") and getattr(value, "__module__", None) == module_name
            ]
            for name in names:
                if callable(getattr(module, name)):
                    place = f"{module_name}.{name}".removeprefix("covlearn.")
                    found[place] = getattr(module, name)
    return found


PUBLIC = public()


def test_every_public_name_is_in_the_catalogue() -> None:
    elsewhere = {name for names in CHECKED_ELSEWHERE.values() for name in names.split()}
    listed = {*ROWS, *ANY_KIND, *elsewhere}
    assert not elsewhere & {*ROWS, *ANY_KIND}
    assert sorted(listed - {*PUBLIC}) == []
    # Statements about a Problem, which checks itself: tests/theory has what they refuse.
    missing = {name for name in PUBLIC if name not in listed and not name.startswith(THEORY)}
    assert sorted(missing) == []


def required(function: Any, value: Any) -> tuple[list[Any], dict[str, Any]]:
    """The same wrong value for everything that must be given."""
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    named = {p.name: value for p in needed if p.kind is p.KEYWORD_ONLY}
    return [value for p in needed if p.kind is not p.KEYWORD_ONLY], named


@pytest.mark.parametrize("name", ANY_KIND)
def test_every_wrong_kind_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = []
    for value in WRONG.values():
        positional, named = required(PUBLIC[name], value)
        try:
            with warnings.catch_warnings(action="ignore"):
                PUBLIC[name](*positional, **named)
        except ValueError as error:
            refused.append(str(error))
    assert refused
    assert [text for text in refused if "\n" in text or len(text) < 10] == []
    assert list(tmp_path.iterdir()) == []


CASES = [(name, number, row) for name, rows in ROWS.items() for number, row in enumerate(rows)]


@pytest.mark.parametrize(("name", "number", "row"), CASES, ids=[f"{n} {k}" for n, k, _ in CASES])
def test_a_wrong_value_is_one_sentence(
    name: str, number: int, row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.startswith("integrations."):
        library = {"onnx": "onnxscript", "datalab": "cleanlab", "tensorboard": "tensorboard"}
        pytest.importorskip(library[name.split(".")[1]])
    monkeypatch.chdir(tmp_path)
    call, expected = row
    with pytest.raises(ValueError, match=expected) as caught:
        call()
    assert "\n" not in str(caught.value) or name.startswith("estimator.")  # scikit-learn's words
    assert list(tmp_path.iterdir()) == []


# ---- Commands ---------------------------------------------------------------------------------

# RUN is a whole run of fit, TRAIN one of train, BAD a file of no use, OUT a place for what is made.
COMMANDS: dict[str, list[tuple[str, str]]] = {
    "fit": [
        ("missing.csv --out OUT", "missing.csv does not exist"),
        ("BAD.csv --out OUT", "BAD.csv"),
        ("BAD.npz --out OUT", "cannot be read as an .npz file"),
        ("BAD.npy --label BAD.npy --out OUT", "cannot be read as an .npy file"),
        ("BAD.parquet --out OUT", "cannot be read as a Parquet file"),
        ("BAD.zip --out OUT", "is no archive that can be read"),
        ("BAD.exe --out OUT", "is of no kind that is read"),
        ("EMPTY --out OUT", "holds no image"),
        ("good.csv --out BAD.csv", "must be a folder, but it is a file"),
        ("good.csv --out FULL", "must be new, empty or of an earlier run"),
        ("good.csv --label nope --out OUT", "has no column 'nope'"),
        ("good.csv --id nope --out OUT", "has no column 'nope'"),
        ("good.csv --image nope --out OUT", "has no column 'nope'"),
        ("good.csv --method nope --out OUT", "method must be one of"),
        ("good.csv --method os:getcwd --out OUT", "must be a dataclass"),
        ("good.csv --preset nope --out OUT", "must be one of"),
        ("good.csv --net nope --out OUT", "unknown net 'nope'"),
        ("good.csv --net os:getcwd --out OUT", "os:getcwd"),
        ("good.csv --net no.such:net --out OUT", "cannot import the net"),
        ("good.csv --set nope=1 --out OUT", "no such field"),
        ("good.csv --set plan.epochs=x --out OUT", "expected an integer"),
        ("good.csv --set plan.epochs --out OUT", "plan.epochs"),
        ("good.csv --seed -1 --out OUT", "seed must lie in 0…2³²−1, got -1"),
        ("good.csv --seed 5000000000 --out OUT", "seed must lie in"),
        ("good.csv --seed x --out OUT", "invalid int value"),
        ("good.csv --device tpu --out OUT", "invalid choice"),
        ("good.csv --device cuda --out OUT", "device cuda is not there"),
        ("good.csv --features nope --image path --out OUT", "has no column 'path'"),
        ("good.csv --trusted missing.csv --out OUT", "missing.csv is not there"),
        ("good.csv --trusted BAD.json --out OUT", "must hold JSON"),
        ("good.csv --on-bad ignore --out OUT", "invalid choice"),
        ("good.csv", "--out"),
        ("", "SOURCE"),
        ("good.csv --nope --out OUT", "unrecognized arguments"),
    ],
    "predict": [
        ("missing good.csv --out OUT", "is not the folder of a run"),
        ("TRAIN good.csv --out OUT", "must be a run of covlearn fit"),
        ("BROKEN good.csv --out OUT", "must hold JSON"),
        ("RUN missing.csv --out OUT", "missing.csv does not exist"),
        ("RUN BAD.csv --out OUT", "BAD.csv"),
        ("RUN other.csv --out OUT", "must have the columns of training"),
        ("RUN BAD.npz --out OUT", "cannot be read as an .npz file"),
        ("RUN good.csv --out EMPTY", "must be a file, but it is a folder"),
        ("RUN good.csv --out good.csv", "is what is read, and would be lost"),
        ("RUN good.csv --out RUN/config.json", "is a file of a run, which would be lost"),
        ("good.csv good.csv --out OUT", "good.csv is not the folder of a run"),
        ("RUN good.csv --device cuda --out OUT", "device cuda is not there"),
        ("RUN good.csv", "--out"),
    ],
    "clean": [
        ("missing --out OUT", "is not the folder of a run"),
        ("TRAIN --out OUT", "must be a run of covlearn fit"),
        ("BROKEN --out OUT", "must hold JSON"),
        ("RUN --out FULL", "must be new or an empty folder"),
        ("RUN --out BAD.csv", "must be new or an empty folder"),
        ("RUN --out OUT --as folder", "needs image files"),
        ("RUN --out OUT --as word", "invalid choice"),
        ("RUN", "--out"),
    ],
    "report": [
        ("missing", "is not the folder of a run"),
        ("BROKEN", "must hold JSON"),
        ("RUN --out EMPTY", "must be a file, but it is a folder"),
        ("RUN --out RUN/labels.csv", "is a file of a run, which would be lost"),
        ("good.csv", "good.csv is not the folder of a run"),
        ("RUN missing --out OUT", "is not the folder of a run"),
        ("", "RUN"),
    ],
    "diagnose": [
        ("missing", "is not the folder of a run"),
        ("TRAIN", "must be a run of covlearn fit"),
        ("RUN --draws 0", "draws"),
        ("RUN --draws x", "invalid int value"),
        ("RUN --draws 30", "is missing|has changed"),
    ],
    "export": [
        ("RUN", "name what to write"),
        ("missing --tensorboard OUT", "is not the folder of a run"),
        ("missing --onnx OUT", "is not the folder of a run"),
        ("RUN --tensorboard FULL", "must be new or an empty folder"),
        ("RUN --onnx EMPTY", "must be a file, but it is a folder"),
        ("RUN --onnx RUN/model.safetensors", "is a file of a run, which would be lost"),
    ],
    "doctor": [("--nope", "unrecognized arguments")],
    "train": [
        ("--data nope --method ce --out OUT", "data must be"),
        ("--data missing.npz --method ce --out OUT", "does not exist"),
        ("--data BAD.npz --method ce --out OUT", "cannot be read as an .npz file"),
        ("--data EMPTY --method ce --out OUT", "must hold the text files of Clothing1M"),
        ("--data digits --method nope --out OUT", "method must be one of"),
        ("--data digits --method ce --noise nope --out OUT", "noise must be one of"),
        ("--data digits --method ce --noise symmetric:7 --out OUT", "rate must"),
        ("--data digits --method ce --noise file:BAD.npz --out OUT", "must be a label file"),
        ("--data digits --method ce --noise file:missing.pt --out OUT", "does not exist"),
        ("--data digits --method ce --holdout 2 --out OUT", "holdout must lie in"),
        ("--data digits --method ce --net nope --out OUT", "unknown net"),
        ("--data digits --method ce --set net.pretrained=BAD.pt --out OUT", "file of weights"),
        ("--data digits --method ce --set machine.device=cpu --out OUT", "choose it with --device"),
        ("--data digits --method ce --preset nope --out OUT", "must be one of"),
        ("--data digits --method ce --seed -3 --out OUT", "seed must lie in"),
        ("--data digits --method ce --out FULL", "must be new, empty or of an earlier run"),
        ("--data digits --method ce --out BAD.csv", "must be a folder, but it is a file"),
        ("--data digits --method cal --set labels=BAD.npy --out OUT", "cannot be read as labels"),
        ("--method ce --out OUT", "--data"),
    ],
    "methods": [("nope", "method must be one of"), ("os:getcwd", "must be a dataclass")],
    "data fetch": [
        ("nope", "nope"),
        ("cifar10 --from missing", "does not exist"),
        ("cifar10 --from BAD.tar.gz", "neither a folder nor an archive"),
        ("cifar10 --from EMPTY", "holds nothing of CIFAR-10"),
    ],
    "data list": [("--nope", "unrecognized arguments")],
    "data check": [
        ("nope EMPTY", "data must be one of"),
        ("cifar10 missing", "does not exist"),
        ("cifar10 BAD.safetensors", "does not hold CIFAR-10"),
        ("cifar10n BAD.pt", "BAD.pt"),
        ("labels BAD.npz", "must be a label file"),
        ("labels BAD.csv", "must end in .pt or .npz"),
        ("clothing1m BAD.csv", "is no folder"),
        ("clothing1m EMPTY", "must hold the text files"),
    ],
    "noise": [
        ("--kind cal:0.2 --out OUT.npz", "--data is missing"),
        ("--data digits --kind nope:0.2 --out OUT.npz", "noise must be one of"),
        ("--data digits --kind none --out OUT.npz", "there is nothing to write"),
        ("--data digits --kind symmetric:x --out OUT.npz", "KIND:RATE"),
        ("--data digits --kind symmetric:0.2 --out OUT.txt", "--out must end in .npz"),
        ("--data BAD.npz --kind symmetric:0.2 --out BAD.npz", "is what is read"),
        ("--data digits --kind symmetric:0.2 --out RUN/probs.npz", "is a file of a run"),
        ("--data digits --kind symmetric:0.2 --seed -1 --out OUT.npz", "seed must"),
        ("--list --data digits", "--list goes without"),
    ],
    "bench": [
        ("missing.toml", "there is no table"),
        ("BAD.toml", "must be TOML"),
        ("code.toml", "names code that is no part of covlearn"),
        ("good.toml --only nope=1", "--only takes key=value"),
        ("good.toml --only rate=x", "rate must be a number"),
        ("good.toml --only method=cal", "no cell of this table"),
        ("good.toml --trials -1", "trials must be 0…10,000"),
        ("good.toml --trials 1000000000000", "trials must be 0…10,000"),
        ("good.toml --processes 0", "expected --processes ≥ 1"),
        ("good.toml --gpus 1", "--gpus is a share"),
        ("good.toml --published EMPTY --dry-run --set nope=1", "no such field"),
        ("good.toml --data nope --dry-run", "data must be"),
    ],
}


@pytest.fixture(scope="module")
def place(readers: dict[str, Reader], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with whole runs, a good table, and files of no use under every name."""
    folder = tmp_path_factory.mktemp("catalogue")
    readers["fit config.json"].prepare(folder / "RUN")
    config = json.loads((folder / "RUN" / "config.json").read_text())
    config["source"]["path"] = str(folder / "gone.csv")
    (folder / "RUN" / "config.json").write_text(json.dumps(config))
    shutil.rmtree(folder / "RUN" / "table.parquet", ignore_errors=True)
    (folder / "RUN" / "table.parquet").unlink()
    readers["train config.json"].prepare(folder / "TRAIN")
    (folder / "BROKEN").mkdir()
    (folder / "BROKEN" / "config.json").write_text("{")
    (folder / "EMPTY").mkdir()
    (folder / "FULL").mkdir()
    (folder / "FULL" / "mine.txt").write_text("mine")
    for suffix in [
        "csv",
        "npz",
        "npy",
        "parquet",
        "zip",
        "exe",
        "json",
        "pt",
        "toml",
        "safetensors",
        "tar.gz",
    ]:
        (folder / f"BAD.{suffix}").write_bytes(b"\0no use\0" * 9)
    (folder / "good.csv").write_bytes(readers["source .csv"].seeds[0])
    (folder / "other.csv").write_text("z\n1\n2\n")
    (folder / "good.toml").write_bytes(TOML)
    (folder / "code.toml").write_bytes(TOML.replace(b'method = "ce"', b'method = "a.b:C"'))
    return folder


def leaves(parser: argparse.ArgumentParser, words: str = "") -> Iterator[str]:
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        yield words
    for action in inner:
        for name, command in action.choices.items():
            yield from leaves(command, f"{words} {name}".strip())


def test_every_command_is_in_the_catalogue() -> None:
    assert sorted(leaves(cli.make_parser())) == sorted(COMMANDS)


LINES = [(command, line, message) for command, rows in COMMANDS.items() for line, message in rows]


@pytest.mark.parametrize(
    ("command", "line", "message"), LINES, ids=[f"{c} {x}" for c, x, _ in LINES]
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    command: str,
    line: str,
    message: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if command == "export" and "--onnx" in line:
        pytest.importorskip("onnxscript")
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    try:
        code = cli.main([*command.split(), *line.split()])
    except SystemExit as ended:  # argparse
        code = int(ended.code or 0)
    error = capsys.readouterr().err
    assert code == 2, error
    assert len(error.splitlines()) == 1, error
    assert error.startswith("covlearn"), error
    assert "Traceback" not in error
    assert re.search(message, error), error
    kept = [path for path in sorted(place.rglob("*")) if ".covlearn-cache" not in path.parts]
    assert kept == before


def test_every_file_of_a_run_is_kept_from_being_written_over(place: Path) -> None:
    written = {path.name for run in ("RUN", "TRAIN") for path in (place / run).iterdir()}
    written |= {path.name for path in OLD_RUNS.glob("*/*/*") if path.is_file()}
    assert len(written) > 10
    assert written - {"report.html", "stages"} <= {*OF_A_RUN}


def test_debug_shows_where(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    for line in (["--debug", "clean", "BROKEN"], ["clean", "BROKEN", "--debug"]):
        assert cli.main([*line, "--out", "OUT"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("Traceback")
        assert error.splitlines()[-1].startswith("covlearn: BROKEN")


def test_what_covlearn_does_not_foresee_is_one_sentence_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise KeyError("x")

    monkeypatch.setattr("covlearn.cli.doctor.examined", broken)
    assert cli.main(["doctor"]) == 3
    error = capsys.readouterr().err
    assert error.splitlines() == [error.strip()]
    assert "does not foresee, KeyError" in error
    assert "--debug" in error
    assert cli.main(["doctor", "--debug"]) == 3
    assert "Traceback" in capsys.readouterr().err
