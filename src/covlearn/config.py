"""Settings as nested frozen dataclasses: from and to JSON, and changed by ``path=value``.

Every value is checked against its field's annotation. Nothing here imports torch.
"""

import ast
import functools
import inspect
import itertools
import json
import math
import textwrap
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from covlearn.kinds import check_kind, checked, members, nearest, shown

__all__ = ["check_allowed", "override", "parse_settings", "plain", "typed"]

T = TypeVar("T")
Tree = dict[str, Any]  # overrides: text at the leaves


def plain(value: Any) -> Any:
    """The value as JSON can hold it: dataclasses as objects, tuples and arrays as lists.

    JSON has no number for them: infinities become ``"inf"`` and ``"-inf"``, NaN becomes null.
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # arrays, tensors and their scalars, without importing either
        return plain(value.tolist())
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, Path) or (isinstance(value, float) and math.isinf(value)):
        return str(value)
    if value is not None and not isinstance(value, str | bool | int | float):
        raise ValueError(f"expected a value that JSON can hold, got {value!r}")
    return value


def typed(hint: type[T], value: Any) -> T:
    """The inverse of :func:`plain` for a type; text is read as the type asks for.

    >>> typed(tuple[int, ...], "60,80")
    (60, 80)
    """
    if type(hint).__hash__ is None or (hasattr(hint, "shape") and not isinstance(hint, type)):
        raise ValueError(f"hint must be a type, got {shown(hint)}")
    if hasattr(value, "shape") and not isinstance(value, Real) and hint is not Any:
        raise ValueError(f"expected {describe(hint)}, got {shown(value)}")
    result: T = _convert(hint, value)
    return result


@checked
def parse_settings(settings: Iterable[str]) -> Tree:
    """``["plan.epochs=3", "beta.value=1"]`` as ``{"plan": {"epochs": "3"}, "beta": …}``."""
    tree: Tree = {}
    for setting in settings:
        check_kind(setting, str, name="a setting")
        path, equals, text = setting.partition("=")
        *parents, name = path.strip().split(".")
        if not equals or not all([*parents, name]):
            raise ValueError(f"a setting must read path=value, as plan.epochs=20, got {setting!r}")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ValueError(f"{path} is set twice, as a whole or in parts; set it once")
        if name in node:
            raise ValueError(f"{path} is set twice, as a whole or in parts; set it once")
        node[name] = text.strip()
    return tree


@checked
def override(value: T, tree: Tree, *, inside: str = "") -> T:
    """A copy of a dataclass with the fields of the tree set, all at once.

    Fields that are checked against each other (the start and end of a ramp) can so be moved
    together, in any order.
    """
    if not is_dataclass(value) or isinstance(value, type):
        raise ValueError(f"value must be an instance of a dataclass, got {shown(value)}")
    hints = _hints(type(value))
    names = [field.name for field in fields(value)]
    changes: dict[str, Any] = {}
    for name, new in tree.items():
        path = inside + name
        if name not in names:
            raise ValueError(_unknown(value, name, new, inside))
        old = getattr(value, name)
        if isinstance(new, dict) and is_dataclass(old):
            changes[name] = override(old, new, inside=f"{path}.")
            continue
        if isinstance(new, dict) and not _dataclass_in(hints[name]):
            raise ValueError(
                f"{path}.{next(iter(new))} cannot be set: {path} is {describe(hints[name])}"
            )
        try:
            changes[name] = typed(hints[name], new)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    try:
        return replace(value, **changes)
    except ValueError as error:
        raise ValueError(f"{inside.rstrip('.') or type(value).__name__}: {error}") from error


class Leaf(NamedTuple):
    """Something that can be set in a dataclass: its path, type in words, value and meaning."""

    path: str
    kind: str
    value: Any
    meaning: str


def leaves(value: Any, *, inside: str = "") -> Iterator[Leaf]:
    """Everything that can be set in a dataclass and in those inside it."""
    kind: Any = type(value)
    hints, meaning = _hints(kind), meanings(kind)
    for field in fields(value):
        path, item = inside + field.name, getattr(value, field.name)
        if is_dataclass(item):
            yield from leaves(item, inside=f"{path}.")
        else:
            yield Leaf(path, describe(hints[field.name]), item, meaning.get(field.name, ""))


def meanings(kind: type) -> dict[str, str]:
    """What is written under each field of a class or its bases, where their source is at hand."""
    bases = [meanings(base) for base in kind.__bases__ if is_dataclass(base)]
    found = {name: text for each in bases for name, text in each.items()}
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):
        return found
    assert isinstance(parsed, ast.ClassDef)
    for statement, following in itertools.pairwise(parsed.body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            text = inspect.cleandoc(following.value.value).replace("``", "")
            found[statement.target.id] = " ".join(text.split())
    return found


def as_text(value: Any) -> str:
    """A value as ``--set`` takes it."""
    if isinstance(value, tuple | list):
        return ",".join(map(as_text, value)) or "()"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@checked
def check_allowed(name: str, allow: Collection[str], *, where: str) -> None:
    """Code that a file names, ``pkg.mod:name``, is imported only if the user has named it, too."""
    if ":" in name and name not in allow:
        raise ValueError(
            f"{where} names code that is no part of covlearn, {name!r}, which would be imported "
            f"and run; if you trust it, say so with --allow {name} (allow=[{name!r}])"
        )


def describe(hint: Any) -> str:
    """A type in words."""
    if hint in _WORDS:
        return _WORDS[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"{'one of ' if len(args) > 1 else ''}{', '.join(map(str, args))}"
    if origin in (Union, types.UnionType):
        return " or ".join(describe(arg) for arg in args)
    if origin in (tuple, list):
        return f"{describe(args[0])} or several, separated by commas"
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return f"the fields of {hint.__name__}"
    return str(getattr(hint, "__name__", hint))


def _unknown(value: Any, name: str, new: Any, inside: str) -> str:
    path = inside + name
    while isinstance(new, dict):
        name, new = next(iter(new.items()))
        path = f"{path}.{name}"
    known = [leaf.path for leaf in leaves(value, inside=inside)]
    # One who writes epochs=3 means plan.epochs, or another plan's.
    same = [repr(leaf) for leaf in known if leaf.split(".")[-1] == name]
    hint = f"; did you mean {' or '.join(same[:3])}?" if same else nearest(path, known)
    listed = hint or f"; its fields are {', '.join(field.name for field in fields(value))}"
    return f"{path} cannot be set: {type(value).__name__} has no such field{listed}"


def _convert(hint: Any, value: Any) -> Any:
    if hint is Any:
        return value
    kinds = members(hint)
    optional = types.NoneType in kinds
    if optional and (value is None or str(value).lower() in ("none", "null")):
        return None
    errors = []
    for kind in kinds:
        try:
            return _convert_member(kind, value)
        except ValueError as error:
            errors.append(error)
    if len(errors) == 1 + optional:  # nothing else was allowed: its own error says most
        raise ValueError(f"{errors[0]}{' (none is possible, too)' if optional else ''}")
    raise ValueError(f"expected {describe(hint)}, got {value!r}")


def _convert_member(hint: Any, value: Any) -> Any:
    if hint in _SCALARS:
        return _SCALARS[hint](value)
    convert = _COMPOSITES.get(get_origin(hint) or hint)
    if convert is not None:
        return convert(hint, value)
    if is_dataclass(hint):
        return _to_dataclass(hint, value)
    raise ValueError(f"a field of type {describe(hint)} cannot be set from text or JSON")


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """A class's annotations; found once, for a table reads hundreds of records again and again."""
    return get_type_hints(kind)


def _to_dataclass(hint: Any, value: Any) -> Any:
    value = _from_json(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"expected {describe(hint)}, got {value!r}")
    hints = _hints(hint)
    known = {field.name: field for field in fields(hint)}
    for name in value:
        if name not in known:
            raise ValueError(
                f"{hint.__name__} has {', '.join(known)}, got {name!r}{nearest(name, known)}"
            )
    missing = [
        name
        for name, field in known.items()
        if name not in value and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise ValueError(f"{hint.__name__} needs {', '.join(missing)}")
    converted = {}
    for name, item in value.items():
        try:
            converted[name] = _convert(hints[name], item)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return hint(**converted)


def _to_literal(hint: Any, value: Any) -> Any:
    for arg in get_args(hint):
        if value == arg or (isinstance(value, str) and value == str(arg)):
            return arg
    raise ValueError(
        f"expected {describe(hint)}, got {value!r}{nearest(str(value), map(str, get_args(hint)))}"
    )


def _to_sequence(hint: Any, value: Any) -> Any:
    kind, args = get_origin(hint), get_args(hint)
    if isinstance(value, str):
        parts = [part.strip() for part in value.strip("()[] ").split(",") if part.strip()]
        try:
            return _to_sequence(hint, parts)
        except ValueError as error:
            if hint not in _LISTS:
                raise
            shows = f"a list is wanted, as {_LISTS[hint]}, or () for none"
            raise ValueError(f"{error}; {shows}") from error
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected {describe(hint)}, got {value!r}")
    if kind is tuple and args[-1] is not Ellipsis:
        if len(value) != len(args):
            raise ValueError(f"expected {len(args)} values, got {len(value)}")
        return tuple(_convert(arg, item) for arg, item in zip(args, value, strict=True))
    items = [_convert(args[0], item) for item in value]
    return tuple(items) if kind is tuple else items


def _to_dict(hint: Any, value: Any) -> Any:
    value = _from_json(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a JSON object, got {value!r}")
    args = get_args(hint)
    return {key: _convert(args[1], item) for key, item in value.items()} if args else dict(value)


def _to_bool(value: Any) -> bool:
    text = str(value).lower() if isinstance(value, bool | str) else ""
    if text not in ("true", "false"):
        raise ValueError(f"expected true or false, got {value!r}")
    return text == "true"


def _to_int(value: Any) -> int:
    try:
        if isinstance(value, int | str) and not isinstance(value, bool):
            return int(value)
    except ValueError:
        pass
    raise ValueError(f"expected an integer, got {value!r}")


def _to_float(value: Any) -> float:
    try:
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            number = float(value)
            if not math.isnan(number):
                return number
    except ValueError:
        pass
    raise ValueError(f"expected a number, got {value!r}")


def _to_str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {value!r}")
    return value


def _to_path(value: Any) -> Path:
    return Path(_to_str(value))


_SCALARS: dict[Any, Callable[[Any], Any]] = {
    bool: _to_bool,
    int: _to_int,
    float: _to_float,
    str: _to_str,
    Path: _to_path,
}
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    Path: "a path",
    types.NoneType: "none",
}
_LISTS: dict[Any, str] = {tuple[int, ...]: "60,80", tuple[float, ...]: "0.1,0.5"}
_COMPOSITES: dict[Any, Callable[[Any, Any], Any]] = {
    Literal: _to_literal,
    tuple: _to_sequence,
    list: _to_sequence,
    dict: _to_dict,
}


def _from_json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'expected JSON, as {{"epochs": 20}}, got {value!r}') from error


def _dataclass_in(hint: Any) -> bool:
    return any(is_dataclass(member) for member in members(hint))
