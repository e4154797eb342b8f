"""Rows in a file: whole or not there, continued after a kill, mapped when large."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from covlearn.inputs import cache as files
from covlearn.inputs import pictures, read_examples
from covlearn.inputs.cache import Appending, RowFile
from covlearn.inputs.images import load_image
from tests.inputs.make import class_folders, picture, read_pixels, text

ROWS = np.arange(24, dtype=np.float32).reshape(6, 4)


def test_rows_come_back(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "new", "x", (4,), np.float32)
    assert file.finished() is None
    with Appending(file) as rows:
        rows.append(ROWS[:2], done=2, bad=[])
        rows.append(ROWS[2:], done=7, bad=[(3, "why")])
        found = rows.finish()
    np.testing.assert_array_equal(found.rows, ROWS)
    assert found.bad == [(3, "why")]
    np.testing.assert_array_equal(np.load(file.path), ROWS)  # an ordinary file
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["x.json", "x.npy"]


def test_a_stopped_process_is_continued(tmp_path: Path) -> None:
    file = RowFile(tmp_path, "x", (4,), np.float32)
    with Appending(file) as rows:
        rows.append(ROWS[:2], done=3, bad=[(1, "why")])
    assert file.finished() is None
    with file.part.open("ab") as half:
        half.write(b"half a row")
    with Appending(file) as rows:
        assert (rows.done, rows.rows, rows.bad) == (3, 2, [(1, "why")])
        rows.append(ROWS[2:], done=7, bad=[])
        np.testing.assert_array_equal(rows.finish().rows, ROWS)


def test_a_kill_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RowFile(tmp_path, "x", (4,), np.float32)

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with Appending(file) as rows, monkeypatch.context() as patch:
        rows.append(ROWS, done=6, bad=[])
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            rows.finish()
    assert file.finished() is None
    with Appending(file) as rows:
        assert rows.done == 6
        np.testing.assert_array_equal(rows.finish().rows, ROWS)


@pytest.mark.parametrize("what", ["part", "part_facts", "facts", "path"])
def test_damage_means_to_start_again(tmp_path: Path, what: str) -> None:
    file = RowFile(tmp_path, "x", (4,), np.float32)
    with Appending(file) as rows:
        rows.append(ROWS, done=6, bad=[])
        if what in ("facts", "path"):
            rows.finish()
    getattr(file, what).write_bytes(b"nonsense")
    assert file.finished() is None
    with Appending(file) as rows:
        assert rows.done == 0


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    file = RowFile(tmp_path, "x", (4,), np.float32)
    with Appending(file) as rows:
        rows.append(ROWS, done=6, bad=[])
        rows.finish()
    np.save(file.path, ROWS[:5])
    assert file.finished() is None
    np.save(file.path, ROWS.astype(np.float64))
    assert file.finished() is None


def test_two_processes_at_once(tmp_path: Path) -> None:
    file = RowFile(tmp_path, "x", (4,), np.float32)
    second = Appending(file)
    refused = pytest.raises(ValueError, match=r"another process is reading the same data into")
    with Appending(file), refused:
        second.__enter__()


def test_large_files_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = class_folders(tmp_path / "pets")
    memory = read_pixels(source)
    small = read_pixels(source, cache=tmp_path / "cache")
    monkeypatch.setattr(files, "MAPPED_FROM", 1)
    before = {path: path.read_bytes() for path in (tmp_path / "cache").iterdir()}
    mapped = read_pixels(source, cache=tmp_path / "cache")
    found = files.RowFile(
        tmp_path / "cache", next(iter(before)).stem, (32, 32, 3), np.uint8
    ).finished()
    assert found is not None
    assert isinstance(found.rows, np.memmap)
    for examples in (small, mapped):
        assert torch.equal(examples.x, memory.x)
        assert examples.recipe == memory.recipe
    mapped.x[0] = 0  # the file stays as it is
    assert {path: path.read_bytes() for path in (tmp_path / "cache").iterdir()} == before
    with pytest.raises(ValueError, match=r"too much to hold in memory .* with cache="):
        read_pixels(source)


def test_the_cache_is_used_until_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, cache = class_folders(tmp_path / "pets"), tmp_path / "cache"
    loads: list[object] = []
    load = load_image

    def counted(image: object, size: int) -> object:
        loads.append(image)
        return load(image, size)  # type: ignore[arg-type]

    monkeypatch.setattr(pictures, "load_image", counted)
    first = read_pixels(source, cache=cache)
    assert len(loads) == 6
    assert torch.equal(read_pixels(source, cache=cache).x, first.x)
    assert len(loads) == 6
    changed = picture(source / "cat" / "0.png", 99)
    os.utime(changed, (1, 1))
    assert not torch.equal(read_pixels(source, cache=cache).x, first.x)
    assert len(loads) == 12
    read_pixels(source, cache=cache, recipe=first.recipe | {"size": 64})
    assert len(loads) == 18


def test_bad_images_are_remembered(tmp_path: Path) -> None:
    source, cache = class_folders(tmp_path / "pets"), tmp_path / "cache"
    (source / "cat" / "1.png").write_bytes((source / "cat" / "1.png").read_bytes()[:-40])
    first = read_pixels(source, cache=cache, on_bad="skip")
    again = read_pixels(source, cache=cache, on_bad="skip")
    assert again.skipped == first.skipped
    assert again.ids == first.ids
    assert torch.equal(again.x, first.x)
    with pytest.raises(ValueError, match=r"cat/1.png: it cannot be decoded"):
        read_pixels(source, cache=cache)


KILLED = """
import sys
from covlearn.inputs import pictures, read_examples
pictures.SHARD = pictures.BATCH = 4
load, count = pictures.load_image, 0
def dying(image, size):
    global count
    count += 1
    if count > 10:
        import os
        os.kill(os.getpid(), 9)
    return load(image, size)
pictures.load_image = dying
read_examples(sys.argv[1], features="none", cache=sys.argv[2])
"""


def test_a_killed_run_goes_on_from_its_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, cache = class_folders(tmp_path / "pets", each=10), tmp_path / "cache"
    command = [sys.executable, "-c", KILLED, str(source), str(cache)]
    assert subprocess.run(command, check=False).returncode == -9
    assert not list(cache.glob("*.npy"))
    (facts,) = cache.glob("*.part.json")
    assert json.loads(facts.read_text())["done"] == 8
    loads: list[object] = []
    load = load_image

    def counted(image: object, size: int) -> object:
        loads.append(image)
        return load(image, size)  # type: ignore[arg-type]

    monkeypatch.setattr(pictures, "load_image", counted)
    examples = read_pixels(source, cache=cache)
    assert len(loads) == 12
    assert torch.equal(examples.x, read_pixels(source).x)
    assert sorted(path.suffix for path in cache.iterdir()) == [".json", ".npy"]


def test_progress(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    source = class_folders(tmp_path / "pets", each=20)
    read_pixels(source, progress=lambda done, total, what: seen.append((done, total, what)))
    assert (40, 40, "checking images") in seen
    assert seen[-1] == (40, 40, "reading images")


def test_progress_of_tables(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    path = text(tmp_path / "x.csv", "size,label", "1,a", "2,b", "3,a", "5,b")
    read_examples(path, progress=lambda done, total, what: seen.append((done, total, what)))
    assert seen == [
        (0, 0, "reading x.csv"),
        (1, 1, "looking at columns"),
        (1, 1, "reading columns"),
    ]


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        read_pixels(class_folders(tmp_path / "pets"), cache=tmp_path / "file" / "cache")
