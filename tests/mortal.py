"""Networks that are disturbed in the middle of training: neither changes what is computed.

Mortal: one of its processes dies once.

``COVLEARN_DIES=PROCESS:STEP`` says which and when; torchrun then starts all of them again. In the
file ``COVLEARN_STEPS`` the first process notes each step, as the number of times it was started
again before.

Patient: it waits while there is a file ``COVLEARN_GATE``.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

from torch import Tensor

from covlearn import distributed
from covlearn.nets.small import MLP


class Mortal(MLP):
    """A small multilayer perceptron."""

    steps = 0  # of all networks of this process

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"hidden": [16], **options})

    def features(self, x: Tensor) -> Tensor:
        if self.training:
            Mortal.steps += 1
            self.live_or_die()
        return super().features(x)

    def live_or_die(self) -> None:
        before = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        if "COVLEARN_STEPS" in os.environ and distributed.process() == 0:
            with Path(os.environ["COVLEARN_STEPS"]).open("a", encoding="ascii") as file:
                file.write(f"{before}\n")
        process, _, step = os.environ.get("COVLEARN_DIES", "").partition(":")
        if before == "0" and (process, step) == (str(distributed.process()), str(Mortal.steps)):
            os.kill(os.getpid(), signal.SIGKILL)


class Patient(MLP):
    """Trains some steps, and waits then."""

    steps = 0

    def features(self, x: Tensor) -> Tensor:
        if self.training:
            Patient.steps += 1
            while Patient.steps > 6 and Path(os.environ.get("COVLEARN_GATE", "")).is_file():
                time.sleep(0.05)
        return super().features(x)
