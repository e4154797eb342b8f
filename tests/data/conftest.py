"""What the tests of data share: a folder of their own, and data sets of a few images."""

from pathlib import Path

import pytest

from covlearn.data.cifar import CIFAR, Cifar, Images
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
