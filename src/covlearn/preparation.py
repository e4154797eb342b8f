"""How features are made ready for a network, and the same again for new ones."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Standardizer:
    """Columns of mean zero and deviation one; a constant column becomes zero."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, x: NDArray[Any]) -> Self:
        """The means and deviations of the columns of x (N, D).

        >>> Standardizer.of(np.array([[1.0, 5.0], [3.0, 5.0]])).scale
        array([1., 1.])
        """
        x = np.asarray(x, dtype=np.float64)
        mean = x.mean(axis=0)
        scale = x.std(axis=0)
        # Rounding leaves a constant column a deviation of about 1e-16 of its size.
        constant = scale <= 1e-12 * np.abs(mean)
        return cls(mean, np.where(constant | (scale == 0), 1.0, scale))

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """The columns of x, moved and scaled as those it was made of."""
        return (np.asarray(x, dtype=np.float64) - self.mean) / self.scale
