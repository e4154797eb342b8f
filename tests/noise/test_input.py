"""Bad input is refused with a reason."""

from typing import Any

import numpy as np
import pytest
import torch

from covlearn import noise
from tests.noise.examples import HALF_SWAP, toy

X, Y = toy(12, 3)
NAN_X = X.copy()
NAN_X[5, 2] = np.nan
INSTANCE: dict[str, Any] = {"rate": 0.3, "num_classes": 3, "variant": "cal", "seed": 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 1.0}, r"rate must lie in \[0, 1\), got 1.0"),
        ({"rate": -0.1}, r"rate must lie in"),
        ({"rate": float("nan")}, r"rate must lie in"),
        ({"num_classes": 1}, "num_classes must be at least 2, got 1"),
        ({"num_classes": 2}, r"y must lie in 0…1, got 2"),
        ({"y": Y - 1}, r"y must lie in 0…2, got -1"),
        ({"y": Y[:5]}, "x must have one row an example, 5, got 12"),
        ({"y": Y.astype(float)}, "y must be integer class numbers"),
        ({"y": np.array(["a"] * 12)}, "y must hold real numbers, got dtype"),
        ({"x": NAN_X}, "got NaN, infinity or overflow first in row 5"),
        ({"x": np.where(np.isnan(NAN_X), np.inf, X)}, "overflow first in row 5"),
        ({"x": np.full((12, 6), 1e308)}, "small enough for x·W"),
        ({"x": X[:, 0]}, r"x must have shape \(examples, features…\), got \(12,\)"),
        ({"x": X[:, :0]}, r"got \(12, 0\)"),
        ({"x": X.astype(complex)}, "x must hold real numbers"),
        ({"x": torch.empty(12, 3, device="meta")}, "a CPU tensor, got a tensor on meta"),
        ({"variant": "calibarted"}, "did you mean 'calibrated'"),
        ({"variant": "zzz"}, "variant must be one of cal, ptd, simifeat, bltm, calibrated"),
        ({"std": -0.1}, "std must be finite and not negative, got -0.1"),
        ({"std": float("nan")}, "std must be finite"),
        ({"scale": 0.0}, "scale must be finite and positive, got 0.0"),
        ({"scale": float("nan")}, "scale must be finite"),
        ({"seed": -1}, "seed must lie in"),
        ({"seed": 2**32}, "seed must lie in"),
        ({"seed": None}, "seed must be an integer, got None"),
        ({"seed": True}, "seed must be an integer, got True"),
        ({"variant": "ptd", "cap": "paper"}, "belong to variant 'cal', got variant 'ptd'"),
        ({"variant": "bltm", "bounds": (0, 0.5)}, "belong to variant 'cal'"),
        ({"cap": "papers"}, "cap must be one of paper, published, none"),
        ({"bounds": (0.5, 0.5)}, "0 ≤ low < high ≤ 1"),
        ({"bounds": (0.0, 1.2)}, "0 ≤ low < high ≤ 1"),
        ({"bounds": (0.9, 1.0)}, "choose a rate nearer to it or a larger std"),
        ({"variant": "bltm", "rate": 0.97}, r"q lies in \(0, 0.6\).*choose a rate"),
        ({"variant": "bltm", "rate": 0.7, "std": 0}, "choose a rate nearer"),
        ({"variant": "calibrated", "rate": 0.7}, r"below 1 − 1/K = 0.6667"),
        ({"rate": 0.66}, "at most 0.6429 with 3 classes .* got 0.66; lower it or pass cap='none'"),
        ({"y": Y % 2, "num_classes": 2, "rate": 0.51}, "at most 0.4737 with 2 classes"),
    ],
)
def test_bad_input_of_instance_dependent(change: dict[str, Any], message: str) -> None:
    arguments = {"x": X, "y": Y, **INSTANCE, **change}
    with pytest.raises(ValueError, match=message):
        noise.instance_dependent(arguments.pop("x"), arguments.pop("y"), **arguments)


@pytest.mark.parametrize("generator", [noise.symmetric, noise.pair])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 1.0}, r"rate must lie in \[0, 1\)"),
        ({"num_classes": 1}, "num_classes must be at least 2"),
        ({"num_classes": 2}, "y must lie in 0…1"),
        ({"seed": 0.5}, "seed must be an integer, got 0.5"),
    ],
)
def test_bad_input_of_symmetric_and_pair(
    generator: Any, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        generator(Y, **({"rate": 0.2, "num_classes": 3, "seed": 0} | change))


def test_bad_transitions_and_parts() -> None:
    wrong_sum = HALF_SWAP * 1.1
    with pytest.raises(ValueError, match=r"rows of transition must sum to 1, row 0 sums to 1\.1"):
        noise.class_dependent(Y, transition=wrong_sum, seed=0)
    with pytest.raises(ValueError, match="square"):
        noise.class_dependent(Y, transition=HALF_SWAP[:2], seed=0)
    with pytest.raises(ValueError, match=r"y must lie in 0…1, got 2"):
        noise.class_dependent(Y, transition=np.eye(2), seed=0)
    part = np.zeros(12, int)
    with pytest.raises(ValueError, match=r"rows of transitions\[1\] must sum to 1"):
        noise.part_dependent(Y, part, transitions=[HALF_SWAP, wrong_sum], seed=0)
    with pytest.raises(
        ValueError, match=r"transitions\[1\] must have 3 columns, one a class, got 2"
    ):
        noise.part_dependent(Y, part, transitions=[HALF_SWAP, np.eye(2)], seed=0)
    with pytest.raises(ValueError, match="two or more, got 1; with one part use class_dependent"):
        noise.part_dependent(Y, part, transitions=[HALF_SWAP], seed=0)
    with pytest.raises(ValueError, match=r"part must lie in 0…1, got 2"):
        noise.part_dependent(Y, part + 2, transitions=[HALF_SWAP, np.eye(3)], seed=0)
    with pytest.raises(ValueError, match="part must have one entry an example, 12, got 11"):
        noise.part_dependent(Y, part[1:], transitions=[HALF_SWAP, np.eye(3)], seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"e_plus": np.full(12, 1.5)}, r"e_plus must lie in \[0, 1\], got 1.5 at position 0"),
        ({"e_minus": np.full(12, np.nan)}, "e_minus must lie in"),
        ({"e_minus": -0.1}, "e_minus must lie in"),
        ({"e_plus": np.full(11, 0.5)}, r"hold one an example, 12, got shape \(11,\)"),
    ],
)
def test_bad_input_of_the_binary_generator(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        noise.instance_dependent_binary(
            Y % 2, **({"e_plus": 0.1, "e_minus": 0.1, "seed": 0} | change)
        )
    with pytest.raises(ValueError, match="y must lie in 0…1, got 2"):
        noise.instance_dependent_binary(Y, e_plus=0.1, e_minus=0.1, seed=0)


def test_rows_may_miss_one_by_rounding() -> None:
    rounded = np.array([[0.33333, 0.33333, 0.33333], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    result = noise.class_dependent(np.zeros(9, int), transition=rounded, seed=0)
    np.testing.assert_allclose(result.flip_rate, 2 / 3)


def test_confused_asks_for_probabilities() -> None:
    probs = np.full((len(Y), 3), 1 / 3)
    for wrong, said in (
        (probs * 2, "sum 1"),
        (probs - 0.5, "sum 1"),
        (probs * np.nan, "sum 1"),
        (probs[:, 0], "shape"),
        (probs[:, :1], "shape"),
        (probs[1:], "y must"),
    ):
        with pytest.raises(ValueError, match=said):
            noise.confused(Y, probs=wrong, rate=0.4, seed=0)
    with pytest.raises(ValueError, match="40 % is written"):
        noise.confused(Y, probs=probs, rate=40, seed=0)
