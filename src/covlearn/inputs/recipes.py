"""Whether a recipe is one: it may come out of a file that somebody else wrote.

A wrong recipe would not run anything, but it would fail in the middle of reading, or ask for images
of absurd size.
"""

from collections.abc import Mapping
from typing import Any, TypeGuard

from covlearn.inputs.dates import ORDERS
from covlearn.inputs.examples import FORMAT

LARGEST_SIDE = 2048  # pixels
NUMBER = (int, float)
COLUMN_KINDS = ("number", "date", "category", "vector")


def check_recipe(recipe: Any) -> None:
    """Refuses what ``Examples.recipe`` cannot be."""
    if not isinstance(recipe, Mapping) or not {"kind", "classes", "format"} <= set(recipe):
        raise ValueError(
            "recipe must be that of examples read before (Examples.recipe), got "
            f"{type(recipe).__name__}"
        )
    if recipe["format"] != FORMAT:
        raise ValueError(
            f"recipe must have format {FORMAT}, got {recipe['format']!r}; use the version of "
            "covlearn that made it"
        )
    checks = {"table": _table, "features": _features, "images": _images}
    named = (recipe.get(name) for name in ("label", "id", "image"))
    if (
        not _listed(recipe["classes"], str)
        or not all(name is None or isinstance(name, str) for name in named)
        or not _listed(recipe.get("ignore", []), str)
        or not isinstance(recipe["kind"], str)
        or recipe["kind"] not in checks
        or not checks[recipe["kind"]](recipe)
    ):
        raise ValueError(
            "recipe must be that of examples read before (Examples.recipe), but its "
            f"{str(recipe['kind'])[:20]!r} is not as it was made; it is damaged"
        )


def _table(recipe: Mapping[str, Any]) -> bool:
    columns = recipe.get("columns")
    if not isinstance(recipe.get("decimal_comma", False), bool):
        return False
    return isinstance(columns, list) and bool(columns) and all(map(_column, columns))


def _column(column: Any) -> bool:
    if not isinstance(column, Mapping) or not isinstance(column.get("name"), str):
        return False
    kind = column.get("kind")
    if kind not in COLUMN_KINDS or not isinstance(column.get("missing"), bool):
        return False
    if kind == "category":
        return _listed(column.get("categories"), str) and isinstance(column.get("other"), bool)
    mean, std = column.get("mean"), column.get("std")
    if kind == "vector":
        return _listed(mean, NUMBER) and _listed(std, NUMBER) and 0 < len(mean) == len(std)
    odd, knots = column.get("odd_is_missing", False), column.get("knots")
    ranked = knots is None or (_listed(knots, NUMBER) and len(knots) > 1)
    ordered = column.get("order", ORDERS[0]) in ORDERS
    return _is(mean, NUMBER) and _is(std, NUMBER) and isinstance(odd, bool) and ranked and ordered


def _features(recipe: Mapping[str, Any]) -> bool:
    mean, std, dim = (recipe.get(name) for name in ("mean", "std", "dim"))
    return _listed(mean, NUMBER) and _listed(std, NUMBER) and 0 < len(mean) == len(std) == dim


def _images(recipe: Mapping[str, Any]) -> bool:
    size, network = recipe.get("size"), recipe.get("extractor")
    if not isinstance(size, int) or not 0 < size <= LARGEST_SIDE:
        return False
    return network is None or (
        isinstance(network, Mapping)
        and all(isinstance(network.get(name), str) for name in ("name", "weights"))
    )


def _listed(values: Any, kind: Any) -> TypeGuard[list[Any]]:
    return isinstance(values, list) and all(_is(value, kind) for value in values)


def _is(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
