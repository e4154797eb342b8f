"""Refined labels of a run in the forms that other tools read.

Repaired labels take the place of the given ones, examples to drop are left out, and those to review
keep the given label. A table has the source's own columns, so that it can be fitted again; what the
run says of the labels is in a file beside it. An export is made beside its place and renamed, so
that it is there as a whole or not at all.
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
from covlearn.atomic import beside, check_can_write, remove_leftovers, rename_file, write_bytes
from covlearn.fitted import Fitted
from covlearn.inputs.images import BadImage, check_image
from covlearn.kinds import checked
from covlearn.locks import held

CSV_NAME, PARQUET_NAME = "clean.csv", "clean.parquet"
HF_NAME = "data/train-00000-of-00001.parquet"
VERDICTS_NAME = "verdicts.csv"
IMAGES_NAME = "images"  # a link to the folder of the images, beside the table that names them


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
    folders: dict[str, str]
    """The folder of each class in a folder export; empty in others."""

    @classmethod
    def of(cls, table: pd.DataFrame, folders: dict[str, str]) -> Self:
        """Of an export of a table of :func:`clean_table`."""
        count = Counter(table["decision"].tolist())
        kept = len(table) - count["drop"]
        images = _image_folder(table)
        return cls(kept, count["relabel"], count["drop"], dict(count), images, folders)

    @property
    def tasks(self) -> int:
        """How many examples a person should look at: those whose label is not kept."""
        return sum(count for name, count in self.decisions.items() if name != "keep")


@checked
def export(
    fitted: Fitted,
    folder: str | os.PathLike[str],
    kind: str,
    *,
    copy: bool = False,
    dry_run: bool = False,
) -> Exported:
    """Writes one of :data:`KINDS`, or "folder", to a folder that is new or empty.

    With ``dry_run`` it only says what it would write, or refuses it.
    """
    folder = Path(folder)
    if kind not in (kinds := (*KINDS, "folder")):
        raise ValueError(f"kind must be one of {', '.join(kinds)}, got {kind!r}")
    _check_place(fitted, folder)
    table = clean_table(fitted)
    if kind == "folder" and table["path"].isna().any():
        raise ValueError(
            f"a folder export needs image files, and {fitted.folder} was fitted to data without; "
            "use --as csv or parquet"
        )
    done = Exported.of(table, _class_folders(fitted.classes) if kind == "folder" else {})
    if dry_run:
        return done
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    partial = beside(folder)
    try:
        partial.mkdir()
        with held(partial):  # so that nobody takes it for a leftover
            if kind == "folder":
                _to_folders(done.folders, table, partial, copy=copy)
            else:
                KINDS[kind](fitted, table, partial)
            if folder.exists():
                folder.rmdir()
            partial.rename(folder)
    except OSError as error:
        rename_file(error, partial, folder)
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return done


def _check_place(fitted: Fitted, folder: Path) -> None:
    if folder.resolve() == Path.cwd():
        raise ValueError(f"{folder} must not be the folder that you stand in; name one in it")
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise ValueError(f"{folder} must be new or an empty folder; choose another name")
    records.check_folder(folder)
    check_can_write(folder)
    source = Path(fitted.config.get("source", {}).get("path") or "")
    if (
        source.is_absolute()
        and source.is_dir()
        and folder.resolve().is_relative_to(source.resolve())
    ):
        raise ValueError(
            f"{folder} must not lie in {source}, which the run was fitted to: the next fit would "
            "read the export as more of its data; choose a folder outside of it"
        )


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
    table["given"] = _given_by_source(fitted)
    for name in ("decision", "quality", "confidence"):
        table[name] = labels[name]
    table["reason"] = labels["reason"]
    for name in ("quality", "confidence"):
        table[name] = table[name].astype(float)
    return table


def _given_by_source(fitted: Fitted) -> list[str]:
    """What the source says, also where people decided: what they decide is checked against that."""
    people, labels = fitted.people, fitted.labels
    rows = zip(labels["id"], labels["given"], strict=True)
    return [people[key][1] if key in people else given for key, given in rows]


@checked
def id_column(fitted: Fitted) -> str:
    """The column of an export that has the ids of verdicts.csv: the source's own, or a new one."""
    if fitted.table is None:
        return "id"
    name = fitted.recipe.get("id") or "id"
    while name in fitted.table and name != fitted.recipe.get("id"):  # the source's own repeats
        name = f"example_{name}"
    return str(name)


def _own_columns(fitted: Fitted, table: pd.DataFrame, paths: list[str] | None) -> pd.DataFrame:
    """The source's own columns with the label repaired, and a column of ids if it had none.

    ``paths`` take the place of the source's paths of images, which start at another folder.
    """
    own = fitted.table
    recipe = {} if own is None else fitted.recipe
    whole = pd.DataFrame(index=table.index) if own is None else own.copy()
    if (column := id_column(fitted)) not in whole:
        whole.insert(0, column, table["id"])
    if paths is not None:
        whole[recipe.get("image") or "path"] = paths
    whole[recipe.get("label") or "label"] = table["label"].to_numpy()
    return whole[(table["decision"] != "drop").to_numpy()]


def _linked_images(table: pd.DataFrame, folder: Path) -> list[str] | None:
    """Paths of the images by a link to their folder; None where there are no image files.

    A table may only name images below its own folder if it is to be read again, and the link puts
    them there. Where no link can be made the paths are absolute, for other tools.
    """
    images = _image_folder(table)
    if images is not None:
        try:
            (folder / IMAGES_NAME).symlink_to(images, target_is_directory=True)
        except OSError:  # a disk or a system without links
            pass
        else:
            return [
                f"{IMAGES_NAME}/{Path(path).relative_to(images).as_posix()}"
                for path in table["path"]
            ]
    return _absolute_paths(table)


def _absolute_paths(table: pd.DataFrame) -> list[str] | None:
    return None if table["path"].isna().any() else table["path"].tolist()


def _write_verdicts(fitted: Fitted, folder: Path) -> None:
    """All of labels.csv, with the examples that were left out."""
    labels = {**fitted.labels, "given": _given_by_source(fitted)}
    rows = zip(*labels.values(), strict=True)
    cells.write_cells(folder / VERDICTS_NAME, list(labels), rows)


def _to_csv(fitted: Fitted, table: pd.DataFrame, folder: Path) -> None:
    whole = _own_columns(fitted, table, _linked_images(table, folder))
    texts = whole.astype(object).where(whole.notna(), "")
    cells.write_cells(folder / CSV_NAME, [str(c) for c in whole], texts.itertuples(index=False))
    _write_verdicts(fitted, folder)


def _to_parquet(fitted: Fitted, table: pd.DataFrame, folder: Path) -> None:
    whole = _own_columns(fitted, table, _linked_images(table, folder))
    whole.to_parquet(folder / PARQUET_NAME, index=False)
    _write_verdicts(fitted, folder)


def _to_hugging_face(fitted: Fitted, table: pd.DataFrame, folder: Path) -> None:
    """A Parquet file where ``datasets.load_dataset(folder)`` looks for one, with a card."""
    (folder / HF_NAME).parent.mkdir()
    whole = _own_columns(fitted, table, _absolute_paths(table))  # datasets knows no other paths
    whole.to_parquet(folder / HF_NAME, index=False)
    _write_verdicts(fitted, folder)
    card = (
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n"
        f"    path: {HF_NAME}\n---\n\nLabels refined by covlearn {fitted.config['covlearn']}.\n"
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _to_folders(place: dict[str, str], table: pd.DataFrame, folder: Path, *, copy: bool) -> None:
    """Images under their refined class: hard links where the disk allows them, else copies."""
    for name in place.values():
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
        stem, number = cells.safe_name(source.stem), 2
        target = folder / place[row.label] / f"{stem}{source.suffix}"
        while Path(str(target).casefold()) in taken:  # from two folders, or by case alone
            target = target.with_name(f"{stem}-{number}{source.suffix}")
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
    write_bytes(folder / "tasks.json", records.json_text(tasks).encode())
    element = '<Image name="example" value="$image"/>'
    if images is None:
        element = '<Text name="example" value="$text"/>'
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in fitted.classes)
    view = (
        f'<View>\n  {element}\n  <Text name="why" value="$reason"/>\n'
        f'  <Choices name="label" toName="example">\n{choices}\n  </Choices>\n</View>\n'
    )
    (folder / "config.xml").write_text(view, encoding="utf-8")


def _class_folders(classes: list[str]) -> dict[str, str]:
    """A folder for each class: its own name, or one like it.

    Another name is needed where a system would not take it, or takes it for that of another class
    because it ignores case; it is never one that another class has a right to.
    """
    safe = {name: cells.safe_name(name) for name in classes}
    rightful = {name.casefold() for name in safe.values()}
    taken: set[str] = set()
    folders = {}
    for name in sorted(classes, key=lambda name: safe[name] != name):  # who can keep it, first
        made, number = safe[name], 2
        while made.casefold() in taken or (number > 2 and made.casefold() in rightful):
            made, number = f"{safe[name]}-{number}", number + 1
        taken.add(made.casefold())
        folders[name] = made
    return folders


KINDS: dict[str, Callable[[Fitted, pd.DataFrame, Path], None]] = {
    "csv": _to_csv,
    "parquet": _to_parquet,
    "label-studio": _to_label_studio,
    "hf": _to_hugging_face,
}
