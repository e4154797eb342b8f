"""Every command and every public function has bad input in the catalogue, which ends in a sentence."""

import argparse
import importlib
import inspect
import json
import re
import shlex
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from covlearn import cli
from covlearn.cli.targets import OF_A_RUN
from covlearn.estimator import NoisyLabelClassifier
from tests.hostile.catalogue import ELSEWHERE, FORMS, RECORDS, ROWS, UNNAMED
from tests.hostile.good_calls import CALLS, good_call
from tests.hostile.reader import Reader
from tests.hostile.readers import TOML
from tests.hostile.rows_commands import COMMANDS, WITHOUT_ROW
from tests.hostile.rows_formulas import Row
from tests.hostile.wrong_kinds import ALSO_RIGHT, WRONG, let_in, spoilt_arrays

DOCS = Path(__file__).resolve().parents[2] / "docs"
OLD_RUNS = Path(__file__).resolve().parents[1] / "fixtures" / "old_run"


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


# Every public name is held to every wrong kind, a new one too, unless the catalogue says why not.
NOT_HELD = {*RECORDS.split(), *FORMS.split(), *(n for names in ELSEWHERE.values() for n in names)}
HELD = [name for name in PUBLIC if name not in NOT_HELD]


def test_the_catalogue_names_what_is_public() -> None:
    assert sorted({*ROWS, *CALLS, *NOT_HELD} - {*PUBLIC}) == []


@pytest.mark.parametrize("name", RECORDS.split())
def test_a_record_only_holds_what_it_is_given(name: str) -> None:
    kind = PUBLIC[name]
    assert isinstance(kind, type)
    assert is_dataclass(kind) or hasattr(kind, "_fields")
    assert "__post_init__" not in vars(kind)  # one that checks itself is held to it


@pytest.mark.parametrize("name", FORMS.split())
def test_a_form_cannot_be_called(name: str) -> None:
    form = PUBLIC[name]
    assert not isinstance(form, type) or getattr(form, "_is_protocol", False)


def spoilt(name: str) -> Iterator[tuple[dict[str, Any], str, str]]:
    """A good call of a function with one argument after the other of each wrong kind."""
    good = good_call(name, PUBLIC[name])
    assert good is not None, f"{name}: good_calls.py must have a call of it"
    for parameter in inspect.signature(PUBLIC[name]).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        for kind, value in (*WRONG.items(), *spoilt_arrays(good.get(parameter.name))):
            yield good | {parameter.name: value}, parameter.name, kind


def may_pass(name: str, argument: str, kind: str) -> bool:
    """Whether the kind is right for the argument, by its annotation or for a reason we give."""
    annotation = inspect.signature(PUBLIC[name]).parameters[argument].annotation
    return let_in(kind, annotation) or (f"{name}:{argument}", kind) in ALSO_RIGHT


@pytest.mark.parametrize("name", HELD)
def test_every_wrong_kind_of_every_argument_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_library(name)
    monkeypatch.chdir(tmp_path)
    refused: dict[str, list[str]] = {}
    passed = []
    for arguments, argument, kind in spoilt(name):
        texts = refused.setdefault(argument, [])
        before = sorted(tmp_path.rglob("*"))
        try:
            with warnings.catch_warnings(action="ignore"):
                PUBLIC[name](**arguments)
            passed.append((argument, kind))
        except ValueError as error:
            texts.append(str(error))
            assert sorted(tmp_path.rglob("*")) == before
        except Exception as error:
            pytest.fail(f"{argument} as {kind} raises {type(error).__name__}: {error}")
    assert [each for each in passed if not may_pass(name, *each)] == []
    said = {(place.partition(":")[2], k) for place, k in ALSO_RIGHT if place.startswith(f"{name}:")}
    assert said <= {*passed}, "what wrong_kinds.py calls right is refused"
    for argument, texts in refused.items():
        assert [text for text in texts if "\n" in text or len(text) < 10] == []
        always = all(may_pass(name, argument, kind) for kind in WRONG)
        named = name in UNNAMED or any(argument in text for text in texts)
        assert always or named, (argument, texts)


def test_what_is_called_right_is_an_argument() -> None:
    for argument, _ in ALSO_RIGHT:
        name, parameter = argument.split(":")
        assert parameter in inspect.signature(PUBLIC[name]).parameters
        assert name in HELD


ESTIMATOR: dict[str, Any] = {
    "settings": {"plan.epochs": 1, "sieve_plan.epochs": 1, "folds": 2},
    "random_state": 0,
}
RIGHT_OF_THE_ESTIMATOR = {
    "nothing": ("random_state", "settings"),
    "an empty list": ("settings",),
    "a dict": ("settings",),
}
TABLE = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2


@pytest.mark.parametrize("name", ["method", "net", "preset", "random_state", "settings", "device"])
def test_the_estimator_refuses_parameters_in_fit(name: str) -> None:
    for kind, value in WRONG.items():
        model = NoisyLabelClassifier(**{**ESTIMATOR, name: value})
        if name in RIGHT_OF_THE_ESTIMATOR.get(kind, ()):
            continue
        with pytest.raises(ValueError, match=name) as caught:
            model.fit(*TABLE)
        assert "\n" not in str(caught.value)


def test_the_estimator_refuses_data_as_scikit_learn_does() -> None:
    fitted = NoisyLabelClassifier(**ESTIMATOR).fit(*TABLE)
    for value in WRONG.values():
        for call in (
            lambda value=value: clone(fitted).fit(value, TABLE[1]),
            lambda value=value: clone(fitted).fit(TABLE[0], value),
            lambda value=value: fitted.predict(value),
        ):
            with (
                warnings.catch_warnings(action="ignore"),
                pytest.raises((ValueError, TypeError)),  # TypeError: what is no array at all
            ):
                call()


def needs_library(name: str) -> None:
    if name.startswith("integrations."):
        library = {"onnx": "onnxscript", "datalab": "cleanlab", "tensorboard": "tensorboard"}
        pytest.importorskip(library.get(name.split(".")[1], "torch"))


CASES = [(name, number, row) for name, rows in ROWS.items() for number, row in enumerate(rows)]


@pytest.mark.parametrize(("name", "number", "row"), CASES, ids=[f"{n} {k}" for n, k, _ in CASES])
def test_a_wrong_value_is_one_sentence(
    name: str, number: int, row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_library(name)
    monkeypatch.chdir(tmp_path)
    call, expected = row
    with pytest.raises(ValueError, match=expected) as caught:
        call()
    assert "\n" not in str(caught.value) or name.startswith("estimator.")  # scikit-learn's words
    assert list(tmp_path.iterdir()) == []


# ---- Commands ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(readers: dict[str, Reader], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with whole runs, a good table, and files of no use under every name."""
    folder = tmp_path_factory.mktemp("catalogue")
    readers["fit config.json"].prepare(folder / "RUN")
    config = json.loads((folder / "RUN" / "config.json").read_text())
    shutil.copytree(folder / "RUN", folder / "CODE")
    code = config | {"net": config["net"] | {"name": "a.b:C"}}
    (folder / "CODE" / "config.json").write_text(json.dumps(code))
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


def leaves(
    parser: argparse.ArgumentParser, words: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        yield words, parser
    for action in inner:
        for name, command in action.choices.items():
            yield from leaves(command, f"{words} {name}".strip())


PARSERS = dict(leaves(cli.make_parser()))
OPTIONS = [
    (command, action.option_strings[-1])
    for command, parser in PARSERS.items()
    for action in parser._actions
    if action.option_strings and action.nargs != 0
]


def test_every_command_is_in_the_catalogue() -> None:
    assert sorted(PARSERS) == sorted(COMMANDS)


@pytest.mark.parametrize(("command", "option"), OPTIONS, ids=[" ".join(each) for each in OPTIONS])
def test_every_option_with_a_value_is_in_the_catalogue_and_refuses_empty_text(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    has_row = any(option in line.split() for line, _ in COMMANDS[command])
    assert has_row != ((command, option) in WITHOUT_ROW)
    with pytest.raises(SystemExit, match="2"):
        cli.main([*command.split(), option, ""])
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(f"argument .*{option}.*: expected a value, got empty text; see", error)


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
        code = cli.main([*command.split(), *shlex.split(line)])
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
