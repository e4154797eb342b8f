"""Settings of the whole suite."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest
import torch

from covlearn.data.cifar import CIFAR
from covlearn.data.fetch import fetch
from covlearn.data.sources import Source, from_store
from covlearn.data.store import stored_at

# The tensors here are small: a second thread costs more than it brings, in subprocesses too.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

hypothesis.settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=50, print_blob=True
)
hypothesis.settings.load_profile("suite")

# Tests of Ctrl-C must not depend on whether the suite itself runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test may look into, or write to, what the person who runs it has fetched.
os.environ["COVLEARN_DATA"] = tempfile.mkdtemp(prefix="covlearn-tests-")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the repository; tests that need it skip, loudly, without."""
    folder = Path(os.environ.get("COVLEARN_SHARED_DATA", SHARED_DATA))
    if not folder.is_dir():
        pytest.skip(f"real data not at hand: {folder} is missing (see CONTRIBUTING.md)")
    return folder


@pytest.fixture(scope="session")
def official_cifar(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the official files of CIFAR-10 and CIFAR-100, byte for byte."""
    tool = shared_data.parent / "tools" / "unpack_cifar.py"
    if not tool.is_file():
        pytest.skip(f"real data not at hand: {tool} is missing (see CONTRIBUTING.md)")
    folder = tmp_path_factory.mktemp("official")
    for name in ("cifar10", "cifar100"):
        subprocess.run([sys.executable, tool, shared_data / name, folder], check=True)
    return folder


@pytest.fixture(scope="session")
def cifar_folder(official_cifar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which covlearn keeps both data sets, as fetched from their official files."""
    folder = tmp_path_factory.mktemp("kept")
    for facts in CIFAR.values():
        fetch(facts, source=official_cifar, folder=folder)
    return folder


@pytest.fixture(scope="session")
def real_cifar(cifar_folder: Path) -> dict[str, Source]:
    """Both data sets, loaded."""
    return {
        name: from_store(facts, stored_at(facts, cifar_folder)) for name, facts in CIFAR.items()
    }
