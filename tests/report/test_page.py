"""What is gathered for a page, how much of it, and that nothing in it can run."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from covlearn import cells, cli, records
from covlearn.report import write_comparison, write_report
from covlearn.report.compare import changes, distinct
from covlearn.report.embed import embedded
from covlearn.report.page import page
from covlearn.testing.toy import make_toy
from tests.report.runs import data_of, decide, look_alike, pictures

HOSTILE = [
    "</script><script>window.broken=1</script>",
    "<img src=x onerror=window.broken=1>",
    "=HYPERLINK(1)",
    "'; window.broken=1; '",
    "line\u2028para\u2029 & <!--",
    '"quoted", comma\nnew line',
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = pd.DataFrame({f"c{n}": np.arange(300) / (n + 1) for n in range(30)})
    table["label"], table["word"] = "a", [None, "x" * 500] * 150
    folder = tmp_path_factory.mktemp("page") / "run"
    return look_alike(folder, count=300, classes=["a", "b", "c"], table=table)


def gathered(folder: Path) -> Any:
    return data_of(write_report(folder))


def test_a_page_has_every_suspect_and_every_figure(run: Path) -> None:
    data = gathered(run)
    labels = pd.DataFrame(cells.read_cells(run / "labels.csv"))
    suspects = labels[(labels["decision"] != "keep") | (labels["quality"].astype(float) < 0.5)]
    rows = data["gallery"]["rows"]
    assert sorted(rows["id"]) == sorted(suspects["id"])
    assert rows["quality"] == sorted(rows["quality"])
    counts = data["scores"]["counts"]
    assert sum(map(sum, counts)) == 300
    assert sum(map(sum, counts[50:])) == (labels["decision"] == "keep").sum()
    assert data["noise"]["matrices"][0]["values"][0][0] == pytest.approx(0.7)
    assert data["covariance"]["values"][0] == [None, None, None]
    assert [chart["title"] for chart in data["curves"]] == [
        "Training loss",
        "Agreement with the given labels",
    ]
    assert sum(row["suspects"] for row in data["hardest"]["rows"]) == len(suspects)
    assert "About" in " ".join(data["summary"])
    assert ["seed", "0"] in data["provenance"][1][1]


def test_a_wide_table_is_cut_and_says_so(run: Path) -> None:
    data = gathered(run)
    columns = data["gallery"]["table"]["columns"]
    assert len(columns) == 24
    assert "label" not in columns
    assert "word" not in columns  # it is no number
    assert any("7 of 31 columns" in line for line in data["left_out"])
    number = int(re.sub(r"\D", "", data["gallery"]["rows"]["id"][0]))
    divisor = int(columns[3].removeprefix("c")) + 1
    assert data["gallery"]["table"]["cells"][0][3] == f"{number / divisor:.4g}"


def test_the_columns_that_tell_come_first(tmp_path: Path) -> None:
    """Classes differ in one column and in another by less; other columns say nothing."""
    folder = look_alike(tmp_path / "run", count=200, classes=["a", "b"])
    labels = cells.read_cells(folder / "labels.csv")
    refined = np.where(
        np.array(labels["decision"]) == "relabel", labels["suggested"], labels["given"]
    )
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"word": ["x", None] * 100, "constant": 1, "label": labels["given"]})
    table["took"] = pd.to_timedelta(np.arange(200), "s")
    for n in range(8):
        table[f"noise {n}"] = rng.normal(size=200)
    table["some"] = rng.normal(size=200) / 3 + (refined == "b")
    table["most"] = rng.normal(size=200) / 50 + (refined == "b")
    table.to_parquet(folder / "table.parquet")
    shown = gathered(folder)["gallery"]["table"]
    rows = gathered(folder)["gallery"]["rows"]
    relabelled = [n for n, decision in enumerate(rows["decision"]) if decision == "relabel"]
    assert len(relabelled) > 10
    first = [shown["columns"][shown["telling"][n][0]] for n in relabelled]
    assert first.count("most") > 0.8 * len(first)
    assert all(len(set(columns)) == 6 for columns in shown["telling"])


def test_missing_cells_are_said_and_not_ranked(tmp_path: Path) -> None:
    """The column in which the classes differ is missing in every other row."""
    folder = look_alike(tmp_path / "run", count=200, classes=["a", "b"])
    labels = cells.read_cells(folder / "labels.csv")
    gone = np.arange(200) % 2 == 0
    b = np.array(labels["given"]) == "b"
    table = pd.DataFrame({"word": "x", "tells": b.astype(float)}, index=range(200))
    table["day"] = pd.Timestamp("2020-01-01")
    table["whole"] = pd.array([1] * 200, dtype="Int64")
    table.loc[gone] = None
    for n in range(3):
        table[f"against {n}"] = np.where(b, 0.0, 1.0) + np.arange(200) / 1e4
    table.to_parquet(folder / "table.parquet")
    data = gathered(folder)
    shown, ids = data["gallery"]["table"], data["gallery"]["rows"]["id"]
    sparse = {"word", "tells", "day", "whole"}
    seen = set()
    for key, row, telling in zip(ids, shown["cells"], shown["telling"], strict=True):
        missing = {
            name for name, cell in zip(shown["columns"], row, strict=True) if cell == "missing"
        }
        assert missing == (sparse if gone[int(re.sub(r"\D", "", key))] else set())
        first = [shown["columns"][column] for column in telling]
        assert len(first) == (3 if missing else 6)
        assert not missing & set(first)
        seen.add(bool(missing))
    assert seen == {True, False}


def test_the_thresholds_of_the_page_are_those_of_the_verdicts(tmp_path: Path) -> None:
    many = [f"class {n}" for n in range(12)]
    folder = look_alike(tmp_path / "run", count=2000, classes=many, wrong=0.5)
    scores = gathered(folder)["scores"]
    labels = cells.read_cells(folder / "labels.csv")
    below = scores["counts"][: round(scores["threshold"] * 100)]
    assert sum(sure for _, sure in below) == labels["decision"].count("relabel") > 0
    assert sum(unsure for unsure, _ in below) == labels["decision"].count("drop") > 0


def test_names_cannot_leave_the_data(tmp_path: Path) -> None:
    ids = [f"{HOSTILE[n % len(HOSTILE)]} {n}" for n in range(120)]
    folder = look_alike(tmp_path / "run", count=120, classes=HOSTILE, ids=ids)
    text = write_report(folder).read_text(encoding="utf-8")
    whole = data_of(folder / "report.html")
    assert whole["classes"] == HOSTILE
    start = text.index('id="data">') + len('id="data">')
    inside = text[start : text.index("</script>", start)]
    assert not set("<>&\u2028\u2029") & set(inside)
    assert text.count("<script") == 2


def test_a_name_that_is_no_unicode_is_written(tmp_path: Path) -> None:
    assert json.loads(embedded("bad \udc80 name")) == "bad \udc80 name"
    assert page({"kind": "run", "name": "\udc80"}).encode()


def test_the_policy_lets_nothing_in(run: Path) -> None:
    text = write_report(run).read_text(encoding="utf-8")
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert len(policy) == 1
    assert policy[0].startswith("default-src 'none'")
    assert "unsafe" not in policy[0]
    assert "http" not in policy[0]
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", text)


def test_fifty_thousand_examples_stay_below_25_megabytes(tmp_path: Path) -> None:
    files = pictures(tmp_path / "pictures", 40)
    paths = [files[n % len(files)] for n in range(50_000)]
    table = pd.DataFrame({f"c{n}": np.random.default_rng(n).normal(size=50_000) for n in range(40)})
    folder = look_alike(
        tmp_path / "run",
        count=50_000,
        classes=[f"class {n}" for n in range(100)],
        wrong=0.6,
        paths=paths,
        table=table,
    )
    file = write_report(folder)
    assert file.stat().st_size < 25_000_000
    data: Any = data_of(file)
    rows, left_out = data["gallery"]["rows"], " ".join(data["left_out"])
    labels = cells.read_cells(folder / "labels.csv")
    suspects = sum(float(value) < 0.5 for value in labels["quality"])
    shown = len(rows["id"])
    assert shown > 25_000
    assert ("suspects, those of the highest quality" in left_out) == (shown < suspects)
    there = sum(place >= 0 for place in data["gallery"]["pictures"]["where"])
    assert 500 < there < shown
    assert f"The pictures of {shown - there:,} of {shown:,} suspects" in left_out
    assert f"The columns of {shown - len(data['gallery']['table']['cells']):,} of" in left_out
    assert data["noise"]["matrices"][0]["left_out"] == 60
    assert sum(map(sum, data["scores"]["counts"])) == 50_000


def test_a_page_that_cannot_hold_all_suspects_says_how_many(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = len(gathered(run)["gallery"]["rows"]["id"])
    monkeypatch.setattr("covlearn.report.suspects.ROW_BYTES", 2000)
    data = gathered(run)
    shown = len(data["gallery"]["rows"]["id"])
    assert 0 < shown < every
    assert any(f"{every - shown} of {every} suspects" in line for line in data["left_out"])


def test_pictures_that_are_gone_are_counted(tmp_path: Path) -> None:
    files = pictures(tmp_path / "pictures", 100, side=16)
    folder = look_alike(tmp_path / "run", count=100, classes=["a", "b"], paths=files)
    for number, file in enumerate(files):
        if number % 4 == 0:
            file.unlink()
        elif number % 4 == 1:
            file.write_bytes(b"no image")
    data = gathered(folder)
    where, ids = data["gallery"]["pictures"]["where"], data["gallery"]["rows"]["id"]
    numbers = [int(re.sub(r"\D", "", key)) for key in ids]
    assert [place >= 0 for place in where] == [number % 4 > 1 for number in numbers]
    assert any(f"{where.count(-1)} pictures that cannot" in line for line in data["left_out"])


def test_pictures_of_array_files_are_found_by_their_id(tmp_path: Path) -> None:
    """Dark and bright images whose order in the file is not that of their names."""
    level = np.array([30, 220] * 30)
    x = np.tile(level[:, None, None, None], (1, 8, 8, 3)).astype(np.uint8)
    y = np.array([0, 1] * 30)
    y[:6] = 1 - y[:6]
    ids = [str(59 - n) for n in range(60)]
    np.savez(tmp_path / "data.npz", images=x, labels=y, ids=ids)
    out = tmp_path / "run"
    arguments = ["fit", str(tmp_path / "data.npz"), "--features", "none", "--device", "cpu"]
    assert cli.main([*arguments, "--out", str(out), "--set", "folds=2", "net.widths=[4]"]) == 0
    data: Any = data_of(out / "report.html")
    rows, made = data["gallery"]["rows"], data["gallery"]["pictures"]
    assert rows["id"]
    sheet = _sheet(made["sheets"][0])
    for key, place in zip(rows["id"], made["where"], strict=True):
        left, top = place % 8 * made["size"], place // 8 * made["size"]
        seen = np.asarray(sheet)[top : top + made["size"], left : left + made["size"]].mean()
        assert (seen > 128) == (level[59 - int(key)] > 128)


def _sheet(text: str) -> Image.Image:
    import base64  # noqa: PLC0415
    import io  # noqa: PLC0415

    return Image.open(io.BytesIO(base64.b64decode(text))).convert("L")


def test_decisions_of_people_come_first_and_are_said(run: Path) -> None:
    decide(
        run, {"folder/of/class/000001.png": ("c", "a"), "folder/of/class/000002.png": ("b", "b")}
    )
    try:
        data = gathered(run)
    finally:
        (run / "trusted.csv").unlink()
    rows = data["gallery"]["rows"]
    assert rows["decision"][:2] == ["decided", "decided"]
    assert data["classes"][rows["given"][0]] == "a"
    assert sum(map(sum, data["scores"]["counts"])) == 298
    assert any(
        line.startswith("People decided on 2 labels and changed 1") for line in data["summary"]
    )
    assert ["decided by people", "2"] in data["tiles"]


@pytest.mark.parametrize("case", ["no suspects", "no evidence", "two examples"])
def test_runs_with_little_to_show(tmp_path: Path, case: str) -> None:
    count = 2 if case == "two examples" else 100
    wrong = 0.0 if case == "no suspects" else 0.3
    folder = look_alike(
        tmp_path / "run", count=count, classes=["a", "b"], wrong=wrong, found=case != "no evidence"
    )
    data = gathered(folder)
    assert data["summary"]
    if case == "no evidence":
        assert any("No evidence" in line for line in data["summary"])
        assert not data["scores"]["found"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two finished runs of covlearn train."""
    root = tmp_path_factory.mktemp("trained")
    split, clean, test = make_toy()
    file = root / "toy.npz"
    np.savez(
        file, x=split.x.numpy(), y=split.y.numpy(), clean=clean.numpy(),
        x_test=test.x.numpy(), y_test=test.y.numpy(),
    )  # fmt: skip
    for method in ("ce", "cal"):
        arguments = ["train", "--data", str(file), "--method", method, "--device", "cpu"]
        arguments += ["--out", str(root / method), "--set", "plan.epochs=3"]
        arguments += ["sieve_plan.epochs=3"] if method == "cal" else []
        assert cli.main(arguments) == 0
    return [root / "ce", root / "cal"]


def test_runs_of_train_as_far_as_their_files_go(trained: list[Path]) -> None:
    for folder in trained:
        assert cli.main(["report", str(folder)]) == 0
        data: Any = data_of(folder / "report.html")
        titles = [chart["title"] for chart in data["curves"]]
        assert "Wrong labels learned by heart" in titles
        assert data["gallery"] is None
        labels = pd.read_csv(folder / "labels.csv")
        wrong = (labels["given"] != labels["clean"]).sum()
        assert sum(wrong for _, wrong in data["scores"]["counts"]) == wrong > 0
        assert data["summary"][0].startswith("The network that")
    assert data["noise"]["matrices"]


def test_an_unfinished_run_says_so(trained: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    folder.mkdir()
    for name in (records.CONFIG, records.METRICS):
        (folder / name).write_bytes((trained[0] / name).read_bytes())
    data = gathered(folder)
    assert data["summary"] == ["The run is not finished: this is what it has written so far."]
    assert data["curves"]


def test_several_runs_are_compared(run: Path, trained: list[Path], tmp_path: Path) -> None:
    second = look_alike(tmp_path / "run", count=300, classes=["a", "b", "c"], wrong=0.1, seed=1)
    data: Any = data_of(write_comparison([run, second, *trained], tmp_path / "compared.html"))
    assert data["runs"] == ["run", "run (2)", "ce", "cal"]
    assert all(len(values) == 4 for _, values in data["figures"])
    [change] = data["changes"]
    before, after = (
        cells.read_cells(folder / "labels.csv")["decision"] for folder in (run, second)
    )
    for i, row in enumerate(change["rows"]):
        for j, column in enumerate(change["columns"]):
            both = sum((a, b) == (row, column) for a, b in zip(before, after, strict=True))
            assert change["values"][i][j] == both
    assert {line["name"] for chart in data["curves"] for line in chart["lines"]} == set(
        data["runs"]
    )


@pytest.mark.parametrize(("shared", "compared"), [(5, False), (6, True), (10, True)])
def test_verdicts_on_other_data_are_not_compared(shared: int, compared: bool) -> None:
    """A few ids may be the same by chance."""

    def verdicts(first: int, count: int) -> Any:
        labels = {"id": [str(first + n) for n in range(count)], "decision": ["keep"] * count}
        return SimpleNamespace(labels=labels, people=set())

    found = changes("one", verdicts(0, 40), "two", verdicts(40 - shared, 10))
    assert (found is not None) is compared
    assert found is None or found["shared"] == shared


def test_stages_and_methods_are_called_what_they_are(tmp_path: Path) -> None:
    folder = look_alike(tmp_path / "run", count=60, classes=["a", "b"])
    config = records.read_config(folder)
    config["method"]["name"] = "covlearn.methods.crossfit:CrossFittedCAL"
    records.write_json(folder / records.CONFIG, config)
    data = gathered(folder)
    lines = data["curves"][0]["lines"]
    assert [line["name"] for line in lines] == [
        "sieve 0",
        "sieve 1",
        "network on the refined labels",
    ]
    assert [line["group"] for line in lines] == ["sieves"] * 2 + ["network on the refined labels"]
    assert ["method", "cal, cross-fitted"] in data["provenance"][1][1]
    compared: Any = data_of(write_comparison([folder, folder], tmp_path / "compared.html"))
    assert ["method", ["cal, cross-fitted"] * 2] in compared["figures"]


def test_sieves_that_came_after_the_network_are_not_what_is_compared(tmp_path: Path) -> None:
    folder = look_alike(tmp_path / "run", count=60, classes=["a", "b"])
    epochs = {name: [{"epoch": 0, "loss": loss}] for name, loss in (("ce", 1.0), ("sieve-0", 2.0))}
    records.write_metrics(folder, epochs)
    compared: Any = data_of(write_comparison([folder, folder], tmp_path / "compared.html"))
    assert [line["values"] for line in compared["curves"][0]["lines"]] == [[1.0], [1.0]]


def test_no_two_runs_of_a_comparison_share_a_name() -> None:
    assert distinct(["x", "x", "x (2)", "y-2", "y"]) == ["x", "x (2)", "x (2) (2)", "y-2", "y"]


DIAGNOSIS: dict[str, Any] = {
    "test": {"p_value": 0.38, "statistic": 0.45, "null_mean": 0.21, "draws": 199},
    "level": 0.05,
    "cautions": ["60 examples are few"],
}


@pytest.mark.parametrize(
    ("p_value", "verdict"),
    [
        (0.38, "There is no evidence that noise depends on the example. Statistic 0.45, p = 0.38"),
        (0.01, "Noise depends on the example: flips depend on the features. Statistic 0.45, p ="),
        (None, "Whether noise depends on the example cannot be tested on these data."),
    ],
)
def test_the_verdict_of_a_diagnosis(tmp_path: Path, p_value: float | None, verdict: str) -> None:
    folder = look_alike(tmp_path / "run", count=60, classes=["a", "b"])
    assert gathered(folder)["diagnosis"] is None
    found = DIAGNOSIS | {"test": DIAGNOSIS["test"] | {"p_value": p_value}}
    records.write_json(folder / "diagnosis.json", found)
    said = gathered(folder)["diagnosis"]
    assert said[0].startswith(verdict)
    assert said[1:] == ["60 examples are few."]


@pytest.mark.parametrize(
    "damage", [{"test": 3}, {"level": None}, {"cautions": [1]}, {"test": {"p_value": "0.1"}}]
)
def test_a_damaged_diagnosis_is_refused(tmp_path: Path, damage: dict[str, Any]) -> None:
    folder = look_alike(tmp_path / "run", count=60, classes=["a", "b"])
    records.write_json(folder / "diagnosis.json", DIAGNOSIS | damage)
    with pytest.raises(ValueError, match=r"diagnosis\.json must hold a diagnosis"):
        write_report(folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "is missing"),
        (["missing", "other"], "is missing"),
        (["RUN", "--out", "."], "must be a file"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(run) if argument == "RUN" else argument for argument in arguments]
    assert cli.main(["report", *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_folder_of_a_table_says_how_its_runs_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "small"
    folder.mkdir(parents=True)
    (folder / "table.json").write_text("{}")
    assert cli.main(["report", str(folder)]) == 2
    error = capsys.readouterr().err
    assert f"covlearn report {folder}/COLUMN/ROW/0 {folder}/COLUMN/OTHER/0\n" in error
    for name in ("cal 0.4/ce", "cal 0.4/cal", "pair/cal"):
        (folder / name / "0").mkdir(parents=True)
        (folder / name / "0" / records.CONFIG).write_text("{}")
    assert cli.main(["report", str(folder)]) == 2
    error = capsys.readouterr().err
    assert f"is the folder of a table, whose figures are in {folder}/table.md;" in error
    two = f"'{folder}/cal 0.4/cal/0' '{folder}/cal 0.4/ce/0'"
    assert error.endswith(f"compared by: covlearn report {two}\n")
