"""Nothing that is read runs: every reader is given every form of a file that would run something."""

import io
import json
import os
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from covlearn import cli
from covlearn.bench.table import read_table
from covlearn.fitted import load
from covlearn.inputs.extractors import make_extractor
from tests.hostile.reader import Reader, saved
from tests.hostile.readers import TOML


class Runs:
    """A pickle of this makes a file, when it is read by something that runs it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def _pickle(version: int) -> Callable[[Runs], bytes]:
    return lambda bomb: pickle.dumps(bomb, protocol=version)


def _torch(bomb: Runs, *, new: bool) -> bytes:
    content = {"clean_label_train": bomb, "format": 1, "identity": "me", "state": bomb}
    return saved(lambda b: torch.save(content, b, _use_new_zipfile_serialization=new))


def _parquet(bomb: Runs) -> bytes:
    """A column of the type that old versions of Arrow unpickled."""
    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(bomb),
    }
    field = pa.field("a", pa.int64(), metadata=metadata)
    table = pa.table(
        [pa.array(range(8)), pa.array(list("xyxyxyxy"))], pa.schema([field, ("label", pa.string())])
    )
    return saved(lambda b: pq.write_table(table, b))


def _zip(bomb: Runs) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in ("x.npy", "y.npy", "data.pkl", "archive/data.pkl"):
            archive.writestr(name, pickle.dumps(bomb))
    return buffer.getvalue()


def _npy(bomb: Runs) -> bytes:
    return saved(lambda b: np.save(b, np.array([bomb] * 40, dtype=object), allow_pickle=True))


def _npz(bomb: Runs) -> bytes:
    objects = np.array([bomb] * 40, dtype=object)
    return saved(lambda b: np.savez(b, x=objects, y=objects, labels=objects, noisy=objects))


FORMS: dict[str, Callable[[Runs], bytes]] = {
    **{f"pickle {version}": _pickle(version) for version in range(6)},
    "torch": lambda bomb: _torch(bomb, new=True),
    "torch, old": lambda bomb: _torch(bomb, new=False),
    "npy": _npy,
    "npz": _npz,
    "zip": _zip,
    "parquet": _parquet,
}


def test_no_reader_runs_anything(readers: dict[str, Reader], tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for reader in readers.values():
        folder = tmp_path / "folder"
        reader.prepare(folder)
        for form, make in FORMS.items():
            reader.attempt(folder, make(Runs(marker)))
            assert not marker.exists(), f"{reader.name} runs {form}"
        shutil.rmtree(folder)


@pytest.mark.parametrize("form", ["pickle 2", "npy", "torch, old"])
def test_the_bombs_go_off_where_they_are_run(form: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    content = io.BytesIO(FORMS[form](Runs(marker)))
    if form == "npy":
        np.load(content, allow_pickle=True)
    elif form == "pickle 2":
        pickle.load(content)
    else:
        torch.load(content, weights_only=False)
    assert marker.exists()


# ---- Code that files name ---------------------------------------------------------------------

MODULE = """
from pathlib import Path
Path(__file__).with_name("imported").touch()
from covlearn.methods import METHODS
from covlearn.nets import NETS
factory, Method = NETS["mlp"], METHODS["ce"]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module in the folder that one stands in, and the file that it makes when it is imported."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "of_others.py").write_text(MODULE)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    monkeypatch.delitem(sys.modules, "of_others", raising=False)
    return folder / "imported"


@pytest.fixture
def run(readers: dict[str, Reader], tmp_path: Path) -> Path:
    """A run that says that its network is made by that module."""
    readers["fit config.json"].prepare(tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    config["net"]["name"] = "of_others:factory"
    path.write_text(json.dumps(config))
    return path.parent


NEW = pd.DataFrame({"a": [1.0, 2.0], "b": 0.0, "colour": "red", "when": "2024-01-01"})
COMMANDS = {
    "predict": lambda run: ["predict", str(run), "new.csv", "--out", "out.csv"],
    "diagnose": lambda run: ["diagnose", str(run), "--draws", "20"],
    "export": lambda run: ["export", str(run), "--onnx", "net.onnx"],
    "report": lambda run: ["report", str(run)],
    "clean": lambda run: ["clean", str(run), "--out", "clean"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_imports_nothing_by_itself(
    command: str, run: Path, module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == "export":
        pytest.importorskip("onnxscript")
    NEW.to_csv("new.csv", index=False)
    code = cli.main(COMMANDS[command](run))
    assert not module.exists()
    error = capsys.readouterr().err
    if command in ("predict", "export"):
        assert code == 2
        assert "names code that is no part of covlearn, 'of_others:factory'" in error
        assert "--allow of_others:factory" in error


def test_what_is_allowed_is_imported(run: Path, module: Path) -> None:
    NEW.to_csv("new.csv", index=False)
    arguments = COMMANDS["predict"](run)
    assert cli.main([*arguments, "--allow", "of_others:other"]) == 2
    assert not module.exists()
    assert cli.main([*arguments, "--allow", "of_others:factory"]) == 0
    assert module.exists()


def test_loading_needs_the_same_word(run: Path, module: Path) -> None:
    with pytest.raises(ValueError, match=r"allow=\['of_others:factory'\]"):
        _ = load(run).model
    assert not module.exists()
    assert load(run, allow=["of_others:factory"]).model is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'method = "gce"', b'method = "of_others:Method"'),
        (b"trials = 2", b'trials = 2\nnet = "of_others:factory"'),
    ],
)
def test_a_table_imports_nothing_by_itself(
    old: bytes, new: bytes, module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Path("t.toml")
    table.write_bytes(
        TOML.replace(old, new).replace(b'settings = ["q=0.5"]', b'preset = "defaults"')
    )
    assert cli.main(["bench", "t.toml", "--dry-run"]) == 2
    assert "names code that is no part of covlearn" in capsys.readouterr().err
    assert not module.exists()
    name = "of_others:Method" if b"Method" in new else "of_others:factory"
    assert read_table(table, allow=[name]).rows
    assert cli.main(["bench", "t.toml", "--dry-run", "--allow", name]) == 0
    assert module.exists()  # what is allowed is looked at before the first cell, in a dry run, too


@pytest.mark.parametrize(
    "name", ["timm:hf-hub:somebody/model", "timm:local-dir:/tmp/x", "timm:../x"]
)
def test_networks_come_from_no_hub_that_a_file_names(name: str) -> None:
    with pytest.raises(ValueError, match="a model of timm's own"):
        make_extractor(name)
