"""Arrays and array files: features, embeddings, or uint8 images, with labels.

An ``.npz`` file (or a dict) has the inputs under x, features, embeddings or images and the labels
under y, labels or targets (``label=`` names another). Beside ``x.npy`` lies ``y.npy``, beside
``features.npy`` or ``embeddings.npy`` lies ``labels.npy``; ``label=`` names another file. Nothing
is unpickled. Features are flattened to (N, D) and each column is brought to mean 0 and deviation 1.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covlearn import npz
from covlearn.inputs.examples import FORMAT, LISTED, Reading, Skipped, some
from covlearn.kinds import nearest

X_NAMES = ("x", "features", "embeddings", "images", "data", "x_train")
Y_NAMES = ("y", "labels", "label", "targets", "target", "y_train")
ID_NAMES = ("ids", "id")
PARTNERS = {"x": "y", "features": "labels", "embeddings": "labels", "images": "labels"}
BLOCK = 4096  # rows that are looked at together


def read_npz(path: Path, *, look: bool = False) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name; nothing in it is executed.

    With ``look`` arrays of several columns are not read: zeros of their shape stand for them.
    """
    try:
        arrays = npz.read_arrays(path, look=look)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as an .npz file: {_reason(error)}") from error
    if not arrays:
        raise ValueError(f"{path} is an archive of nothing; arrays x and y were expected")
    return arrays


def read_npy(path: Path) -> NDArray[Any]:
    """One array, mapped into memory; nothing in it is executed."""
    try:
        return npz.read_array(path, mapped="r")
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as an .npy file: {_reason(error)}") from error


def partner(path: Path) -> Path | None:
    """The file of labels that lies beside a file of inputs, if there is one."""
    for start, other in PARTNERS.items():
        if path.stem.lower().startswith(start):
            name = other + path.stem[len(start) :]
            for candidate in (path.with_stem(name), path.with_stem(name.upper())):
                if candidate.is_file():
                    return candidate
    return None


def pick(
    arrays: Mapping[str, Any], usual: Sequence[str], given: str | None, where: str, option: str
) -> str | None:
    """The name of an array, as given or else a usual one."""
    if given is not None:
        if given not in arrays:
            raise ValueError(
                f"{where} has no array {given!r}, which {option} names{nearest(given, arrays)}; it "
                f"has {some(list(arrays), listed=20)}"
            )
        return given
    lower = {name.lower(): name for name in reversed(list(arrays))}
    return next((lower[name] for name in usual if name in lower), None)


def as_array(values: Any) -> NDArray[Any]:
    """A tensor, an array or a list as an array."""
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    return np.asarray(values)


def as_images(x: NDArray[Any]) -> NDArray[np.uint8] | None:
    """The array as images (N, H, W, C) if it holds any: uint8 with three or four dimensions."""
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        return None
    if x.ndim == 3:
        return x[..., None]
    if x.shape[3] not in (1, 3, 4) and x.shape[1] in (1, 3, 4):
        return x.transpose(0, 2, 3, 1)
    if x.shape[3] not in (1, 3, 4):
        raise ValueError(
            f"images must have shape (N, H, W, C) with 1, 3 or 4 channels, got {x.shape}; pass "
            "other uint8 data as float features"
        )
    return x


def check_features(
    x: NDArray[Any], reading: Reading, recipe: Mapping[str, Any] | None
) -> NDArray[Any]:
    """The inputs as (N, D), if they are numbers of a shape that can be used."""
    if x.dtype.kind not in "biuf":
        what = "Python objects" if x.dtype.kind == "O" else str(x.dtype)
        raise ValueError(f"the inputs of {reading.where} must be numbers, got {what}")
    if x.ndim < 2 or x.shape[0] == 0 or x[0].size == 0:
        raise ValueError(
            f"the inputs of {reading.where} must have shape (examples, features), with at least "
            f"one of each, got {x.shape}"
        )
    if x.ndim > 2:
        reading.note(f"inputs of shape {x.shape[1:]} were flattened to {x[0].size:,} features")
        x = x.reshape(len(x), -1)
    if recipe is not None and recipe["dim"] != x.shape[1]:
        raise ValueError(
            f"{reading.where} must have {recipe['dim']:,} features an example, as training had, "
            f"got {x.shape[1]:,}"
        )
    return x


def read_features(
    x: NDArray[Any], ids: Sequence[str], reading: Reading, recipe: Mapping[str, Any] | None
) -> tuple[Tensor, NDArray[np.bool_], dict[str, Any]]:
    """Standardised float32 rows (N, D), which of them are good, and the recipe."""
    x = check_features(x, reading, recipe)
    good = np.concatenate(
        [np.isfinite(x[start : start + BLOCK]).all(axis=1) for start in range(0, len(x), BLOCK)]
    )
    bad = np.flatnonzero(~good)
    reading.bad([Skipped(ids[row], _not_finite(x[row])) for row in bad.tolist()])
    if not good.any():
        raise ValueError(f"not one row of {reading.where} is finite")
    if recipe is None:
        mean, std = _moments(x, good)
        recipe = {
            "format": FORMAT,
            "kind": "features",
            "dim": int(x.shape[1]),
            "mean": mean.tolist(),
            "std": np.where(std > 0, std, 1.0).tolist(),
        }
        if (std == 0).all():
            raise ValueError(
                f"the inputs of {reading.where} are all alike; there is nothing to learn"
            )
    mean, std = (np.asarray(recipe[name], dtype=np.float64) for name in ("mean", "std"))
    result = torch.empty((len(x), x.shape[1]), dtype=torch.float32)
    for start in range(0, len(x), BLOCK):
        reading.show(min(start + BLOCK, len(x)), len(x), "reading features")
        with np.errstate(all="ignore"):  # of rows that are left out
            block = x[start : start + BLOCK].astype(np.float64)
            result[start : start + BLOCK] = torch.from_numpy((block / 2 - mean / 2) / (std / 2))
    near = result.isfinite().all(dim=1).numpy()
    reading.bad(
        [
            Skipped(ids[row], "its inputs are larger by far than any of training")
            for row in np.flatnonzero(good & ~near).tolist()
        ]
    )
    return result, good & near, dict(recipe)


def _moments(x: NDArray[Any], good: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and deviation of each column over the good rows, in float64, two passes."""
    starts = range(0, len(x), BLOCK)
    blocks = [(x[s : s + BLOCK], good[s : s + BLOCK]) for s in starts]
    count = int(good.sum())
    scale = np.maximum.reduce(
        [np.abs(b[g].astype(np.float64)).max(axis=0, initial=0) for b, g in blocks]
    )
    scale = np.where(scale > 0, scale, 1.0)
    mean = sum((b[g] / scale).sum(axis=0) for b, g in blocks) / count
    variance = sum(((b[g] / scale - mean) ** 2).sum(axis=0) for b, g in blocks) / count
    return mean * scale, np.sqrt(variance) * scale


def _not_finite(row: NDArray[Any]) -> str:
    places = np.flatnonzero(~np.isfinite(row))
    shown = ", ".join(map(str, places[:LISTED])) + (", …" if len(places) > LISTED else "")
    return f"its inputs must be finite, got NaN or infinity at {shown}"


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
