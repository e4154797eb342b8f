"""Kernels of our own for training on CUDA, in Triton; the package can do without.

The modules below import Triton and are themselves imported only where :func:`available` says so.
"""

import functools
import importlib.util


@functools.cache
def available() -> bool:
    """Whether Triton is installed; PyTorch's builds for CUDA on Linux bring it along."""
    return importlib.util.find_spec("triton") is not None
