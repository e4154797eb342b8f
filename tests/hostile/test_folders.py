"""Nothing that is read leads out of its folder, and nothing is written through a link of others."""

import io
import json
import secrets
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

from covlearn import checkpoint, cli, records
from covlearn.atomic import PARTIAL, write_bytes
from covlearn.data import clothing1m
from covlearn.data.archives import known_files
from covlearn.inputs import read_examples
from covlearn.inputs.cache import Appending, RowFile
from covlearn.report import write_report
from tests.hostile.reader import Reader, picture
from tests.report.runs import look_alike

NAME = "cifar-10-batches-py/data_batch_1"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "private"
    path.write_text("secret")
    return path


def archive(path: Path, member: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as file:
        file.addfile(member, io.BytesIO(b"hello") if member.isreg() else None)
    return path


@pytest.mark.parametrize("name", ["../../up", "/tmp/absolute", "a/../../../up", "..", "C:\\x"])
def test_nothing_is_unpacked(name: str, tmp_path: Path) -> None:
    member = tarfile.TarInfo(name)
    member.size = 5
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    path = archive(tmp_path / "deep" / "deeper" / "a.tar", member)
    before = sorted(tmp_path.rglob("*"))
    assert known_files(path, [NAME]) == {}
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_links_and_devices_of_an_archive_are_refused(
    kind: bytes, tmp_path: Path, victim: Path
) -> None:
    member = tarfile.TarInfo(NAME)
    member.type, member.linkname = kind, str(victim)
    with pytest.raises(ValueError, match="must be a plain file, not a link or device"):
        known_files(archive(tmp_path / "a.tar", member), [NAME])


@pytest.mark.parametrize("name", ["../secret.png", "/etc/hostname", "x/../../secret.png"])
def test_a_manifest_names_images_below_its_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(picture("PNG"))
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [f"{n}.png,{n % 2}" for n in range(4)]
    for n in range(4):
        (folder / f"{n}.png").write_bytes(picture("PNG"))
    (folder / "m.csv").write_text("\n".join(["path,label", *rows, f"{name},1", ""]))
    with pytest.raises(ValueError, match="lies outside of"):
        read_examples(folder / "m.csv", image="path", features="none")


def test_a_saved_dataset_names_images_below_its_folder(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    secret = tmp_path / "secret.png"
    secret.write_bytes(picture("PNG"))
    cells: list[dict[str, Any]] = [{"path": None, "bytes": picture("PNG")} for _ in range(6)]
    cells[0]["path"] = str(secret)
    kinds = {"image": datasets.Image(decode=False), "label": datasets.Value("string")}
    columns = {"image": cells, "label": list("xyxyxy")}
    made = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
    made.save_to_disk(tmp_path / "saved")
    # What datasets takes in when it saves is taken out again, so that the path alone is left.
    place = next((tmp_path / "saved").glob("*.arrow"))
    table = pa.ipc.open_stream(place.read_bytes()).read_all()
    rows = table.to_pylist()
    rows[0]["image"] = {"bytes": None, "path": str(secret)}
    with pa.OSFile(str(place), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(pa.Table.from_pylist(rows, table.schema))
    read = read_examples(tmp_path / "saved", on_bad="skip", features="none")
    assert len(read) == 5
    assert "lies outside of" in read.skipped[0].reason


@pytest.mark.parametrize("key", ["../secret.jpg", "/etc/passwd", "images/../../x.jpg"])
def test_keys_of_clothing1m_stay_below(key: str, tmp_path: Path) -> None:
    for name in [*clothing1m.KEY_LISTS.values(), *clothing1m.LABELS.values()]:
        (tmp_path / name).write_text(f"{key} 1\n" if name.endswith("kv.txt") else f"{key}\n")
    with pytest.raises(ValueError, match="must hold paths below the data's folder"):
        clothing1m.read_part(tmp_path, "noisy_train")


@pytest.mark.parametrize("name", ["..", "a/../..", "/tmp/x", ".hidden", "a//b", "\x1b[2J"])
def test_columns_of_a_table_stay_below_its_folder(name: str, tmp_path: Path) -> None:
    text = f'title = "t"\n[[rows]]\nname="a"\nmethod="ce"\n[[columns]]\nname={json.dumps(name)}\ndata="digits"\n'
    (tmp_path / "t.toml").write_text(text)
    assert cli.main(["bench", str(tmp_path / "t.toml"), "--dry-run"]) == 2


def test_a_file_that_is_no_image_is_never_exported(
    tmp_path: Path, victim: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = look_alike(tmp_path / "run", count=4, classes=["a", "b"], paths=[victim] * 4)
    out = tmp_path / "out"
    assert cli.main(["clean", str(run), "--out", str(out), "--as", "folder"]) == 2
    assert "must be an image to be exported" in capsys.readouterr().err
    assert not out.exists()
    page = write_report(run).read_text()
    assert "secret" not in page


# ---- Links where something is about to be written ---------------------------------------------


@pytest.fixture
def guessed(monkeypatch: pytest.MonkeyPatch) -> str:
    """How the name ends that a file has while it is written, if somebody could guess it."""
    monkeypatch.setattr(secrets, "token_hex", lambda _: "0123")
    return f"0123{PARTIAL}"


def test_files_are_not_written_through_links(tmp_path: Path, victim: Path, guessed: str) -> None:
    path = tmp_path / "run" / "report.html"
    path.parent.mkdir()
    path.symlink_to(victim)
    link = path.with_name(f"report.html.{guessed}")
    link.symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_bytes(path, b"<html>")
    assert victim.read_text() == "secret"
    write_bytes(path, b"<html>")
    assert victim.read_text() == "secret"
    assert path.read_bytes() == b"<html>"
    assert not path.is_symlink()


def test_checkpoints_are_not_written_through_links(
    tmp_path: Path, victim: Path, guessed: str
) -> None:
    path = tmp_path / "state.pt"
    (tmp_path / f"state.pt.{guessed}").symlink_to(victim)
    with pytest.raises(FileExistsError):
        checkpoint.write_atomically(path, {"a": 1})
    assert victim.read_text() == "secret"


def test_the_cache_is_not_written_through_links(tmp_path: Path, victim: Path) -> None:
    file = RowFile(tmp_path / "cache", "rows", (2,), np.float32)
    file.part.parent.mkdir()
    file.part.symlink_to(victim)
    with Appending(file) as rows:
        rows.append(np.zeros((3, 2), dtype=np.float32), done=3, bad=[])
    assert victim.read_text() == "secret"


def test_metrics_of_a_resumed_run_are_not_appended_through_links(
    tmp_path: Path, victim: Path
) -> None:
    records.write_metrics(tmp_path, {"ce": [{"epoch": 0, "loss": 1.0}]})
    (tmp_path / records.METRICS).unlink()
    (tmp_path / records.METRICS).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        records.append_metrics(tmp_path, "ce", {"epoch": 1, "loss": 1.0})
    assert victim.read_text() == "secret"


# ---- What is shown and exported ---------------------------------------------------------------

EVIL = [
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-1+1",
    "@SUM(1)",
    "\t=1",
    "</script><script>alert(1)</script>",
]


def test_exported_tables_have_no_formulas(tmp_path: Path) -> None:
    classes = sorted(EVIL)
    table = pd.DataFrame({"=note": [EVIL[n % 6] for n in range(60)], "label": "x"})
    ids = [f"{EVIL[n % 6]}{n}" for n in range(60)]
    run = look_alike(tmp_path / "run", count=60, classes=classes, ids=ids, table=table)
    assert cli.main(["clean", str(run), "--out", str(tmp_path / "out")]) == 0
    for path in (run / "labels.csv", tmp_path / "out" / "clean.csv"):
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        cells = [*frame.columns, *frame.to_numpy().ravel().tolist()]
        texts = [
            cell
            for cell in cells
            if not cell.replace("-", "").replace(".", "").replace("e", "").isdigit()
        ]
        assert len(texts) > 100
        assert [text for text in texts if text.startswith(("=", "+", "-", "@", "\t"))] == []


def test_the_table_of_a_benchmark_has_no_formulas(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(
        'title = "[/x]"\n[[rows]]\nname="=1+1"\ntitle="[/b]@SUM(1)"\nmethod="ce"\n[[columns]]\nname="+a"\ndata="digits"\n'
    )
    folder = str(tmp_path / "runs")
    assert cli.main(["bench", str(tmp_path / "t.toml"), "--trials", "0", "--folder", folder]) == 0
    lines = (tmp_path / "runs" / "table.csv").read_text().splitlines()
    assert "'=1+1" in lines[1]
    assert "'+a" in lines[1]


def test_names_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a\x1b[2J\nb\u202e\udcff"
    folder = tmp_path / "images"
    for label in ("x\x1b]0;title\x07", "y\r"):
        (folder / label).mkdir(parents=True)
        for n in range(2):
            Image.new("RGB", (8, 8), (n * 90, 0, 0)).save(folder / label / f"{n}.png")
        (folder / label / f"{name}.png").write_bytes(b"no image")
    out = ["--out", str(tmp_path / "run"), "--features", "none", "--dry-run"]
    assert cli.main(["fit", str(folder), *out]) == 2
    assert cli.main(["fit", str(folder), *out, "--on-bad", "skip"]) == 0
    assert cli.main(["fit", str(tmp_path / name), *out]) == 2
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert not set("\x1b\x07\r\u202e\udcff") & set(text)
        assert "\\x1b" in text
    assert len(captured.err.splitlines()) == 2


def test_a_run_of_others_cannot_run_a_script(readers: dict[str, Reader], tmp_path: Path) -> None:
    run = look_alike(
        tmp_path / "run",
        count=60,
        classes=["a", EVIL[-1]],
        ids=[f"{EVIL[-1]}{n}" for n in range(60)],
    )
    config = json.loads((run / "config.json").read_text())
    config["source"]["path"] = config["method"]["name"] = config["covlearn"] = EVIL[-1]
    (run / "config.json").write_text(json.dumps(config))
    page = write_report(run).read_text()
    assert page.count("<script") == look_alike_scripts(tmp_path)
    assert "alert(1)</script>" not in page


def look_alike_scripts(tmp_path: Path) -> int:
    """How many script elements the page of a run without bad intent has."""
    return (
        write_report(look_alike(tmp_path / "good", count=60, classes=["a", "b"]))
        .read_text()
        .count("<script")
    )
