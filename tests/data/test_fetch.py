"""CIFAR from every form it comes in, on look-alikes of a few images; and everything gone wrong."""

import contextlib
import http.server
import io
import json
import re
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from covlearn import cli
from covlearn.data import archives
from covlearn.data.cifar import CIFAR, CIFAR10, Cifar, Images
from covlearn.data.sources import load_data
from covlearn.data.store import store, stored_at
from tests.data import lookalike as make


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where data is kept in these tests; it does not exist yet."""
    folder = tmp_path / "kept"
    monkeypatch.setenv("COVLEARN_DATA", str(folder))
    return folder


@pytest.fixture
def cifar10(monkeypatch: pytest.MonkeyPatch) -> tuple[Cifar, Images]:
    facts, images = make.tiny_cifar10()
    monkeypatch.setitem(CIFAR, "cifar10", facts)
    return facts, images


@pytest.fixture
def cifar100(monkeypatch: pytest.MonkeyPatch) -> tuple[Cifar, Images]:
    facts, images = make.tiny_cifar100()
    monkeypatch.setitem(CIFAR, "cifar100", facts)
    return facts, images


def official_folder(at: Path, images: Images, facts: Cifar) -> Path:
    return make.write_files(at, make.official_files(images, facts))


def inner_folder(at: Path, images: Images, facts: Cifar) -> Path:
    return official_folder(at, images, facts) / facts.folder


def official_archive(at: Path, images: Images, facts: Cifar) -> Path:
    return make.write_archive(at.with_suffix(".tar.gz"), make.official_files(images, facts))


def dotted_plain_archive(at: Path, images: Images, facts: Cifar) -> Path:
    files = make.official_files(images, facts)
    return make.write_archive(at.with_suffix(".tar"), files, mode="w", prefix="./")


def package_archive(at: Path, images: Images, facts: Cifar) -> Path:
    return make.write_archive(at.with_suffix(".tgz"), make.package_files(images, facts))


def package_folder(at: Path, images: Images, facts: Cifar) -> Path:
    return make.write_files(at, make.package_files(images, facts)) / "package"


def numbered_folders(at: Path, images: Images, facts: Cifar) -> Path:
    return make.class_folders(at, images, numbered=True)


def numbered_classes(at: Path, images: Images, facts: Cifar) -> Path:
    return make.class_folders(at, images, numbered=True, names=False, suffix=".bmp")


Build = Callable[[Path, Images, Cifar], Path]


@pytest.mark.parametrize(
    "build",
    [
        official_folder,
        inner_folder,
        official_archive,
        dotted_plain_archive,
        package_archive,
        package_folder,
        numbered_folders,
        numbered_classes,
    ],
)
def test_every_form_gives_the_same_file(
    tmp_path: Path, own_folder: Path, cifar10: tuple[Cifar, Images], build: Build
) -> None:
    facts, images = cifar10
    source = build(tmp_path / "source", images, facts)
    assert cli.main(["data", "fetch", "cifar10", "--from", str(source)]) == 0
    expected = store(images, facts, tmp_path / "expected").read_bytes()
    assert [path.name for path in own_folder.iterdir()] == ["cifar10.safetensors"]
    assert (own_folder / "cifar10.safetensors").read_bytes() == expected
    data = load_data("cifar10")
    assert data.name == "cifar10"
    for split, x, y in (
        (data.train, images.train_x, images.train_y),
        (data.test, images.test_x, images.test_y),
    ):
        np.testing.assert_array_equal(split.x.numpy(), x)
        np.testing.assert_array_equal(split.y.numpy(), y)
        assert split.num_classes == 10
        assert split.augmentation is not None
        assert not split.augmentation.moves
        assert split.augmentation.mean == (0.4914, 0.4822, 0.4465)
        assert split.augmentation.std == (0.2023, 0.1994, 0.2010)
    assert data.clean is not None
    assert torch.equal(data.clean, data.train.y)


@pytest.mark.parametrize("build", [official_folder, official_archive])
def test_cifar100_has_its_fine_labels(
    tmp_path: Path, cifar100: tuple[Cifar, Images], build: Build
) -> None:
    facts, images = cifar100
    source = build(tmp_path / "source", images, facts)
    assert cli.main(["data", "fetch", "cifar100", "--from", str(source)]) == 0
    data = load_data("cifar100")
    np.testing.assert_array_equal(data.train.y.numpy(), images.train_y)
    assert data.train.num_classes == 100
    assert data.train.augmentation is not None
    assert data.train.augmentation.std == (0.2673, 0.2564, 0.2762)


def test_images_without_an_order_are_sorted_and_say_so(
    tmp_path: Path, cifar10: tuple[Cifar, Images], capsys: pytest.CaptureFixture[str]
) -> None:
    _, images = cifar10
    source = make.class_folders(tmp_path / "source", images, numbered=False)
    assert cli.main(["data", "fetch", "cifar10", "--from", str(source)]) == 0
    assert "published noise labels do not fit them" in capsys.readouterr().out
    data = load_data("cifar10")
    assert data.name == "cifar10-sorted"
    expected = make.sorted_by_pixels(images)
    np.testing.assert_array_equal(data.train.x.numpy(), expected.train_x)
    np.testing.assert_array_equal(data.train.y.numpy(), expected.train_y)
    assert cli.main(["data", "list"]) == 0
    assert "not official order" in " ".join(capsys.readouterr().out.split())


def test_a_wrong_number_does_not_decide_the_order(
    tmp_path: Path, cifar10: tuple[Cifar, Images]
) -> None:
    _, images = cifar10
    backwards = Images(*(array[::-1] for array in images))
    source = make.class_folders(tmp_path / "source", backwards, numbered=True)
    assert cli.main(["data", "fetch", "cifar10", "--from", str(source)]) == 0
    assert load_data("cifar10").name == "cifar10-sorted"


# ---- What goes wrong ---------------------------------------------------------------------------


def other_pixel(at: Path, images: Images, facts: Cifar) -> Path:
    x = images.train_x.copy()
    x[3, 4, 5, 1] ^= 1
    return official_archive(at, images._replace(train_x=x), facts)


def other_label(at: Path, images: Images, facts: Cifar) -> Path:
    y = (images.test_y + 1) % 10
    return package_archive(at, images._replace(test_y=y.astype(np.uint8)), facts)


def half_archive(at: Path, images: Images, facts: Cifar) -> Path:
    path = official_archive(at, images, facts)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def archive_without_its_end(at: Path, images: Images, facts: Cifar) -> Path:
    path = official_archive(at, images, facts)
    path.write_bytes(path.read_bytes()[:-4])
    return path


def half_plain_archive(at: Path, images: Images, facts: Cifar) -> Path:
    path = dotted_plain_archive(at, images, facts)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def file_missing(at: Path, images: Images, facts: Cifar) -> Path:
    folder = official_folder(at, images, facts)
    (folder / facts.folder / "data_batch_3").unlink()
    return folder


def half_file(at: Path, images: Images, facts: Cifar) -> Path:
    folder = official_folder(at, images, facts)
    path = folder / facts.folder / "test_batch"
    path.write_bytes(path.read_bytes()[:1000])
    return folder


def link_in_archive(at: Path, images: Images, facts: Cifar) -> Path:
    path = at.with_suffix(".tar.gz")
    secret = at.with_name("secret")
    secret.write_bytes(b"secret")
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(f"{facts.folder}/data_batch_1")
        member.type, member.linkname = tarfile.SYMTYPE, str(secret)
        archive.addfile(member)
    return path


def web_page(at: Path, images: Images, facts: Cifar) -> Path:
    at.write_bytes(b"<html>The server is busy</html>" * 20)
    return at


def empty_file(at: Path, images: Images, facts: Cifar) -> Path:
    at.touch()
    return at


def empty_folder(at: Path, images: Images, facts: Cifar) -> Path:
    at.mkdir()
    return at


def nowhere(at: Path, images: Images, facts: Cifar) -> Path:
    return at


def other_archive(at: Path, images: Images, facts: Cifar) -> Path:
    return make.write_archive(at, {"holiday/1.jpg": b"sea"})


def changed_part(fields: dict[bytes, Any]) -> Build:
    def build(at: Path, images: Images, facts: Cifar) -> Path:
        files = make.official_files(images, facts)
        whole = {
            b"labels": images.test_y.tolist(),
            b"data": images.test_x.reshape(len(images.test_x), -1),
        }
        kept = {key: value for key, value in (whole | fields).items() if value is not None}
        files[f"{facts.folder}/test_batch"] = make.python2_pickle(kept)
        return make.write_archive(at, files)

    return build


def changed_package(name: str, content: bytes) -> Build:
    def build(at: Path, images: Images, facts: Cifar) -> Path:
        return make.write_archive(at, make.package_files(images, facts) | {name: content})

    return build


def png(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


def jpeg_folders(at: Path, images: Images, facts: Cifar) -> Path:
    return make.class_folders(at, images, numbered=True, suffix=".jpg")


def image_missing(at: Path, images: Images, facts: Cifar) -> Path:
    folder = numbered_folders(at, images, facts)
    next((folder / "train").rglob("*.png")).unlink()
    return folder


def class_missing(at: Path, images: Images, facts: Cifar) -> Path:
    few = [array[images.train_y != 3] for array in (images.train_x, images.train_y)]
    return numbered_folders(at, images._replace(train_x=few[0], train_y=few[1]), facts)


def large_image(at: Path, images: Images, facts: Cifar) -> Path:
    folder = numbered_folders(at, images, facts)
    next((folder / "train").rglob("*.png")).write_bytes(png(33, 32))
    return folder


def damaged_image(at: Path, images: Images, facts: Cifar) -> Path:
    folder = numbered_folders(at, images, facts)
    path = next((folder / "test").rglob("*.png"))
    path.write_bytes(path.read_bytes()[:100])
    return folder


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (other_pixel, "not the images and labels of CIFAR-10: the training images differ"),
        (other_label, "the test labels differ"),
        (half_archive, "damaged or only half there"),
        (archive_without_its_end, "damaged or only half there"),
        (half_plain_archive, "damaged or only half there|is missing"),
        (file_missing, "but not all: data_batch_3 is missing"),
        (half_file, "test_batch: not a pickle as CIFAR's official files are: it ends before"),
        (link_in_archive, "must be a plain file, not a link"),
        (web_page, "neither a folder nor an archive"),
        (empty_file, "neither a folder nor an archive"),
        (empty_folder, "holds nothing of CIFAR-10; expected the official archive"),
        (nowhere, "does not exist; expected the official archive cifar-10-python.tar.gz"),
        (other_archive, "holds nothing of CIFAR-10"),
        (changed_part({b"labels": None}), "expected a list of labels 0…9 under 'labels'"),
        (changed_part({b"labels": [10] * 10}), "expected a list of labels 0…9"),
        (changed_part({b"labels": [1] * 9}), "a label for each of 10 images, got 9"),
        (changed_part({b"data": None}), "test_batch: expected images as a uint8 array of 3072"),
        (changed_part({b"data": np.zeros((10, 3), np.uint8)}), "array of 3072 columns"),
        (
            changed_part({b"data": np.zeros((9, 3072), np.uint8), b"labels": [0] * 9}),
            r"test images of CIFAR-10 must be uint8 of shape \(10, 32, 32, 3\), got",
        ),
        (changed_package("package/test_batch.png", b"no image"), "cannot be read as an image"),
        (changed_package("package/test_batch.png", png(1000, 10)), "must be 1024 pixels wide"),
        (changed_package("package/test_batch.png", png(1024, 21)), "must be 1024 pixels wide"),
        (changed_package("package/test_lables.json", b"{"), "must hold a JSON list of labels"),
        (changed_package("package/test_lables.json", b"[1.5]"), "expected a list of labels 0…9"),
        (changed_package("package/test_lables.json", b"[1]"), "each of 10 images, got 1"),
        (jpeg_folders, "whatever the order.*differ.*JPEG does not keep pixels"),
        (image_missing, "must hold the 20 images of CIFAR-10 in its class folders, found 19"),
        (class_missing, "a folder for each of the 10 classes of CIFAR-10, found 9"),
        (large_image, "must be 32 × 32 pixels, got 33 × 32"),
        (damaged_image, "cannot be read as an image"),
    ],
)
def test_a_bad_source_is_one_sentence_and_leaves_nothing(
    tmp_path: Path,
    own_folder: Path,
    cifar10: tuple[Cifar, Images],
    capsys: pytest.CaptureFixture[str],
    build: Build,
    message: str,
) -> None:
    facts, images = cifar10
    source = build(tmp_path / "source", images, facts)
    for command in (["fetch", "cifar10", "--from", str(source)], ["check", "cifar10", str(source)]):
        assert cli.main(["data", *command]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("covlearn: ")
        assert captured.err.count("\n") == 1
        if command[0] == "fetch" or source.exists():
            assert re.search(message, captured.err), captured.err
    assert not own_folder.exists()


def test_what_was_there_outlives_a_bad_source(
    tmp_path: Path, own_folder: Path, cifar10: tuple[Cifar, Images]
) -> None:
    facts, images = cifar10
    kept = store(images, facts)
    before = kept.read_bytes()
    source = other_pixel(tmp_path / "source", images, facts)
    assert cli.main(["data", "fetch", "cifar10", "--from", str(source)]) == 2
    assert kept.read_bytes() == before
    assert list(own_folder.iterdir()) == [kept]


@pytest.mark.parametrize("build", [official_archive, dotted_plain_archive, official_folder])
def test_absurd_sizes_are_refused(
    tmp_path: Path,
    cifar10: tuple[Cifar, Images],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    build: Build,
) -> None:
    facts, images = cifar10
    monkeypatch.setattr(archives, "MOST_BYTES", 10_000)
    source = build(tmp_path / "source", images, facts)
    assert cli.main(["data", "fetch", "cifar10", "--from", str(source)]) == 2
    assert re.search("10,000 bytes, which no|too many by far", capsys.readouterr().err)


def test_a_size_that_is_only_claimed_is_refused(
    tmp_path: Path, cifar10: tuple[Cifar, Images], capsys: pytest.CaptureFixture[str]
) -> None:
    member = tarfile.TarInfo(f"{cifar10[0].folder}/data_batch_1")
    member.size = 2**40
    (tmp_path / "source.tar").write_bytes(member.tobuf() + bytes(20_000))
    source = str(tmp_path / "source.tar")
    assert cli.main(["data", "fetch", "cifar10", "--from", source]) == 2
    assert "too many by far" in capsys.readouterr().err


# ---- Downloads ---------------------------------------------------------------------------------


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
    monkeypatch.setattr("covlearn.run.fit_and_evaluate", take)
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
