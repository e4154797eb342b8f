"""Array files, ``.npz`` and ``.npy``, of whoever wrote them: nothing is unpickled or inflated.

An archive of few bytes can claim to unpack to more than any machine holds. One that unpacks to more
than a gibibyte, and to over a hundred times its own size, is refused before any of it is unpacked.
"""

import math
import os
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

NPY_MAGIC = b"\x93NUMPY"
MOST_UNPACKED, MOST_TIMES = 2**30, 100


def read_arrays(path: Path, *, look: bool = False) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file by name.

    With ``look`` arrays of several columns are not read: zeros of their shape stand for them.
    A ValueError says why there are none, without the file's name; that a file is missing or may
    not be read is an OSError.
    """
    # Opened here: of a damaged archive NumPy would leave the file open.
    with path.open("rb") as raw:
        if raw.read(len(NPY_MAGIC)) == NPY_MAGIC:
            raise ValueError("it holds one bare array; name it .npy")
        raw.seek(0)
        try:
            with zipfile.ZipFile(raw) as archive:
                _check_unpacked(archive, raw)
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file, _quiet():
                arrays = {}
                for name in file.files:
                    stand_in = _stand_in(file, name) if look else None
                    arrays[name] = _checked(file[name] if stand_in is None else stand_in)
                return arrays
        except Exception as error:  # a damaged archive fails in every way there is
            raise ValueError(_reason(error)) from error


def _stand_in(file: Any, name: str) -> NDArray[Any] | None:
    """Zeros, which take no memory, for an array of several columns, by its header alone."""
    member = name if name in file.zip.namelist() else f"{name}.npy"
    headers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    with file.zip.open(member) as raw:
        header = headers.get(np.lib.format.read_magic(raw))
        if header is None:
            return None
        shape, _, dtype = header(raw)
    if dtype.hasobject or math.prod(shape[1:]) < 2:
        return None
    return np.broadcast_to(np.zeros((), dtype), shape)


def read_array(path: Path, *, mapped: Literal["r", "c"] | None = None) -> NDArray[Any]:
    """The array of an ``.npy`` file: read, mapped, or mapped and copied on write; errors alike."""
    with path.open("rb") as raw:
        if raw.read(len(NPY_MAGIC)) != NPY_MAGIC:
            raise ValueError("it does not start as one; an archive of arrays is named .npz")
        try:
            with _quiet():
                # Through the map in any case: a length that is only claimed is found out there.
                array = _checked(np.load(path, mmap_mode=mapped or "r", allow_pickle=False))
            return array if mapped else np.array(array)
        except Exception as error:
            raise ValueError(_reason(error)) from error


def _check_unpacked(archive: zipfile.ZipFile, raw: IO[bytes]) -> None:
    unpacked, packed = sum(info.file_size for info in archive.infolist()), raw.seek(0, os.SEEK_END)
    if unpacked > max(MOST_UNPACKED, MOST_TIMES * packed):
        raise ValueError(
            f"its {packed:,} bytes would unpack to {unpacked:,}; save it unpacked, with np.savez"
        )


def _checked(array: Any) -> NDArray[Any]:
    if not isinstance(array, np.ndarray):
        raise ValueError("it holds something else than arrays")
    # Of nothing at all there can be any number, and a list of them would fill the memory.
    if array.dtype.itemsize == 0 and array.size:
        raise ValueError("it holds an array whose entries have no bytes")
    return array


def _quiet() -> Any:
    """Without NumPy's word on files that Python 2 wrote."""
    return warnings.catch_warnings(action="ignore", category=UserWarning)


def _reason(error: Exception) -> str:
    text = str(getattr(error, "strerror", None) or error)
    text = " ".join(text.split())[:300] or type(error).__name__
    if any(word in text for word in ("pickle", "Object arrays", "Python objects")):
        return (
            "it is damaged, or it holds Python objects, which are never unpickled here; save "
            "numbers, and names as np.array(names, dtype=str)"
        )
    return text
