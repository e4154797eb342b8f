"""``python -m covlearn``, and ``torchrun -m covlearn``."""

import sys

from covlearn.cli import main

if __name__ == "__main__":
    sys.exit(main())
