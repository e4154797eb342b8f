"""Several processes on one GPU: CUDA's multi-process service, while a table is run.

Without it the processes take turns on the GPU, which is slower than one trial after the other
(docs/log.md); with it their kernels run at the same time.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

CONTROL = "nvidia-cuda-mps-control"
PLACES = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
TRIAL = "import torch; torch.zeros(1, device='cuda')"


@contextlib.contextmanager
def kernels_at_once(device: str, processes: int) -> Iterator[bool]:
    """Whether the processes started inside may use the GPU at the same time.

    A service that the user has started is used as it is; one that was started here ends here.
    """
    if not device.startswith("cuda") or processes == 1 or PLACES[0] in os.environ:
        yield PLACES[0] in os.environ
        return
    control = shutil.which(CONTROL)
    if control is None:
        yield False
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(dict.fromkeys(PLACES, folder))
        try:
            started = _succeeds([control, "-d"]) and _succeeds([sys.executable, "-c", TRIAL])
            if not started:
                _forget()
            yield started
        finally:
            os.environ[PLACES[0]] = folder
            _succeeds([control], text="quit -t 5\n")
            _forget()


def _succeeds(command: list[str], *, text: str = "") -> bool:
    try:
        done = subprocess.run(
            command, input=text, text=True, capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _forget() -> None:
    for name in PLACES:
        os.environ.pop(name, None)
