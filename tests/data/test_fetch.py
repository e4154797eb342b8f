"""Downloads, what is kept of them, and what ``covlearn train`` makes of it."""

import contextlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from covlearn import cli
from covlearn.data.cifar import CIFAR, CIFAR10, Cifar, Images
from covlearn.data.sources import load_data
from covlearn.data.store import store, stored_at
from tests.data import lookalike as make
from tests.data.forms import official_archive


@contextlib.contextmanager
def server(content: bytes, *, status: int = 200, claimed: int | None = None) -> Iterator[str]:
    """Serves the same bytes to everyone, and gives its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content) if claimed is None else claimed))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    serving = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}/cifar-10-python.tar.gz"
    finally:
        serving.shutdown()
        thread.join()
        serving.server_close()


def test_a_download_is_checked_and_done_once(
    tmp_path: Path,
    own_folder: Path,
    cifar10: tuple[Cifar, Images],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts, images = cifar10
    content = official_archive(tmp_path / "source", images, facts).read_bytes()
    with server(content) as url:
        monkeypatch.setitem(CIFAR, "cifar10", replace(facts, url=url))
        assert cli.main(["data", "fetch", "cifar10"]) == 0
        assert "from the official files of CIFAR-10" in capsys.readouterr().out
    kept = own_folder / "cifar10.safetensors"
    assert list(own_folder.iterdir()) == [kept]
    # The server is gone: what is there is not fetched again, and what is damaged is.
    assert cli.main(["data", "fetch", "cifar10"]) == 0
    assert "from this machine" in capsys.readouterr().out
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    assert cli.main(["data", "fetch", "cifar10"]) == 2
    assert "cannot download http://127.0.0.1" in capsys.readouterr().err


def test_another_folder_can_be_named(
    tmp_path: Path, own_folder: Path, cifar10: tuple[Cifar, Images], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, images = cifar10
    source = official_archive(tmp_path / "source", images, facts)
    there = tmp_path / "there"
    fetch = ["data", "fetch", "cifar10", "--from", str(source), "--to", str(there)]
    assert cli.main(fetch) == 0
    assert stored_at(facts, there).exists()
    assert not own_folder.exists()
    monkeypatch.setenv("COVLEARN_DATA", str(there))
    assert len(load_data("cifar10").train) == 20


def test_what_a_kill_left_is_removed_by_the_next_fetch(
    tmp_path: Path, own_folder: Path, cifar10: tuple[Cifar, Images]
) -> None:
    facts, images = cifar10
    source = official_archive(tmp_path / "source", images, facts)
    own_folder.mkdir()
    kept = own_folder / "cifar10.safetensors"
    left, other = (
        own_folder / f"{name}.1-2.partial" for name in (kept.name, "cifar100.safetensors")
    )
    for number, fetch in enumerate((["--from", str(source)], [])):  # the second has it already
        for path in (left, other):
            path.write_bytes(b"half")
        assert cli.main(["data", "fetch", "cifar10", *fetch]) == 0, number
        assert sorted(own_folder.iterdir()) == sorted([kept, other])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"status": 404}, "cannot download http.*: Not Found; download it elsewhere"),
        ({"claimed": 10**6}, "broke off after .* of 1,000,000 bytes; try again"),
        ({}, "what came from http.* is of no use: .* is neither a folder nor an archive"),
    ],
)
def test_a_download_that_fails_leaves_nothing(
    own_folder: Path,
    cifar10: tuple[Cifar, Images],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, int],
    message: str,
) -> None:
    with server(b"<html>", **options) as url:
        monkeypatch.setitem(CIFAR, "cifar10", replace(cifar10[0], url=url))
        assert cli.main(["data", "fetch", "cifar10"]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert not own_folder.exists()


def test_a_place_that_can_be_no_folder_is_refused_before_the_download(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert cli.main(["data", "fetch", "cifar10", "--to", str(file / "data")]) == 2
    assert f"must be a folder, but {file} is a file" in capsys.readouterr().err
    monkeypatch.setenv("COVLEARN_DATA", str(file))
    assert cli.main(["data", "fetch", "cifar10"]) == 2
    assert f"{file} must be a folder, but it is a file" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a disk that nobody may write to")
def test_a_place_that_cannot_be_written_to_is_refused_before_the_download(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for more in ([], ["--from", "nowhere.tar.gz"]):
        assert cli.main(["data", "fetch", "cifar10", "--to", "/proc/data", *more]) == 2
        assert "nothing can be written in /proc (" in capsys.readouterr().err


# ---- What is kept ------------------------------------------------------------------------------


def test_data_that_is_not_there_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ["train", "--data", "cifar10", "--method", "ce", "--out", str(tmp_path / "run")]
    assert cli.main(train) == 2
    assert "get it with: covlearn data fetch cifar10\n" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("damage", ["empty", "half", "bit", "other"])
def test_a_damaged_file_is_refused(
    cifar10: tuple[Cifar, Images], damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, images = cifar10
    path = store(images, facts)
    content = path.read_bytes()
    others = make.random_images(facts, seed=1)
    path.write_bytes(
        {
            "empty": b"",
            "half": content[: len(content) // 2],
            "bit": content[:-1] + bytes([content[-1] ^ 1]),
            "other": store(others, facts, path.parent / "other").read_bytes(),
        }[damage]
    )
    with pytest.raises(ValueError, match=r"does not hold CIFAR-10 .* covlearn data fetch cifar10"):
        load_data("cifar10")
    assert cli.main(["data", "list"]) == 0
    assert "damaged" in capsys.readouterr().out


def test_the_list_says_what_is_there(
    cifar10: tuple[Cifar, Images], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["data", "list"]) == 0
    assert "covlearn data fetch cifar10 " in capsys.readouterr().out
    path = store(cifar10[1], cifar10[0])
    assert cli.main(["data", "list"]) == 0
    text = capsys.readouterr().out
    assert "covlearn data fetch cifar10 " not in text
    assert path.name in text.replace("\n", "")
    assert cli.main(["data", "check", "cifar10", str(path)]) == 0
    assert "official order, every digest is right" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch", "clothing1m"], "covlearn data check clothing1m PATH"),
        (["fetch", "cifar"], "data must be one of cifar10, cifar100, got 'cifar'"),
        (["check", "cifar1", "."], "got 'cifar1'; did you mean 'cifar10'"),
    ],
)
def test_unknown_names_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert cli.main(["data", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_bar_is_shown_at_a_terminal_only(
    tmp_path: Path,
    cifar10: tuple[Cifar, Images],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = official_archive(tmp_path / "source", cifar10[1], cifar10[0])
    fetch = ["data", "fetch", "cifar10", "--from", str(source)]
    assert cli.main(fetch) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    assert cli.main(fetch) == 0
    shown = capsys.readouterr().err
    assert "unpacking" in shown
    assert "100%" in shown


@pytest.mark.parametrize(
    ("preset", "moves"),
    [([], (0, False)), (["--preset", "published"], (4, True))],
)
def test_presets_move_the_images_and_nothing_else_does(
    tmp_path: Path,
    cifar10: tuple[Cifar, Images],
    monkeypatch: pytest.MonkeyPatch,
    preset: list[str],
    moves: tuple[int, bool],
) -> None:
    given: dict[str, Any] = {}

    def take(method: Any, split: Any, **options: Any) -> None:
        given.update(options, split=split)

    store(cifar10[1], cifar10[0])
    monkeypatch.setattr("covlearn.job.fit_and_evaluate", take)
    monkeypatch.setattr(cli.train, "summary", lambda *_: "")
    train = ["train", "--data", "cifar10", "--method", "ce", "--device", "cpu"]
    assert cli.main([*train, *preset, "--out", str(tmp_path / "run")]) == 0
    how = given["split"].augmentation
    assert (how.crop, how.flip) == moves
    assert how.mean == CIFAR10.mean
    assert not given["test"].augmentation.moves
    assert given["data_name"] == "cifar10"
    assert given["net"] == ("resnet34" if preset else "mlp")


def test_digests_are_those_of_the_whole_data_sets() -> None:
    for facts in CIFAR.values():
        assert (facts.num_train, facts.num_test) == (50_000, 10_000)
        text = json.dumps(facts.digests)
        assert len(set(re.findall(r"[0-9a-f]{64}", text))) == 8
