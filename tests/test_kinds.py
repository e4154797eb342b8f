"""Arguments are held to their annotations: what fits, and the sentence where it does not."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike, NDArray

from covlearn.checks import Array
from covlearn.data import Split
from covlearn.kinds import check_fields, checked, fits, in_words
from covlearn.methods import CE, Method

RIGHT: list[tuple[Any, Any]] = [
    (Any, object()),
    (int, np.int64(3)),
    (float, 3),
    (float | None, None),
    (str | PathLike[str], Path("a")),
    (tuple[int, ...], [1, 2]),
    (tuple[float, float], (0, 1.0)),
    (Sequence[str], ["a"]),
    (Mapping[str, Any], {}),
    (Array, [[0.5, 0.5]]),
    (Array, torch.zeros(2, requires_grad=True)),
    (ArrayLike, [1, 2]),
    (ArrayLike | None, None),
    (NDArray[np.int64], np.zeros(2, int)),
    (NDArray[np.float64], np.zeros(2, int)),
    (NDArray[Any], np.array(["a"])),
    (str | PathLike[str], "."),
    (Callable[[int], int], abs),
    (Literal["a", "b"], "b"),
    (Method, CE()),
]
WRONG: list[tuple[Any, Any, str]] = [
    (int, True, "an integer"),
    (int, 1.0, "an integer"),
    (float, "1", "a number"),
    (float | None, "1", "a number or None"),
    (str | PathLike[str], 3, "a path"),
    (tuple[float, float], (0.0,), "a sequence of a number"),
    (Sequence[str], "a=1", "a sequence of text"),
    (Sequence[str], [1], "a sequence of text"),
    (Mapping[str, Any], {1: 2}, "a mapping"),
    (Array, ["a"], "numbers, as np.asarray takes them"),
    (ArrayLike, [[1], [2, 3]], "numbers, as np.asarray takes them"),
    (NDArray[np.int64], [1, 2], "a NumPy array of integers"),
    (NDArray[np.int64], np.zeros(2), "a NumPy array of integers"),
    (NDArray[np.float64], np.array(["a"]), "a NumPy array of numbers"),
    (NDArray[np.bool_], np.zeros(2, int), "a NumPy array of True and False"),
    (str | PathLike[str], "", "a path"),
    (Iterable[str], torch.tensor(0.0), "a sequence of text"),
    (Callable[[int], int], 3, "a function"),
    (Literal["a", "b"], 3, "one of a, b"),
    (Literal["a", "b"], np.array(["a"]), "one of a, b"),
    (Literal["a"] | None, "c", "'a' or None"),
    (Method, "ce", "a Method"),
    (Split, None, "a Split"),
]


@pytest.mark.parametrize(("hint", "value"), RIGHT)
def test_what_is_meant_fits(hint: Any, value: Any) -> None:
    assert fits(value, hint)


@pytest.mark.parametrize(("hint", "value", "words"), WRONG)
def test_what_is_not_meant_is_named(hint: Any, value: Any, words: str) -> None:
    assert not fits(value, hint)
    assert words in in_words(hint)


@checked
def sized(split: Split, *, times: int = 1, **options: Any) -> int:
    """Something public."""
    return len(split) * times


def test_the_sentence_has_name_kind_value_and_remedy() -> None:
    wrong: Any = [1, 2]
    with pytest.raises(ValueError, match=r"split must be a Split, got \[1, 2\] \(list\); covlearn"):
        sized(wrong)
    wrong_class: Any = torch.Tensor  # a class in place of an object of it
    with pytest.raises(ValueError, match=r"split must be a Split, got <class 'torch.Tensor'>"):
        sized(wrong_class)
    split = Split(torch.zeros(2, 3), torch.tensor([0, 1]), 2)
    with pytest.raises(ValueError, match="times must be an integer, got"):
        sized(split, times=wrong)
    assert sized(split, times=2, more=3) == 4
    with pytest.raises(
        ValueError, match=r"times must fit into 64 bits with a sign, got 10+ \(int\); give a"
    ):
        sized(split, times=10**30)


def test_a_missing_or_unknown_argument_stays_pythons_own() -> None:
    call: Any = sized
    with pytest.raises(TypeError, match=r"sized\(\) missing 1 required positional argument"):
        call()
    assert call.__name__ == "sized"
    assert call.__doc__ == "Something public."


@dataclass
class Settings:
    rate: float = 0.1
    word: Literal["fixed", "auto"] = "auto"

    def __post_init__(self) -> None:
        check_fields(self)


def test_fields_are_held_too_and_are_finite() -> None:
    wrong: Any = "x"
    assert Settings(1).rate == 1
    with pytest.raises(ValueError, match="rate must be a number, got 'x'"):
        Settings(wrong)
    endless: tuple[Any, ...] = (float("nan"), float("inf"), np.float32("nan"), np.float32("inf"))
    for number in endless:
        with pytest.raises(ValueError, match=f"rate must be a finite number, got {number}"):
            Settings(number)
    wrong = "fixd"
    with pytest.raises(
        ValueError, match=r"word must be one of fixed, auto, got 'fixd'; did you mean 'fixed'\?$"
    ):
        Settings(word=wrong)
