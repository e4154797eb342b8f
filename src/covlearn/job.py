"""One run in words: what ``covlearn train`` is told, and what a cell of a table is."""

import json
import math
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch

from covlearn.config import Tree, override, parse_settings, plain, typed
from covlearn.data import Augmentation, Split
from covlearn.data.sources import Source, load_data, with_noise
from covlearn.engine import Machine
from covlearn.evaluation import Progress
from covlearn.kinds import check_fields, checked, nearest
from covlearn.methods import METHODS, Method, presets
from covlearn.methods.crossfit import CrossFittedCAL
from covlearn.methods.scaled import Choice, from_scratch, left_to_choose, movement, recommended
from covlearn.records import Result, differences
from covlearn.run import fit_and_evaluate, method_name

__all__ = ["Job", "make_machine", "make_method", "resolve_device", "run_job", "settled"]

WEIGHTS = (".pt", ".pth", ".safetensors")
MOST_RMS = 10.0
"""Of a feature: a step of SGD at 0.1 makes infinity of much larger ones."""
BESIDE = ("net", "machine", "augmentation")
"""What can be set beside a method's own fields."""
DETAILS_GONE = ("consistency_threshold", "consistency_labelled", "renew_decay")
"""Fields that are gone, and that said only how another one worked that is gone, too."""
OFF = (("peer_prior", "noisy"),)
"""Fields that are gone, with the value that was as if they had not been, if not nought."""


@dataclass(frozen=True)
class Job:
    """Data, noise and method by name, with what is set otherwise than the preset has it.

    ``settings`` are ``path=value`` of the method's fields, of ``net.…``, ``machine.…`` and
    ``augmentation.…``; ``net`` and ``holdout`` are the preset's if they are None, and so are the
    weights that the preset's network starts with. ``seed`` is that of noise, weights and order.
    """

    data: str
    method: str
    noise: str = "none"
    preset: str | None = None
    seed: int = 0
    net: str | None = None
    holdout: float | None = None
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)


@checked
def run_job(
    job: Job,
    folder: Path,
    *,
    device: str,
    resume: bool = False,
    progress: Progress | None = None,
    source: Source | None = None,
    shared_stages: Path | None = None,
    recorded: dict[str, Any] | None = None,
    keep_model: bool = True,
) -> Result:
    """Trains, evaluates and records a job; ``source`` is its data where that is loaded already.

    ``recorded`` stands for the job in the configuration, if that is not the job itself; without
    ``keep_model`` figures alone are recorded.
    """
    method, others = settled(job)
    protocol = protocol_of(job)
    name = None if job.preset is None else f"{job.preset}/{presets.data_kind(job.data)}"
    machine = make_machine(device, others["machine"])
    whole = load_data(job.data) if source is None else source
    noisy, card = with_noise(whole, job.noise, seed=job.seed)
    if job.preset == "recommended":
        check_unit_scale(noisy.train, job.data)
    return fit_and_evaluate(
        method,
        augmented(noisy.train, protocol.augmentation, others["augmentation"]),
        test=noisy.test,
        clean=noisy.clean,
        validation=noisy.validation,
        noise_card=card,
        folder=folder,
        machine=machine,
        seed=job.seed,
        net=job.net or protocol.net,
        net_options=others["net"],
        data_name=noisy.name,
        preset=name,
        holdout=protocol.holdout if job.holdout is None else job.holdout,
        resume=resume,
        progress=progress,
        shared_stages=shared_stages,
        job=plain(job) if recorded is None else recorded,
        keep_model=keep_model,
    )


def check_unit_scale(split: Split, data: str) -> None:
    """Refuses features of which a network of these settings would make infinity."""
    if split.augmentation is not None:
        return
    x = split.whole("their scale").flatten(1)
    rms = x.square().mean(dim=0, dtype=torch.float64).sqrt()
    if bool((rms > MOST_RMS).any()):
        worst = int(rms.argmax())
        raise ValueError(
            f"features must be of about unit scale for preset recommended, got {rms[worst]:.3g} as "
            f"the root of the mean square of feature {worst} of {data}; standardise them, or use "
            "covlearn fit, which does"
        )


@checked
def settled(job: Job) -> tuple[Method, dict[str, Tree]]:
    """The job's method with every setting, and the settings that are not the method's."""
    settings = parse_settings(job.settings)
    method = _before_settings(job)
    others = take_beside(method, settings)
    if job.preset is not None and job.net is None:
        if "pretrained" not in others["net"]:
            others["net"] |= pretrained_weights(job.preset, job.data)
        others["net"] = protocol_of(job).net_options | others["net"]
    return override(method, settings), others


def take_beside(method: Method, settings: Tree) -> dict[str, Tree]:
    """Takes what is set beside a method out of all settings; what its fields name is left to it."""
    own = {field.name for field in fields(method)}  # type: ignore[arg-type]
    others = {name: {} if name in own else settings.pop(name, {}) for name in BESIDE}
    for name, part in others.items():
        if not isinstance(part, dict):
            raise ValueError(
                f"{name} has parts that can be set, as {name}.…={part}, not as a whole"
            )
    return others | {"net": {name: json_or_text(text) for name, text in others["net"].items()}}


def _before_settings(job: Job, own: presets.Inside | None = None) -> Method:
    """The job's method as its preset has it; ``own`` is what its data is, if that is known."""
    if job.preset is None:
        return make_method(job.method)
    if (choice := _of_its_size(job, own)) is not None:
        asked = parse_settings(job.settings)
        method = choice.method
        return left_to_choose(method, asked) if isinstance(method, CrossFittedCAL) else method
    return presets.preset(job.preset, job.method, presets.data_kind(job.data))


def _of_its_size(job: Job, own: presets.Inside | None) -> Choice | None:
    """What is recommended for data of one's own, by its size as in ``covlearn fit``."""
    if job.preset != "recommended" or job.method not in METHODS:
        return None
    found = own or presets.inside(Path(job.data))
    if found is None:
        return None
    if found.many_small_images:
        return from_scratch(
            job.method, num_examples=found.num_examples, num_classes=found.num_classes
        )
    if presets.data_kind(job.data) != "small":  # its name says otherwise
        return None
    return recommended(job.method, **vars(found))


def _recorded_inside(config: Mapping[str, Any], job: Job) -> presets.Inside | None:
    """What the data of a recorded run was, where settings depend on it: the file may be gone."""
    data = config.get("data")
    if not isinstance(data, Mapping) or not job.data.endswith(".npz"):
        return None
    shape = data.get("shape")
    if not isinstance(shape, list) or not all(isinstance(side, int) for side in shape):
        return None
    images = data.get("augmentation") is not None
    return presets.Inside(
        data.get("examples"),  # type: ignore[arg-type]  # which it checks
        data.get("classes"),  # type: ignore[arg-type]
        tuple(shape) if images else (math.prod(shape),),
    )


def protocol_of(job: Job, own: presets.Inside | None = None) -> presets.Protocol:
    """What the job's preset says beside the method's settings; for own data by its size."""
    if job.preset is None:
        return presets.Protocol()
    made = presets.protocol(job.preset, presets.data_kind(job.data))
    if (choice := _of_its_size(job, own)) is None:
        return made
    found = own or presets.inside(Path(job.data))
    assert found is not None
    moved = movement(found.shape[0]) if found.many_small_images else made.augmentation
    return replace(made, net=choice.net, net_options=choice.net_options, augmentation=moved)


def other_than(config: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    """Where a recorded run is not this job, in words.

    Its method counts as it came out, by whichever settings, and so do its network, the share held
    out and how images were moved: a preset that has changed since is another job, the same settings
    in other words are not.
    """
    recorded, method = config.get("job"), config.get("method")
    if job["method"] not in METHODS or not isinstance(recorded, Mapping):
        return differences(recorded, job, path="job") or _changed_since(method, job)
    if not isinstance(method, Mapping):
        return [f"method must be its settings, got {method!r}; the record is damaged"]
    try:
        (_, theirs), (own, ours) = (
            _own_and_others(each.get("settings") or ()) for each in (recorded, job)
        )
        asked = typed(Job, dict(job))
        data = _recorded_inside(config, asked)
        now = override(_before_settings(asked, data), own)
        moved = [each.pop("augmentation", {}) for each in (theirs, ours)]
        protocols = _another_protocol(config, protocol_of(asked, data), asked, *moved)
    except ValueError as error:
        return [str(error)]
    there, here = {**recorded, "settings": theirs}, {**job, "settings": ours}
    then = _as_of_now(method, plain(type(now)()))
    return [
        *differences(there, here, path="job"),
        *differences(then, {"name": method_name(now), **plain(now)}, path="method"),
        *protocols,
    ]


def _changed_since(method: Any, job: Mapping[str, Any]) -> list[str]:
    """Where a method of one's own comes out otherwise now; one that is not at hand cannot tell."""
    try:
        now = settled(typed(Job, dict(job)))[0]
    except ValueError:
        return []
    if not isinstance(method, Mapping):
        return [f"method must be its settings, got {method!r}; the record is damaged"]
    then = {name: item for name, item in method.items() if name != "name"}
    return differences(_as_of_now(then, plain(type(now)())), plain(now), path="method")


def _own_and_others(settings: Iterable[str]) -> tuple[Tree, dict[str, Tree]]:
    """The settings of a method, and what is set beside it."""
    tree = parse_settings(settings)
    return tree, {name: tree.pop(name) for name in BESIDE if name in tree}


def _another_protocol(
    config: Mapping[str, Any],
    protocol: presets.Protocol,
    job: Job,
    moved_there: Tree,
    moved_here: Tree,
) -> list[str]:
    """Where the network, the share held out and the movement of images were others."""
    asked = protocol.augmentation | moved_here
    # What nobody asked for is the data's: the mean and deviation of its colours.
    names = {*asked, *moved_there}
    then = (config.get("data") or {}).get("augmentation") or {}
    now = plain(override(Augmentation(mean=(), std=()), asked, inside="augmentation."))
    return [
        *differences((config.get("net") or {}).get("name"), job.net or protocol.net, path="net"),
        *differences(
            config.get("holdout"),
            protocol.holdout if job.holdout is None else job.holdout,
            path="holdout",
        ),
        *differences(
            {name: then.get(name) for name in names},
            {name: now.get(name) for name in names},
            path="augmentation",
        ),
    ]


def _as_of_now(tree: Any, defaults: Any) -> Any:
    """A recorded method in today's fields: those that came later have their defaults.

    Those that are gone count where they were in use, but for mere details of others.
    """
    if not isinstance(tree, Mapping) or not isinstance(defaults, Mapping):
        return tree
    kept = {
        name: _as_of_now(item, defaults.get(name))
        for name, item in tree.items()
        if name in defaults or (item and name not in DETAILS_GONE and (name, item) not in OFF)
    }
    return {**defaults, **kept}


def pretrained_weights(preset: str, data: str) -> Tree:
    """The option of a preset's network that names the weights beside the data, if it wants any.

    Weights of chance in their place would be another recipe without a word.
    """
    start = presets.protocol(preset, presets.data_kind(data)).pretrained
    place = Path(data)
    if start is None or not place.exists():  # that there is no such data is said elsewhere
        return {}
    folder = place if place.is_dir() else place.parent
    found = sorted(path for path in folder.glob(f"{start}*") if path.suffix in WEIGHTS)
    if len(found) != 1:
        raise ValueError(
            f"preset {preset} starts from {start}'s ImageNet weights as torchvision has them: "
            f"there must be one file {folder / start}*.pth, got {len(found)}; put it there, name "
            "it with --set net.pretrained=FILE, or start anew with net.pretrained=null"
        )
    return {"pretrained": str(found[0])}


@checked
def make_method(name: str) -> Method:
    """A method with its defaults, by name or from ``pkg.mod:Class``."""
    if name in METHODS:
        return METHODS[name]()
    if ":" not in name:
        raise ValueError(
            f"method must be one of {', '.join(METHODS)} or pkg.mod:Class, got {name!r}"
            f"{nearest(name, METHODS)}"
        )
    try:
        method = pkgutil.resolve_name(name)()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ValueError(
            f"cannot make the method {name!r}: {error}; write pkg.mod:Class, with pkg installed or "
            "on PYTHONPATH and a default for each field"
        ) from error
    if not isinstance(method, Method) or not is_dataclass(method):
        raise ValueError(f"{name!r} must be a dataclass with fit(run)")
    return method


@checked
def resolve_device(device: str) -> str:
    """``auto`` is a GPU where there is one."""
    if device not in ("auto", "cpu") and not device.startswith("cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, got {device!r}")
    available = torch.cuda.is_available()
    if device.startswith("cuda") and not available:
        raise ValueError("device cuda is not there; use cpu, or auto")
    return ("cuda" if available else "cpu") if device == "auto" else device


@checked
def make_machine(device: str, settings: Tree) -> Machine:
    """Where and how it is computed; a GPU takes bfloat16 unless told otherwise."""
    if "device" in settings:
        raise ValueError("machine.device is not a setting, choose it with --device")
    on_gpu = device.startswith("cuda")
    machine = Machine(device=device, precision="bfloat16" if on_gpu else "float32")
    return override(machine, settings, inside="machine.")


def augmented(split: Split, by_preset: Tree, settings: Tree) -> Split:
    """The split with its images moved as the preset and then the settings say."""
    if split.augmentation is None:
        if settings:
            raise ValueError(
                "augmentation is for uint8 images (N, H, W, C), and this data has none"
            )
        return split
    how = override(split.augmentation, by_preset, inside="augmentation.")
    return replace(split, augmentation=override(how, settings, inside="augmentation."))


def json_or_text(text: Any) -> Any:
    """A value whose type is not known: JSON if it reads as such."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return text
