"""The Clothing1M recipe from the folder to the result, on a look-alike of a few small images."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from covlearn import cli, records
from covlearn.data import Loaded, clothing1m, image_files
from covlearn.data.sources import Source, load_data
from covlearn.job import Job, run_job, settled
from covlearn.methods import CAL
from covlearn.records import Result
from covlearn.run import LocalRun
from covlearn.testing.clothing import write_lookalike
from tests.runs import assert_same_run
from tests.test_resume import Killed

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
NOISY, EPOCHS = 126, 4
# The recipe's own settings, with its epochs divided by thirty and its batches by a hundred.
SHORT = (
    "sieve_plan.epochs=4",
    "sieve_plan.lr_milestones=[1,2,3]",
    "sieve_plan.batch_size=14",
    "sieve_balanced_batches=8",
    "sieve_beta.start=2",
    "sieve_beta.end=3",
    "plan.epochs=4",
    "plan.lr_milestones=[1,2,3]",
    "plan.batch_size=14",
    "plan.lr=0.001",
    "machine.workers=0",
    "net.widths=[8,8]",
)


@pytest.fixture(autouse=True)
def small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clothing1m, "SHORT_SIDE", 20)
    monkeypatch.setattr(clothing1m, "SIDE", 16)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A name that says nothing of Clothing1M."""
    folder = tmp_path_factory.mktemp("c1m")
    write_lookalike(folder, noisy=NOISY, clean=42, sizes=((40, 30), (30, 30)), drawn=28)
    return folder


@pytest.fixture(scope="module")
def finished(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(clothing1m, "SHORT_SIDE", 20)
        patched.setattr(clothing1m, "SIDE", 16)
        recipe(root, folder)
    return folder


def recipe(root: Path, folder: Path, *settings: str, **options: Any) -> Result:
    changed = {text.partition("=")[0] for text in settings}
    kept = [text for text in SHORT if text.partition("=")[0] not in changed]
    job = Job(str(root), "cal", preset="published", net="cnn", seed=5, settings=(*kept, *settings))
    return run_job(job, folder, device="cpu", **options)


def weights(folder: Path) -> bytes:
    return (folder / records.MODEL).read_bytes()


class Seen:
    """The batches that each stage was given, as they came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stages: list[Loaded] = []
        self.epochs: list[list[Any]] = []
        make, epoch = LocalRun.batches, Loaded.epoch

        def batches(run: LocalRun, split: Any, **options: Any) -> Any:
            made = make(run, split, **options)
            assert isinstance(made, Loaded)
            self.stages.append(made)
            self.epochs.append([])
            return made

        def followed(data: Loaded, number: int) -> Iterator[Any]:
            for batch in epoch(data, number):
                if data in self.stages:
                    self.epochs[self.stages.index(data)].append((number, batch))
                yield batch

        monkeypatch.setattr(LocalRun, "batches", batches)
        monkeypatch.setattr(Loaded, "epoch", followed)


def test_every_ingredient_is_there(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)
    result = recipe(root, tmp_path / "run")
    record = records.read(tmp_path / "run")
    assert record.config["preset"] == "published/clothing1m"
    assert record.config["data"]["augmentation"]["window"] == 16
    assert record.config["data"]["augmentation"]["flip"]
    assert record.config["holdout"] == 0
    noisy = clothing1m.read_part(root, "noisy_train").labels

    sieve, second = seen.epochs
    # Stage 1: eight balanced batches an epoch, mixed, the unmixed images beside them.
    assert len(sieve) == 8 * EPOCHS
    for epoch in range(EPOCHS):
        labels = torch.cat([batch.y for number, batch in sieve if number == epoch])
        assert labels.bincount().tolist() == [8] * 14
    for _, batch in sieve:
        assert batch.x.shape == (14, 3, 16, 16)
        assert float(batch.mix.share) >= 0.5
        assert not torch.equal(batch.mix.x, batch.x)
        assert torch.equal(batch.y, noisy[batch.idx])
    stage = [line for line in record.metrics if line["stage"] == "sieve"]
    assert [line["beta"] for line in stage] == [0.0, 0.0, 0.0, 0.4]
    assert [line["lr"] for line in stage] == pytest.approx([1e-2, 1e-3, 1e-4, 1e-5])

    # The threshold is a quantile of the scores of all examples.
    facts = result.facts
    assert facts["kept_share"] == pytest.approx(0.6154, abs=0.03)  # images repeat, and tie
    assert facts["scores"] == "evaluation"

    # Stage 2: as many examples of each class as the smallest has, the same ones in each epoch.
    each = int(noisy.bincount().min())
    assert facts["subset_of_each_class"] == each
    parts = [
        torch.cat([batch.idx for number, batch in second if number == epoch]).unique()
        for epoch in range(EPOCHS)
    ]
    assert all(torch.equal(part, parts[0]) for part in parts)
    assert noisy[parts[0]].bincount().tolist() == [each] * 14
    assert all(batch.mix is None for _, batch in second)
    assert len(second) == EPOCHS * each  # once through, in batches of 14
    stage = [line for line in record.metrics if line["stage"] == "cal"]
    assert [line["beta"] for line in stage] == [1.0] * EPOCHS
    assert [line["lr"] for line in stage] == pytest.approx([1e-3, 1e-4, 1e-5, 1e-6])
    assert result.test_accuracy.selected is not None
    assert result.test_accuracy.selected.rule == "highest on the validation labels"


@pytest.mark.parametrize(
    "setting",
    [
        "sieve_mixup=false",
        "sieve_balanced_batches=null",
        "sieve_best=false",
        "kept=0.9",
        "balanced_subset=1",
        "balanced_subset=null",
        "beta.value=0",
        "covariance=false",
        "warm_start=false",
        "augmentation.flip=false",
    ],
)
def test_every_ingredient_has_an_effect(
    root: Path, tmp_path: Path, finished: Path, setting: str
) -> None:
    recipe(root, tmp_path / "run", setting)
    assert weights(tmp_path / "run") != weights(finished)


def test_the_regulariser_of_the_sieve_has_an_effect(root: Path, tmp_path: Path) -> None:
    settings = ((), ("sieve_beta.value=0",), ("sieve_regularizer_eps=0.00001",))
    for number, changed in enumerate(settings):
        # Of the last epoch, since the best one here is from before β rises.
        recipe(root, tmp_path / str(number), "sieve_best=false", *changed)
    assert len({weights(tmp_path / str(number)) for number in range(3)}) == 3


def validated(line: dict[str, Any]) -> float:
    return float(line["holdout_accuracy"])


def test_the_best_sieve_is_chosen_by_validation_labels_and_not_by_test_labels(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[dict[str, Tensor]] = []
    after: list[dict[str, Tensor]] = []
    train, call = LocalRun.train, "after_epoch"

    def followed(run: LocalRun, stage: str, model: Any, *rest: Any, **options: Any) -> Any:
        evaluate = getattr(run, call)

        def look(name: str, epoch: int, shown: Any, ledger: Any) -> Any:
            if name == "sieve":
                after.append({key: value.clone() for key, value in shown.state_dict().items()})
            return evaluate(name, epoch, shown, ledger)

        setattr(run, call, look)
        ledger = train(run, stage, model, *rest, **options)
        setattr(run, call, evaluate)
        if stage == "sieve":
            chosen.append({key: value.clone() for key, value in model.state_dict().items()})
        return ledger

    monkeypatch.setattr(LocalRun, "train", followed)
    source = load_data(str(root))
    best = []
    # Validation labels that are turned by a class make another epoch the best, as the seed has it.
    for number, turned in enumerate((0, 3)):
        run = with_labels(source, "validation", turned)
        recipe(root, tmp_path / str(number), "sieve_plan.lr=0.1", source=run)
        lines = records.read(tmp_path / str(number)).metrics
        accuracies = [validated(line) for line in lines if line["stage"] == "sieve"]
        best.append(accuracies.index(max(accuracies)))
        for name, value in chosen[-1].items():
            assert torch.equal(value, after[best[-1]][name]), name
        after.clear()
    assert best[0] != best[1], "the check cannot tell the best from another epoch"
    assert best[0] != EPOCHS - 1
    recipe(root, tmp_path / "2", "sieve_plan.lr=0.1", source=with_labels(source, "test", 3))
    assert weights(tmp_path / "2") == weights(tmp_path / "0")
    assert weights(tmp_path / "1") != weights(tmp_path / "0")


def with_labels(source: Source, part: str, turned: int) -> Source:
    split = getattr(source, part)
    return replace(source, **{part: replace(split, y=(split.y + turned) % 14)})


def test_without_a_validation_part_held_out_noisy_labels_choose(root: Path, tmp_path: Path) -> None:
    source = replace(load_data(str(root)), validation=None)
    with pytest.raises(ValueError, match="chosen on a validation part or on held-out labels"):
        recipe(root, tmp_path / "none", source=source)
    assert not list((tmp_path / "none").glob("*"))
    job = Job(str(root), "cal", preset="published", net="cnn", holdout=0.1, settings=SHORT)
    result = run_job(job, tmp_path / "run", device="cpu", source=source)
    assert result.test_accuracy.selected is not None
    assert result.test_accuracy.selected.rule == "highest on held-out noisy labels"
    with pytest.raises(ValueError, match="must be asked with scores='evaluation', got 'training'"):
        CAL(sieve_best=True, scores="training")


@pytest.mark.parametrize("epochs", [1, 3, 4, 6])  # in stage 1, after it, in stage 2
def test_a_run_cut_off_in_either_stage_ends_with_the_same_bits(
    root: Path, tmp_path: Path, finished: Path, epochs: int
) -> None:
    count = 0

    def killed(stage: str, total: int, history: list[dict[str, float]]) -> None:
        nonlocal count
        count += 1
        if count == epochs:
            raise Killed

    with pytest.raises(Killed):
        recipe(root, tmp_path / "run", progress=killed)
    recipe(root, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", finished)


@pytest.mark.parametrize("epochs", [2, 6])
def test_stage_two_from_scratch_resumes_too(root: Path, tmp_path: Path, epochs: int) -> None:
    settings = ("warm_start=false", "plan.lr=0.01")
    recipe(root, tmp_path / "whole", *settings)
    count = 0

    def killed(stage: str, total: int, history: list[dict[str, float]]) -> None:
        nonlocal count
        count += 1
        if count == epochs:
            raise Killed

    with pytest.raises(Killed):
        recipe(root, tmp_path / "run", *settings, progress=killed)
    recipe(root, tmp_path / "run", *settings, "machine.workers=1", resume=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_bits_do_not_depend_on_the_workers(root: Path, tmp_path: Path, finished: Path) -> None:
    recipe(root, tmp_path / "run", "machine.workers=2")
    assert weights(tmp_path / "run") == weights(finished)
    labels = (tmp_path / "run" / records.LABELS).read_bytes()
    assert labels == (finished / records.LABELS).read_bytes()
    ours, theirs = (records.read(folder).config for folder in (tmp_path / "run", finished))
    assert ours["machine"] == theirs["machine"]  # so that a run goes on with more or fewer


def test_a_worker_that_dies_changes_no_bit_of_a_run(
    root: Path, tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, here, flag = image_files.read_square, os.getpid(), tmp_path / "flag"

    def deadly(path: Path, side: int) -> Any:
        if os.getpid() != here and path.name == "noisy_train77,0.jpg" and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return read(path, side)

    monkeypatch.setattr(image_files, "read_square", deadly)
    with pytest.warns(RuntimeWarning, match=r"reader process \d+ ended \(SIGKILL\)") as warned:
        recipe(root, tmp_path / "run", "machine.workers=2")
    assert len(warned) == 1
    assert weights(tmp_path / "run") == weights(finished)


def test_an_image_that_cannot_be_decoded_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lookalike(tmp_path / "data", noisy=28, clean=14, sizes=((30, 30),), drawn=14)
    bad = tmp_path / "data/images/9/19/noisy_train19,5.jpg"
    bad.write_bytes(bad.read_bytes()[:200])
    arguments = ["train", "--data", str(tmp_path / "data"), "--method", "ce", "--net", "cnn"]
    arguments += ["--device", "cpu", "--out", str(tmp_path / "run")]
    for workers in (0, 1):
        assert cli.main([*arguments, "--set", f"machine.workers={workers}"]) == 2
        error = capsys.readouterr().err
        assert f"{bad} cannot be read as an image" in error
        assert error.count("\n") == 1


def test_the_presets_network_starts_from_weights_beside_the_data(tmp_path: Path) -> None:
    write_lookalike(tmp_path, noisy=14, clean=14, sizes=((30, 30),), drawn=14)
    job = Job(str(tmp_path), "cal", preset="published")
    with pytest.raises(ValueError, match=r"one file .*resnet50\*.pth, got 0; put it there, name"):
        settled(job)
    (tmp_path / "resnet50-0676ba61.pth").touch()
    assert settled(job)[1]["net"] == {"pretrained": str(tmp_path / "resnet50-0676ba61.pth")}
    (tmp_path / "resnet50-11ad3fa6.pth").touch()
    with pytest.raises(ValueError, match="got 2"):
        settled(job)
    for own in ("net.pretrained=null", f"net.pretrained={tmp_path}/other.pth"):
        settled(replace(job, settings=(own,)))
    assert settled(replace(job, net="cnn"))[1]["net"] == {}


ROWS = {
    "ce": "",
    "forward": '"estimation_plan.epochs=1"',
    "coteaching": '"rate_plan.epochs=1"',
    "jocor": '"rate_plan.epochs=1"',
    "dmi": '"warm_up_plan.epochs=1"',
    "ptd": '"estimation_plan.epochs=1", "revision_plan.epochs=1", "parts=2", "anchors=2"',
    "cores": "",
    "cal": '"sieve_plan.epochs=2", "sieve_balanced_batches=4"',
}


def test_table_2_runs_from_a_folder(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (BENCHMARKS / "table2.toml").read_text(encoding="utf-8")
    text = text.replace('figure = "best"\n', 'figure = "best"\nnet = "cnn"\n', 1)
    for method, settings in ROWS.items():
        assert f'method = "{method}"\n' in text
        head, line, rest = text.partition(f'method = "{method}"\n')
        text = f"{head}{line}settings = [{settings}]\n{rest}"
    scratch = 'settings = ["warm_start=false"'
    assert scratch in text
    text = text.replace(scratch, f"{scratch}, {ROWS['cal']}")
    (tmp_path / "table2.toml").write_text(text, encoding="utf-8")
    folder = tmp_path / "runs"
    arguments = ["bench", str(tmp_path / "table2.toml"), "--data", str(root), "--device", "cpu"]
    arguments += ["--folder", str(folder), "--set", "plan.epochs=2", "machine.workers=0"]
    assert cli.main([*arguments, "net.widths=[8,8]"]) == 0, capsys.readouterr().err
    cells = json.loads((folder / "table.json").read_text())["cells"]
    made = {cell["row"]: cell["n"] for cell in cells}
    assert set(made) == {*ROWS, "cal_from_scratch"}
    assert set(made.values()) == {1}
    config = json.loads((folder / "clothing1m/cal_from_scratch/0/config.json").read_text())
    assert not config["method"]["warm_start"]


def test_train_reads_the_folder(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "--data", str(root), "--method", "cal", "--preset", "published"]
    arguments += ["--net", "cnn", "--device", "cpu", "--out", str(tmp_path / "run"), "--seed", "5"]
    assert cli.main([*arguments, "--set", *SHORT]) == 0
    assert "highest on the validation labels" in capsys.readouterr().out
    assert cli.main([*arguments, "--set", *SHORT, "--noise", "cal:0.4"]) == 2
    assert "instance-dependent noise needs all inputs at once" in capsys.readouterr().err
