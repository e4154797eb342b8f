"""Small data sets in the forms in which CIFAR comes."""

import hashlib
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from covlearn.data.cifar import CIFAR10, CIFAR100, OFFICIAL, SORTED, Cifar, Images

ARRAY_BEFORE = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
DTYPE = (
    b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
)


def python2_pickle(fields: dict[bytes, Any]) -> bytes:
    """As Python 2 wrote bytes, lists of small numbers and uint8 arrays (at most 65,535 rows)."""
    parts = [b"\x80\x02}("]
    for key, value in fields.items():
        parts.append(b"U" + bytes([len(key)]) + key)
        if isinstance(value, np.ndarray):
            shape = b"".join(b"M" + size.to_bytes(2, "little") for size in value.shape)
            content = b"T" + value.nbytes.to_bytes(4, "little") + value.tobytes()
            parts.append(ARRAY_BEFORE + b"(" + shape + b"t" + DTYPE + b"\x89" + content + b"tb")
        elif isinstance(value, bytes):
            parts.append(b"U" + bytes([len(value)]) + value)
        else:
            parts.append(b"](" + b"".join(b"K" + bytes([item]) for item in value) + b"e")
    return b"".join([*parts, b"u."])


def random_images(facts: Cifar, *, seed: int = 0) -> Images:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, size=(facts.num_train + facts.num_test, 32, 32, 3), dtype=np.uint8)
    cut = facts.num_train
    y, y_test = (
        rng.permutation(np.arange(count) % facts.num_classes).astype(np.uint8)
        for count in (facts.num_train, facts.num_test)
    )
    return Images(x[:cut], y, x[cut:], y_test)


def tiny(facts: Cifar, *, num_train: int = 20, num_test: int = 10) -> tuple[Cifar, Images]:
    """The facts of a data set of a few random images, and these."""
    facts = replace(facts, num_train=num_train, num_test=num_test)
    images = random_images(facts)
    digests = {OFFICIAL: digests_of(images), SORTED: digests_of(sorted_by_pixels(images))}
    return replace(facts, digests=digests), images


def tiny_cifar10() -> tuple[Cifar, Images]:
    return tiny(CIFAR10)


def tiny_cifar100() -> tuple[Cifar, Images]:
    return tiny(CIFAR100)


def digests_of(images: Images) -> dict[str, str]:
    return {
        name: hashlib.sha256(array.tobytes()).hexdigest()
        for name, array in images._asdict().items()
    }


def sorted_by_pixels(images: Images) -> Images:
    def order(x: NDArray[np.uint8]) -> list[int]:
        return sorted(range(len(x)), key=lambda i: hashlib.sha256(x[i].tobytes()).hexdigest())

    train, test = order(images.train_x), order(images.test_x)
    return Images(
        images.train_x[train], images.train_y[train], images.test_x[test], images.test_y[test]
    )


def official_files(images: Images, facts: Cifar) -> dict[str, bytes]:
    """The pickles by name, with the training images dealt to the files in order."""
    files = {}
    parts = len(facts.train_files)
    train = zip(np.split(images.train_x, parts), np.split(images.train_y, parts), strict=True)
    names = (*facts.train_files, facts.test_file)
    for name, (x, y) in zip(names, [*train, (images.test_x, images.test_y)], strict=True):
        fields = {
            b"batch_label": name.encode(),
            facts.label_key: y.tolist(),
            b"data": np.ascontiguousarray(x.transpose(0, 3, 1, 2)).reshape(len(x), -1),
        }
        files[f"{facts.folder}/{name}"] = python2_pickle(fields)
    return files


def package_files(images: Images, facts: Cifar) -> dict[str, bytes]:
    """The npm package: PNG mosaics with an image a row, labels as JSON."""
    files = {}
    parts = [*np.split(images.train_x, len(facts.train_files)), images.test_x]
    for name, x in zip((*facts.train_files, facts.test_file), parts, strict=True):
        buffer = io.BytesIO()
        Image.fromarray(x.reshape(len(x), 1024, 3)).save(buffer, "PNG", compress_level=0)
        files[f"package/{name}.png"] = buffer.getvalue()
    files["package/train_lables.json"] = json.dumps(images.train_y.tolist()).encode()
    files["package/test_lables.json"] = json.dumps(images.test_y.tolist()).encode()
    return files


def class_folders(
    folder: Path, images: Images, *, numbered: bool, suffix: str = ".png", names: bool = True
) -> Path:
    """``train/CLASS/NUMBER.png``; not numbered, the numbers say nothing about the order."""
    for part, x, y in (
        ("train", images.train_x, images.train_y),
        ("test", images.test_x, images.test_y),
    ):
        for number, (image, label) in enumerate(zip(x, y, strict=True)):
            where = folder / part / (f"{chr(97 + label)}_class" if names else str(label))
            where.mkdir(parents=True, exist_ok=True)
            name = f"{number:03}" if numbered else f"s_{hashlib.md5(image).hexdigest()}"
            Image.fromarray(image).save(where / f"{name}{suffix}")
    return folder


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_archive(
    path: Path,
    files: dict[str, bytes],
    *,
    mode: str = "w:gz",
    prefix: str = "",
    **options: Any,
) -> Path:
    with tarfile.open(path, mode, **options) as archive:  # type: ignore[call-overload]
        for name, content in {"README.md": b"not needed", **files}.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path
