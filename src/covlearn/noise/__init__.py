"""Label-noise generators; each says what it did on a noise card. Paper: Alg. 2 and Sec. 3.3."""

from covlearn.noise.card import NoiseCard, NoisyLabels
from covlearn.noise.instance import VARIANTS, instance_dependent
from covlearn.noise.simple import (
    class_dependent,
    confused,
    instance_dependent_binary,
    pair,
    part_dependent,
    symmetric,
)

__all__ = [
    "VARIANTS",
    "NoiseCard",
    "NoisyLabels",
    "class_dependent",
    "confused",
    "instance_dependent",
    "instance_dependent_binary",
    "pair",
    "part_dependent",
    "symmetric",
]
