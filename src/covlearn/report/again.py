"""The command that fits again, with all options of the run: with decisions, or another method."""

import json
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import torch

from covlearn.config import as_text, plain
from covlearn.data import Split
from covlearn.fitted import Fitted
from covlearn.fitting import Setup, set_up
from covlearn.job import json_or_text, resolve_device
from covlearn.local_run import machine_config
from covlearn.methods import METHODS
from covlearn.report.words import CROSS_FITTED
from covlearn.run import method_name
from covlearn.saved import SOURCE

DEFAULTS = {"features": "auto", "on_bad": "refuse", "preset": "recommended", "seed": "0"}
UNKNOWN = (
    "Not everything that was set for this run can be told from its files: add options that are "
    "not here, if it had any."
)


class Options(NamedTuple):
    """What a fit was asked for beside its source; None is the default."""

    method: str
    net: str | None
    device: str | None
    settings: list[str]

    def words(self) -> list[str]:
        """As the command line takes them."""
        return [
            *([] if self.method == "cal" else option("method", self.method)),
            *([] if self.net is None else option("net", self.net)),
            *([] if self.device is None else option("device", self.device)),
            *(["--set", *self.settings] if self.settings else []),
        ]


def next_command(fitted: Fitted) -> tuple[str, str | None]:
    """How the decisions go back into training, and a sentence where options may be left out.

    A run records what its settings came to. Those that the preset does not have are found by
    setting up the same fit without them, and what is printed is tried: it must come to the record.
    """
    how = found_options(fitted)
    parts = fit_again(fitted) + (bare_options(fitted.config) if how is None else how.words())
    parts += ["--trusted", "decisions.csv", *option("out", f"{fitted.folder}-decided")]
    known = how is not None and fitted.config["source"].get("path")
    return shlex.join(parts), None if known else UNKNOWN


def fit_with(fitted: Fitted, method: str) -> tuple[list[str], str | None]:
    """The same fit with another method, and a sentence where it is not told all that was set."""
    how = found_options(fitted)
    if how is None:
        return fit_again(fitted) + Options(method, None, None, []).words(), UNKNOWN
    same, kept = {**as_recorded(fitted), "net": how.net or "auto"}, list[str]()
    for line in how.settings:
        try:
            set_up(method, settings=[*kept, line], **same)
        except ValueError:  # a setting of the run's own method
            continue
        kept.append(line)
    left = [line for line in how.settings if line not in kept]
    said = f"Settings that {method} does not have are left out: {', '.join(left)}."
    words = how._replace(method=method, settings=kept).words()
    return fit_again(fitted) + words, said if left else None


def fit_again(fitted: Fitted) -> list[str]:
    """``covlearn fit`` of the run's source, read as it was, with its preset and seed."""
    source, config = fitted.config["source"], fitted.config
    asked = {name: source.get(name) for name in SOURCE if name != "path"}
    asked |= {"preset": config.get("preset"), "seed": str(config["seed"])}
    parts = ["covlearn", "fit", source.get("path") or "SOURCE"]
    for name, value in asked.items():
        if isinstance(value, str) and value and value != DEFAULTS.get(name):
            parts += option(name.replace("_", "-"), value)
    return parts + ignoring(fitted)


def ignoring(fitted: Fitted) -> list[str]:
    """The options that name the columns which the run did not learn from, as it was asked."""
    names = fitted.recipe.get("ignore", [])
    return [word for name in names for word in option("ignore", name)]


def option(name: str, value: str) -> list[str]:
    """``--name value``, written as one where the value looks like an option."""
    return [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]


def bare_options(config: Mapping[str, Any]) -> list[str]:
    """The method by name, where its settings cannot be told."""
    name = config["method"]["name"]
    return [] if name in ("cal", CROSS_FITTED) else option("method", name)


def found_options(fitted: Fitted) -> Options | None:
    """Method, network, device and settings of a fit; None if they cannot be told.

    Code that a run names is not imported for this.
    """
    name = fitted.config["method"]["name"]
    names = ["cal", name] if name == CROSS_FITTED else [name] if name in METHODS else []
    ways = []
    for candidate in names:
        try:
            ways.append(options_of(fitted, candidate))
        except ValueError:  # not of this version, or damaged
            continue
    found = (way for way in ways if way is not None)
    return min(found, key=lambda way: len(way.words()), default=None)


def options_of(fitted: Fitted, method: str) -> Options | None:
    """The options with which this method comes to the record; None if there are none."""
    config, known = fitted.config, as_recorded(fitted)
    setup = set_up(method, **known)
    net = config["net"].get("name") if config["net"].get("name") != setup.choice.net else None
    if net is not None:
        setup = set_up(method, net=net, **known)
    lines = settings(setup, config)
    if record(set_up(method, net=net or "auto", settings=lines, **known)) != {
        name: config.get(name) for name in ("method", "net", "augmentation", "machine")
    }:
        return None
    device = known["device"]
    return Options(method, net, None if device == resolve_device("auto") else device, lines)


def as_recorded(fitted: Fitted) -> dict[str, Any]:
    """What ``set_up`` asks of a run whatever its method: examples alike, preset and device."""
    preset, device = fitted.config.get("preset"), fitted.config["machine"].get("device")
    if not isinstance(preset, str) or not isinstance(device, str):
        raise ValueError("the preset and the device are not recorded")
    return {"split": like(fitted), "preset": preset, "device": device}


def like(fitted: Fitted) -> Split:
    """Examples of the number and shape of the run's, all of them zero, and one value in memory."""
    count, shape = len(fitted.labels["id"]), fitted.config["data"].get("shape")
    moved = fitted.config.get("augmentation")
    if (
        not isinstance(shape, list)
        or not all(type(side) is int and side > 0 for side in shape)
        or math.prod(shape) > 2**31
        or fitted.config["data"]["examples"] != count
        or (isinstance(moved, dict) and moved.get("window"))  # of images that were larger
    ):
        raise ValueError("the shape of the examples is not known")
    dtype = torch.float32
    if fitted.augmentation is not None:
        dtype, shape = torch.uint8, [*shape[1:], shape[0]]
    x = torch.zeros(1, dtype=dtype).expand(count, *shape)
    y = torch.zeros(count, dtype=torch.int64)
    return Split(x, y, len(fitted.classes), fitted.augmentation)


def settings(setup: Setup, config: Mapping[str, Any]) -> list[str]:
    """``path=value`` of all that the record has otherwise than the setup."""
    lines = list(changes(setup.choice.method, config["method"]))
    for name, value in config["net"].items():
        if name != "name" and setup.choice.net_options.get(name) != value:
            same = isinstance(value, str) and json_or_text(value) == value
            lines.append(f"net.{name}={value if same else json.dumps(value)}")
    machine = {"workers": setup.machine.workers} | config["machine"]
    lines += changes(setup.machine, machine | {"device": setup.machine.device}, "machine.")
    if setup.augmentation is not None:
        lines += changes(setup.augmentation, config.get("augmentation"), "augmentation.")
    return lines


def changes(default: Any, recorded: Any, inside: str = "") -> Iterator[str]:
    """``path=value`` of each field of a dataclass that was recorded with another value."""
    if not isinstance(recorded, Mapping):
        raise ValueError(f"{inside or 'the method'} must be recorded by its fields")
    for field in fields(default):
        old, path = getattr(default, field.name), inside + field.name
        if field.name not in recorded:
            raise ValueError(f"{path} is not recorded")
        new = recorded[field.name]
        if plain(old) == new:
            continue
        if is_dataclass(old) and isinstance(new, Mapping):
            yield from changes(old, new, f"{path}.")
        else:
            yield f"{path}={json.dumps(new) if isinstance(new, Mapping) else as_text(new)}"


def record(setup: Setup) -> dict[str, Any]:
    """What config.json has of a setup."""
    choice, moved = setup.choice, setup.augmentation
    return {
        "method": {"name": method_name(choice.method), **plain(choice.method)},
        "net": {"name": choice.net, **plain(choice.net_options)},
        "augmentation": None if moved is None else plain(moved),
        "machine": machine_config(setup.machine),
    }
