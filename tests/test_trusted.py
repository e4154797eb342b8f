"""Labels that a person decided on: how they are read, and that nothing changes them."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from covlearn import cells, cli
from covlearn.data import Split
from covlearn.inputs import read_examples
from covlearn.inputs.trusted import Decision, read_trusted, with_trusted
from covlearn.methods.crossfit import CrossFittedCAL, stratified_folds
from covlearn.noise import symmetric
from covlearn.report.collect import collect
from covlearn.verdicts import decided, judge

QUICK = ["--device", "cpu", "--set", "folds=2", "net.hidden=[16]"]
NAMES = np.array(["ash", "=birch()", "cedar"])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three clouds, a third of the labels wrong, one class named like a formula."""
    y = np.arange(180) % 3
    x = np.random.default_rng(0).normal(size=(180, 4)) + 5 * np.eye(4)[y]
    frame = pd.DataFrame(x, columns=list("abcd"))
    frame.insert(0, "key", [f"k{n}" for n in range(180)])
    frame["kind"] = NAMES[symmetric(y, rate=0.3, num_classes=3, seed=0).label]
    path = tmp_path_factory.mktemp("table") / "table.csv"
    frame.to_csv(path, index=False)
    return path


def fitting(table: Path, out: Path, trusted: Path | None = None) -> list[str]:
    decisions = [] if trusted is None else ["--trusted", str(trusted)]
    columns = ["--label", "kind", "--id", "key"]
    return ["fit", str(table), "--out", str(out), *columns, *decisions, *QUICK]


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fit") / "run"
    assert cli.main(fitting(table, folder)) == 0
    return folder


def against_the_model(run: Path, count: int) -> dict[str, str]:
    """Labels that the model does not believe, taken for right."""
    labels = cells.read_cells(run / "labels.csv")
    rows = zip(labels["id"], labels["given"], labels["decision"], strict=True)
    return dict([(key, given) for key, given, what in rows if what == "relabel"][:count])


def written(path: Path, labels: dict[str, str]) -> Path:
    cells.write_cells(
        path, ("id", "label", "action"), [(*pair, "reject") for pair in labels.items()]
    )
    return path


@pytest.mark.parametrize("method", ["cal", "ce"])
def test_decisions_are_kept_whatever_the_model_says(
    run: Path, table: Path, tmp_path: Path, method: str
) -> None:
    wanted = against_the_model(run, 15)
    trusted = written(tmp_path / "decisions.csv", wanted)
    out = tmp_path / "run"
    arguments = fitting(table, out, trusted)
    if method == "ce":  # which has no folds to set
        arguments = [*arguments[: arguments.index("--set")], "--method", "ce"]
    assert cli.main(arguments) == 0
    labels = pd.DataFrame(cells.read_cells(out / "labels.csv")).set_index("id")
    mine = labels.loc[list(wanted)]
    assert mine["given"].tolist() == mine["suggested"].tolist() == list(wanted.values())
    assert set(mine["decision"]) == {"keep"}
    assert set(mine["reason"]) == {"decided by a person"}
    assert (labels.drop(index=list(wanted))["decision"] != "keep").sum() > 15
    assert not (labels.drop(index=list(wanted))["reason"] == "decided by a person").any()
    assert set(mine["quality"]) == set(mine["confidence"]) == {"1"}
    doubted = 1 - labels["quality"].astype(float)
    rate = json.loads((out / "result.json").read_text())["noise_rate"]
    assert rate == pytest.approx(doubted.mean(), abs=1e-3)
    (said,) = [line for line in collect(out)["summary"] if "The model agrees with" in line]
    assert "agrees with 15 of these" not in said, "the report says what the model thinks"
    assert cells.read_cells(out / "trusted.csv") == {
        "id": list(wanted),
        "label": list(wanted.values()),
        "before": list(wanted.values()),
    }
    export = tmp_path / "clean"
    assert cli.main(["clean", str(out), "--out", str(export)]) == 0
    clean = pd.DataFrame(cells.read_cells(export / "clean.csv")).set_index("key")
    assert clean.loc[list(wanted), "kind"].tolist() == list(wanted.values())


def test_decided_labels_replace_the_given_ones(
    run: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = cells.read_cells(run / "labels.csv")
    rows = zip(labels["id"], labels["given"], labels["suggested"], labels["decision"], strict=True)
    repaired = [(key, new, old) for key, old, new, what in rows if what == "relabel"]
    kept = next(
        key for key, what in zip(labels["id"], labels["decision"], strict=True) if what == "keep"
    )
    decisions = {key: new for key, new, _ in repaired}
    decisions[kept] = labels["given"][labels["id"].index(kept)]
    trusted = written(tmp_path / "decisions.csv", decisions)
    out = tmp_path / "run"
    for dry in (["--dry-run"], []):
        assert cli.main([*fitting(table, out, trusted), *dry]) == 0
        said = capsys.readouterr().out.splitlines()
        count = len(repaired)
        used = f"Used {count + 1} decisions of {trusted}; {count} labels of the source differed."
        assert used in said
    before = cells.read_cells(out / "trusted.csv")
    replaced = zip(before["id"], before["before"], strict=True)
    assert [old for key, old in replaced if key != kept] == [old for _, _, old in repaired]
    first, second = (json.loads((folder / "result.json").read_text()) for folder in (run, out))
    assert second["noise_rate"] < first["noise_rate"] / 3
    assert cli.main(fitting(table, out)) == 2  # another configuration


def test_all_labels_decided(run: Path, table: Path, tmp_path: Path) -> None:
    labels = cells.read_cells(run / "labels.csv")
    wanted = dict(zip(labels["id"], labels["given"], strict=True))
    out = tmp_path / "run"
    assert cli.main(fitting(table, out, written(tmp_path / "decisions.csv", wanted))) == 0
    assert set(cells.read_cells(out / "labels.csv")["decision"]) == {"keep"}


class Watched:
    """A run that notes which labels each stage is trained on."""

    def __init__(self, split: Split) -> None:
        self.split, self.seed = split, 0
        self.trained: dict[str, torch.Tensor] = {}
        self.refined = torch.empty(0)

    def net(self, name: str) -> torch.nn.Module:
        return torch.nn.Identity()

    def train(self, stage: str, *arguments: Any, labels: torch.Tensor, **options: Any) -> None:
        self.trained[stage] = labels

    def predict(self, model: torch.nn.Module) -> tuple[torch.Tensor, None]:
        # Sure of class 0 for all but the last hundred examples, whose class is 1.
        logits = torch.zeros(len(self.split), 2)
        logits[:-100, 0] = logits[-100:, 1] = 5.0
        logits[150:190, 0] = 9.0  # where it contradicts labels it is surest
        return logits, None

    def note(self, **facts: Any) -> None:
        assert facts.get("evidence_found", True)

    def keep_labels(self, label: torch.Tensor, *arguments: Any, **options: Any) -> None:
        self.refined = label


def test_every_stage_learns_from_decided_labels() -> None:
    y = torch.tensor([0] * 150 + [1] * 150)
    trusted = torch.zeros(300, dtype=torch.bool)
    trusted[190:200] = True  # given 1, and the model says 0
    run = Watched(Split(torch.zeros(300, 3), y, 2, trusted=trusted))
    CrossFittedCAL(folds=3, relabel=True, threshold="argmax").fit(run)  # type: ignore[arg-type]
    fold = stratified_folds(y, 3, seed=0)
    for number in range(3):
        labels = run.trained[f"sieve-{number}"]
        assert (labels[trusted] == 1).all()
        assert ((labels == -1) == ((fold == number) & ~trusted)).all()
    assert (run.trained["relabel"][trusted] == 1).all()
    assert (run.refined[trusted] == 1).all()
    assert (run.refined[150:190] == 0).all()  # undecided ones are changed


def test_verdicts_on_decided_labels() -> None:
    logits = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) * 3
    given = torch.arange(50) % 4
    trusted = np.arange(50) % 3 == 0
    before = judge(given, logits, evidence=True)
    after = decided(before, trusted)
    assert (after.quality[trusted] == 1).all()
    assert (after.confidence[trusted] == 1).all()
    assert (after.suggested[trusted] == after.given[trusted]).all()
    assert (after.decision[~trusted] == before.decision[~trusted]).all()
    assert (after.quality[~trusted] == before.quality[~trusted]).all()
    assert (before.decision[trusted] != "keep").any()


def test_a_subset_keeps_its_decisions() -> None:
    trusted = torch.tensor([True, False, True])
    split = Split(torch.zeros(3, 2), torch.tensor([0, 1, 0]), 2, trusted=trusted)
    part = split.subset(torch.tensor([1, 2]))
    assert part.trusted is not None
    assert part.trusted.tolist() == [False, True]
    assert part.judged.tolist() == [True, False]
    assert part.subset(torch.tensor([1])).judged.tolist() == [True]


@pytest.mark.parametrize(
    "content",
    [
        b"id,label\nk1,'=birch()\nk2,ash\n",
        b"\xef\xbb\xbfid;label;action\r\nk1;=birch();accept\r\nk2; ash ;reject\r\n",
        b'label,id\n"\'=birch()",k1\nash,k2\nash,k2\n',
    ],
    ids=["as the page writes it", "as a spreadsheet saves it", "twice the same"],
)
def test_tables_of_decisions(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "decisions.csv").write_bytes(content)
    found = read_trusted(tmp_path / "decisions.csv")
    assert found == {"k1": Decision("=birch()"), "k2": Decision("ash")}


def test_decisions_on_a_table_that_was_sorted_anew_are_refused(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids that are row numbers name other rows then."""
    frame = pd.read_csv(table).drop(columns="key")
    file, moved = tmp_path / "decisions.csv", tmp_path / "moved.csv"
    rows = [(n, "cedar" if n < 3 else frame["kind"][n], frame["kind"][n]) for n in range(6)]
    cells.write_cells(file, ("id", "label", "given"), [tuple(map(str, row)) for row in rows])
    frame.to_csv(moved, index=False)
    again = ["fit", "--label", "kind", "--trusted", str(file), "--dry-run"]
    assert cli.main([*again, "--out", str(tmp_path / "run"), str(moved)]) == 0
    frame.loc[:2, "kind"] = "cedar"  # as the decisions say: somebody has mended the source
    frame.to_csv(moved, index=False)
    assert cli.main([*again, "--out", str(tmp_path / "run"), str(moved)]) == 0
    frame.sort_values("kind").to_csv(moved, index=False)
    capsys.readouterr()
    assert cli.main([*again, "--out", str(tmp_path / "run"), str(moved)]) == 2
    error = capsys.readouterr().err
    assert re.search(
        r"where '\d' is labelled '[^']+', and the source says '[^']+' \(\d of 6", error
    )
    assert "take the column given out" in error


@pytest.mark.parametrize(("written", "meant"), [("9.0", "9"), ("10", "10"), ("9.", "9")])
def test_a_number_names_its_class_however_it_is_written(written: str, meant: str) -> None:
    """pandas writes whole numbers as floats where another cell is empty."""
    examples = read_examples(
        pd.DataFrame({"a": np.random.default_rng(0).normal(size=12), "label": [9, 10, 11] * 4})
    )
    decided = with_trusted(examples, {"0": Decision(written)}, Path("decisions.csv"))
    assert decided.given is not None
    assert decided.given[0] == meant
    with pytest.raises(ValueError, match=r"label '9\.5', which is no class of the source"):
        with_trusted(examples, {"0": Decision("9.5")}, Path("decisions.csv"))


def annotated(task: dict[str, Any], *labels: str, cancelled: bool = False) -> dict[str, Any]:
    """A task as Label Studio exports it once somebody has looked at it."""
    results = [
        {
            "id": f"r{n}", "from_name": "label", "to_name": "example", "type": "choices",
            "origin": "manual", "value": {"choices": [label]},
        }
        for n, label in enumerate(labels)
    ]  # fmt: skip
    annotation = {"id": 7, "completed_by": 1, "was_cancelled": cancelled, "result": results}
    return {**task, "id": 3, "annotations": [annotation], "drafts": [], "total_annotations": 1}


def test_the_way_through_label_studio(run: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "studio"
    assert cli.main(["clean", str(run), "--out", str(out), "--as", "label-studio"]) == 0
    tasks = json.loads((out / "tasks.json").read_text())
    given = tasks[0]["data"]["given"]
    suggested = tasks[1]["predictions"][0]["result"][0]["value"]["choices"][0]
    exported = [
        annotated(tasks[0], given),
        annotated(tasks[1], suggested),
        annotated(tasks[2], cancelled=True),
        {**tasks[3], "annotations": []},
    ]
    file = tmp_path / "export.json"
    file.write_text(json.dumps(exported))
    names = [task["data"]["id"] for task in tasks]
    assert read_trusted(file) == {
        names[0]: Decision(given),
        names[1]: Decision(suggested),
    }
    assert cli.main(fitting(table, tmp_path / "run", file)) == 0
    labels = pd.DataFrame(cells.read_cells(tmp_path / "run" / "labels.csv")).set_index("id")
    assert labels.loc[names[:2], "given"].tolist() == [given, suggested]
    assert set(labels.loc[names[:2], "reason"]) == {"decided by a person"}


TASK = {"data": {"id": "k1"}}
BAD = {
    "unknown id": ("id,label\nk1,ash\nk999,ash\n", "1 of 2 ids are not there: 'k999'"),
    "unknown class": ("id,label\nk1,oak\n", "'oak', which is no class of the source; its classes"),
    "nearly a class": ("id,label\nk1,cedr\n", "did you mean 'cedar'?"),
    "two decisions": ("id,label\nk1,ash\nk1,cedar\n", "decides twice on 'k1', for 'ash' and"),
    "no label": ("id,label\nk1,\n", "has no label for 'k1'"),
    "no id": ("id,label\n,ash\n", "has a label without an id, 'ash'"),
    "no column": ("key,label\nk1,ash\n", "must have the columns id and label, got key, label"),
    "empty": ("", "is empty"),
    "no rows": ("id,label\n", "has no rows"),
    "damaged": ("[{]", "must hold JSON"),
    "an object": ('{"a": 1}', "Label Studio's JSON export"),
    "the short form": ('[{"id": 1, "label": "ash"}]', "not JSON-MIN"),
    "two choices": (
        json.dumps([annotated(TASK, "ash", "cedar")]), "decides twice on 'k1'",
    ),
    "nobody looked": (json.dumps([{**TASK, "annotations": []}]), "holds no decision"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_decisions_are_one_sentence(
    table: Path, tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = BAD[case]
    file = tmp_path / ("export.json" if content[:1] in ("[", "{") else "decisions.csv")
    file.write_text(content)
    assert cli.main(fitting(table, tmp_path / "run", file)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_not_there(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(fitting(table, tmp_path / "run", tmp_path / "none.csv")) == 2
    assert "is not there" in capsys.readouterr().err


def test_a_decision_may_be_revised_by_the_table_of_verdicts(
    run: Path, table: Path, tmp_path: Path
) -> None:
    """Its column given is what the source says, not what was decided before."""
    labels = cells.read_cells(run / "labels.csv")
    key, given = labels["id"][0], labels["given"][0]
    second, third = [name for name in NAMES if name != given]
    out, export = tmp_path / "run", tmp_path / "clean"
    assert cli.main(fitting(table, out, written(tmp_path / "first.csv", {key: second}))) == 0
    assert cli.main(["clean", str(out), "--out", str(export)]) == 0
    verdicts = cells.read_cells(export / "verdicts.csv")
    assert verdicts["given"][verdicts["id"].index(key)] == given
    file = tmp_path / "again.csv"
    cells.write_cells(file, ("id", "label", "given"), [(key, third, given)])
    assert cli.main([*fitting(table, tmp_path / "next", file), "--dry-run"]) == 0
