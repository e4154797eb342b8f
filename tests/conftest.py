"""Settings of the whole suite."""

import os
from pathlib import Path

import hypothesis
import pytest
import torch

# The tensors here are small: a second thread costs more than it brings, in subprocesses too.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

hypothesis.settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=50, print_blob=True
)
hypothesis.settings.load_profile("suite")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the repository; tests that need it skip, loudly, without."""
    folder = Path(os.environ.get("COVLEARN_SHARED_DATA", SHARED_DATA))
    if not folder.is_dir():
        pytest.skip(f"real data not at hand: {folder} is missing (see CONTRIBUTING.md)")
    return folder
