"""What is said where no settings go by a name: of a preset, a method or a kind of data."""

from collections.abc import Collection

from covlearn.kinds import nearest

DEFAULTS = "defaults"
"""What a table calls the settings of a method's own class, which no preset has a say in."""


def check_known(what: str, name: str, names: Collection[str]) -> None:
    """Refuses a name that is none of these, with the nearest."""
    if name not in names:
        raise ValueError(
            f"{what} must be one of {', '.join(names)}, got {name!r}{nearest(name, names)}"
        )


def check_preset(name: str, presets: Collection[str]) -> None:
    """Refuses what is no preset, and says what a table may have beside them."""
    if name not in presets:
        allowed = presets if name == DEFAULTS else (*presets, DEFAULTS)
        raise ValueError(
            f"preset must be one of {', '.join(presets)} (in a table {DEFAULTS}, too, which is "
            f"what train does without --preset), got {name!r}{nearest(name, allowed)}"
        )


def check_has_preset(method: str, methods: Collection[str], preset: str) -> None:
    """Refuses what is none of our methods: a preset knows nothing of one of somebody's own."""
    if ":" in method:
        raise ValueError(
            f"preset {preset} has no settings for a method of one's own, {method}; write preset = "
            f'"{DEFAULTS}" in its row of a table, and leave --preset out of covlearn train'
        )
    check_known("method", method, methods)
