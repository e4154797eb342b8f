"""Small data, and one call of every generator on it."""

import numpy as np
from numpy.typing import NDArray

from covlearn import noise

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PUBLISHED = ("cal", "ptd", "simifeat", "bltm")
HALF_SWAP = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75], [0.1, 0.2, 0.7]])


def toy(
    count: int = 120, num_classes: int = 4, size: int = 6, seed: int = 0
) -> tuple[Floats, Ints]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, size)), rng.integers(0, num_classes, size=count)


def generate(name: str, *, seed: int = 3) -> noise.NoisyLabels:
    """One call of every generator and variant, on 120 examples of four classes."""
    x, y = toy()
    if name in noise.VARIANTS:
        return noise.instance_dependent(x, y, rate=0.4, num_classes=4, variant=name, seed=seed)
    if name in ("symmetric", "pair"):
        draw = noise.symmetric if name == "symmetric" else noise.pair
        return draw(y, rate=0.4, num_classes=4, seed=seed)
    if name == "class_dependent":
        return noise.class_dependent(y % 3, transition=HALF_SWAP, seed=seed)
    if name == "part_dependent":
        return noise.part_dependent(y % 3, y % 2, transitions=[HALF_SWAP, np.eye(3)], seed=seed)
    if name == "confused":
        probs = np.exp(x[:, :4])
        return noise.confused(
            y, probs=probs / probs.sum(axis=1, keepdims=True), rate=0.4, seed=seed
        )
    assert name == "instance_dependent_binary"
    rate = np.abs(np.tanh(x[:, 0]))
    return noise.instance_dependent_binary(y % 2, e_plus=rate, e_minus=0.3, seed=seed)


GENERATORS = (
    *noise.VARIANTS,
    "symmetric",
    "pair",
    "class_dependent",
    "confused",
    "part_dependent",
    "instance_dependent_binary",
)
