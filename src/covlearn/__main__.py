"""``python -m covlearn``, and ``torchrun -m covlearn``."""

import os
import sys

from covlearn.cli import main

if __name__ == "__main__":
    code = main()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # gloo's threads may outlive its process group, and one that meets an interpreter which is
        # being taken down aborts the process: all was done, and torchrun would call it a failure.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
