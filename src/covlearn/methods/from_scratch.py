"""``recommended`` for many small images and a GPU: a ResNet trained from scratch.

The settings are those of CIFAR (:mod:`covlearn.methods.presets`), for any number of images and of
classes: the regulariser's weight βπ of a class is kept as it is there, and beyond 200,000 images
there are fewer epochs.
"""

from dataclasses import replace
from typing import Any

from covlearn.methods import Method
from covlearn.methods.cal import CAL
from covlearn.methods.presets import MOVED, for_classes, kind_of_images, preset
from covlearn.methods.scaled import Choice, stretch

MANY = 200_000  # images, from which on epochs are fewer
NET, BATCH = "resnet34", 128


def from_scratch(method: str, *, num_examples: int, num_classes: int) -> Choice:
    """The method with its settings for so many images and classes, and its network."""
    kind = kind_of_images(num_classes)
    made: Method = for_classes(preset("recommended", method, kind), num_classes)
    if num_examples > MANY:
        made = stretch(made, MANY / num_examples, BATCH)
    if isinstance(made, CAL):
        made = replace(made, prior_scale=num_classes / 10)
    return Choice(made, NET)


def movement(side: int) -> dict[str, Any]:
    """How training images of a side are moved: a crop of an eighth, and a flip.

    >>> movement(32)
    {'crop': 4, 'flip': True}
    """
    return {**MOVED["cifar10"], "crop": max(1, side // 8)}
