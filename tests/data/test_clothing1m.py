"""Clothing1M's layout, on a look-alike of a few images."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from covlearn import cli
from covlearn.data import ImageFiles, batches_of
from covlearn.data.clothing1m import MEAN, STD, check_layout, read_part, read_split
from covlearn.data.image_files import image_files
from covlearn.data.sources import load_data, with_noise

KEYS = {
    "noisy_train": [f"images/{n % 2}/{n}/{n},1.jpg" for n in range(14)],
    "clean_train": [f"images/3/{n}.jpg" for n in range(4)],
    "clean_val": ["images/4/1.jpg", "images/4/2.jpg"],
    "clean_test": ["images/5/1.jpg"],
}


def lines(*items: str) -> str:
    return "".join(f"{item}\n" for item in items)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Every text file, and an image of its own colour and shape for each key."""
    clean = [key for part, keys in KEYS.items() if part != "noisy_train" for key in keys]
    noisy = [f"{key} {(5 * n) % 14}" for n, key in enumerate(KEYS["noisy_train"])]
    # As in the published file, some of the clean images have a noisy label too.
    texts = {f"{part}_key_list.txt": lines(*keys) for part, keys in KEYS.items()}
    texts["noisy_label_kv.txt"] = lines(*reversed(noisy), f"{clean[0]} 9")
    texts["clean_label_kv.txt"] = lines(*(f"{key} {n}" for n, key in enumerate(clean)))
    texts["category_names_eng.txt"] = lines(*(f"Class {n}" for n in range(14)))
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for n, key in enumerate([*KEYS["noisy_train"], *clean]):
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40 + n, 60), (10 * n, 0, 200)).save(path, quality=95)
    return tmp_path


def test_parts_have_their_own_labels(root: Path) -> None:
    noisy = read_part(root, "noisy_train")
    assert noisy.keys == KEYS["noisy_train"]
    assert noisy.labels.tolist() == [(5 * n) % 14 for n in range(14)]
    assert read_part(root, "clean_train").labels.tolist() == [0, 1, 2, 3]  # not the noisy 9
    assert read_part(root, "clean_test").labels.tolist() == [6]
    with pytest.raises(ValueError, match=r"part must be one of noisy_train, .* got 'train'"):
        read_part(root, "train")


def test_texts_may_lie_in_a_folder_of_their_own(root: Path) -> None:
    before = read_part(root, "clean_val")
    (root / "annotations").mkdir()
    for path in root.glob("*.txt"):
        path.rename(root / "annotations" / path.name)
    after = read_part(root, "clean_val")
    assert after.keys == before.keys
    assert torch.equal(after.labels, before.labels)
    assert not check_layout(root).problems


def test_images_go_into_batches(root: Path) -> None:
    split = read_split(root, "noisy_train")
    assert isinstance(split.x, ImageFiles)
    assert split.x.shape == (14, 256, 256, 3)
    seen = list(batches_of(split, batch_size=5, seed=1).epoch(0))
    assert [tuple(batch.x.shape) for batch in seen] == [(n, 3, 224, 224) for n in (5, 5, 4)]
    for batch in seen:
        assert torch.equal(batch.y, split.y[batch.idx])
        red = (batch.x[:, 0].mean(dim=(1, 2)) * STD[0] + MEAN[0]) * 255
        np.testing.assert_allclose(red, 10 * batch.idx, atol=3)


def test_an_image_is_scaled_and_cut_to_its_middle(tmp_path: Path) -> None:
    stripes = np.zeros((100, 400, 3), dtype=np.uint8)
    stripes[:, 150:250] = 255  # the middle of a wide image
    Image.fromarray(stripes).save(tmp_path / "wide.png")
    image = image_files(tmp_path, ["wide.png"], side=256)[0]
    assert image.dtype == torch.uint8
    assert image.shape == (256, 256, 3)
    assert float(image.float().mean()) > 250
    tall = stripes.transpose(1, 0, 2)
    Image.fromarray(np.ascontiguousarray(tall)).save(tmp_path / "tall.png")
    assert float(image_files(tmp_path, ["tall.png"], side=256)[0].float().mean()) > 250


def test_a_bad_image_is_named(root: Path) -> None:
    (root / KEYS["clean_test"][0]).write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"images/5/1.jpg cannot be read as an image"):
        image_files(root, KEYS["clean_test"], side=256)[0]


def test_a_folder_is_data(root: Path) -> None:
    source = load_data(str(root))
    assert (len(source.train), len(source.test), source.clean) == (14, 1, None)
    assert source.validation is not None
    assert source.validation.y.tolist() == [4, 5]
    noisy, card = with_noise(source, "symmetric:0.5", seed=0)
    assert card is not None
    assert noisy.train.x is source.train.x
    with pytest.raises(ValueError, match="instance-dependent noise needs all inputs at once"):
        with_noise(source, "cal:0.4", seed=0)


def test_files_are_known_by_their_names_and_sizes(root: Path) -> None:
    def identity(side: int = 256) -> str:
        return image_files(root, KEYS["clean_train"], side=side).identity

    before = identity()
    assert identity() == before
    assert identity(side=64) != before
    images = image_files(root, KEYS["clean_train"], side=256)
    part = images.subset(torch.tensor([2, 0]))
    assert [part.name(n) for n in range(2)] == [KEYS["clean_train"][2], KEYS["clean_train"][0]]
    assert part.identity != images.subset(torch.tensor([0, 2])).identity != before
    path = root / KEYS["clean_train"][1]
    path.write_bytes(path.read_bytes() + b"more")
    assert identity() != before


def test_missing_images_are_said_before_training(root: Path) -> None:
    without_images(root)
    with pytest.raises(ValueError, match=r"2 of 14 are missing: images/1/3/3,1.jpg, images/0/4/"):
        load_data(str(root))


def test_a_whole_folder_is_counted(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "check", "clothing1m", str(root)]) == 0
    text = capsys.readouterr().out
    assert "noisy_train 14, clean_train 4, clean_val 2, clean_test 1" in text
    assert "noisy_train_key_list.txt has 14 keys, the published one 1,000,000" in text


def test_images_that_are_read_are_whole(root: Path) -> None:
    """A PNG by another name, and bytes that somebody appended to a JPEG."""
    png, longer = (root / KEYS["noisy_train"][n] for n in (0, 1))
    Image.new("RGB", (40, 60)).save(png, "PNG")
    longer.write_bytes(longer.read_bytes() + bytes(100))
    assert not check_layout(root).problems
    assert len(list(batches_of(read_split(root, "noisy_train"), batch_size=14).epoch(0))) == 1


def without_images(root: Path) -> None:
    for n in (3, 4):
        (root / KEYS["noisy_train"][n]).unlink()


def no_images(root: Path) -> None:
    """An empty file, a page that a server sent, and one that broke off."""
    empty, page, half = (root / KEYS["noisy_train"][n] for n in (0, 1, 2))
    empty.write_bytes(b"")
    page.write_text("<html>404</html>")
    half.write_bytes(half.read_bytes()[:-2])


def half_png(root: Path) -> None:
    path = root / KEYS["clean_test"][0]
    Image.new("RGB", (40, 60)).save(path, "PNG")
    path.write_bytes(path.read_bytes()[:60])


def label_out_of_range(root: Path) -> None:
    path = root / "clean_label_kv.txt"
    path.write_text(path.read_text().replace("images/4/1.jpg 4", "images/4/1.jpg 14"))


def without_label(root: Path) -> None:
    path = root / "noisy_label_kv.txt"
    path.write_text(path.read_text().replace(f"{KEYS['noisy_train'][2]} 10\n", ""))


def in_two_parts(root: Path) -> None:
    with (root / "clean_val_key_list.txt").open("a") as file:
        file.write(lines(KEYS["clean_train"][0]))


def twice(root: Path) -> None:
    with (root / "clean_val_key_list.txt").open("a") as file:
        file.write(lines(KEYS["clean_val"][0]))


def without_list(root: Path) -> None:
    (root / "clean_test_key_list.txt").unlink()


def key_outside(root: Path) -> None:
    (root / "clean_test_key_list.txt").write_text("images/../../secret.jpg\n")


def absolute_key(root: Path) -> None:
    (root / "clean_test_key_list.txt").write_text("/etc/passwd\n")


def no_label_file(root: Path) -> None:
    (root / "clean_label_kv.txt").write_text("images/3/0.jpg\n")


def test_what_stands_behind_an_image_does_not_make_it_damaged(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (root / "images/3/0.jpg").open("ab") as file:
        file.write(b"\0" * 5_000)  # as some cameras do
    assert cli.main(["data", "check", "clothing1m", str(root)]) == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_images, "images missing: 2 (images/1/3/3,1.jpg, images/0/4/4,1.jpg)"),
        (
            no_images,
            "noisy_train_key_list.txt: images empty, cut short or no JPEG or PNG: 3 "
            "(images/0/0/0,1.jpg, images/1/1/1,1.jpg, images/0/2/2,1.jpg)",
        ),
        (half_png, "clean_test_key_list.txt: images empty, cut short or no JPEG or PNG: 1 (images"),
        (label_out_of_range, "clean_label_kv.txt: 1 labels are not in 0…13, first 14 for"),
        (without_label, "keys without a label: 1 (images/0/2/2,1.jpg)"),
        (in_two_parts, "keys twice or in two parts: 1 (images/3/0.jpg)"),
        (twice, "keys twice or in two parts: 1 (images/4/1.jpg)"),
        (without_list, "clean_test_key_list.txt is missing"),
        (key_outside, "must hold paths below the data's folder, got 'images/../../secret.jpg'"),
        (absolute_key, "must hold paths below the data's folder, got '/etc/passwd'"),
        (no_label_file, "line 1, must read KEY LABEL"),
    ],
)
def test_what_is_wrong_is_said(
    root: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None], message: str
) -> None:
    damage(root)
    assert cli.main(["data", "check", "clothing1m", str(root)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("damage", "part", "message"),
    [
        (label_out_of_range, "clean_val", "must lie in 0…13, got 14 for 'images/4/1.jpg'"),
        (without_label, "noisy_train", "but 1 have none, first 'images/0/2/2,1.jpg'"),
    ],
)
def test_a_reader_does_not_guess_labels(
    root: Path, damage: Callable[[Path], None], part: str, message: str
) -> None:
    damage(root)
    with pytest.raises(ValueError, match=message):
        read_part(root, part)


def test_a_folder_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["data", "check", "clothing1m", str(tmp_path)]) == 2
    assert "must hold the text files of Clothing1M, but noisy_train" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert cli.main(["data", "check", "clothing1m", str(tmp_path / "file")]) == 2
    assert "is no folder" in capsys.readouterr().err
