"""Damages files for as long as one likes: ``python -m tests.hostile.fuzz --minutes 60``.

Guided by coverage where atheris is installed (``pip install atheris``), else at random. Each kind of
fault is written once to the folder of findings; what was mended moves to ``tests/hostile/corpus``.
"""

import argparse
import collections
import hashlib
import importlib.util
import json
import random
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any


class Findings:
    """Faults by reader, kind and place, with one file each."""

    def __init__(self, folder: Path, readers: list[Any], places: list[Path]) -> None:
        self.folder, self.readers, self.places = folder, readers, places
        self.faults: dict[tuple[str, ...], int] = collections.Counter()
        self.runs: dict[str, int] = collections.Counter()
        self.began = time.monotonic()

    def look(self, number: int, content: bytes) -> None:
        """Reads one file."""
        reader = self.readers[number]
        self.runs[reader.name] += 1
        try:
            reader.attempt(self.places[number], content)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            frames = [
                f for f in traceback.extract_tb(error.__traceback__) if "covlearn" in f.filename
            ]
            place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
            kind = (reader.name, type(error).__name__, place)
            self.faults[kind] += 1
            if self.faults[kind] == 1:
                to = (
                    self.folder
                    / reader.name.replace(" ", "_")
                    / hashlib.sha256(content).hexdigest()[:12]
                )
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(content)
                print(*kind, str(error)[:200].replace("\n", " "), to, sep=" | ", flush=True)

    def summary(self) -> str:
        """What was done, as JSON."""
        return json.dumps(
            {
                "minutes": round((time.monotonic() - self.began) / 60, 1),
                "files": sum(self.runs.values()),
                "readers": len(self.runs),
                "fewest_files_of_a_reader": min(self.runs.values(), default=0),
                "faults": [[*kind, count] for kind, count in self.faults.items()],
            }
        )


def at_random(findings: Findings, seconds: float, seed: int) -> None:
    """One file of each reader after the other."""
    from tests.hostile.mutate import mutated  # noqa: PLC0415

    rng = random.Random(seed)
    while time.monotonic() - findings.began < seconds:
        for number, reader in enumerate(findings.readers):
            findings.look(number, mutated(rng.choice(reader.seeds), rng))


def by_coverage(findings: Findings, seconds: float, seed: int) -> None:
    """Atheris keeps the files that reach new branches; the first two bytes choose the reader."""
    import atheris  # noqa: PLC0415

    from tests.hostile.mutate import mutated  # noqa: PLC0415

    count = len(findings.readers)

    def one(content: bytes) -> None:
        if len(content) > 2:
            findings.look(int.from_bytes(content[:2], "big") % count, content[2:])
        if time.monotonic() - findings.began > seconds:
            print(findings.summary(), flush=True)
            sys.stdout.flush()
            import os  # noqa: PLC0415

            os._exit(0)  # libFuzzer has no other way out

    def change(content: bytes, most: int, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < 0.3 or len(content) < 3:
            return atheris.Mutate(content, most)  # type: ignore[no-any-return]
        return (content[:2] + mutated(content[2:], rng))[:most]

    corpus = Path(tempfile.mkdtemp())
    for number, reader in enumerate(findings.readers):
        for place, content in enumerate(reader.seeds):
            (corpus / f"{number}-{place}").write_bytes(number.to_bytes(2, "big") + content)
    longest = 2 + max(len(content) for reader in findings.readers for content in reader.seeds)
    options = [
        f"-seed={seed}",
        f"-max_len={longest}",
        "-timeout=30",
        "-rss_limit_mb=4096",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one, custom_mutator=change)
    atheris.Fuzz()


def main() -> None:
    """Makes whole files, and damages them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    parser.add_argument("--random", action="store_true", help="without atheris, if it is there")
    options = parser.parse_args()
    guided = not options.random and importlib.util.find_spec("atheris") is not None
    warnings.simplefilter("error")
    if guided:
        import atheris  # noqa: PLC0415

        with atheris.instrument_imports(include=["covlearn"]):
            import tests.hostile.readers  # noqa: F401, PLC0415
    from tests.hostile.readers import make_readers  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as scratch:
        readers = make_readers(Path(scratch))
        places = [Path(scratch) / "places" / str(number) for number in range(len(readers))]
        for reader, place in zip(readers, places, strict=True):
            reader.prepare(place)
        findings = Findings(options.findings, readers, places)
        (by_coverage if guided else at_random)(findings, 60 * options.minutes, options.seed)
        print(findings.summary())


if __name__ == "__main__":
    main()
