"""Gets CIFAR from its archive on the network, or from what is on the disk already."""

import http.client
import ssl
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from covlearn import records
from covlearn.atomic import check_can_write, remove_leftovers
from covlearn.data.archives import MOST_BYTES, Progress, silent
from covlearn.data.cifar import OFFICIAL, Cifar
from covlearn.data.cifar_files import read_cifar
from covlearn.data.store import open_stored, store, stored_at

CHUNK = 1 << 18
TIMEOUT = 30  # seconds without a byte
NETWORK = (
    urllib.error.URLError,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
    http.client.HTTPException,
)


@dataclass(frozen=True)
class Fetched:
    """Where a data set is now, the order of its images, and what it was read from."""

    path: Path
    order: str
    what: str


def fetch(
    facts: Cifar,
    *,
    source: Path | None = None,
    folder: Path | None = None,
    progress: Progress = silent,
) -> Fetched:
    """Reads, checks and keeps a data set; without a source it is downloaded, unless it is there."""
    path = stored_at(facts, folder)
    records.check_folder(path.parent)  # before anything is downloaded
    remove_leftovers(path)
    if source is None and path.exists():
        try:
            there = open_stored(facts, path)
        except ValueError:
            pass  # damaged: get it anew
        else:
            if there.order == OFFICIAL:
                return Fetched(path, there.order, "this machine")
    check_can_write(path)
    if source is None:
        return _downloaded(facts, path.parent, progress)
    return _kept(source, facts, folder, progress)


def _kept(source: Path, facts: Cifar, folder: Path | None, progress: Progress) -> Fetched:
    checked = read_cifar(source, facts, progress)
    progress("writing", 1, 1)
    return Fetched(store(checked.images, facts, folder), checked.order, checked.what)


def _downloaded(facts: Cifar, folder: Path, progress: Progress) -> Fetched:
    with tempfile.TemporaryDirectory(prefix="covlearn-") as temporary:
        archive = Path(temporary) / facts.url.rpartition("/")[2]
        try:
            _download(facts.url, archive, progress)
        except NETWORK as error:
            why = error.reason if isinstance(error, urllib.error.URLError) else error
            raise ValueError(
                f"cannot download {facts.url}: {why}; download it elsewhere and pass it with --from"
            ) from error
        try:
            return _kept(archive, facts, folder, progress)
        except ValueError as error:
            raise ValueError(f"what came from {facts.url} is of no use: {error}") from error


def _download(url: str, to: Path, progress: Progress) -> None:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response, to.open("wb") as file:
        total = int(response.headers.get("Content-Length") or 0)
        done = 0
        while chunk := response.read(CHUNK):
            file.write(chunk)
            done += len(chunk)
            progress("downloading", done, total)
            if done > MOST_BYTES:
                raise ValueError(f"{url} is over {MOST_BYTES:,} bytes, too many by far")
        if done < total:
            raise ValueError(
                f"{url} broke off after {done:,} of {total:,} bytes; try again, or download it "
                "elsewhere and pass it with --from"
            )
