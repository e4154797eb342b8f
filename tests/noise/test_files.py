"""Label files: ours and others', what does not fit, and what would run if it could."""

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covlearn.noise import NoiseCard, NoisyLabels, symmetric
from covlearn.noise.files import labels_from_file, read_label_file, write_labels
from covlearn.noise.torch_files import read_vectors

CLEAN = np.arange(30) % 3
NOISY = (CLEAN + (np.arange(30) % 5 == 0)) % 3
WORSE = (CLEAN + (np.arange(30) % 2 == 0)) % 3


def read(path: Path | str, *, clean: Any = CLEAN, num_classes: int = 3) -> NoisyLabels:
    return labels_from_file(str(path), clean, num_classes=num_classes, data="ours")


def saved(folder: Path, content: Any, **options: Any) -> Path:
    path = folder / "labels.pt"
    torch.save(content, path, **options)
    return path


def published(noisy: Any = NOISY, clean: Any = CLEAN) -> dict[str, torch.Tensor]:
    return {
        "noise_label_train": torch.from_numpy(np.asarray(noisy)),
        "clean_label_train": torch.from_numpy(np.asarray(clean)),
    }


HUMAN = {"clean_label": CLEAN, "worse_label": WORSE, "aggre_label": NOISY}


def test_our_own_file_brings_back_labels_and_card(tmp_path: Path) -> None:
    drawn = symmetric(CLEAN, rate=0.4, num_classes=4, seed=3)
    assert np.isnan(drawn.card.transition[3]).all()  # a class without examples
    path = tmp_path / "labels.npz"
    write_labels(path, drawn, CLEAN)
    back = read(path, num_classes=4)
    np.testing.assert_array_equal(back.label, drawn.label)
    np.testing.assert_array_equal(back.flip_rate, drawn.flip_rate)
    assert back.card.to_dict() == drawn.card.to_dict()
    before = path.read_bytes()
    write_labels(path, back, CLEAN)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["labels.npz"]
    more = {**np.load(path), "weights": np.ones(len(CLEAN))}
    np.savez(path, **more)
    assert read_label_file(path).left_out == {"weights": "not what covlearn noise writes"}
    with pytest.raises(ValueError, match=r"ends in .npz, got 'labels.txt'"):
        write_labels(Path("labels.txt"), drawn, CLEAN)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_published_file_of_tensors(tmp_path: Path, zipped: bool) -> None:
    path = saved(tmp_path, published(), _use_new_zipfile_serialization=zipped)
    labels = read(path)
    np.testing.assert_array_equal(labels.label, NOISY)
    assert labels.label.dtype == np.int64
    assert labels.card.actual_rate == pytest.approx(0.2)
    assert labels.card.seed is None
    assert labels.card.variant == "file"
    assert "noise_label_train of labels.pt" in labels.card.notes[0]
    assert "no seed" in str(labels.card)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", ">i8", "int16"])
def test_human_labels_are_numpy_arrays(tmp_path: Path, dtype: str, zipped: bool) -> None:
    content = {name: labels.astype(dtype) for name, labels in HUMAN.items()}
    path = saved(tmp_path, content, _use_new_zipfile_serialization=zipped)
    before = torch.serialization.get_safe_globals()
    theirs = torch.load(path, weights_only=False)
    for name in ("worse_label", "aggre_label"):
        labels = read(f"{path}#{name}").label
        np.testing.assert_array_equal(labels, theirs[name])
        assert labels.dtype == np.int64
    assert torch.serialization.get_safe_globals() == before
    with pytest.raises(ValueError, match="several sets of labels, worse_label, aggre_label; name"):
        read(path)
    with pytest.raises(ValueError, match="not 'worse'; did you mean 'worse_label'"):
        read(f"{path}#worse")


def test_arrays_of_numpy_1_are_read_too(tmp_path: Path) -> None:
    path = saved(tmp_path, HUMAN)
    old = tmp_path / "old.pt"
    with zipfile.ZipFile(path) as file, zipfile.ZipFile(old, "w") as other:
        for name in file.namelist():
            content = file.read(name)
            if name.endswith("data.pkl"):
                assert b"numpy._core" in content
                content = content.replace(b"numpy._core", b"numpy.core")
            other.writestr(name.replace("labels/", "old/"), content)
    np.testing.assert_array_equal(read(f"{old}#worse_label").label, WORSE)


def test_a_single_set_needs_no_name(tmp_path: Path) -> None:
    fine = {"clean_label": CLEAN, "noisy_label": NOISY}
    coarse = {"clean_coarse_label": CLEAN // 2, "noisy_coarse_label": NOISY // 2}
    assert list(read_label_file(saved(tmp_path, fine | coarse)).noisy) == ["noisy_label"]
    np.testing.assert_array_equal(read(tmp_path / "labels.pt").label, NOISY)
    np.testing.assert_array_equal(read(f"{tmp_path / 'labels.pt'}#noisy_label").label, NOISY)
    only = {"clean_label": CLEAN.tolist(), "mine": NOISY.tolist(), "what": "a note"}
    np.testing.assert_array_equal(read(saved(tmp_path, only)).label, NOISY)


def test_arrays_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, noisy=NOISY.astype(np.uint8), clean=CLEAN)
    labels = read(path)
    np.testing.assert_array_equal(labels.label, NOISY)
    assert labels.label.dtype == np.int64
    assert (labels.card.variant, labels.card.seed) == ("file", None)
    assert "noisy of mine.npz, SHA-256" in labels.card.notes[0]
    assert len(labels.card.notes) == 1
    np.savez(path, noisy=NOISY, clean=CLEAN[::-1])
    with pytest.raises(ValueError, match=r"not those of ours: .* or another order"):
        read(path)
    # Without clean labels nothing says whether the order is right.
    np.savez(path, noisy=NOISY)
    np.testing.assert_array_equal(read(f"{path}#noisy").label, NOISY)
    assert "was not checked" in read(path).card.notes[1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": NOISY, "clean": CLEAN}, "noisy is missing; it holds y, clean"),
        ({}, "noisy is missing; it holds nothing"),
        ({"noisy": NOISY / 2}, "noisy in .* vector of class numbers 0…K−1, got float64 of shape"),
        ({"noisy": NOISY[:0]}, "vector of class numbers"),
        ({"noisy": NOISY, "clean": CLEAN[:, None]}, r"clean in .* got int64 of shape \(30, 1\)"),
        ({"noisy": NOISY, "clean": CLEAN[:29]}, "has 30 labels for 29 examples"),
        ({"noisy": NOISY[:29]}, "labels of 29 examples, and ours has 30: it is for"),
        ({"noisy": NOISY + 1}, "noisy in .* must lie in 0…2, got 3"),
        ({"noisy": np.full(30, 2**64 - 1, np.uint64)}, "noisy in .* must lie in 0…2, got -1"),
        ({"noisy": np.array([None] * 30)}, "Python objects"),
    ],
)
def test_arrays_that_are_no_labels(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=message):
        read(path)


def test_a_path_may_have_a_number_sign(tmp_path: Path) -> None:
    path = saved(tmp_path, published()).rename(tmp_path / "labels#1.pt")
    np.testing.assert_array_equal(read(path).label, NOISY)
    np.testing.assert_array_equal(read(f"{path}#noise_label_train").label, NOISY)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "must hold a dictionary, got list"),
        ({"noise_label_train": torch.from_numpy(NOISY)}, "must hold clean labels .* found noise_l"),
        ({"clean_label": CLEAN}, "noisy ones beside them, found clean_label"),
        ({"clean_label": CLEAN / 2, "x": torch.zeros(30)}, "found no vector of integers"),
        ({"clean_label": np.array([None] * 30), "x": NOISY}, "found x"),
        (published(noisy=NOISY[:29]), "has 29 labels for 30 examples"),
        (published(NOISY[:29], CLEAN[:29]), "labels of 29 examples, and ours has 30: it is for"),
        (
            published(clean=(CLEAN + (np.arange(30) == 7)) % 3),
            "not those of ours: 1 of 30 differ, first that of example 7, 2 there and 1 in the data",
        ),
        (published(noisy=NOISY + 1), "noise_label_train in .* must lie in 0…2, got 3"),
        (published(noisy=NOISY - 1), "must lie in 0…2, got -1"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = saved(tmp_path, content)
    with pytest.raises(ValueError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.pt", None, "does not exist"),
        ("labels.csv", b"1\n2\n", r"must end in .pt or .npz"),
        ("empty.pt", b"", "cannot be read as a .pt file"),
        ("text.pt", b"hello" * 100, "not safe to read, or is damaged|cannot be read"),
        ("zip.pt", b"PK\x03\x04" + bytes(100), "cannot be read as a .pt file"),
        ("text.npz", b"hello", "must be a label file, an .npz file with noisy"),
    ],
)
def test_no_label_file_at_all(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / name)


class Runs:
    """A pickle of this makes a file, when it is read by something that runs it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_in_a_file_runs(tmp_path: Path, zipped: bool) -> None:
    marker = tmp_path / "ran"
    content = {**published(), "extra": Runs(marker)}
    path = saved(tmp_path, content, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match="not safe to read") as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert not marker.exists()
    torch.load(path, weights_only=False)
    assert marker.exists()  # it would have


class FakeArray:
    """Pickles as an array that NumPy did not write."""

    def __init__(self, code: str, content: bytes) -> None:
        self.code, self.content = code, content

    def __reduce__(self) -> tuple[Any, ...]:
        made: Any = np.zeros(1).__reduce__()
        return made[0], made[1], (1, (30,), FakeDtype(self.code), False, self.content)


class FakeDtype:
    def __init__(self, code: str) -> None:
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return np.dtype, (self.code, False, True), (3, "|", None, None, None, -1, -1, 0)


@pytest.mark.parametrize(
    ("code", "size"),
    [
        # NumPy's own reader takes these bytes for addresses: the flags of the dtype are cleared.
        ("O8", 240),
        ("f8", 240),
        ("i8", 16),  # fewer numbers than it says
    ],
)
def test_what_is_no_array_of_integers_is_left_out(tmp_path: Path, code: str, size: int) -> None:
    fake = FakeArray(code, b"\x41" * size)
    path = saved(tmp_path, {"clean_label": CLEAN, "noisy_label": fake})
    with pytest.raises(ValueError, match="found clean_label"):
        read(path)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (torch.from_numpy(NOISY).float(), "a vector of floating-point numbers"),
        (torch.from_numpy(NOISY).bfloat16(), "a vector of floating-point numbers"),
        (torch.from_numpy(NOISY > 0), "a vector of true and false"),
        (NOISY.astype(np.float64), "a vector of floating-point numbers"),
        (NOISY.astype(complex), "a vector of complex numbers"),
        (NOISY.astype(str), "a vector of something else than integers"),
        ([*NOISY.tolist()[:-1], 0.5], "a list in which not every item is an integer"),
        (FakeArray("i8", b"\x41" * 16), "a vector of integers that is damaged"),
        (torch.eye(3).long(), "no vector of numbers"),
        (np.eye(3, dtype=np.int64), "no vector of numbers"),
        ("a note", "no vector of numbers"),
        (torch.zeros(16).to(torch.float8_e4m3fn), "a vector of something else than integers"),
    ],
)
def test_what_else_a_file_holds_is_said(tmp_path: Path, value: Any, why: str) -> None:
    path = saved(tmp_path, {**published(), "second": value})
    file = read_label_file(path)
    assert list(file.noisy) == ["noise_label_train"]
    assert file.left_out == {"second": why}
    with pytest.raises(ValueError, match=f"noise_label_train, not 'second', which is {why}$"):
        read(f"{path}#second")
    with pytest.raises(ValueError, match=f"found clean_label; second is {why}$"):
        read(saved(tmp_path, {"clean_label": CLEAN, "second": value}))


def test_sets_of_other_names_are_said(tmp_path: Path) -> None:
    coarse = {"clean_coarse_label": CLEAN // 2, "noisy_coarse_label": NOISY // 2}
    path = saved(tmp_path, {"clean_label": CLEAN, "noisy_label": NOISY, **coarse})
    assert read_label_file(path).left_out == {
        "noisy_coarse_label": "of coarser classes than clean_label"
    }
    np.savez(tmp_path / "mine.npz", noisy=NOISY, clean=CLEAN, second=WORSE)
    (name,) = read_label_file(tmp_path / "mine.npz").left_out
    assert name == "second"


@settings(max_examples=100)
@given(st.data())
def test_a_damaged_file_ends_well(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    # The older form has no checksum of its own.
    folder = tmp_path_factory.mktemp("damaged")
    path = saved(folder, HUMAN, _use_new_zipfile_serialization=False)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    path.write_bytes(bytes(content))
    said = str(path)
    try:
        read_vectors(path)
    except ValueError as error:
        said = str(error)
    assert said.startswith(str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clean": None}, "'clean' is missing"),
        ({"card": np.array("{}")}, "a noise card must be an object of"),
        ({"card": np.array("{")}, "must be a label file that covlearn noise wrote"),
        ({"noisy": CLEAN}, "the card in .* is of other labels"),
        ({"noisy": NOISY[:20]}, "the card in .* is of other labels"),
        ({"noisy": NOISY + 2}, "noisy must lie in 0…2"),
        ({"noisy": NOISY / 2}, "noisy must be integer"),
        ({"flip_rate": np.zeros(3)}, "the card in .* is of other labels"),
        ({"noisy": np.array([None] * 30)}, "must be a label file, .* Python objects"),
    ],
)
def test_a_changed_file_of_ours_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "labels.npz"
    write_labels(path, symmetric(CLEAN, rate=0.4, num_classes=3, seed=3), CLEAN)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files} | changes
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    with pytest.raises(ValueError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transition": [[1.0, 0.0]]}, "K×K transition"),
        ({"variant": None, "more": 1}, "must be an object of"),
    ],
)
def test_a_card_that_is_none_is_refused(changes: dict[str, Any], message: str) -> None:
    card = symmetric(CLEAN, rate=0.4, num_classes=3, seed=3).card.to_dict()
    whole = json.loads(json.dumps(card)) | changes
    with pytest.raises(ValueError, match=message):
        NoiseCard.from_dict(whole)
    with pytest.raises(ValueError, match="must be an object of"):
        NoiseCard.from_dict([])


def test_pickle_errors_do_not_leak(tmp_path: Path) -> None:
    path = tmp_path / "labels.pt"
    path.write_bytes(pickle.dumps({"clean_label": [1]}, protocol=4))
    with pytest.raises(ValueError, match=r"labels.pt .*"):
        read(path)


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(1, dtype=torch.int8).expand(2**42),
        torch.zeros(0, dtype=torch.long),
        torch.eye(3).long().to_sparse(),
    ],
    ids=["repeats itself", "empty", "sparse"],
)
def test_tensors_that_are_no_plain_vectors_are_left(tmp_path: Path, value: torch.Tensor) -> None:
    path = saved(
        tmp_path, {"clean_label_train": torch.from_numpy(CLEAN), "noise_label_train": value}
    )
    assert list(read_vectors(path).found) == ["clean_label_train"]


def test_labels_beyond_64_bits_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, {"clean_label_train": [2**70], "noise_label_train": [1]})
    with pytest.raises(ValueError, match="at most 64 bits"):
        read_vectors(path)
