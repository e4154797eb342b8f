"""Files of known names, out of a folder or straight out of an archive: nothing is unpacked."""

import gzip
import tarfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

Content: TypeAlias = Path | bytes
Progress: TypeAlias = Callable[[str, int, int], None]
"""What is being done, how far it is, and how far it goes."""

MOST_BYTES = 2**29  # unpacked, CIFAR's archives have 186 million
GZIP_MAGIC, TAR_MAGIC, TAR_MAGIC_AT = b"\x1f\x8b", b"ustar", 257


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


def known_files(
    path: Path, names: Collection[str], progress: Progress = silent
) -> dict[str, Content]:
    """Those of the named files that are there, by the last part of their name.

    A name such as ``cifar-100-python/train`` is also found where the folder is itself given, or was
    left out of the archive. Of an archive everything else is skipped.
    """
    if path.is_dir():
        places = {name: [path / name, path / _last(name)] for name in names}
        found = {name: [p for p in places[name] if p.is_file()] for name in names}
        return {_last(name): places[0] for name, places in found.items() if places}
    try:
        return _from_archive(path, {*names, *map(_last, names)}, progress)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path} is damaged or only half there ({error}); download or pack it again"
        ) from error


def content(file: Content) -> bytes:
    """What is in a file."""
    if isinstance(file, bytes):
        return file
    if file.stat().st_size > MOST_BYTES:
        raise ValueError(f"{file} has over {MOST_BYTES:,} bytes, which no file of CIFAR has")
    return file.read_bytes()


def _from_archive(path: Path, names: Collection[str], progress: Progress) -> dict[str, Content]:
    found: dict[str, Content] = {}
    with path.open("rb") as raw:
        start = raw.read(TAR_MAGIC_AT + len(TAR_MAGIC))
        raw.seek(0)
        if start.startswith(GZIP_MAGIC):
            unpacked: Any = gzip.GzipFile(fileobj=raw)
        elif start[TAR_MAGIC_AT:] == TAR_MAGIC:
            unpacked = raw
        else:
            raise ValueError(
                f"{path} is neither a folder nor an archive (.tar.gz, .tgz, .tar); it may be half "
                "downloaded, or a page that says why there is no download"
            )
        bounded: Any = _Bounded(path, raw, unpacked, progress)
        with tarfile.open(fileobj=bounded, mode="r|", bufsize=1 << 20) as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if name not in names:
                    continue
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    raise ValueError(f"{name} in {path} must be a plain file, not a link or device")
                if member.size > MOST_BYTES:
                    raise ValueError(f"{name} in {path} has {member.size:,} bytes, too many by far")
                file = archive.extractfile(member)
                assert file is not None
                found[_last(name)] = file.read()
    return found


class _Bounded:
    """A file that is read from front to end and refuses to unpack to absurd sizes."""

    def __init__(self, path: Path, raw: Any, unpacked: Any, progress: Progress) -> None:
        self.path, self.raw, self.unpacked, self.progress = path, raw, unpacked, progress
        self.total = path.stat().st_size
        self.count = 0

    def read(self, size: int) -> bytes:
        """The next bytes."""
        read: bytes = self.unpacked.read(size)
        self.count += len(read)
        if self.count > MOST_BYTES:
            raise ValueError(
                f"{self.path} unpacks to over {MOST_BYTES:,} bytes, which no archive of CIFAR does"
            )
        self.progress("unpacking", self.raw.tell(), self.total)
        return read


def _last(name: str) -> str:
    return PurePosixPath(name).name
