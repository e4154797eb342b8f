"""covlearn diagnose: what it says and writes, and every kind of folder that is not such a run."""

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from covlearn import cli
from covlearn.diagnose import diagnose_run
from covlearn.fitted import load
from covlearn.noise import symmetric
from covlearn.report.again import UNKNOWN, fit_with

QUICK = ["--device", "cpu", "--set", "folds=2"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on three clouds, three labels in ten wrong, and its source beside it."""
    folder = tmp_path_factory.mktemp("diagnose")
    y = np.arange(210) % 3
    x = np.random.default_rng(0).normal(size=(210, 4)) + 4 * np.eye(4)[y]
    frame = pd.DataFrame(x, columns=list("abcd"))
    noisy = symmetric(y, rate=0.3, num_classes=3, seed=0).label
    frame["kind"] = np.array(["ash", "birch", "cedar"])[noisy]
    frame.to_csv(folder / "table.csv", index=False)
    arguments = ["fit", str(folder / "table.csv"), "--label", "kind", "--out", str(folder / "run")]
    assert cli.main([*arguments, *QUICK, "plan.epochs=3", "net.hidden=[16]"]) == 0
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be written to or damaged."""
    return Path(shutil.copytree(made / "run", tmp_path / "run"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence with which the command ends."""
    capsys.readouterr()
    assert cli.main(["diagnose", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("covlearn: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_the_diagnosis_is_said_and_written(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diagnose", str(run), "--draws", "39", "--seed", "1"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Is the noise instance-dependent? ")
    written = json.loads((run / "diagnosis.json").read_text())
    test = written["test"]
    assert f"p = {test['p_value']:.3g}; 39 draws" in text
    assert "Looked at: 4 features of the source, standardised" in text
    marked = [line for line in text.splitlines() if line.startswith("→")]
    assert len(marked) == 1
    names = {"forward": "Forward", "cal": "CAL"}
    assert marked[0].startswith(f"→ {names[written['recommended']]}: ")
    assert (written["recommended"] == "cal") == (test["p_value"] <= 0.05)
    assert f"{run} was fitted to labels that sieves had refined, " in text
    assert "Next:" not in text
    with np.load(run / "refinement.npz") as file:
        np.testing.assert_allclose(written["covariance"], file["covariance"])
    for name in ("ash", "birch", "cedar"):
        assert f"\n{name:>7} " in text
    again = diagnose_run(load(run), draws=39, seed=1)
    assert again.json() == written
    assert again.json() != diagnose_run(load(run), draws=39, seed=2).json()


def test_the_next_command_fits_with_the_method_that_is_recommended(
    made: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = diagnose_run(load(run), draws=19)
    advised = {
        name: replace(
            found, methods=[replace(one, supported=one.method == name) for one in found.methods]
        )
        for name in ("forward", "cal", "ce")
    }
    for name in ("cal", "forward"):
        (said,) = cli.diagnose.next_lines(advised[name], load(run))
        assert said.startswith(f"{run} was fitted to labels that sieves had refined, which suits")
    # Where there is no evidence of wrong labels, what was trained is cross-entropy.
    fitted = load(run)
    clean = replace(
        fitted,
        result=replace(fitted.result, evidence={**fitted.result.evidence, "found": False}),
    )
    (said,) = cli.diagnose.next_lines(advised["ce"], clean)
    assert said == f"{run} was trained on all labels as they are: there is nothing to do."
    head, command, note = cli.diagnose.next_lines(advised["ce"], load(run))
    assert head == "Next:"
    words = shlex.split(command)
    assert words[:5] == ["covlearn", "fit", str(made / "table.csv"), "--label", "kind"]
    assert words[5:9] == ["--method", "ce", "--set", "plan.epochs=3"]
    assert words[9:] == ["net.hidden=[16]", "--out", str(tmp_path / "run-ce")]
    assert note == "Settings that ce does not have are left out: folds=2."
    assert cli.main(words[1:]) == 0
    assert "Next:" in capsys.readouterr().out
    plainly = load(tmp_path / "run-ce")
    assert plainly.config["method"]["name"] == "ce"
    assert plainly.config["method"]["plan"]["epochs"] == 3
    assert plainly.config["net"] == load(run).config["net"]
    (said,) = cli.diagnose.next_lines(advised["ce"], plainly)
    assert said == f"{plainly.folder} was fitted with CE: there is nothing to do."
    for name in ("forward", "cal"):  # fit's own method, which is not named
        head, command, *_ = cli.diagnose.next_lines(advised[name], plainly)
        assert head == "Next:"
        assert "--method" not in command
        assert shlex.split(command)[-1] == str(tmp_path / "run-ce-cal")


def test_a_dependence_is_of_noise_only_where_there_is_some(run: Path) -> None:
    found = diagnose_run(load(run), draws=39)
    sure = replace(found, test=replace(found.test, p_value=0.01), agreement=0.95)
    assert cli.diagnose.summary(sure)[0].endswith("Yes: flips depend on the features.")
    doubtful = replace(sure, agreement=0.75)
    assert "Perhaps: flips depend on the features, or errors" in cli.diagnose.summary(doubtful)[0]
    none = replace(sure, noise_rate=0.0)
    assert "There is no evidence that labels are wrong;" in cli.diagnose.summary(none)[0]


def test_where_nothing_was_learned_no_command_follows(run: Path) -> None:
    found, fitted = diagnose_run(load(run), draws=39), load(run)
    evidence = {**fitted.result.evidence, "learned": False, "found": False}
    unjudged = replace(fitted, result=replace(fitted.result, evidence=evidence))
    (said,) = cli.diagnose.next_lines(found, unjudged)
    assert said.endswith("learned too little from the inputs: look at these.")


def test_where_settings_cannot_be_told_the_next_command_says_so(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["method"] = {"name": "someones.own:Method"}
    (run / "config.json").write_text(json.dumps(config))
    words, note = fit_with(load(run), "cores")
    assert words[-2:] == ["--method", "cores"]
    assert note == UNKNOWN


def test_json_is_what_is_written(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diagnose", str(run), "--draws", "19", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((run / "diagnosis.json").read_text())


def test_a_dry_run_writes_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diagnose", str(run), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "210 examples, 3 classes" in text
    assert "199 draws" in text
    assert "nothing was written" in text
    assert not (run / "diagnosis.json").exists()


def test_a_table_that_is_gone_is_read_from_the_run(
    made: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((run / "config.json").read_text())
    config["source"]["path"] = str(made / "gone.csv")
    (run / "config.json").write_text(json.dumps(config))
    assert cli.main(["diagnose", str(run), "--draws", "19"]) == 0
    (run / "table.parquet").unlink()
    assert "gone.csv is missing" in refused(capsys, str(run))


def test_a_source_that_has_changed_is_refused(
    made: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.read_csv(made / "table.csv")
    config = json.loads((run / "config.json").read_text())
    config["source"]["path"] = str(tmp_path / "table.csv")
    (run / "config.json").write_text(json.dumps(config))
    frame.assign(a=frame["a"] + 1).to_csv(tmp_path / "table.csv", index=False)
    assert "has changed since" in refused(capsys, str(run))
    frame[:-1].to_csv(tmp_path / "table.csv", index=False)
    assert "has changed since" in refused(capsys, str(run))
    assert not (run / "diagnosis.json").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "is not the folder of a run"),
        ("recipe.json", "is not the folder of a run"),
        ("result.json", "holds an unfinished run"),
        ("refinement.npz", "is not the whole folder of a run"),
        ("labels.csv", "labels.csv"),
    ],
)
def test_a_folder_that_lacks_a_file_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    (run / name).unlink()
    assert message in refused(capsys, str(run))
    assert not (run / "diagnosis.json").exists()


def test_what_is_no_run_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is not the folder of a run" in refused(capsys, str(tmp_path / "nowhere"))
    assert "draws must be an integer of 19 at least" in refused(capsys, str(run), "--draws", "3")
    assert "seed must be" in refused(capsys, str(run), "--seed", "-1")
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    y = np.arange(30) % 3
    np.savez(tmp_path / "data.npz", x=x, y=y, x_test=x, y_test=y)
    train = ["train", "--data", str(tmp_path / "data.npz"), "--method", "ce", "--device", "cpu"]
    trained = tmp_path / "trained"
    assert cli.main([*train, "--set", "plan.epochs=1", "--out", str(trained)]) == 0
    assert "must be a run of covlearn fit" in refused(capsys, str(trained))


def test_images_are_diagnosed_by_what_the_network_makes_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for number in range(120):
        bright, wrong = number % 2, number % 10 < 2
        folder = tmp_path / "images" / ("bright" if bright != wrong else "dark")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(rng.normal(40 + 160 * bright, 20, size=(8, 8, 3)), 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    out = tmp_path / "run"
    arguments = ["fit", str(tmp_path / "images"), "--out", str(out), "--features", "none", *QUICK]
    assert cli.main([*arguments, "net.widths=[4]"]) == 0
    capsys.readouterr()
    assert cli.main(["diagnose", str(out), "--draws", "19"]) == 0
    text = capsys.readouterr().out
    assert "Looked at: 4 penultimate features of the run's network" in text
    assert "Note: with two classes a flip has one place to go" in text
    shutil.rmtree(tmp_path / "images")
    assert "is missing, which" in refused(capsys, str(out))


def test_of_many_classes_the_largest_covariances_are_shown(run: Path) -> None:
    found = diagnose_run(load(run), draws=19)
    table = np.full((12, 12), 0.001)
    table[3, 7], table[5] = -0.5, np.nan  # no refined label is 5
    many = replace(found, classes=[f"class {i}" for i in range(12)], covariance=table.tolist())
    head, first, *others = cli.diagnose.table(many)
    assert "the 10 largest of 12×12" in head
    assert first == "  -0.5000  ŷ = class 3, j = class 7"
    assert len(others) == 9
    assert not any("nan" in line for line in others)
    assert all(value is None for value in many.json()["covariance"][5])


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["diagnose", "--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert "example:\n  covlearn diagnose" in said
    assert "a table that is gone is read\nfrom the run itself" in said
