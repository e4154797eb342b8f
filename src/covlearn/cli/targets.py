"""Where a command may write one file: never over what it reads, nor over a file of a run."""

from pathlib import Path

OF_A_RUN = (
    *("config.json", "environment.json", "metrics.jsonl", "result.json", "recipe.json"),
    *("labels.csv", "trusted.csv", "probs.npz", "refinement.json", "refinement.npz"),
    *("model.safetensors", "table.parquet", "examples.parquet", "diagnosis.json"),
)
"""What ``covlearn fit``, ``train`` and ``diagnose`` write, and later commands need."""


def check_target(file: Path, *, read: str | Path | None = None) -> None:
    """Refuses a folder, the file that is read, and a file of a run, which would be lost."""
    if file.is_dir():
        raise ValueError(f"{file} must be a file, but it is a folder; name a file in it")
    if read is not None and file.exists() and Path(read).exists() and file.samefile(read):
        raise ValueError(f"{file} is what is read, and would be lost; choose another name")
    if file.name in OF_A_RUN and (file.parent / "config.json").exists():
        raise ValueError(f"{file} is a file of a run, which would be lost; choose another name")
