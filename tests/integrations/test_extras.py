"""Without its library a part says which extra brings it, and nothing is imported before."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covlearn.cli import main
from covlearn.integrations.datalab import to_datalab
from covlearn.integrations.onnx import to_onnx
from covlearn.integrations.tensorboard import TensorBoard

LIBRARIES = (
    "accelerate",
    "cleanlab",
    "lightning",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "tensorboard",
    "transformers",
)
CALLS: list[tuple[str, str, Callable[[Path], Any]]] = [
    ("onnx", "onnx", lambda folder: to_onnx(folder, folder / "net.onnx")),
    ("onnxruntime", "onnx", lambda folder: to_onnx(folder, folder / "net.onnx")),
    ("onnxscript", "onnx", lambda folder: to_onnx(folder, folder / "net.onnx")),
    ("cleanlab.datalab.datalab", "cleanlab", to_datalab),
    ("torch.utils.tensorboard", "tensorboard", TensorBoard),
]


@pytest.mark.parametrize(("library", "extra", "call"), CALLS, ids=[call[0] for call in CALLS])
def test_what_is_missing_names_its_extra(
    library: str,
    extra: str,
    call: Callable[[Path], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # the import then fails
    with pytest.raises(ImportError, match=rf"pip install 'covlearn\[{extra}\]'"):
        call(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_command_says_it_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["export", str(tmp_path), "--onnx", str(tmp_path / "net.onnx")]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert "pip install 'covlearn[onnx]'" in sentence


def test_importing_the_parts_imports_no_library() -> None:
    parts = "datalab, onnx, tensorboard, transformers"
    code = f"from covlearn.integrations import {parts}; import sys; "
    code += f"print(*sorted(set({LIBRARIES}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
