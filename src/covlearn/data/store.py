"""CIFAR on this machine: one file a data set, which is mapped into memory and not read twice.

The file is in the safetensors format, in ``$COVLEARN_DATA`` or ``~/.cache/covlearn``. Its contents
are checked against the data set's digests whenever it is opened: that takes a fraction of a second,
and a run on damaged data takes hours.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import safetensors.numpy
from safetensors import SafetensorError, safe_open
from torch import Tensor

from covlearn.atomic import write_bytes
from covlearn.data.cifar import Cifar, Images, verified_order

SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Stored:
    """A data set as it lies in its file: images (N, 32, 32, 3) and labels, uint8."""

    path: Path
    order: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def data_folder() -> Path:
    """Where data sets are kept unless another folder is named."""
    named = os.environ.get("COVLEARN_DATA")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "covlearn"


def stored_at(facts: Cifar, folder: Path | None = None) -> Path:
    """The file of a data set."""
    return (folder or data_folder()) / f"{facts.name}{SUFFIX}"


def store(images: Images, facts: Cifar, folder: Path | None = None) -> Path:
    """Writes the file, whole or not at all."""
    path = stored_at(facts, folder)
    arrays = images._asdict()
    write_bytes(path, safetensors.numpy.save(arrays, metadata={"data": facts.name}))
    return path


def open_stored(facts: Cifar, path: Path | None = None) -> Stored:
    """The data set out of its file, checked."""
    path = path or stored_at(facts)
    again = f"covlearn data fetch {facts.name}"
    if not path.is_file():
        raise ValueError(
            f"{facts.title} is not on this machine ({path} does not exist); get it with: {again}"
        )
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in Images._fields}
        images = Images(**{name: tensor.numpy() for name, tensor in tensors.items()})
        order = verified_order(images, facts)
    except (SafetensorError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path} does not hold {facts.title} as covlearn keeps it: {error}; "
            f"get it with: {again}"
        ) from error
    return Stored(path, order, **tensors)
