"""Run folders of earlier versions can be read, and those of later ones are refused with advice."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import covlearn
from covlearn import cells, cli, records
from covlearn.plain_files import read_json

OLD = Path(__file__).parent / "fixtures" / "old_run"
FORMATS = sorted(path.name for path in OLD.iterdir() if path.is_dir())
TRAIN = ["train", "--data", "digits", "--noise", "cal:0.4", "--method", "cal", "--seed", "0"]
TRAIN += ["--device", "cpu", "--holdout", "0.9", "--set", "sieve_plan.epochs=4", "plan.epochs=4"]
TRAIN += ["plan.lr=0.05", "plan.batch_size=32", "sieve_plan.batch_size=32", "threshold=argmax"]
TRAIN += ["net.hidden=[8]"]
FIT = ["fit", "trees.csv", "--label", "kind", "--id", "key", "--device", "cpu", "--set", "folds=2"]
FIT += ["net.hidden=[8]", "sieve_plan.epochs=20", "plan.epochs=20", "plain_plan.epochs=20"]


@pytest.fixture(params=FORMATS)
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of an old version's folders, to stand in."""
    folder = tmp_path / "old"
    shutil.copytree(OLD / request.param, folder)
    monkeypatch.chdir(folder)
    change(folder / "fit" / "config.json", source={"path": str(folder / "trees.csv")})
    return folder


def change(path: Path, **values: Any) -> None:
    """Other values in a JSON file; those that are objects have some of their own replaced."""
    there = json.loads(path.read_text(encoding="utf-8"))
    merged = {
        name: there[name] | value if isinstance(value, dict) else value
        for name, value in values.items()
    }
    path.write_text(json.dumps(there | merged), encoding="utf-8")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_present_format_is_among_those_kept() -> None:
    kept = [json.loads(path.read_text())["format"] for path in OLD.rglob("config.json")]
    assert records.FORMAT in kept


def test_the_network_predicts_what_it_did(old: Path) -> None:
    arguments = ["predict", "fit", "new.csv", "--id", "key", "--device", "cpu", "--probabilities"]
    assert cli.main([*arguments, "--out", "again.csv"]) == 0
    then, now = pd.read_csv("predictions.csv"), pd.read_csv("again.csv")
    assert len(then) == 6
    pd.testing.assert_frame_equal(now, then, rtol=1e-4)


def test_a_fit_is_loaded(old: Path) -> None:
    fitted = covlearn.load(old / "fit")
    assert fitted.classes == ["ash", "birch", "cedar"]
    assert fitted.result.decisions == {"keep": 51, "relabel": 8, "drop": 0, "review": 1}
    assert len(fitted.labels["id"]) == 60
    with pytest.raises(ValueError, match="must be a run of covlearn fit"):
        covlearn.load(old / "train")


def test_a_training_run_is_read(old: Path) -> None:
    record = records.read(old / "train")
    assert record.result is not None
    assert record.result.test_accuracy.last is not None
    assert record.result.test_accuracy.last.value == record.metrics[-1]["test_accuracy"]
    assert [line["stage"] for line in record.metrics] == ["sieve"] * 4 + ["cal"] * 4
    assert record.labels is not None
    assert len(record.labels["idx"]) == record.config["data"]["examples"] - 1167  # held out: 90 %


def test_runs_are_tabulated(old: Path) -> None:
    table = covlearn.read_runs(old, settings=["plan.epochs"])
    assert table["run"].tolist() == ["fit", "train"]
    assert table["finished"].all()
    assert table["plan.epochs"].tolist() == [20, 4]
    assert table["relabel"].tolist()[0] == 8
    assert table["last"].tolist()[1] == 0.074
    assert len(covlearn.read_runs(old, by="epoch")) == 68


def test_labels_are_repaired_as_then(old: Path) -> None:
    assert cli.main(["clean", "fit", "--out", "repaired", "--as", "csv"]) == 0
    then, now = (cells.read_cells(path) for path in (Path("clean.csv"), Path("repaired/clean.csv")))
    assert now == {name: then[name] for name in ("key", "a", "b", "c", "d", "kind")}
    verdicts = cells.read_cells(Path("repaired/verdicts.csv"))  # then they were in the table
    assert {name: verdicts[name] for name in then if name in verdicts} == {
        name: then[name] for name in ("id", "given", "decision", "quality", "confidence")
    }
    assert sum(a != b for a, b in zip(now["kind"], verdicts["given"], strict=True)) == 8


def test_pages_are_written(old: Path) -> None:
    for name in ("fit", "train"):
        assert cli.main(["report", name]) == 0
    assert '"k52"' in (old / "fit" / "report.html").read_text(encoding="utf-8")  # the worst label
    assert "Training loss" in (old / "train" / "report.html").read_text(encoding="utf-8")
    assert cli.main(["report", "fit", "train", "--out", "both.html"]) == 0
    assert Path("both.html").stat().st_size > 10_000


def test_noise_is_diagnosed(old: Path) -> None:
    assert cli.main(["diagnose", "fit"]) == 0
    assert 0 < read_json(old / "fit" / "diagnosis.json")["test"]["p_value"] <= 1


@pytest.mark.parametrize(("name", "command"), [("train", TRAIN), ("fit", FIT)])
@pytest.mark.parametrize("version", [covlearn.__version__, "9.0"])
def test_a_finished_run_is_read_back_or_refused_in_a_sentence(
    old: Path,
    name: str,
    command: list[str],
    version: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(covlearn, "__version__", version)
    before = contents(old / name)
    code = cli.main([*command, "--out", name, "--resume"])
    error = capsys.readouterr().err
    after = contents(old / name)
    after.pop(old / "fit" / "report.html", None)  # fit writes it anew
    assert after == before
    if code == 0:
        assert error == ""
    else:  # a setting that a later version has got
        assert code == 2
        assert re.fullmatch(r"covlearn: .* holds a run of another configuration: .*\n", error)


def test_an_unfinished_run_is_not_continued_by_another_version(
    old: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (old / "train" / "result.json").unlink()
    (old / "train" / "stages").mkdir()
    (old / "train" / "stages" / "sieve.pt").write_bytes(b"of then")
    before = contents(old)
    monkeypatch.setattr(covlearn, "__version__", "9.0")
    assert cli.main([*TRAIN, "--out", "train", "--resume"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(
        "unfinished run of covlearn 0.1.0.dev0, .*finish it with that version|another configuration",
        error,
    )
    assert contents(old) == before


READERS: dict[str, Callable[[Path], object]] = {
    "load": lambda old: covlearn.load(old / "fit"),
    "read": lambda old: records.read(old / "fit"),
    "read_runs": covlearn.read_runs,
}
COMMANDS = {
    "report": ["report", "fit"],
    "comparison": ["report", "fit", "train", "--out", "both.html"],
    "predict": ["predict", "fit", "new.csv", "--id", "key", "--out", "again.csv"],
    "clean": ["clean", "fit", "--out", "repaired"],
    "diagnose": ["diagnose", "fit"],
    "resume": [*FIT, "--out", "fit", "--resume"],
}
ADVICE = r"has format 999, of covlearn 9\.9, .*; update covlearn: pip install --upgrade covlearn"


@pytest.mark.parametrize("name", READERS)
def test_a_later_format_is_refused_with_advice(old: Path, name: str) -> None:
    change(old / "fit" / "config.json", format=999, covlearn="9.9")
    with pytest.raises(ValueError, match=ADVICE):
        READERS[name](old)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_refuse_a_later_format_in_a_sentence(
    old: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(old / "fit" / "config.json", format=999, covlearn="9.9")
    before = contents(old)
    assert cli.main(COMMANDS[name]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(rf"covlearn: .*{ADVICE}\n", captured.err)
    assert contents(old) == before
