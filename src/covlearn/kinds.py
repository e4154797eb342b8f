"""Arguments of public functions, held to their annotations.

A wrong kind of argument is refused where it was given, in one sentence with its name, what was
expected, what came and what makes the right thing; it does not go on to fail somewhere inside. A
missing or unknown argument stays Python's own TypeError. Values are for the functions to check, but
for words of a ``Literal``, a path without a letter, and numbers that are too large for an array.
Functions of a step that is compiled ask with :mod:`covlearn.checks` alone, which can be traced.
Nothing here imports NumPy or torch before they are needed: a command that says no starts at once.
"""

import difflib
import functools
import inspect
import math
import os
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, ParamSpec, SupportsInt, TypeVar, Union, get_args, get_origin

P = ParamSpec("P")
R = TypeVar("R")

NUMBERS: dict[Any, type] = {int: Integral, float: Real}
# By NumPy's letter for what an array is annotated to hold: the letters that will do, and in words.
DTYPES = {"f": ("biuf", "numbers"), "i": ("iu", "integers"), "b": ("b", "True and False")}
# Of these fields infinity is a value: all labels are on one side of the threshold.
ENDLESS = ("lower", "upper")
# Far above any strength or cut-off that means something, far below what overflows.
LARGEST = 1_000_000
SHOWN = 60  # characters of what came
WORDS: dict[Any, str] = {
    types.NoneType: "None",
    bool: "True or False",
    int: "an integer",
    float: "a number",
    str: "text",
    Callable: "a function",
}
# What makes the right thing, by the name of a kind or of an argument.
MAKERS = {
    "Augmentation": "covlearn.data.Augmentation(mean, std) makes one",
    "Examples": "covlearn.inputs.read_examples(source) reads them",
    "Fitted": "covlearn.load(folder) reads one",
    "Method": "covlearn.job.make_method(name) makes one",
    "Problem": "covlearn.theory.Problem(mass, clean, transition) makes one",
    "Published": "covlearn.noise.registry.PUBLISHED holds them by name",
    "SecondOrder": "covlearn.covariance.SecondOrder.from_labels(…) makes one",
    "Source": "covlearn.data.sources.load_data(name) loads one",
    "Split": "covlearn.data.Split(x, y, num_classes) makes one",
    "Tensor": "torch.as_tensor(values) makes one",
    "Path": "pathlib.Path(text) makes one",
    "ndarray": "np.asarray(values) makes one",
    "settings": "write them as ['plan.epochs=3']",
}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses arguments that are not of the annotated kind.

    >>> @checked
    ... def halved(number: float) -> float:
    ...     return number / 2
    >>> halved("x")
    Traceback (most recent call last):
    ValueError: number must be a number, got 'x' (str)
    """
    signature = inspect.signature(function)
    hints = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.annotation is not parameter.empty
    }

    @functools.wraps(function)
    def held(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # which says it in Python's own words
        for name, hint in hints.items():
            if name in given:
                check_kind(given[name], hint, name=name)
        return function(*args, **kwargs)

    return held


def check_fields(instance: Any) -> None:
    """A dataclass whose fields are not of the annotated kind, or not finite, is refused."""
    for field in fields(instance):
        value = getattr(instance, field.name)
        check_kind(value, field.type, name=field.name)
        if not isinstance(value, Real) or isinstance(value, Integral) or math.isfinite(value):
            continue
        if math.isnan(value) or field.name not in ENDLESS:
            raise ValueError(f"{field.name} must be a finite number, got {value}")


def check_kind(value: Any, hint: Any, *, name: str) -> None:
    """One value against one annotation."""
    if not fits(value, hint):
        maker = next((MAKERS[kind] for kind in (name, *_names(hint)) if kind in MAKERS), None)
        remedy = f"; {maker}" if maker else ""
        came = shown(value)
        if _dtypes(hint) and hasattr(value, "dtype"):
            came += f" and dtype {value.dtype}"
        if isinstance(value, str) and (words := _words(hint)):
            came, remedy = came.removesuffix(" (str)"), remedy or nearest(value, words)
        raise ValueError(f"{name} must be {in_words(hint)}, got {came}{remedy}")
    if isinstance(value, Integral) and not NUMBERS.keys().isdisjoint(members(hint)):
        check_size(value, name=name)


def check_size(value: SupportsInt, *, name: str) -> None:
    """A whole number that is too large for an array is refused."""
    if not -(2**63) <= int(value) < 2**63:
        raise ValueError(
            f"{name} must fit into 64 bits with a sign, got {shown(value)}; give a smaller number"
        )


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a kind; what no value can be held to fits."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if isinstance(value, str) and not value and "PathLike" in _names(hint):
            return False  # pathlib would take it for the folder one is in
        others = [member for member in args if member not in _array_like(hint)]
        return any(fits(value, member) for member in others) or (
            _of_numbers(hint) and _holds_numbers(value)
        )
    if origin is Literal:  # by kind first: to an array everything might be equal
        return isinstance(value, tuple(type(member) for member in args)) and value in args
    kind = origin or hint
    if kind in NUMBERS:
        return isinstance(value, NUMBERS[kind]) and not isinstance(value, bool)
    if kind is not Any and isinstance(kind, type) and not _without_values(kind):
        return _is_a(value, kind) and _members_fit(value, args) and _dtype_fits(value, hint)
    return kind is not Callable or callable(value)


def in_words(hint: Any) -> str:
    """A kind as a message names it."""
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(hint, type | types.NoneType):
        return WORDS.get(hint) or _named(hint)
    if origin in (Union, types.UnionType):
        # A path is text as much as an object of its own.
        also = {str} if "PathLike" in _names(hint) else _array_like(hint)
        words = [in_words(member) for member in args if member not in also]
        if _of_numbers(hint):
            words.insert(0, "numbers, as np.asarray takes them")
        return " or ".join(dict.fromkeys(words))
    if origin is Literal:
        return f"one of {', '.join(map(str, args))}" if len(args) > 1 else repr(args[0])
    if origin in (tuple, list, Sequence, Iterable, Collection):
        return f"a sequence of {in_words(args[0])}" if args and args[0] is not Any else "a sequence"
    if origin in (dict, Mapping):
        return "a mapping"
    holds = f" of {dtypes[1]}" if (dtypes := _dtypes(hint)) else ""
    return (WORDS.get(origin) or _named(origin or hint)) + holds


def shown(value: Any) -> str:
    """A value on one line: what it is, and of what kind."""
    if value is None:
        return "None"
    kind = type(value).__name__
    shape = getattr(value, "shape", None)
    # A number of NumPy's has one, too, and other classes may call anything so.
    if isinstance(shape, tuple) and not isinstance(value, Real | type):
        return f"a {kind} of shape {tuple(shape)}"
    text = " ".join(repr(value).split())
    return f"{text if len(text) <= SHOWN else f'{text[:SHOWN]}…'} ({kind})"


def nearest(name: str, names: Iterable[str]) -> str:
    """``; did you mean 'mlp'?`` for a name that is nearly one of the names, else nothing."""
    found = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def members(hint: Any) -> tuple[Any, ...]:
    """What a union is of, or the hint alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _words(hint: Any) -> list[str]:
    literals = [member for member in members(hint) if get_origin(member) is Literal]
    return [word for literal in literals for word in get_args(literal)]


def _of_numbers(hint: Any) -> bool:
    """Whether anything that NumPy makes an array of is meant: also by tensors or arrays."""
    return bool(_array_like(hint)) or {"Tensor", "ndarray"} <= {*_names(hint)}


def _array_like(hint: Any) -> set[Any]:
    """The members of NumPy's ArrayLike, if the hint has them all, as a union with it has."""
    typing = sys.modules.get("numpy.typing")  # without it no annotation can have them
    array_like = {*get_args(typing.ArrayLike)} if typing else set()
    return array_like if array_like <= {*get_args(hint)} else set()


def _is_a(value: Any, kind: type) -> bool:
    if isinstance(value, str | bytes):
        # The letters of a text are not meant where a sequence is asked for.
        return isinstance(value, kind) and kind not in (Sequence, Iterable, Collection)
    if kind in (Iterable, Collection) and getattr(value, "ndim", 1) == 0:
        return False  # a tensor of one number says that it can be gone through, and cannot
    return isinstance(value, (list, tuple) if kind is tuple else kind)


def _dtype_fits(value: Any, hint: Any) -> bool:
    dtypes = _dtypes(hint)
    return dtypes is None or value.dtype.kind in dtypes[0]


def _dtypes(hint: Any) -> tuple[str, str] | None:
    """What may be in an array, of which the annotation says what it holds."""
    if getattr(get_origin(hint), "__name__", "") != "ndarray":
        return None
    import numpy as np  # noqa: PLC0415  see above

    scalar = get_args(get_args(hint)[1])[0]
    return None if scalar is Any else DTYPES.get(np.dtype(scalar).kind)


def _without_values(kind: type) -> bool:
    """A protocol that does not say at runtime who keeps to it."""
    return getattr(kind, "_is_protocol", False) and not getattr(kind, "_is_runtime_protocol", False)


def _holds_numbers(value: Any) -> bool:
    import numpy as np  # noqa: PLC0415  see above

    try:
        return np.asarray(value).dtype.kind in "biuf"
    except (ValueError, TypeError, RuntimeError):  # rows of several lengths; a tensor with gradient
        return False


def _members_fit(value: Any, args: tuple[Any, ...]) -> bool:
    if isinstance(value, dict):
        return len(args) != 2 or all(fits(key, args[0]) for key in value)
    if isinstance(value, tuple) and args and args[-1] is not Ellipsis and len(args) > 1:
        return len(value) == len(args) and all(map(fits, value, args))
    if isinstance(value, list | tuple) and args:
        return all(fits(item, args[0]) for item in value)
    return True


def _names(hint: Any) -> list[str]:
    return [getattr(get_origin(each) or each, "__name__", "") for each in members(hint)]


def _named(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Path | os.PathLike):
        return "a path"
    if getattr(kind, "__name__", "") == "ndarray":
        return "a NumPy array"
    name = str(getattr(kind, "__name__", kind))
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
