"""Data and noise by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from covlearn.data.sources import digits, load_data, with_noise
from covlearn.noise import instance_dependent, pair, symmetric


def arrays(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    whole = {
        "x": rng.normal(size=(12, 4)),
        "y": np.arange(12) % 3,
        "x_test": rng.normal(size=(6, 4)),
        "y_test": np.arange(6) % 3,
    }
    return {name: value for name, value in (whole | changes).items() if value is not None}


def saved(folder: Path, **changes: Any) -> str:
    path = folder / "data.npz"
    np.savez(path, **arrays(**changes))
    return str(path)


def test_digits_are_always_cut_the_same_way() -> None:
    source = digits()
    assert (len(source.train), len(source.test)) == (1297, 500)
    assert torch.equal(source.train.x, load_data("digits").train.x)
    assert source.train.y[:8].tolist() == [2, 8, 2, 6, 6, 7, 1, 9]
    assert float(source.train.x.max()) == 1.0
    assert source.clean is not None
    assert torch.equal(source.clean, source.train.y)
    everyone = torch.cat([source.train.x, source.test.x]).reshape(-1, 64).double() * 16
    original = load_digits().data
    assert np.array_equal(np.sort(everyone.numpy(), axis=0), np.sort(original, axis=0))
    assert torch.bincount(source.test.y).min() > 30


def test_features_come_out_of_a_file(tmp_path: Path) -> None:
    source = load_data(saved(tmp_path))
    assert source.train.x.dtype == torch.float32
    np.testing.assert_allclose(source.train.x.numpy(), arrays()["x"], rtol=1e-6)
    assert source.train.num_classes == 3
    assert source.test.y.tolist() == [0, 1, 2, 0, 1, 2]
    assert source.clean is None
    known = load_data(saved(tmp_path, clean=np.zeros(12, dtype=np.uint8)))
    assert known.clean is not None
    assert known.clean.tolist() == [0] * 12


def test_images_are_normalised_by_their_own_channels(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, size=(12, 5, 6, 2), dtype=np.uint8)
    images[..., 1] = 7
    source = load_data(saved(tmp_path, x=images, x_test=images[:6]))
    how = source.train.augmentation
    assert how is not None
    scaled = images.astype(np.float64) / 255
    np.testing.assert_allclose(how.mean, scaled.mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(how.std[0], scaled[..., 0].std())
    assert how.std[1] == 1 / 255
    assert not how.moves
    assert source.test.augmentation == how


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.arange(11) % 3}, "data.npz: y must have one entry an example, 12, got 11"),
        ({"clean": np.zeros(5, dtype=int)}, "clean must have one entry an example, 12, got 5"),
        ({"clean": np.full(12, 9)}, "clean must lie in 0…2"),
        ({"y": np.arange(12) / 2}, "y in .* must be a vector of class numbers"),
        ({"y": np.arange(12) + 10**9}, "of at most 1,000,000 classes, got 1000000011; np.unique"),
        (
            {"y_test": np.full(12, 2**64 - 1, np.uint64)},
            "classes, got 18446744073709551615",
        ),
        ({"y_test": np.zeros((6, 1), dtype=int)}, "y_test in .* must be a vector"),
        ({"y": np.arange(12) - 1}, "y must lie in"),
        ({"x_test": None}, "x_test is missing; it holds x, y, y_test"),
        ({"x_test": np.zeros((6, 5))}, r"one shape, got \(4,\) and \(5,\)"),
        ({"x": np.full((12, 4), np.nan)}, "must be finite, got NaN or infinity first in row 0"),
        ({"x": np.zeros((12, 4), int), "x_test": np.zeros((6, 4), int)}, "float features"),
        ({"x": np.zeros((12, 4), "u1"), "x_test": np.zeros((6, 4), "u1")}, "uint8 inputs must be"),
        ({"y": np.array(["a"] * 12, dtype=object)}, "cannot be read as an .npz file"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = saved(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        load_data(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.npz", None, "does not exist"),
        ("text.npz", b"hello", "cannot be read as an .npz file"),
        ("empty.npz", b"", "cannot be read as an .npz file"),
        (
            "digit",
            None,
            "data must be digits, cifar10, cifar100, the folder of Clothing1M or the path of an .npz file, got .*did you mean",
        ),
    ],
)
def test_unknown_data_is_refused(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_data(name if name == "digit" else str(path))


def test_noise_is_what_its_generator_draws(tmp_path: Path) -> None:
    source = load_data(saved(tmp_path))
    x, y = source.train.x, source.train.y
    expected = {
        "symmetric:0.5": symmetric(y, rate=0.5, num_classes=3, seed=7),
        "pair:0.5": pair(y, rate=0.5, num_classes=3, seed=7),
        "ptd:0.5": instance_dependent(x, y, rate=0.5, num_classes=3, variant="ptd", seed=7),
    }
    for spec, labels in expected.items():
        noisy, card = with_noise(source, spec, seed=7)
        assert noisy.train.y.tolist() == labels.label.tolist()
        assert noisy.clean is not None
        assert torch.equal(noisy.clean, y)
        assert card is not None
        assert (card.requested_rate, card.seed) == (0.5, 7)
    assert source.clean is None  # as it was


def test_no_noise_changes_nothing(tmp_path: Path) -> None:
    source = load_data(saved(tmp_path))
    same, card = with_noise(source, "none", seed=0)
    assert same is source
    assert card is None


def test_noise_looks_at_images_channel_by_channel(tmp_path: Path) -> None:
    images = np.random.default_rng(1).integers(0, 256, size=(60, 3, 2, 2), dtype=np.uint8)
    y = np.arange(60) % 3
    source = load_data(saved(tmp_path, x=images, y=y, x_test=images[:6]))
    noisy, _ = with_noise(source, "cal:0.5", seed=0)
    by_channel = images.transpose(0, 3, 1, 2)
    expected = instance_dependent(by_channel, y, rate=0.5, num_classes=3, variant="cal", seed=0)
    assert noisy.train.y.tolist() == expected.label.tolist()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        *(
            (f"{name}{rate}", rf"needs more than a rate: draw it .* with covlearn\.noise\.{name}, ")
            for name in ("class_dependent", "confused", "part_dependent")
            for rate in ("", ":0.3")
        ),
        ("symetric:0.3", "noise must be one of none, symmetric.*did you mean 'symmetric'"),
        ("cal", "must read KIND:RATE, as cal:0.4, got 'cal'"),
        ("cal:a", "must read KIND:RATE"),
        ("cal:1.5", r"rate must lie in \[0, 1\), got 1.5"),
        ("none:0.3", "noise none has no rate"),
    ],
)
def test_unknown_noise_is_refused(tmp_path: Path, spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_noise(load_data(saved(tmp_path)), spec, seed=0)


def test_noise_on_noisy_labels_is_refused(tmp_path: Path) -> None:
    source = load_data(saved(tmp_path, clean=np.zeros(12, dtype=int)))
    with pytest.raises(ValueError, match="noisy already; pass noise none"):
        with_noise(source, "pair:0.1", seed=0)
