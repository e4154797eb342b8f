"""``covlearn doctor``."""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import covlearn
from covlearn.cli.say import say

NEEDED = (
    "torch", "numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "pillow", "rich", "safetensors",
)  # fmt: skip
EXTRAS = {
    "efficientnet_lite_pytorch": "features of images (lite)",
    "torchvision": "features of images (vision)",
    "timm": "features of images (vision)",
    "datasets": "Hugging Face datasets (hf)",
    "matplotlib": "pictures (plot)",
}
EXAMPLE = """\
example:
  covlearn doctor           versions, processors, memory, and what would run here
  covlearn doctor --json    the same for a bug report or a script
"""


def add_parser(commands: Any) -> None:
    """The command and its options."""
    parser = commands.add_parser(
        "doctor",
        help="show versions, GPU, memory and what would run",
        description="Shows what covlearn finds on this machine.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=doctor)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def doctor(args: argparse.Namespace) -> int:
    """Looks, and changes nothing; 2 if something that is needed is missing."""
    facts = examined()
    say(json.dumps(facts, indent=2) if args.json else report(facts))
    return 0 if facts["ready"] else 2


def examined() -> dict[str, Any]:
    """All that is reported, as plain values."""
    versions = {name: _version(name) for name in NEEDED}
    missing = [name for name, version in versions.items() if version is None]
    facts: dict[str, Any] = {
        "covlearn": covlearn.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions,
        "missing": missing,
        "extras": {name: importlib.util.find_spec(name) is not None for name in EXTRAS},
        "cpus": os.cpu_count(),
        "memory_gib": _memory(),
        "disk_free_gib": round(shutil.disk_usage(Path.cwd()).free / 2**30, 1),
        "gpu": None,
        "ready": not missing,
    }
    if "torch" not in missing:
        import torch  # noqa: PLC0415

        facts["threads"] = torch.get_num_threads()
        if torch.cuda.is_available():
            free, total = torch.cuda.mem_get_info()
            facts["gpu"] = {
                "name": torch.cuda.get_device_name(),
                "count": torch.cuda.device_count(),
                "cuda": torch.version.cuda,
                "memory_gib": round(total / 2**30, 1),
                "free_gib": round(free / 2**30, 1),
            }
    facts["would_run"] = {
        "device": "cpu" if facts["gpu"] is None else "cuda",
        "precision": "float32" if facts["gpu"] is None else "bfloat16",
        "images": _images(facts["extras"]),
    }
    return facts


def report(facts: dict[str, Any]) -> str:
    """The facts for a reader."""
    gpu = facts["gpu"]
    packages = ", ".join(
        f"{name} {version or 'MISSING'}" for name, version in facts["packages"].items()
    )
    memory = facts["memory_gib"]
    lines = [
        f"covlearn {facts['covlearn']}, Python {facts['python']}, {facts['platform']}",
        f"packages: {packages}",
        *(
            f"{'has' if there else 'has no'} {name}: {EXTRAS[name]}"
            for name, there in facts["extras"].items()
        ),
        f"{facts['cpus']} processors, {'unknown' if memory is None else memory} GiB of memory, "
        f"{facts['disk_free_gib']} GiB free on the disk of this folder",
        "no GPU that PyTorch can use"
        if gpu is None
        else f"{gpu['count']} × {gpu['name']}, {gpu['free_gib']} of {gpu['memory_gib']} GiB free",
    ]
    run = facts["would_run"]
    lines.append(
        f"covlearn fit would run on {run['device']} in {run['precision']}, with images as "
        f"{run['images']}"
    )
    if facts["missing"]:
        lines.append(f"missing: pip install {' '.join(facts['missing'])}")
    return "\n".join(lines)


def _images(extras: dict[str, bool]) -> str:
    found = [name for name in ("efficientnet_lite_pytorch", "torchvision", "timm") if extras[name]]
    return "features of a frozen network, where its weights are installed" if found else "pixels"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory() -> float | None:
    """Of the machine, where the system says."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
