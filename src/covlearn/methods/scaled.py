"""``recommended`` for data of any size: how long, in what batches and with what network.

A batch of about 1.8·√N, at least 600 steps (fewer below 1,200 rows of features) and 20 epochs, and
all schedules as shares of the epochs. CAL differs from its preset for small data: the sieves are
cross-fitted, below 1,000 rows three times, plainly trained and held back by half the epochs, a
weight decay of 1/√N (3 % at most, less above 100 classes, more above 128 features), or a larger or
smaller one where that predicts more (not for images), and an average of the weights, and the second
stage is trained on D̂ in the same way, without the covariance and peer terms. D̂ holds the labels
that are sure, given the sieves and the labels that came (:mod:`covlearn.calibration`). Where no
label looks wrong, cross-entropy is trained as its own preset says, or with the plan of the sieves
where that predicts more.

All of this was chosen on scikit-learn's bundled data and 10,000 images of Fashion-MNIST, by clean
labels and a handful of seeds, and ``benchmarks/peers.py`` measures it on the same data; network and
weight decays on the tables of ``benchmarks/hard_tables.py``; what is for images on 2,000 of them
and one seed (``benchmarks/pixels.py``). Nothing here looks at a label.
"""

import math
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from covlearn.config import Tree, override, plain
from covlearn.engine import Plan
from covlearn.kinds import checked
from covlearn.methods import Method
from covlearn.methods.cal import CAL
from covlearn.methods.crossfit import CrossFittedCAL
from covlearn.methods.presets import MOVED, for_classes, kind_of_images, preset
from covlearn.schedules import Ramp

__all__ = ["Choice", "recommended"]

SHORT_EPOCHS = 30  # of the presets for small data, which are stretched
FEWEST_EPOCHS = 20
MOST_AT_FULL_STEP = 128  # features
FEW_IMAGES = 10_000
FEW_ROWS = 1_000  # of which sieves depend on who has seen what, and are cheap
MANY = 200_000  # images, from which on a ResNet has fewer epochs
RESNET, BATCH = "resnet34", 128
OF_THE_TERM = ("beta", "prior_scale", "weighting", "peer", "base", "target", "mixup")
"""Settings of a second stage that has the covariance or the regulariser."""
COUNTED_IN_EPOCHS = ("forget_epochs", "warm_up_epochs", "prune_from", "prune_every", "sieve_from")


@dataclass(frozen=True)
class Choice:
    """A method with all its settings, and the network that it trains."""

    method: Method
    net: str
    net_options: dict[str, Any] = field(default_factory=dict)


@checked
def recommended(
    method: str, *, num_examples: int, num_classes: int, shape: tuple[int, ...]
) -> Choice:
    """The settings for so many examples of a shape, (D,) or (H, W, C), and so many classes.

    >>> recommended("cal", num_examples=100_000, num_classes=1000, shape=(512,)).method.plan.epochs
    21
    """
    batch_size, epochs = schedule(num_examples, images=len(shape) == 3)
    made = preset("recommended", method, "small")
    stretched = gentler(stretch(made, epochs / SHORT_EPOCHS, batch_size), shape)
    stretched = for_classes(stretched, num_classes)
    if isinstance(stretched, CAL):
        stretched = cross_fitted(stretched, num_examples, num_classes, epochs, shape)
    net, options = network(shape, num_classes, num_examples)
    if method == "ptd" and net == "mlp":
        options["shortcut"] = False  # parts are made of features that a ReLU has made positive
    return Choice(stretched, net, options)


def gentler(method: Method, shape: tuple[int, ...]) -> Method:
    """Steps of SGD that shrink with the number of features above 128, images aside.

    A step moves the first layer's outputs by lr · ‖x‖², and ‖x‖² is D for standardised features:
    with the step for a hundred of them a network learns nothing from the 1,280 of an extractor.

    >>> made = recommended("ce", num_examples=400, num_classes=10, shape=(1280,)).method
    >>> round(made.plan.lr, 6)
    0.01
    """
    if len(shape) == 3 or math.prod(shape) <= MOST_AT_FULL_STEP:
        return method
    factor = MOST_AT_FULL_STEP / math.prod(shape)
    changes = {
        each.name: replace(plan, lr=factor * plan.lr)
        for each in fields(method)  # type: ignore[arg-type]
        if isinstance(plan := getattr(method, each.name), Plan) and plan.optimizer == "sgd"
    }
    assert is_dataclass(method)
    made: Method = replace(method, **changes)
    return made


def schedule(num_examples: int, *, images: bool = False) -> tuple[int, int]:
    """Examples a batch and epochs.

    >>> [schedule(count) for count in (150, 1297, 100_000)]
    [(16, 20), (64, 29), (512, 20)]
    """
    batch_size = min(max(2 ** round(math.log2(1.8 * math.sqrt(num_examples))), 8), 512)
    steps = math.ceil(num_examples / batch_size)
    # The features of a hundred examples are known by heart long before six hundred steps; what is
    # in their images has to be learned first.
    fewest = 600 if images else min(600, max(150, num_examples // 2))
    return batch_size, max(FEWEST_EPOCHS, math.ceil(fewest / steps))


def network(
    shape: tuple[int, ...], num_classes: int, num_examples: int
) -> tuple[str, dict[str, Any]]:
    """An MLP with a shortcut for features, a small convolutional network for images, for few of
    them a narrow one.

    Of 2,000 images the narrow one learns no less in a third of the time (``results/pixels.json``).
    """
    if len(shape) == 3:
        return "cnn", {"widths": [16, 32, 64]} if num_examples < FEW_IMAGES else {}
    width = 256 if num_classes <= 256 else 512
    return "mlp", {"hidden": [width, width], "shortcut": True}


def cross_fitted(
    method: CAL, num_examples: int, num_classes: int, epochs: int, shape: tuple[int, ...]
) -> CrossFittedCAL:
    """CAL with cross-fitted sieves, and both stages held back from knowing labels by heart.

    Half the epochs, but four steps a class at least: of hundreds of classes a network has learned
    too little by then (``results/sizes.json``). Networks for images have batch norms, where decay
    holds nothing back: it makes weights turn faster (``results/pixels_before.json``). So they have
    that of plain training.
    """
    images = len(shape) == 3
    steps = math.ceil(num_examples / method.plan.batch_size)
    epochs = max(round(epochs / 2), math.ceil(4 * num_classes / steps))
    # Weights of hundreds of classes, each with few examples, would be decayed to nothing.
    decay = min(0.03, num_examples**-0.5) * min(1.0, 100 / num_classes)
    # Smaller steps, of many features, would be held back less by the same decay.
    decay *= max(1.0, math.prod(shape) / MOST_AT_FULL_STEP)
    plan = replace(
        method.plan,
        epochs=epochs,
        lr_milestones=(round(2 * epochs / 3),),
        divide_lr=False,
        weight_decay=method.plan.weight_decay if images else decay,
    )
    made = override(CrossFittedCAL(), plain(method))
    return replace(
        made,
        sieve_plan=plan,
        sieve_beta=Ramp(0.0),
        plan=plan,
        plain_plan=replace(method.plan, divide_lr=False),
        relabel=True,
        deals=3 if num_examples < FEW_ROWS and not images else 1,
        average_share=1 / 6,
        # More leaves little but a linear function, which some tables need no more than; less is
        # for those that are hard to learn from (benchmarks/hard_tables.py).
        decays=() if images else (10 * decay, 0.3 * decay),
        may_hold_back=not images,
        # Of clean images the surest predictions contradict one label in 25 (results/pixels.json).
        tolerated=0.05 if images else made.tolerated,
    )


def from_scratch(method: str, *, num_examples: int, num_classes: int) -> Choice:
    """The settings for many small images on a GPU, and a ResNet.

    They are those of CIFAR (:mod:`covlearn.methods.presets`): the regulariser's weight βπ of a
    class is kept as it is there, and beyond 200,000 images there are fewer epochs.
    """
    kind = kind_of_images(num_classes)
    made: Method = for_classes(preset("recommended", method, kind), num_classes)
    if num_examples > MANY:
        made = stretch(made, MANY / num_examples, BATCH)
    if isinstance(made, CAL):
        made = replace(made, prior_scale=num_classes / 10)
    return Choice(made, RESNET)


def movement(side: int) -> dict[str, Any]:
    """How training images of a side are moved: a crop of an eighth, and a flip.

    >>> movement(32)
    {'crop': 4, 'flip': True}
    """
    return {**MOVED["cifar10"], "crop": max(1, side // 8)}


def left_to_choose(method: CrossFittedCAL, asked: Tree) -> CrossFittedCAL:
    """The same without the choices that were made by who set something: it is kept."""
    idle = [name for name in OF_THE_TERM if name in asked]
    if idle and str(asked.get("relabel", "true")).lower() != "false":
        raise ValueError(
            f"{idle[0]} changes nothing where the second stage learns D̂'s labels, as is "
            "recommended for data of this size; set relabel=false, too, or leave it out"
        )
    decays_set = any("weight_decay" in asked.get(name, {}) for name in ("plan", "sieve_plan"))
    return replace(
        method,
        decays=() if decays_set else method.decays,
        may_hold_back=method.may_hold_back and "plain_plan" not in asked,
    )


def stretch(method: Method, factor: float, batch_size: int) -> Method:
    """Every plan and schedule of a method made longer, with another batch size."""
    changes: Tree = {}
    for each in fields(method):  # type: ignore[arg-type]
        value = getattr(method, each.name)
        if isinstance(value, Plan):
            changes[each.name] = replace(
                value,
                epochs=_times(value.epochs, factor),
                lr_milestones=tuple(_times(epoch, factor) for epoch in value.lr_milestones),
                batch_size=batch_size,
            )
        elif isinstance(value, Ramp):
            end = _times(value.end, factor)
            changes[each.name] = replace(
                value, start=min(_times(value.start, factor), end), end=end
            )
        elif each.name in COUNTED_IN_EPOCHS and value is not None:
            changes[each.name] = max(1, _times(value, factor))
    assert is_dataclass(method)
    stretched: Method = replace(method, **changes)
    return stretched


def _times(epochs: int, factor: float) -> int:
    return round(epochs * factor)
