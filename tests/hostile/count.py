"""How many public names are held to what, and what wrong kinds of input raise.

``python -m tests.hostile.count`` prints the names by group and the exceptions by kind.
"""

import os
import tempfile
import warnings
from collections import Counter

from tests.hostile.catalogue import ELSEWHERE, FORMS, RECORDS, ROWS
from tests.hostile.test_catalogue import CASES, HELD, LINES, PUBLIC, spoilt


def main() -> None:
    """One line a figure."""
    raised: Counter[str] = Counter()
    os.chdir(tempfile.mkdtemp())
    for name in HELD:
        for arguments, _, _ in spoilt(name):
            try:
                with warnings.catch_warnings(action="ignore"):
                    PUBLIC[name](**arguments)
                raised["nothing: it is right"] += 1
            except Exception as error:
                raised[type(error).__name__] += 1
    print(f"{len(PUBLIC)} public names")
    print(f"{len(HELD)} held to every wrong kind, one argument at a time")
    print(f"{len(RECORDS.split())} records, {len(FORMS.split())} forms")
    for why, names in ELSEWHERE.items():
        print(f"{len(names)} {why}")
    print(f"{len(CASES)} rows of wrong values for {len(ROWS)} names; {len(LINES)} for commands")
    for kind, count in raised.most_common():
        print(f"{count} raise {kind}")


if __name__ == "__main__":
    main()
