"""Settings for many small images: those of CIFAR, for any number of images and classes."""

from typing import Any

import pytest

from covlearn.methods.cal import CAL
from covlearn.methods.presets import preset
from covlearn.methods.scaled import MANY, from_scratch, movement
from covlearn.nets.choice import worth_training


def made(**options: int) -> Any:
    return from_scratch("cal", **options).method


def test_on_cifar_it_is_the_preset() -> None:
    assert made(num_examples=50_000, num_classes=10) == preset("recommended", "cal", "cifar10")
    assert made(num_examples=50_000, num_classes=100) == preset("recommended", "cal", "cifar100")
    choice = from_scratch("cal", num_examples=50_000, num_classes=10)
    assert (choice.net, choice.net_options) == ("resnet34", {})


@pytest.mark.parametrize("num_classes", [2, 14, 40])
def test_the_weight_of_a_class_in_the_regulariser_is_that_of_cifar(num_classes: int) -> None:
    method = made(num_examples=50_000, num_classes=num_classes)
    assert isinstance(method, CAL)
    # β π_k with π_k = 1/K
    assert method.prior_scale / num_classes == pytest.approx(0.1)


def test_beyond_many_images_there_are_fewer_epochs() -> None:
    whole, half = (made(num_examples=n, num_classes=10) for n in (MANY, 2 * MANY))
    assert half.plan.epochs == whole.plan.epochs // 2
    assert half.sieve_plan.lr_milestones == (30,)
    assert half.plan.batch_size == whole.plan.batch_size
    assert (half.beta.start, half.beta.end) == (5, 20)


def test_other_methods_have_their_own_settings() -> None:
    choice = from_scratch("gce", num_examples=20_000, num_classes=10)
    assert choice.method == preset("recommended", "gce", "cifar10")


@pytest.mark.parametrize(
    ("examples", "shape", "device", "expected"),
    [
        (10_000, (32, 32, 3), "cuda:0", True),
        (9_999, (32, 32, 3), "cuda", False),
        (50_000, (32, 32, 3), "cpu", False),
        (50_000, (96, 64, 3), "cuda", False),
        (50_000, (15, 32, 3), "cuda", False),
        (50_000, (512,), "cuda", False),
    ],
)
def test_when_it_is_worth_it(
    examples: int, shape: tuple[int, ...], device: str, expected: bool
) -> None:
    assert worth_training(examples, shape, device) is expected


def test_images_are_moved_in_proportion() -> None:
    assert [movement(side)["crop"] for side in (8, 28, 64)] == [1, 3, 8]
