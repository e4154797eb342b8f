"""Refined labels of a run in the forms that other tools read.

Repaired labels take the place of the given ones, examples to drop are left out, and those to review
keep the given label. An export is made beside its place and renamed, so that it is there as a whole
or not at all.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np
import pandas as pd

from covlearn import cells, records
from covlearn.fitted import Fitted
from covlearn.inputs.images import BadImage, check_image
from covlearn.kinds import checked

CSV_NAME, PARQUET_NAME = "clean.csv", "clean.parquet"
HF_NAME = "data/train-00000-of-00001.parquet"
ADDED = ("given", "decision", "quality", "confidence")


@dataclass(frozen=True)
class Exported:
    """How many examples are in an export, and how many were left out of it."""

    examples: int
    relabelled: int
    left_out: int
    decisions: dict[str, int]
    """How many examples of the run have each decision."""
    images: Path | None
    """The folder that all images lie below; None where there is none, or no image files."""

    @classmethod
    def of(cls, table: pd.DataFrame) -> Self:
        """Of an export of a table of :func:`clean_table`."""
        count = Counter(table["decision"].tolist())
        kept = len(table) - count["drop"]
        return cls(kept, count["relabel"], count["drop"], dict(count), _image_folder(table))

    @property
    def tasks(self) -> int:
        """How many examples a person should look at: those whose label is not kept."""
        return sum(count for name, count in self.decisions.items() if name != "keep")


@checked
def export(
    fitted: Fitted, folder: str | os.PathLike[str], kind: str, *, copy: bool = False
) -> Exported:
    """Writes one of :data:`KINDS`, or "folder", to a folder that is new or empty."""
    folder = Path(folder)
    if kind not in (kinds := (*KINDS, "folder")):
        raise ValueError(f"kind must be one of {', '.join(kinds)}, got {kind!r}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} must be new or an empty folder; choose another name")
    partial = folder.with_name(f"{folder.name}.{os.getpid()}{records.PARTIAL}")
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        partial.mkdir()
        table = clean_table(fitted)
        if kind == "folder":
            _to_folders(fitted, table, partial, copy=copy)
        else:
            KINDS[kind](fitted, table, partial)
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        records.rename_file(error, partial, folder)
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Exported.of(table)


def _image_folder(table: pd.DataFrame) -> Path | None:
    """The folder that the images of a table of :func:`clean_table` have in common."""
    if table["path"].isna().any():
        return None
    try:
        return Path(os.path.commonpath([Path(path).parent for path in table["path"]]))
    except ValueError:  # on two drives of Windows: no document root has both
        return None


@checked
def clean_table(fitted: Fitted) -> pd.DataFrame:
    """A row an example: id, path where there is one, the label after all repairs, and the verdict.

    Rows to drop are still in it.
    """
    labels = fitted.labels
    relabel = np.array(labels["decision"]) == "relabel"
    paths = [None if path is None else str(path) for path in fitted.paths]
    table = pd.DataFrame({"id": labels["id"], "path": paths})
    table["label"] = np.where(relabel, labels["suggested"], labels["given"])
    table["suggested"] = labels["suggested"]
    for name in ADDED:
        table[name] = labels[name]
    table["reason"] = labels["reason"]
    for name in ("quality", "confidence"):
        table[name] = table[name].astype(float)
    return table


def _with_own_columns(fitted: Fitted, table: pd.DataFrame) -> pd.DataFrame:
    """The source's own columns with the label repaired, and the verdict beside them."""
    if fitted.table is not None:
        whole = fitted.table.copy()
        column = fitted.recipe.get("label") or "label"
        whole[column] = table["label"].to_numpy()
        if "id" not in whole:
            whole.insert(0, "id", table["id"])
    else:
        whole = table[["id", "path", "label"]].dropna(axis="columns", how="all")
    for name in ADDED:
        whole[name if name not in whole else f"covlearn_{name}"] = table[name].to_numpy()
    return whole[(table["decision"] != "drop").to_numpy()]


def _to_csv(fitted: Fitted, table: pd.DataFrame, folder: Path) -> None:
    whole = _with_own_columns(fitted, table)
    texts = whole.astype(object).where(whole.notna(), "")
    cells.write_cells(folder / CSV_NAME, [str(c) for c in whole], texts.itertuples(index=False))


def _to_parquet(fitted: Fitted, table: pd.DataFrame, folder: Path) -> None:
    _with_own_columns(fitted, table).to_parquet(folder / PARQUET_NAME, index=False)


def _to_hugging_face(fitted: Fitted, table: pd.DataFrame, folder: Path) -> None:
    """A Parquet file where ``datasets.load_dataset(folder)`` looks for one, with a card."""
    (folder / HF_NAME).parent.mkdir()
    _with_own_columns(fitted, table).to_parquet(folder / HF_NAME, index=False)
    card = (
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n"
        f"    path: {HF_NAME}\n---\n\nLabels refined by covlearn {fitted.config['covlearn']}.\n"
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _to_folders(fitted: Fitted, table: pd.DataFrame, folder: Path, *, copy: bool) -> None:
    """Images under their refined class: hard links where the disk allows them, else copies."""
    if table["path"].isna().any():
        raise ValueError(
            f"a folder export needs image files, and {fitted.folder} was fitted to data without; "
            "use --as csv or parquet"
        )
    names = _distinct([cells.safe_name(name) for name in fitted.classes])
    place = dict(zip(fitted.classes, names, strict=True))
    for name in names:
        (folder / name).mkdir()
    taken: set[Path] = set()
    for row in table[table["decision"] != "drop"].itertuples():
        source = Path(row.path)
        if not source.is_file():
            raise ValueError(f"{source} is not there any more; the export needs every image")
        try:
            check_image(source)  # a run of somebody else's may name any file of this machine
        except BadImage as error:
            raise ValueError(f"{source} must be an image to be exported, but {error}") from error
        target = folder / place[row.label] / cells.safe_name(source.name)
        number = 2
        while Path(str(target).casefold()) in taken:  # from two folders, or by case alone
            target = target.with_name(f"{cells.safe_name(source.stem)}-{number}{source.suffix}")
            number += 1
        taken.add(Path(str(target).casefold()))
        _link_or_copy(source, target, copy=copy)


def _link_or_copy(source: Path, target: Path, *, copy: bool) -> None:
    if not copy:
        try:
            os.link(source, target)
        except OSError:  # another disk, or one without links
            pass
        else:
            return
    shutil.copyfile(source, target)


def _to_label_studio(fitted: Fitted, table: pd.DataFrame, folder: Path) -> None:
    """What a person should look at, as tasks with the model's suggestion, worst label first.

    Label Studio serves files of a folder below its document root, by their path below that root:
    the root is the folder above the images' own.
    """
    columns = fitted.table
    images = _image_folder(table)
    shown = table[table["decision"] != "keep"].sort_values("quality", kind="stable")
    tasks = []
    for position, row in zip(shown.index, shown.itertuples(), strict=True):
        text = row.id
        if columns is not None:
            text = "\n".join(f"{name}: {value}" for name, value in columns.iloc[position].items())
        data: dict[str, Any] = {"text": text}
        if images is not None:
            below = Path(row.path).relative_to(images.parent).as_posix()
            data = {"image": f"/data/local-files/?d={quote(below)}"}
        choice = {
            "from_name": "label",
            "to_name": "example",
            "type": "choices",
            "value": {"choices": [row.suggested]},
        }
        tasks.append(
            {
                "data": data | {"id": row.id, "given": row.given, "reason": row.reason},
                "predictions": [
                    {"model_version": "covlearn", "score": row.confidence, "result": [choice]}
                ],
            }
        )
    records.write_bytes(folder / "tasks.json", records.json_text(tasks).encode())
    element = '<Image name="example" value="$image"/>'
    if images is None:
        element = '<Text name="example" value="$text"/>'
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in fitted.classes)
    view = (
        f'<View>\n  {element}\n  <Text name="why" value="$reason"/>\n'
        f'  <Choices name="label" toName="example">\n{choices}\n  </Choices>\n</View>\n'
    )
    (folder / "config.xml").write_text(view, encoding="utf-8")


def _distinct(names: list[str]) -> list[str]:
    """The names with numbers where two are the same on a disk that ignores case."""
    seen: set[str] = set()
    distinct = []
    for name in names:
        made, number = name, 2
        while made.casefold() in seen:
            made, number = f"{name}-{number}", number + 1
        seen.add(made.casefold())
        distinct.append(made)
    return distinct


KINDS: dict[str, Callable[[Fitted, pd.DataFrame, Path], None]] = {
    "csv": _to_csv,
    "parquet": _to_parquet,
    "label-studio": _to_label_studio,
    "hf": _to_hugging_face,
}
