"""The real data sets, from every form, and the labels that were published for them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from covlearn.data.cifar import CIFAR, SORTED, Images, in_sorted_order, verified_order
from covlearn.data.fetch import fetch
from covlearn.data.sources import Source, with_noise
from covlearn.data.store import stored_at
from covlearn.noise.registry import PUBLISHED, Published, label_digest
from tests.data import lookalike


def images_of(source: Source) -> Images:
    return Images(
        source.train.x.numpy(),
        source.train.y.numpy().astype(np.uint8),
        source.test.x.numpy(),
        source.test.y.numpy().astype(np.uint8),
    )


@pytest.mark.parametrize("name", CIFAR)
def test_official_files_give_the_data_set(
    real_cifar: dict[str, Source], shared_data: Path, name: str
) -> None:
    source = real_cifar[name]
    assert source.name == name  # in the official order
    labels = np.load(shared_data / "labels.npz")
    np.testing.assert_array_equal(source.train.y, labels[f"{name}_train"])
    np.testing.assert_array_equal(source.test.y, labels[f"{name}_test"])
    # The first test image, decoded by other code, out of another file.
    with Image.open(shared_data / name / "20.webp") as mosaic:
        first = np.asarray(mosaic.convert("RGB"))[:32, :32]
    np.testing.assert_array_equal(source.test.x[0], first)


@pytest.mark.parametrize("name", CIFAR)
def test_the_sorted_order_is_known_too(real_cifar: dict[str, Source], name: str) -> None:
    assert verified_order(in_sorted_order(images_of(real_cifar[name])), CIFAR[name]) == SORTED


def test_the_archive_gives_the_same_file(
    official_cifar: Path, cifar_folder: Path, tmp_path: Path
) -> None:
    facts = CIFAR["cifar100"]
    folder = official_cifar / facts.folder
    files = {f"{facts.folder}/{path.name}": path.read_bytes() for path in folder.iterdir()}
    archive = lookalike.write_archive(tmp_path / "cifar.tar.gz", files, compresslevel=0)
    fetched = fetch(facts, source=archive, folder=tmp_path)
    assert fetched.path.read_bytes() == stored_at(facts, cifar_folder).read_bytes()


def test_the_mosaics_give_the_same_file(
    real_cifar: dict[str, Source], cifar_folder: Path, tmp_path: Path
) -> None:
    facts = CIFAR["cifar10"]
    files = lookalike.package_files(images_of(real_cifar["cifar10"]), facts)
    fetched = fetch(facts, source=lookalike.write_files(tmp_path, files), folder=tmp_path)
    assert fetched.path.read_bytes() == stored_at(facts, cifar_folder).read_bytes()


def test_one_data_set_is_not_the_other(official_cifar: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds nothing of CIFAR-100"):
        fetch(
            CIFAR["cifar100"],
            source=official_cifar / CIFAR["cifar10"].folder,
            folder=tmp_path / "kept",
        )
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("entry", PUBLISHED.values(), ids=PUBLISHED)
def test_published_files_are_recognised(
    real_cifar: dict[str, Source], shared_data: Path, entry: Published
) -> None:
    path = shared_data / "published" / f"{entry.name}.pt"
    noisy, card = with_noise(real_cifar[entry.data], f"file:{path}", seed=1)
    labels = np.load(shared_data / "labels.npz")
    np.testing.assert_array_equal(noisy.train.y, labels[entry.name])
    assert noisy.clean is not None
    assert torch.equal(noisy.clean, real_cifar[entry.data].train.y)
    assert label_digest(noisy.train.y.numpy()) == entry.sha256
    assert card is not None
    assert card.variant == entry.name
    assert card.actual_rate == pytest.approx(entry.rate, abs=0.01)


@pytest.mark.parametrize(("name", "rate"), [("cifar10", "0.4"), ("cifar100", "0.6")])
def test_published_noise_needs_no_file(
    real_cifar: dict[str, Source], shared_data: Path, name: str, rate: str
) -> None:
    file = shared_data / "published" / f"IDN_{rate}_C{name.removeprefix('cifar')}.pt"
    drawn, card = with_noise(real_cifar[name], f"published:{rate}", seed=3)
    read, read_card = with_noise(real_cifar[name], f"file:{file}", seed=4)
    assert torch.equal(drawn.train.y, read.train.y)
    assert card is not None
    assert read_card is not None
    assert card.to_dict() == read_card.to_dict()


def test_published_labels_of_the_other_data_set_are_refused(
    real_cifar: dict[str, Source], shared_data: Path
) -> None:
    path = shared_data / "published" / "IDN_0.4_C10.pt"
    with pytest.raises(ValueError, match="are not those of cifar100"):
        with_noise(real_cifar["cifar100"], f"file:{path}", seed=0)
    with pytest.raises(ValueError, match=r"IDN_0.4_C100 cannot be drawn again bit for bit"):
        with_noise(real_cifar["cifar100"], "published:0.4", seed=0)


@pytest.mark.parametrize(("data", "rate"), [("cifar10", 0.6), ("cifar100", 0.4)])
def test_further_draws_are_of_the_published_kind(
    real_cifar: dict[str, Source], shared_data: Path, data: str, rate: float
) -> None:
    suffix = {"cifar10": "C10", "cifar100": "C100"}[data]
    path = shared_data / "published" / f"IDN_{rate}_{suffix}.pt"
    published, _ = with_noise(real_cifar[data], f"file:{path}", seed=0)
    first, card = with_noise(real_cifar[data], f"as_published:{rate}", seed=0)
    other, _ = with_noise(real_cifar[data], f"as_published:{rate}", seed=1)
    assert card is not None
    assert card.seed == 0
    same = float((first.train.y == published.train.y).float().mean())
    assert same == 1.0 if data == "cifar10" else same > 0.95
    assert float((other.train.y == published.train.y).float().mean()) < 0.8
    for drawn in (first, other):
        wrong = float((drawn.train.y != real_cifar[data].train.y).float().mean())
        assert wrong == pytest.approx(rate, abs=0.01)
