"""``covlearn noise``, and noise out of files in ``covlearn train``."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covlearn import cli, records
from covlearn.data.cifar import CIFAR
from covlearn.data.sources import load_data, with_noise
from covlearn.data.store import store
from covlearn.noise.registry import PUBLISHED, label_digest
from tests.data import lookalike

DRAW = ["noise", "--data", "digits", "--kind", "cal:0.4", "--seed", "2"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVLEARN_DATA", str(tmp_path / "kept"))


def human_file(folder: Path) -> Path:
    """Labels for digits in the form of CIFAR-10N."""
    clean = load_data("digits").train.y.numpy()
    worse = np.where(np.arange(len(clean)) % 3 == 0, (clean + 1) % 10, clean)
    path = folder / "human.pt"
    torch.save({"clean_label": clean, "worse_label": worse, "aggre_label": clean}, path)
    return path


def test_labels_and_card_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep" / "labels.npz"
    assert cli.main([*DRAW, "--out", str(path)]) == 0
    text = capsys.readouterr().out
    source, card = with_noise(load_data("digits"), "cal:0.4", seed=2)
    assert card is not None
    assert f"wrong labels: {card.actual_rate:.2%}" in text
    assert f"largest class: {card.largest_class} with {card.largest_share:.1%}" in text
    assert " ".join(f"{value:.3f}" for value in card.transition.diagonal()) in text
    with np.load(path) as file:
        np.testing.assert_array_equal(file["noisy"], source.train.y)
        assert json.loads(str(file["card"])) == card.to_dict()
    assert [entry.name for entry in path.parent.iterdir()] == ["labels.npz"]


def test_the_rate_asked_for_stands_beside_what_came_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "labels.npz"
    drawing = ["noise", "--data", "digits", "--seed", "2", "--out", str(path), "--kind"]
    assert cli.main([*drawing, "cal:0"]) == 0
    text = capsys.readouterr().out
    _, card = with_noise(load_data("digits"), "cal:0", seed=2)
    assert card is not None
    assert card.actual_rate > 0.05  # flip rates are truncated at nought
    rates = f"{card.actual_rate:.2%} (asked 0.00%, expected {card.expected_rate:.2%})"
    assert f"wrong labels: {rates}\n" in text
    assert "warning: rate: asked 0, but" in text
    # Of labels that are read nothing was asked, and nothing expected.
    assert cli.main([*drawing, f"file:{human_file(tmp_path)}#worse_label"]) == 0
    assert "wrong labels: 33.38%\n" in capsys.readouterr().out


def test_machines_get_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "labels.npz"
    assert cli.main([*DRAW, "--out", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    with np.load(path) as file:
        assert facts["card"] == json.loads(str(file["card"]))
        assert facts["sha256"] == label_digest(file["noisy"])
    assert facts["file"] == str(path)


def test_a_summary_of_many_classes_is_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    y = np.arange(60) % 20
    np.savez(tmp_path / "data.npz", x=x, y=y, x_test=x, y_test=np.append(y[1:], 20))
    arguments = ["--data", str(tmp_path / "data.npz"), "--kind", "pair:0.3"]
    assert cli.main(["noise", *arguments, "--out", str(tmp_path / "labels.npz")]) == 0
    # Class 20 has no example to count.
    assert re.search(r"diagonal of T: \d\.\d+ … \d\.\d+, mean 0\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--data, --kind, --out is missing; see covlearn noise --help"),
        (["--data", "digits", "--kind", "cal:0.4"], "--out is missing"),
        (["--list", "--data", "digits"], "--list goes without"),
        ([*DRAW[1:], "--out", "labels.txt"], "--out must end in .npz, got 'labels.txt'"),
        ([*DRAW[1:], "--out", "l.npz", "--kind", "none"], "there is nothing to write"),
        ([*DRAW[1:], "--out", "l.npz", "--kind", "call:0.4"], "did you mean 'cal'"),
        ([*DRAW[1:], "--out", "l.npz", "--kind", "file"], "must read file:PATH"),
        ([*DRAW[1:], "--out", "l.npz", "--kind", "file:"], "must read file:PATH"),
        ([*DRAW[1:], "--out", "l.npz", "--kind", "file:no.pt"], "label file no.pt does not exist"),
        ([*DRAW[1:], "--out", "l.npz", "--kind", "published"], "noise must read KIND:RATE"),
        (
            [*DRAW[1:], "--out", "l.npz", "--kind", "published:0.4"],
            "published noise is for cifar10 and cifar100 in the official order, and digits does",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["noise", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert not list(tmp_path.iterdir())


def test_the_list_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["noise", "--list"]) == 0
    text = capsys.readouterr().out
    for word in ("symmetric:RATE", "calibrated:RATE", "covlearn.noise.part_dependent", "CIFAR-10N"):
        assert word in text
    rows = {row.split("│")[1].strip(): row for row in text.splitlines() if "IDN_" in row}
    assert {name: "bit for bit" in row for name, row in rows.items()} == {
        f"{name}.pt": entry.bit_for_bit for name, entry in PUBLISHED.items()
    }
    assert cli.main(["noise", "--list", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert {file["name"]: (file["bit_for_bit"], file["sha256"]) for file in whole["published"]} == {
        name: (entry.bit_for_bit, entry.sha256) for name, entry in PUBLISHED.items()
    }
    assert "cal" in {generator["name"] for generator in whole["generators"]}


def train(out: Path, noise: str) -> int:
    arguments = ["train", "--data", "digits", "--method", "ce", "--seed", "2", "--device", "cpu"]
    settings = ["--set", "plan.epochs=1", "net.hidden=[4]", "--out", str(out)]
    return cli.main([*arguments, "--noise", noise, *settings])


def test_a_run_on_labels_of_a_file_is_the_run_on_their_noise(tmp_path: Path) -> None:
    labels = tmp_path / "labels.npz"
    assert cli.main([*DRAW, "--out", str(labels)]) == 0
    assert train(tmp_path / "file", f"file:{labels}") == 0
    assert train(tmp_path / "drawn", "cal:0.4") == 0
    first, second = (records.read(tmp_path / name) for name in ("file", "drawn"))
    configs = [{**record.config, "job": None} for record in (first, second)]
    assert configs[0] == configs[1]
    assert first.labels == second.labels
    assert first.metrics[0]["loss"] == second.metrics[0]["loss"]


def test_human_labels_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = human_file(tmp_path)
    assert train(tmp_path / "run", f"file:{path}#worse_label") == 0
    record = records.read(tmp_path / "run")
    assert record.config["noise"]["variant"] == "file"
    assert record.config["noise"]["seed"] is None
    assert record.config["noise"]["actual_rate"] == pytest.approx(1 / 3, abs=1e-3)
    assert train(tmp_path / "other", f"file:{path}#worst_label") == 2
    assert "did you mean 'worse_label'" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_a_label_file_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = human_file(tmp_path)
    assert cli.main(["data", "check", "labels", str(path)]) == 0
    text = capsys.readouterr().out
    assert "of no data set that covlearn knows" in text
    assert "aggre_label: 0.00% wrong" in text
    np.savez(tmp_path / "mine.npz", noisy=np.arange(7))
    assert cli.main(["data", "check", "labels", str(tmp_path / "mine.npz")]) == 0
    assert "labels of 7 examples, without clean ones" in capsys.readouterr().out
    assert cli.main(["data", "check", "cifar10", str(path)]) == 2
    assert f"says covlearn data check labels {path}\n" in capsys.readouterr().err
    assert cli.main(["data", "check", "cifar10n", str(path)]) == 2
    assert "random_label3 is missing; it holds worse_label" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "arrays"),
    [
        ("noisy", {"noisy": np.arange(7) - 1, "clean": np.arange(7)}),
        ("clean", {"noisy": np.arange(7), "clean": np.arange(7) - 1}),
        ("noisy", {"noisy": np.arange(7) - 1}),
    ],
)
def test_a_check_refuses_what_is_no_class_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: str, arrays: dict[str, Any]
) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    assert cli.main(["data", "check", "labels", str(path)]) == 2
    assert f"{wrong} in {path} must hold class numbers 0…K−1, got -1" in capsys.readouterr().err


def test_a_set_that_holds_no_labels_is_named_by_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = human_file(tmp_path)
    content = torch.load(path, weights_only=False)
    torch.save(content | {"worse_label": content["worse_label"].astype(np.float64)}, path)
    assert cli.main(["data", "check", "labels", str(path)]) == 0
    said = capsys.readouterr().out
    assert "worse_label: left out, it is a vector of floating-point numbers\n" in said
    assert cli.main(["data", "check", "cifar10n", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.endswith("; worse_label is a vector of floating-point numbers\n")
    np.savez(tmp_path / "mine.npz", noisy=np.arange(7), other=np.arange(7))
    assert cli.main(["data", "check", "labels", str(tmp_path / "mine.npz")]) == 0
    assert "  other: left out, it is not called noisy or clean, " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["cifar10n", "cifar100n"])
def test_human_labels_are_checked_against_the_data(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    for make in (lookalike.tiny_cifar10, lookalike.tiny_cifar100):
        facts, _ = make()
        monkeypatch.setitem(CIFAR, facts.name, facts)
    tens = ["aggre_label", "random_label1", "random_label2", "random_label3", "worse_label"]
    keys = tens if name == "cifar10n" else ["noisy_label"]
    _, images = lookalike.tiny_cifar10() if name == "cifar10n" else lookalike.tiny_cifar100()
    clean = images.train_y.astype(np.int64)
    path = tmp_path / "human.pt"
    torch.save({"clean_label": clean, **dict.fromkeys(keys, (clean + 1) % 10)}, path)
    assert cli.main(["data", "check", name, str(path)]) == 0
    assert f"{keys[0]}: 100.00% wrong" in capsys.readouterr().out
    torch.save({"clean_label": clean[::-1].copy(), **dict.fromkeys(keys, clean)}, path)
    assert cli.main(["data", "check", name, str(path)]) == 2
    assert "are not those of CIFAR-10" in capsys.readouterr().err
    torch.save({"clean_label": clean, **dict.fromkeys(keys, clean + 100)}, path)
    assert cli.main(["data", "check", name, str(path)]) == 2
    assert "must lie in 0…" in capsys.readouterr().err


def test_published_noise_is_for_the_official_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, images = lookalike.tiny_cifar10()
    monkeypatch.setitem(CIFAR, "cifar10", facts)
    store(images, facts)
    drawn, _ = with_noise(load_data("cifar10"), "cal:0.4", seed=0)
    entry = replace(PUBLISHED["IDN_0.4_C10"], sha256=label_digest(drawn.train.y.numpy()))
    monkeypatch.setitem(PUBLISHED, entry.name, entry)
    again, card = with_noise(load_data("cifar10"), "published:0.4", seed=5)
    assert torch.equal(again.train.y, drawn.train.y)
    assert card is not None
    # The same labels out of a file have the same card.
    content = {"noise_label_train": drawn.train.y, "clean_label_train": drawn.clean}
    torch.save(content, tmp_path / "IDN.pt")
    read, read_card = with_noise(load_data("cifar10"), f"file:{tmp_path / 'IDN.pt'}", seed=7)
    assert torch.equal(read.train.y, drawn.train.y)
    assert read_card is not None
    assert read_card.to_dict() == card.to_dict()

    store(lookalike.sorted_by_pixels(images), facts)
    with pytest.raises(ValueError, match="in the official order, and cifar10-sorted does not"):
        with_noise(load_data("cifar10"), "published:0.4", seed=0)
    with pytest.raises(ValueError, match=r"not those of cifar10-sorted: .* or another order"):
        with_noise(load_data("cifar10"), f"file:{tmp_path / 'IDN.pt'}", seed=0)
