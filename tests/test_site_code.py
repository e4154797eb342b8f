"""The code and the commands of the documentation and the README: all of it runs, or it says here why
not and what runs in its place."""

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from covlearn import records
from covlearn.cli import main, make_parser
from covlearn.estimator import NoisyLabelClassifier
from covlearn.testing.clothing import write_lookalike
from tests.site_pages import CALLED, DOCS, blocks, commands, mentioned, pages, typed

ROOT = DOCS.parent
README = "../README.md"
# Pages whose blocks other tests run or compare, all of them.
ELSEWHERE = {
    "extending.md": "tests/test_house_checks.py",
    "inputs.md": "tests/inputs/test_page.py",
    "plug_in.md": "tests/integrations/test_page.py",
}
# Pages whose Python belongs to their commands, run in the order in which it stands.
IN_ORDER = ("extending_parts.md", "noise.md", "start/my_data.md", "start/my_table.md")
# Lines that are not run, by how they begin, and what is tested in their place.
NOT_RUN = {
    "pip install": "tests/test_wheel.py installs the wheel",
    "make ": "the continuous integration runs both",
    "covlearn data fetch": "downloads; tests/data/test_fetch.py has a server of its own",
    "covlearn bench benchmarks/table1.toml --published": "tests/test_bench_own_runs.py has files",
    "covlearn bench benchmarks/beyond.toml --published": "the same",
    "covlearn bench benchmarks/table1.toml --on ray": "tests/test_bench_ray.py",
    "covlearn train --data PATH": "days; tests/test_clothing_recipe.py has the recipe",
    "covlearn predict runs/theirs": "a run of somebody else; tests/hostile/test_code.py",
    "covlearn bench theirs.toml": "a table of somebody else; tests/hostile/test_code.py",
    "torchrun": "several GPUs; tests/test_processes.py, tests/test_elastic.py",
    "python -m benchmarks.results": "tests/test_tables.py compares what it writes",
    "export LABEL_STUDIO": "for another program",
    "label-studio": "another program",
}
# Added to lines that begin so: what takes hours on a GPU is looked at, what takes minutes is shorter.
ADDED = {
    "covlearn bench benchmarks/": ["--dry-run"],
    "covlearn bench small.toml": ["--trials", "1"],
}


def table_of_cells() -> None:
    table, target = load_breast_cancer(return_X_y=True, as_frame=True)
    table.head(30).to_csv("new.csv", index=False)
    flipped = np.random.default_rng(0).choice(len(table), size=60, replace=False)
    target[flipped] = 1 - target[flipped]
    table["diagnosis"] = target.map({0: "malignant", 1: "benign"})
    table.to_csv("cells.csv", index=False)
    pd.DataFrame({"id": [0, 1], "label": ["malignant", "malignant"]}).to_csv(
        "decisions.csv", index=False
    )


def fitted_cells() -> None:
    table_of_cells()
    assert main(["fit", "cells.csv", "--label", "diagnosis", "--out", "runs/cells"]) == 0


def folder_of_flowers() -> None:
    draw = np.random.default_rng(0)
    for shade, name in ((60, "rose"), (190, "tulip")):
        Path("flowers", name).mkdir(parents=True)
        for number in range(40):
            wrong = 130 if number < 4 else 0
            level = shade + (wrong if shade < 100 else -wrong)
            pixels = np.clip(draw.normal(level, 30, (16, 16, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(f"flowers/{name}/{number}.png")
    pd.DataFrame({"id": ["rose/1.png"], "label": ["rose"]}).to_csv("decisions.csv", index=False)


def clothes() -> None:
    write_lookalike(Path("PATH"), noisy=56, clean=14, drawn=14)
    Path("PATH", "resnet50-weights.pth").touch()  # a dry run looks for it, and not into it


PREPARED: dict[str, Callable[[], None]] = {
    README: table_of_cells,
    "fit.md": table_of_cells,
    "start/my_data.md": table_of_cells,
    "diagnose.md": fitted_cells,
    "report.md": folder_of_flowers,
    "reproduce.md": clothes,
}


def looked_at() -> None:
    """What Label Studio exports once somebody has agreed with the given label of each task."""
    tasks = json.loads(Path("studio", "tasks.json").read_text(encoding="utf-8"))
    for number, task in enumerate(tasks):
        value = {"choices": [task["data"]["given"]]}
        result = {"from_name": "label", "to_name": "example", "type": "choices", "value": value}
        task |= {"id": number, "annotations": [{"id": number, "result": [result]}]}
    Path("export.json").write_text(json.dumps(tasks), encoding="utf-8")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, from which the tables of benchmarks/ can be named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    return tmp_path


def why_not(line: str) -> str | None:
    return next((why for start, why in NOT_RUN.items() if line.startswith(start)), None)


def shell_lines(name: str) -> list[str]:
    """All lines of a page that are typed into a shell."""
    return [line for block in blocks(name) if block.language == "sh" for line in typed(block.text)]


def run_lines(text: str) -> None:
    """Runs the commands of a block."""
    for line in typed(text):
        if why_not(line) is not None:
            continue
        (words,) = commands(line)  # any other program must be named in NOT_RUN
        words += next((more for start, more in ADDED.items() if line.startswith(start)), [])
        if "export.json" in words:
            looked_at()
        assert main(words) == 0, line


WITH_COMMANDS = [
    name
    for name in [README, *pages()]
    if name not in ELSEWHERE and not all(map(why_not, shell_lines(name)))
]


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_commands_run(name: str, place: Path) -> None:
    PREPARED.get(name, lambda: None)()
    names: dict[str, Any] = {}
    for language, title, text in blocks(name):
        if title:
            Path(title).write_text(text, encoding="utf-8")
        elif language == "python" and name in IN_ORDER:
            with torch.random.fork_rng(devices=[]):
                exec(text, names)
        elif language == "sh":
            run_lines(text)
    if name == "start/my_data.md":
        judged = names["model"].label_issues_
        assert (judged["decision"].iloc[names["wrong"]] != "keep").mean() > 0.5
        assert (judged["decision"] != "keep").mean() < 0.2
        assert Path("compared.html").is_file()
        assert len(pd.read_csv("preds.csv")) == 30
    if name == "start/my_table.md":  # what is typed and what Python does are one run
        typed, called = (records.read(Path("runs") / run) for run in ("cal", "cal-0"))
        assert typed.config["holdout"] == called.config["holdout"] == 0.1
        assert typed.config["method"] == called.config["method"]
        if not torch.cuda.is_available():  # where the command line would take another device
            assert typed.result is not None
            assert called.result is not None
            assert typed.result.test_accuracy == called.result.test_accuracy


@pytest.mark.parametrize("name", [README, *pages()])
def test_every_command_is_run_or_it_is_said_why_not(name: str) -> None:
    lines = shell_lines(name)
    assert all(why_not(line) or CALLED.match(line) for line in lines), lines
    # A block without a language is a picture of a tree or the like.
    assert [b.text for b in blocks(name) if not b.language and CALLED.search(b.text)] == []


def test_what_is_not_run_is_on_a_page_and_has_its_test() -> None:
    lines = [line for name in [README, *pages()] for line in shell_lines(name)]
    for start, why in NOT_RUN.items():
        assert any(line.startswith(start) for line in lines), start
        for word in why.replace(",", " ").split():
            if word.startswith("tests/"):
                assert (ROOT / word).exists(), word
    for name, test in ELSEWHERE.items():
        assert f'"{name}"' in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [README, *pages()])
def test_command_lines_are_understood(name: str) -> None:
    parser = make_parser()
    for language, _, text in blocks(name):
        if language in ("", "sh"):
            for words in commands(text):
                parser.parse_args(words)  # exits with 2 where an option does not exist
    (subcommands,) = (
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    for words in mentioned(name):
        if words[0].startswith("-"):
            continue
        assert words[0] in subcommands, words
        known = subcommands[words[0]]._option_string_actions
        for word in words:
            if word.startswith("--"):
                assert word in known, words


def test_command_lines_are_found() -> None:
    shells = [b.text for name in pages() for b in blocks(name) if b.language in ("", "sh")]
    found = [words for text in shells for words in commands(text)]
    assert len(found) > 50
    with pytest.raises(SystemExit):
        make_parser().parse_args(["fit", "x.csv", "--no-such-option"])


NUMBER = re.compile(r"\d+(?:\.\d+)?")


def test_the_loop_repairs_labels(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    loop, printed, other = blocks("start/my_loop.md")
    with torch.random.fork_rng(devices=[]):
        exec(loop.text, names)
        said = capsys.readouterr().out
        exec(other.text, names)
    # What a network has learned differs a little by machine and version.
    assert NUMBER.sub("#", said) == NUMBER.sub("#", printed.text)
    given, repaired, network = (float(n) for n in NUMBER.findall(said)[2:])
    assert repaired > given + 20
    assert network > given + 20
    shown = [float(n) for n in NUMBER.findall(printed.text)[2:]]
    assert [given, repaired, network] == pytest.approx(shown, abs=5)


def test_what_a_fit_prints_is_as_on_the_page(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shown,) = (block.text for block in blocks("start/my_data.md") if block.language == "text")
    fitted_cells()
    said = capsys.readouterr().out.splitlines()[:4]
    for line, printed in zip(shown.splitlines(), said, strict=True):
        start = NUMBER.sub("#", line.removesuffix("…"))
        assert NUMBER.sub("#", printed).startswith(start)
        numbers = [[float(n) for n in NUMBER.findall(text)] for text in (line, printed)]
        assert numbers[1][: len(numbers[0])] == pytest.approx(numbers[0], abs=5, rel=0.1)


def test_the_blocks_of_reference_pages_run() -> None:
    X, y = load_wine(return_X_y=True)
    names: dict[str, Any] = {"X": X, "y": y, "X_new": X[:3]}
    run_python("fit.md", names)
    assert isinstance(names["model"], NoisyLabelClassifier)
    pixels, digit = load_digits(return_X_y=True)
    run_python("diagnose.md", names | {"features": pixels[:600] / 16, "given": digit[:600]})
    run_python("theory.md", {})


def run_python(name: str, names: dict[str, Any]) -> None:
    found = [block.text for block in blocks(name) if block.language in ("py", "python")]
    assert found, name
    for text in found:
        exec(text, names)


def test_no_page_has_code_that_nobody_runs() -> None:
    ran = {*ELSEWHERE, *IN_ORDER, "start/my_loop.md", "fit.md", "diagnose.md", "theory.md"}
    with_code = {
        name for name in pages() if any(b.language in ("py", "python") for b in blocks(name))
    }
    assert with_code <= ran
    # An unnamed block may be a picture of a tree, but not Python.
    for name in pages():
        for language, _, text in blocks(name):
            assert language in ("", "sh", "py", "python", "toml", "text"), (name, language)
            assert language or "import " not in text, name
