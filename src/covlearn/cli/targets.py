"""Where a command may write one file: never over what it reads, nor over a file of a run."""

from pathlib import Path

from covlearn import records
from covlearn.atomic import check_can_write

OF_A_RUN = (
    *("config.json", "environment.json", "metrics.jsonl", "result.json", "recipe.json"),
    *("labels.csv", "trusted.csv", "probs.npz", "refinement.json", "refinement.npz"),
    *("model.safetensors", "table.parquet", "examples.parquet", "diagnosis.json"),
)
"""What ``covlearn fit``, ``train`` and ``diagnose`` write, and later commands need."""


DATA = (
    *(".csv", ".tsv", ".parquet", ".npz", ".npy", ".json", ".toml", ".pt", ".pth", ".safetensors"),
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".tar", ".gz", ".zip"),
)
"""How files end that commands read: an image of a folder, say, or the labels beside ``x.npy``."""


def check_target(file: Path, kind: str, *read: str | Path | None) -> None:
    """Refuses what can be no file, and what would be lost: what is read, files of a run, and data.

    ``kind`` is how files of the kind end that is written, which may be replaced; ``read`` are those
    of that kind that the command reads, or that its run was made from.
    """
    if file.is_dir():
        raise ValueError(f"{file} must be a file, but it is a folder; name a file in it")
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise ValueError(f"{file} must be a file, but it is a link or a device; name a file")
    # On macOS and Windows Labels.csv is labels.csv.
    if file.name.casefold() in OF_A_RUN and (file.parent / "config.json").exists():
        raise ValueError(f"{file} is a file of a run, which would be lost; choose another name")
    records.check_folder(file.parent)
    check_can_write(file)
    if not file.exists():
        return
    if any(path is not None and Path(path).exists() and file.samefile(path) for path in read):
        raise ValueError(f"{file} is what is read, and would be lost; choose another name")
    if file.suffix.lower() in DATA and file.suffix.lower() != kind:
        raise ValueError(
            f"{file} is there and ends as data does, which would be lost; choose another name, as "
            f"{file.with_suffix(kind)}"
        )
