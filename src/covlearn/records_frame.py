"""Run folders as one table: a row a run, or a row an epoch. Nothing here imports torch."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from covlearn import records
from covlearn.kinds import checked
from covlearn.plain_files import read_json

if TYPE_CHECKING:
    import pandas as pd

FIGURES = ("best", "last", "mean_of_last_ten", "selected")


@checked
def read_runs(
    folder: str | os.PathLike[str],
    *,
    by: Literal["run", "epoch"] = "run",
    settings: Sequence[str] = (),
) -> "pd.DataFrame":
    """All runs of ``covlearn train`` and ``fit`` below a folder, as a pandas DataFrame.

    ``by="run"`` has a row a run, finished or not, in the order of their names: what was run, the
    test accuracies by each rule, and what was found out about the labels. ``settings`` adds fields
    of the method, such as ``"plan.epochs"``. ``by="epoch"`` has a row an epoch, with its run and
    stage.
    """
    import pandas as pd  # noqa: PLC0415  slow to import

    folder = Path(folder)
    rows: list[dict[str, Any]] = []
    found = False
    for place, config in _runs(folder):
        found = True
        name = place.relative_to(folder).as_posix()
        if by == "epoch":
            metrics = records.read_metrics(place)
            rows += [{"run": name, "method": config["method"]["name"]} | line for line in metrics]
        else:
            rows.append({"run": name} | _row(place, config, settings))
    if not found:
        raise ValueError(f"{folder} must hold runs of covlearn, and has none")
    return pd.DataFrame(rows)


def _runs(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Run folders and their configurations; a config.json of another program is passed over."""
    for path in sorted(folder.rglob(records.CONFIG)):
        if "covlearn" in read_json(path):
            yield path.parent, records.read_config(path.parent)


def _row(place: Path, config: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    result_path = place / records.RESULT
    result = read_json(result_path) if result_path.exists() else {}
    noise = config.get("noise") or {}
    data = config["data"]
    row = {
        "command": config.get("command", "train"),
        "method": config["method"]["name"],
        "preset": config.get("preset"),
        "data": data.get("name") or (config.get("source") or {}).get("path"),
        "noise": noise.get("variant"),
        "rate": noise.get("actual_rate"),
        "seed": config["seed"],
        "net": config["net"]["name"],
        "examples": data["examples"],
        "classes": data["classes"],
        "finished": bool(result),
        "seconds": result.get("seconds"),
    }
    accuracy = result.get("test_accuracy") or {}
    row |= {name: (accuracy.get(name) or {}).get("value") for name in FIGURES}
    row["returned"] = (result.get("returned") or {}).get("value")
    row["memorisation"] = result.get("memorisation")
    row |= (result.get("labels") or {}).get("quality") or {}
    row["noise_rate"] = result.get("noise_rate")
    row |= result.get("decisions") or {}
    return row | {name: _setting(config["method"], name) for name in settings}


def _setting(method: Mapping[str, Any], path: str) -> Any:
    """A field of the method; None for a method that has no such field."""
    value: Any = method
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
