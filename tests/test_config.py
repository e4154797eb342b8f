"""Typed settings: --set, and the round trip through JSON."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from covlearn.config import describe, leaves, override, parse_settings, plain, typed
from covlearn.kinds import nearest
from covlearn.methods import CAL, METHODS
from covlearn.schedules import Ramp


@dataclass(frozen=True)
class Inner:
    count: int
    scale: float = 1.0


@dataclass(frozen=True)
class Outer:
    name: str = "a"
    on: bool = False
    rate: float | None = None
    kind: Literal["x", "yy", 3] = "x"
    steps: tuple[int, ...] = ()
    pair: tuple[int, float] = (1, 2.0)
    inner: Inner = Inner(5)
    maybe: Inner | None = None
    either: float | Literal["auto"] = "auto"
    where: Path = Path("p")
    items: list[str] = field(default_factory=list)
    table: dict[str, int] = field(default_factory=dict)
    odd: complex = 0j


def changed(value: Any, settings: list[str]) -> Any:
    return override(value, parse_settings(settings))


@pytest.mark.parametrize(
    ("setting", "path", "expected"),
    [
        ("name=5", "name", "5"),
        ("name=a=b", "name", "a=b"),
        ("on=true", "on", True),
        ("on=False", "on", False),
        ("rate=1", "rate", 1.0),
        ("rate=1e-3", "rate", 0.001),
        ("rate=-inf", "rate", -math.inf),
        ("rate=none", "rate", None),
        ("rate=null", "rate", None),
        ("kind=yy", "kind", "yy"),
        ("kind=3", "kind", 3),
        ("steps=60", "steps", (60,)),
        ("steps=60, 80", "steps", (60, 80)),
        ("steps=[60,80]", "steps", (60, 80)),
        ("steps=()", "steps", ()),
        ("pair=3,4", "pair", (3, 4.0)),
        ("inner.count=7", "inner", Inner(7)),
        ("inner.scale=2", "inner", Inner(5, 2.0)),
        ('inner={"count": 2}', "inner", Inner(2)),
        ("maybe.count=4", "maybe", Inner(4)),
        ("either=auto", "either", "auto"),
        ("either=0.5", "either", 0.5),
        ("where=a/b", "where", Path("a/b")),
        ("items=a,b", "items", ["a", "b"]),
        ('table={"a": 1}', "table", {"a": 1}),
    ],
)
def test_a_setting_takes_the_type_of_its_field(setting: str, path: str, expected: Any) -> None:
    before = Outer()
    after = changed(before, [setting])
    assert getattr(after, path) == expected
    assert type(getattr(after, path)) is type(expected)
    assert before == Outer()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["on=1"], "on: expected true or false, got '1'"),
        (["inner.count=1.5"], r"inner.count: expected an integer, got '1.5'"),
        (["rate=abc"], r"rate: expected a number, got 'abc' \(none is possible, too\)"),
        (["rate=nan"], "expected a number"),
        (["kind=y"], "expected one of x, yy, 3, got 'y'; did you mean 'yy'"),
        (["either=manual"], "either: expected a number or auto, got 'manual'"),
        (["steps=1,b"], "steps: expected an integer, got 'b'"),
        (["steps=none"], r"got 'none'; a list is wanted, as 60,80, or \(\) for none$"),
        (["pair=1"], "pair: expected 2 values, got 1"),
        (["inner=5"], "inner: expected the fields of Inner, got 5"),
        (["inner=x"], "inner: expected JSON"),
        (['inner={"cont": 1}'], "got 'cont'; did you mean 'count'"),
        (["maybe.scale=2"], "maybe: Inner needs count"),
        (["maybe.count=x"], "maybe: count: expected an integer"),
        (["nam=5"], "nam cannot be set: Outer has no such field; did you mean 'name'"),
        (["zzzz=5"], "its fields are name, on, rate"),
        (["count=5"], "did you mean 'inner.count'"),
        (["inner.cout=5"], "did you mean 'inner.count'"),
        (["name.x=5"], "name.x cannot be set: name is text"),
        (["name"], "must read path=value"),
        (["=5"], "must read path=value"),
        (["inner..count=5"], "must read path=value"),
        (["name=a", "name=b"], "name is set twice"),
        (["inner={}", "inner.count=3"], "inner.count is set twice"),
        (["inner.count=3", "inner={}"], "inner is set twice"),
        (["odd=1"], "a field of type complex cannot be set"),
        (["table=[1]"], "expected a JSON object"),
    ],
)
def test_a_bad_setting_is_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changed(Outer(), settings)


def test_fields_that_depend_on_each_other_move_together() -> None:
    @dataclass(frozen=True)
    class Holder:
        ramp: Ramp = Ramp(1.0, start=10, end=20)

    for settings in (["ramp.start=30", "ramp.end=40"], ["ramp.end=40", "ramp.start=30"]):
        assert changed(Holder(), settings).ramp == Ramp(1.0, start=30, end=40)
    with pytest.raises(ValueError, match="ramp: expected 0 ≤ start ≤ end, got start=30"):
        changed(Holder(), ["ramp.start=30"])


@dataclass(frozen=True)
class WithShape:
    """Settings of somebody's own, one of which arrays have, too."""

    shape: int = 3


def test_a_field_may_be_called_shape() -> None:
    assert typed(WithShape, {"shape": "4"}) == WithShape(4)
    for wrong in (np.ones(1), torch.ones(1)):
        hint: Any = wrong
        with pytest.raises(ValueError, match="hint must be a type"):
            typed(hint, 3)


def test_a_number_of_numpys_that_is_one_of_pythons_too_is_typed() -> None:
    assert typed(float, np.float64(0.1)) == 0.1
    assert typed(Ramp, {"value": np.float64(0.5)}) == typed(Ramp, {"value": 0.5})
    array: Any = np.ones(1)
    with pytest.raises(ValueError, match="expected a number, got a ndarray of shape"):
        typed(float, array)


@pytest.mark.parametrize("name", METHODS)
def test_methods_make_the_round_trip_through_json(name: str) -> None:
    method = METHODS[name]()
    text = json.dumps(plain(method), allow_nan=False)
    assert typed(type(method), json.loads(text)) == method


@given(st.floats(allow_nan=False), st.none() | st.floats(allow_nan=False), st.integers(0, 90))
def test_values_make_the_round_trip_through_json(
    lower: float, upper: float | None, start: int
) -> None:
    if upper is not None:
        lower, upper = sorted((lower, upper))
    method = CAL(lower=lower, upper=upper, beta=Ramp(2.0, start=start, end=start + 1))
    assert typed(CAL, json.loads(json.dumps(plain(method), allow_nan=False))) == method


def test_plain_holds_what_methods_note() -> None:
    noted = {
        "tensor": torch.tensor([[1, 2]]),
        "scalar": np.float32(0.5),
        "inf": -torch.inf,
        "nan": math.nan,
        "path": Path("a"),
        "none": None,
    }
    assert plain(noted) == {
        "tensor": [[1, 2]],
        "scalar": 0.5,
        "inf": "-inf",
        "nan": None,
        "path": "a",
        "none": None,
    }
    with pytest.raises(ValueError, match="JSON can hold"):
        plain({"f": print})


def test_leaves_are_what_can_be_set() -> None:
    for path, kind, value, _ in leaves(CAL()):
        assert kind
        if isinstance(value, float | int | str) and not isinstance(value, bool):
            assert changed(CAL(), [f"{path}={value}"]) == CAL()
    assert describe(tuple[int, ...]) == "an integer or several, separated by commas"


def test_nearest_says_nothing_where_nothing_is_near() -> None:
    assert nearest("mpl", ["mlp", "cnn"]) == "; did you mean 'mlp'?"
    assert nearest("zzz", ["mlp", "cnn"]) == ""
