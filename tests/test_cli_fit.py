"""fit, predict, clean and doctor: the whole way, interrupted, and with every kind of bad input."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from covlearn import cells, cli, records
from covlearn.fitted import load
from covlearn.locks import held
from covlearn.noise import symmetric
from tests.runs import without_seconds

QUICK = ["--device", "cpu", "--set", "folds=2", "net.hidden=[16]"]
NAMES = np.array(["ash", "=birch()", "cedar"])


def clouds(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(count) % 3
    x = np.random.default_rng(seed).normal(size=(count, 4)) + 5 * np.eye(4)[y]
    return x * [100, 1, 1, 1], y


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV of three clouds, a third of the labels wrong, one class named like a formula."""
    x, y = clouds(180, seed=0)
    noisy = symmetric(y, rate=0.3, num_classes=3, seed=0).label
    frame = pd.DataFrame(x, columns=list("abcd"))
    frame.insert(0, "key", [f"k{n}" for n in range(len(frame))])
    frame["kind"], frame["right"] = NAMES[noisy], NAMES[y]
    path = tmp_path_factory.mktemp("table") / "table.csv"
    frame.drop(columns="right").to_csv(path, index=False)
    frame.to_csv(path.with_name("right.csv"), index=False)
    return path


def fitting(table: Path, out: Path) -> list[str]:
    columns = ["--label", "kind", "--id", "key"]
    return ["fit", str(table), "--out", str(out), *columns, *QUICK]


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit") / "run"
    assert cli.main(fitting(table, folder)) == 0
    return folder


def test_wrong_labels_are_found(run: Path, table: Path) -> None:
    right = pd.read_csv(table.with_name("right.csv"))
    labels = cells.read_cells(run / "labels.csv")
    assert list(labels) == [
        "id", "given", "suggested", "decision", "quality", "confidence", "reason",
    ]  # fmt: skip
    assert labels["id"] == right["key"].tolist()
    assert labels["given"] == right["kind"].tolist()
    wrong = (right["kind"] != right["right"]).to_numpy()
    flagged = np.array(labels["decision"]) != "keep"
    assert flagged[wrong].mean() > 0.9
    assert flagged[~wrong].mean() < 0.1
    result = json.loads((run / "result.json").read_text())
    quality = np.array(labels["quality"], dtype=float)
    assert result["noise_rate"] == pytest.approx(1 - quality.mean(), abs=1e-5)
    assert result["noise_rate"] == pytest.approx(wrong.mean(), abs=0.05)
    assert sum(result["decisions"].values()) == result["examples"] == 180


def test_the_folder_holds_plain_files(run: Path) -> None:
    assert sorted(os.listdir(run)) == [
        "config.json", "environment.json", "examples.parquet", "labels.csv", "metrics.jsonl",
        "model.safetensors", "probs.npz", "recipe.json", "refinement.npz", "report.html",
        "result.json", "table.parquet",
    ]  # fmt: skip
    with np.load(run / "refinement.npz") as file:
        np.testing.assert_allclose(file["transition"].sum(axis=1), 1, atol=1e-6)
    # A label that a spreadsheet would run is written so that it does not.
    assert ",'=birch()," in (run / "labels.csv").read_text()


def test_the_summary_is_for_people(
    run: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(fitting(table, run)) == 0  # finished already: read back
    text = capsys.readouterr().out
    first, _, text = text.partition("\n")
    assert first == f"{run} was finished already: nothing was trained."
    assert text.startswith("180 examples, 3 classes.\nAbout ")
    assert re.search(r"About (2[5-9]|3\d) % of the labels look wrong", text)
    assert re.search(r"\d+ labels could be repaired, \d+ should be dropped, \d+ should be", text)
    assert cli.main([*fitting(table, run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((run / "result.json").read_text())


def test_clean_data_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = clouds(180, seed=0)
    np.savez(tmp_path / "clean.npz", x=x.astype(np.float32), y=y)
    arguments = ["fit", str(tmp_path / "clean.npz"), "--out", str(tmp_path / "run"), *QUICK]
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert "No evidence that labels are wrong: none was changed" in said
    assert "finished already" not in said
    result = load(tmp_path / "run").result
    assert result.noise_rate == 0
    assert result.decisions["keep"] >= 0.98 * 180
    assert result.decisions["relabel"] == result.decisions["drop"] == 0


def test_the_folder_is_held_while_a_run_is_fitted(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*_: Any, **__: Any) -> None:
        with (
            pytest.raises(ValueError, match="another process is at work in"),
            held(tmp_path / "run"),
        ):
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr("covlearn.fitted.fit_split", meanwhile)
    assert cli.main(fitting(table, tmp_path / "run")) == 130
    with held(tmp_path / "run"):
        pass  # free again


def test_an_interrupted_run_ends_the_same(
    run: Path,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextlib.contextmanager
    def interrupting() -> Iterator[Any]:
        def progress(stage: str, epochs: int, history: list[Any]) -> None:
            if stage == "relabel" and len(history) == 3:
                signal.raise_signal(signal.SIGINT)

        yield progress

    with monkeypatch.context() as patched:
        patched.setattr(cli.fit, "progress_bars", interrupting)
        assert cli.main(fitting(table, tmp_path / "run")) == 130
    assert not (tmp_path / "run" / "result.json").exists()
    assert cli.main(["predict", str(tmp_path / "run"), str(table), "--out", "no.csv"]) == 2
    error = capsys.readouterr().err
    assert "holds an unfinished run" in error
    again = error.partition("with: ")[2].splitlines()[0]
    assert cli.main(shlex.split(again)[1:]) == 0
    for name in ("labels.csv", "model.safetensors", "recipe.json", "config.json"):
        assert (tmp_path / "run" / name).read_bytes() == (run / name).read_bytes(), name
    ours, theirs = (records.read_metrics(folder) for folder in (tmp_path / "run", run))
    assert without_seconds(ours) == without_seconds(theirs)
    assert sorted(os.listdir(tmp_path / "run")) == sorted(os.listdir(run))


def test_predictions_of_new_examples(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = clouds(60, seed=1)
    new = pd.DataFrame(x, columns=list("abcd"))
    new["key"] = [f"new-{n}" for n in range(60)]
    new.to_csv(tmp_path / "new.csv", index=False)
    arguments = ["predict", str(run), str(tmp_path / "new.csv"), "--id", "key", "--device", "cpu"]
    out = tmp_path / "preds.csv"
    assert cli.main([*arguments, "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"60 predictions: {out}\n"
    found = cells.read_cells(out)
    assert list(found) == ["id", "predicted", "confidence"]
    assert found["id"] == new["key"].tolist()
    assert (np.array(found["predicted"]) == NAMES[y]).mean() > 0.9
    assert cli.main([*arguments, "--out", str(out), "--probabilities"]) == 0
    assert "(the file that was there is replaced)" in capsys.readouterr().out
    more = cells.read_cells(out)
    assert more["predicted"] == found["predicted"]
    probs = np.array([more[f"p({name})"] for name in sorted(NAMES)], dtype=float)
    np.testing.assert_allclose(probs.sum(axis=0), 1, atol=1e-4)
    np.testing.assert_allclose(probs.max(axis=0), np.array(found["confidence"], dtype=float))


@pytest.mark.parametrize("form", ["csv", "parquet", "hf"])
def test_tables_come_back_with_repaired_labels(run: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    assert cli.main(["clean", str(run), "--out", str(out), "--as", form]) == 0
    if form == "csv":
        table = pd.DataFrame(cells.read_cells(out / "clean.csv"))
    else:
        name = "clean.parquet" if form == "parquet" else "data/train-00000-of-00001.parquet"
        table = pd.read_parquet(out / name)
    labels = pd.DataFrame(cells.read_cells(run / "labels.csv"))
    labels = labels[labels["decision"] != "drop"]
    assert table["key"].tolist() == labels["id"].tolist()
    assert sorted(table) == ["a", "b", "c", "d", "key", "kind"]
    assert cells.read_cells(out / "verdicts.csv") == cells.read_cells(run / "labels.csv")
    repaired = np.where(labels["decision"] == "relabel", labels["suggested"], labels["given"])
    assert table["kind"].tolist() == repaired.tolist()
    assert (repaired != labels["given"]).sum() > 20
    assert not list(tmp_path.glob("*.partial"))


def test_what_people_should_look_at_goes_to_label_studio(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["clean", str(run), "--out", str(out), "--as", "label-studio"]
    assert cli.main([*arguments, "--dry-run"]) == 0
    planned = capsys.readouterr().out.splitlines()
    assert planned[-1] == f"nothing was written; without --dry-run it would be in {out}"
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out.splitlines()
    tasks = json.loads((out / "tasks.json").read_text())
    count = load(run).result.decisions
    assert said == [
        f"{len(tasks)} tasks in tasks.json, the examples whose label is not kept: "
        f"{count['relabel']} to relabel, {count['drop']} to drop, {count['review']} to review",
        f"written to {out}",
    ]
    assert planned[:-1] == said[:-1]
    labels = pd.DataFrame(cells.read_cells(run / "labels.csv"))
    flagged = labels[labels["decision"] != "keep"].set_index("id")
    assert {task["data"]["id"] for task in tasks} == set(flagged.index)
    for task in tasks:
        choice = task["predictions"][0]["result"][0]["value"]["choices"]
        assert choice == [flagged.loc[task["data"]["id"], "suggested"]]
    quality = [float(flagged.loc[task["data"]["id"], "quality"]) for task in tasks]
    assert quality == sorted(quality)
    assert '<Choice value="=birch()"/>' in (out / "config.xml").read_text()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dark and bright images in class folders, twenty of each in the other's; names that clash."""
    root = tmp_path_factory.mktemp("pictures") / "images"
    rng = np.random.default_rng(0)
    for kind, level in (("dark", 40), ("bright", 200)):
        for number in range(60):
            wrong = number < 20
            folder = root / ({"dark": "bright", "bright": "dark"}[kind] if wrong else kind)
            folder.mkdir(parents=True, exist_ok=True)
            pixels = np.clip(rng.normal(level, 20, size=(8, 8, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number + 100 * (kind == 'dark') * wrong}.png")
    return root


def test_images_are_put_under_their_refined_class(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["fit", str(pictures), "--out", str(tmp_path / "run"), "--features", "none"]
    arguments += ["--device", "cpu", "--seed", "0", "--set", "folds=2", "net.widths=[4]"]
    assert cli.main(arguments) == 0
    out = tmp_path / "out"
    assert cli.main(["clean", str(tmp_path / "run"), "--out", str(out), "--as", "folder"]) == 0
    assert sorted(os.listdir(out)) == ["bright", "dark"]
    files = list(out.rglob("*.png"))
    labels = cells.read_cells(tmp_path / "run" / "labels.csv")
    assert len(files) == 120 - labels["decision"].count("drop")
    rows = zip(*(labels[name] for name in ("id", "given", "suggested", "decision")), strict=True)
    expected = {
        (pictures / name).read_bytes(): suggested if decision == "relabel" else given
        for name, given, suggested, decision in rows
        if decision != "drop"
    }
    assert {file.read_bytes(): file.parent.name for file in files} == expected
    assert len(list(pictures.rglob("*.png"))) == 120  # the source stays as it was
    preds = tmp_path / "preds.csv"
    assert cli.main(["predict", str(tmp_path / "run"), str(pictures), "--out", str(preds)]) == 0
    assert len(cells.read_cells(preds)["id"]) == 120
    look = ["clean", str(tmp_path / "run"), "--out", str(tmp_path / "look"), "--as", "label-studio"]
    assert cli.main(look) == 0
    said = capsys.readouterr().out
    assert f"\n  LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={pictures.parent}\n" in said
    assert f"has the local storage {pictures}, not synced" in said
    assert "/data/local-files/?d=images/dark/" in (tmp_path / "look" / "tasks.json").read_text()


def test_clean_says_how_to_fit_again(
    run: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["clean", str(run), "--out", str(tmp_path / "my data")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert f"the verdict on every example, by id: {tmp_path / 'my data' / 'verdicts.csv'}" in said
    again = shlex.split(said[said.index("fit it again:") + 1])
    assert again[:2] == ["covlearn", "fit"]
    assert again[-2:] == ["--out", "RUN"]
    again[-1] = str(tmp_path / "again")
    assert cli.main([*again[1:], *QUICK]) == 0
    recipe = load(tmp_path / "again").recipe
    assert [column["name"] for column in recipe["columns"]] == list("abcd")
    new = pd.read_csv(table)[list("abcd")]  # without what the labels or covlearn say
    new.to_csv(tmp_path / "new.csv", index=False)
    predicting = ["predict", str(tmp_path / "again"), str(tmp_path / "new.csv")]
    assert cli.main([*predicting, "--out", str(tmp_path / "preds.csv")]) == 0


def test_clean_loses_nothing_without_a_word(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pd.read_csv(table)
    rows["region"] = np.where(np.arange(len(rows)) % 2, "NA", "EU")  # North America
    rows.loc[3, rows.columns[rows.columns == "kind"]] = None
    rows.to_csv(tmp_path / "rows.csv", index=False)
    fit = fitting(tmp_path / "rows.csv", tmp_path / "run")
    assert cli.main([*fit[: -len(QUICK)], "--on-bad", "skip", *QUICK]) == 0
    capsys.readouterr()
    assert cli.main(["clean", str(tmp_path / "run"), "--out", str(tmp_path / "clean")]) == 0
    assert "1 row that could not be used when it was fitted is not in it" in capsys.readouterr().out
    clean = pd.read_csv(tmp_path / "clean" / "clean.csv", keep_default_na=False)
    assert set(clean["region"]) == {"NA", "EU"}


def test_ignored_columns_stay_ignored(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pd.read_csv(table)
    rows["annotator"] = rows["team"] = np.where(np.arange(len(rows)) % 2, "Ann", "Bob")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    ignoring = ["--ignore", "team", "--ignore", "d"]
    fit = fitting(tmp_path / "rows.csv", tmp_path / "run")
    assert cli.main([*fit[: -len(QUICK)], "--dry-run", *QUICK]) == 0
    assert "left out: annotator (it seems to say who labelled" in capsys.readouterr().out
    assert cli.main([*fit[: -len(QUICK)], *ignoring, *QUICK]) == 0
    names = [column["name"] for column in load(tmp_path / "run").recipe["columns"]]
    assert names == list("abc")
    assert cli.main(["clean", str(tmp_path / "run"), "--out", str(tmp_path / "clean")]) == 0
    assert "--ignore team --ignore d" in capsys.readouterr().out
    assert "team" in pd.read_csv(tmp_path / "clean" / "clean.csv").columns
    rows[list("abc")].to_csv(tmp_path / "new.csv", index=False)
    new = ["predict", str(tmp_path / "run"), str(tmp_path / "new.csv")]
    assert cli.main([*new, "--out", str(tmp_path / "preds.csv")]) == 0
    assert cli.main(["diagnose", str(tmp_path / "run")]) == 0


def test_clean_says_which_class_is_in_which_folder(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for old, new in (("dark", "un 1"), ("bright", "UN 1")):
        shutil.copytree(pictures / old, tmp_path / "images" / new)
    arguments = ["fit", str(tmp_path / "images"), "--out", str(tmp_path / "run")]
    arguments += ["--features", "none", "--method", "ce", "--device", "cpu"]
    assert cli.main([*arguments, "--set", "plan.epochs=1", "net.widths=[4]"]) == 0
    capsys.readouterr()
    cleaning = ["clean", str(tmp_path / "run"), "--as", "folder", "--out"]
    assert cli.main([*cleaning, str(tmp_path / "images" / "clean"), "--dry-run"]) == 2
    assert "choose a folder outside of it" in capsys.readouterr().err
    for dry in (["--dry-run"], []):
        assert cli.main([*cleaning, str(tmp_path / "out"), *dry]) == 0
        said = capsys.readouterr().out
        assert "\nclass 'un 1' is in the folder 'un 1-2': its own name" in said
        assert "class 'UN 1'" not in said


@pytest.mark.parametrize("command", ["fit", "predict", "clean"])
def test_a_dry_run_writes_nothing(
    run: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    out = tmp_path / "out"
    arguments = {
        "fit": fitting(table, out),
        "predict": ["predict", str(run), str(table), "--id", "key", "--out", str(out)],
        "clean": ["clean", str(run), "--out", str(out)],
    }[command]
    assert cli.main([*arguments, "--dry-run"]) == 0
    assert "nothing was" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_looks_at_the_run_that_is_there(
    run: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*fitting(table, run), "--dry-run"]) == 0
    assert "nothing would be trained" in capsys.readouterr().out
    folder = tmp_path / "begun"
    folder.mkdir()
    shutil.copy(run / "config.json", folder)
    again = fitting(table, folder)
    assert cli.main([*again, "--dry-run", "--resume"]) == 0
    for place, more in (
        (folder, []),  # it is not finished
        (run, ["--seed", "3"]),
        (run, ["--on-bad", "skip"]),
        (run, ["--set", "folds=3"]),
    ):
        refused = []
        for dry in (["--dry-run"], []):
            capsys.readouterr()
            assert cli.main([*fitting(table, place), *more, *dry]) == 2
            refused.append(capsys.readouterr().err)
        assert refused[0] == refused[1] != ""
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def write(folder: Path, **columns: Any) -> Path:
    path = folder / "bad.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def test_a_dry_run_says_how_often_each_plan_is_gone_through(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plainly = ["fit", str(table), "--label", "kind", "--out", str(tmp_path / "out"), "--dry-run"]
    assert cli.main(plainly) == 0
    sieves, network, plain = re.findall(
        r"\n  (?:sieves|network|the same).*", capsys.readouterr().out
    )
    assert sieves.endswith(", 25 times")
    assert ", after up to 15 trials of that, if its sieves need the largest" in network
    assert plain.endswith(", after 5 trials of that; or as the sieves, if these predict more")
    assert cli.main([*plainly, "--set", "relabel=false"]) == 0
    assert "trials of that, if its sieves" not in capsys.readouterr().out


NUMBERS = {"a": np.sin(np.arange(40.0)).round(2)}


@pytest.mark.parametrize(
    ("columns", "arguments", "message"),
    [
        (NUMBERS | {"label": ["x"] * 40}, [], "class"),
        (
            NUMBERS | {"label": ["x"] * 20 + ["y"] * 19 + ["z"]},
            [],
            "its class 'z' has no other example",
        ),
        (NUMBERS | {"label": ["x", "y"] * 20}, ["--method", "cla"], "did you mean 'cal'"),
        (NUMBERS | {"label": ["x", "y"] * 20}, ["--set", "plan.epoch=1"], "did you mean"),
        (NUMBERS | {"label": ["x", "y"] * 20}, ["--label", "lable"], "lable"),
        (NUMBERS | {"label": ["x", "y"] * 20}, ["--net", "mpl"], "unknown net 'mpl'"),
        ({"a": [], "label": []}, [], "bad.csv"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    columns: dict[str, Any],
    arguments: list[str],
    message: str,
) -> None:
    source = write(tmp_path, **columns)
    assert cli.main(["fit", str(source), "--out", str(tmp_path / "run"), *QUICK, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("covlearn: ")
    assert captured.err.count("\n") == 1
    assert re.search(message, captured.err), captured.err
    assert not (tmp_path / "run").exists()


def test_features_that_are_not_numbers_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = clouds(60, seed=0)
    x[7, 1] = np.nan
    np.savez(tmp_path / "nan.npz", x=x.astype(np.float32), y=y)
    arguments = ["fit", str(tmp_path / "nan.npz"), "--out", str(tmp_path / "run"), *QUICK]
    assert cli.main(arguments) == 2
    assert "7" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_place_of_a_run_is_checked_before_the_data_is_read(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: Any, **__: Any) -> None:
        pytest.fail("the data was read")

    monkeypatch.setattr(cli.fit, "read", read)
    (tmp_path / "file").touch()
    assert cli.main(fitting(table, tmp_path / "file")) == 2
    assert "must be a folder, but it is a file" in capsys.readouterr().err
    assert cli.main(fitting(table, tmp_path)) == 2
    assert f"but it holds file and no {records.CONFIG}" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a disk that nobody may write to")
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_place_that_cannot_be_written_to_is_refused(
    table: Path, capsys: pytest.CaptureFixture[str], dry: list[str]
) -> None:
    place = Path("/proc/runs/run")  # not even by root, whose permissions do not say so
    assert cli.main([*fitting(table, place), *dry]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{place} cannot be made: nothing can be written in /proc (" in captured.err


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a disk that nobody may write to")
@pytest.mark.parametrize(
    ("command", "place", "work"),
    [
        ("predict RUN TABLE --id key", "/proc/p.csv", "cli.predict.read"),
        ("clean RUN", "/proc/clean", "exports.clean_table"),
        ("clean RUN --dry-run", "/proc/clean", "exports.clean_table"),
        ("report RUN", "/proc/report.html", "report.write_report"),
        ("noise --data digits --kind pair:0.2", "/proc/labels.npz", "data.sources.load_data"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_work(
    run: Path,
    table: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    place: str,
    work: str,
) -> None:
    monkeypatch.setattr(f"covlearn.{work}", lambda *_, **__: pytest.fail("there was work"))
    words = command.replace("RUN", str(run)).replace("TABLE", str(table)).split()
    assert cli.main([*words, "--out", place]) == 2
    said = f"covlearn: {place} cannot be made: nothing can be written in /proc ("
    assert said in capsys.readouterr().err


def test_data_that_has_changed_is_said_in_words(
    run: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["source"]["path"] = str(tmp_path / "table.csv")
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    frame = pd.read_csv(table)
    for column, words in (("kind", "the labels (data.y)"), ("a", "the inputs (data.x)")):
        changed = frame.assign(**{column: frame[column].to_numpy()[::-1]})
        changed.to_csv(tmp_path / "table.csv", index=False)
        assert cli.main(fitting(tmp_path / "table.csv", tmp_path / "run")) == 2
        assert f"another configuration: {words} have changed; choose" in capsys.readouterr().err


def test_a_source_of_another_kind_is_a_sentence_with_what_to_do(
    run: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out.csv")]
    assert cli.main(["predict", str(run), str(pictures), *out]) == 2
    assert (
        f"{pictures} holds images, but the model was fitted to a table; name a .csv or .parquet "
        "file with the same columns, or a model that was fitted to images"
    ) in capsys.readouterr().err


def test_a_run_of_another_command_is_refused(
    run: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = clouds(30, seed=0)
    np.savez(
        tmp_path / "data.npz", x=x.astype(np.float32), y=y, x_test=x.astype(np.float32), y_test=y
    )
    train = ["train", "--data", str(tmp_path / "data.npz"), "--method", "ce", "--device", "cpu"]
    trained = tmp_path / "trained"
    assert cli.main([*train, "--set", "plan.epochs=1", "--out", str(trained)]) == 0
    assert cli.main(["clean", str(trained), "--out", str(tmp_path / "out")]) == 2
    assert "must be a run of covlearn fit" in capsys.readouterr().err
    assert cli.main([*fitting(table, run), "--seed", "1"]) == 2
    assert "another configuration: seed is 0 there, 1 here" in capsys.readouterr().err
    assert cli.main(["clean", str(run), "--out", str(run)]) == 2
    assert "must be new or an empty folder" in capsys.readouterr().err
    assert cli.main(["clean", str(run), "--out", str(tmp_path / "f"), "--as", "folder"]) == 2
    assert "a folder export needs image files" in capsys.readouterr().err
    assert not (tmp_path / "f").exists()


def test_the_doctor_says_what_would_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert f"numpy {np.__version__}" in text
    assert "covlearn fit would run on" in text
    monkeypatch.setattr(cli.doctor, "NEEDED", ("torch", "no-such-package"))
    assert cli.main(["doctor", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["missing"] == ["no-such-package"]


@pytest.mark.parametrize("command", ["fit", "predict", "clean", "doctor"])
def test_help_has_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--help"])
    assert caught.value.code == 0
    assert f"example:\n  covlearn {command}" in capsys.readouterr().out


def test_help_says_that_linked_images_are_those_of_the_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["clean", "--help"])
    said = capsys.readouterr().out
    assert "hard links" in said
    assert "who edits one edits the other" in said


def test_a_dry_run_reads_no_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(60):
        folder = tmp_path / "source" / "abc"[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number}.png"
        Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(path)
        path.write_bytes(b"broken" if number < 3 else path.read_bytes()[:60])  # a header, no more
    out = ["--out", str(tmp_path / "run"), "--features", "none", "--device", "cpu"]
    fit = ["fit", str(tmp_path / "source"), *out]
    said = []
    for dry in (["--dry-run"], []):  # what the real run refuses is refused in the same words
        assert cli.main([*fit, *dry]) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert "has 3 examples that cannot be used: a/0.png: it is no image" in said[0]
    assert "--on-bad skip" in said[0]
    assert cli.main([*fit, "--dry-run", "--on-bad", "skip"]) == 0
    planned = capsys.readouterr().out
    assert "57 examples, 3 classes, 32×32×3 images" in planned
    assert "3 left out: a/0.png (it is no image" in planned
    assert "a sample at most" in planned
    shutil.rmtree(tmp_path / ".covlearn-cache", ignore_errors=True)
    assert os.listdir(tmp_path) == ["source"]
    assert cli.main([*fit, "--dry-run", "--on-bad", "skip", "--net", "mpl"]) == 2
    assert "unknown net 'mpl'" in capsys.readouterr().err


def test_the_summary_says_where_to_go_on(
    run: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(fitting(table, run)) == 0  # a finished run is read back
    said = capsys.readouterr().out
    for command in ("diagnose", "clean", "predict"):
        assert f"covlearn {command} {run}" in said


@pytest.mark.parametrize("length", [0, 200])  # its header is bad, or what comes after it
def test_a_bad_image_is_one_sentence_and_leaves_nothing(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], length: int
) -> None:
    source = tmp_path / "source"
    shutil.copytree(pictures, source)
    bad = source / "dark" / "bad.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)).save(bad)
    bad.write_bytes(bad.read_bytes()[:length])
    arguments = ["fit", str(source), "--out", str(tmp_path / "runs" / "run"), "--features", "none"]
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "dark/bad.png: it" in captured.err
    assert list((tmp_path / "runs").glob("*")) == []


@pytest.mark.parametrize("copies", [1, 2])
def test_rows_that_come_twice_are_noted(
    copies: int, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pd.read_csv(table).drop(columns="key", errors="ignore")
    path = tmp_path / "copied.csv"
    pd.concat([rows] * copies).to_csv(path, index=False)
    out = tmp_path / "run"
    assert cli.main(["fit", str(path), "--label", "kind", "--out", str(out), *QUICK]) == 0
    assert ("180 of 360 examples are copies of others" in capsys.readouterr().out) == (copies == 2)


def test_predict_says_which_cells_count_as_missing(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = pd.read_csv(table).astype({"a": object})
    odd.loc[:2, "a"] = "?"
    odd.to_csv(tmp_path / "odd.csv", index=False)
    fitting = ["fit", str(tmp_path / "odd.csv"), "--label", "kind", "--id", "key"]
    assert cli.main([*fitting, "--out", str(tmp_path / "run"), *QUICK]) == 0
    said = "none and count as missing: a (3 cells: "
    assert said in capsys.readouterr().out
    new = ["predict", str(tmp_path / "run"), str(tmp_path / "odd.csv"), "--id", "key"]
    assert cli.main([*new, "--out", str(tmp_path / "preds.csv")]) == 0
    assert said in capsys.readouterr().out


def test_what_is_read_and_what_a_run_was_made_from_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x, y = clouds(60, seed=0)
    np.save("x.npy", x)
    np.save("y.npy", y)
    assert cli.main(["fit", "x.npy", "--out", "run", *QUICK, "plan.epochs=1", "decays=[]"]) == 0
    Path("images/a").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save("images/a/0.png")
    Path("link.csv").symlink_to("preds.csv")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for words in (
        ["predict", "run", "x.npy", "--out", "y.npy"],
        ["predict", "run", "x.npy", "--out", "images/a/0.png"],
        ["report", "run", "--out", "images/a/0.png"],
        ["predict", "run", "x.npy", "--out", "link.csv"],
    ):
        assert cli.main(words) == 2, words
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    for _ in range(2):  # but what a command wrote it may write again
        assert cli.main(["predict", "run", "x.npy", "--out", "preds.csv"]) == 0
        assert cli.main(["predict", "run", "x.npy", "--out", "preds"]) == 0


def test_the_table_of_a_run_is_not_written_over(run: Path, table: Path, tmp_path: Path) -> None:
    before = table.read_bytes()
    new = tmp_path / "new.csv"
    new.write_bytes(before)
    assert cli.main(["predict", str(run), str(new), "--id", "key", "--out", str(table)]) == 2
    assert table.read_bytes() == before
