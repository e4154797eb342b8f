"""The finished runs of a table: which are its own, and which are left out, in words.

A run is the table's if its record says the same job. That names data and label files by their
paths, so that what was in them is compared, too: the runs of a column have one data set, and those
of one trial the same noisy labels. Reads records alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from covlearn import records
from covlearn.bench.published import not_as_published
from covlearn.bench.table import Cell, Column, Row, Table, job_of
from covlearn.job import other_than

Results = dict[int, records.Record]
"""By trial, in order, the records of finished runs, of whose epochs they have ``EPOCH`` alone."""
Found = dict[str, tuple[Results, list[str]]]
"""By row, its results, and what was left out, in words."""

DATA = ("x", "clean", "test_x", "test_y")
EPOCH = ("stage", "test_accuracy", "averaged_right")
"""What figures are made of; whoever runs a table holds this of each of its epochs."""


class RunReader:
    """Reads the finished runs of a table, each once, and again only where it was made anew."""

    def __init__(self, table: Table, folder: Path, settings: Sequence[str] = ()) -> None:
        self.table, self.folder, self.settings = table, folder, settings
        self._read: dict[Path, tuple[Any, records.Record, list[str]]] = {}

    def read(self, place: Path, cell: Cell) -> tuple[records.Record, list[str]]:
        """What a run left behind, and where it is not the one that the cell is, in words."""
        # The result is written last, and renamed: another one is another file.
        there = (place / records.RESULT).stat()
        stamp = there.st_ino, there.st_mtime_ns, there.st_size
        if place not in self._read or self._read[place][0] != stamp:
            whole = records.read(place)
            lines = [{key: line[key] for key in EPOCH if key in line} for line in whole.metrics]
            differing = other_run(whole.config, job_of(self.table, cell, self.settings))
            self._read[place] = stamp, replace(whole, metrics=lines), differing
        return self._read[place][1:]


def found_in(reader: RunReader, column: Column) -> Found:
    """The finished runs of a column, of every row."""
    found = {row.name: _of_row(reader, row, column) for row in reader.table.rows}
    odd = _odd(
        {
            run.folder: run.config["data"]
            for results, _ in found.values()
            for run in results.values()
        }
    )
    for results, left_out in found.values():
        for trial in [trial for trial, run in results.items() if run.folder in odd]:
            place = results.pop(trial).folder
            left_out.append(f"{place.relative_to(reader.folder).as_posix()}: {odd[place]}")
    return found


def _of_row(reader: RunReader, row: Row, column: Column) -> tuple[Results, list[str]]:
    """The runs that are recorded as a row's."""
    folder = reader.folder
    place = (folder / Cell(row, column, 0).path).parent
    finished = {
        int(path.parent.name): path.parent
        for path in place.glob(f"*/{records.RESULT}")
        if path.parent.name.isdecimal()
    }
    results, left_out = {}, []
    for trial, there in sorted(finished.items()):
        name = there.relative_to(folder).as_posix()
        try:
            record, differing = reader.read(there, Cell(row, column, trial))
        except (ValueError, FileNotFoundError) as error:  # it has just been deleted
            left_out.append(f"{name}: {error}")
            continue
        if differing:
            left_out.append(f"{name}: {'; '.join(differing[:3])}")
        elif record.result is not None:
            results[trial] = record
    return results, left_out


def other_run(config: Mapping[str, Any], job: Mapping[str, Any]) -> list[str]:
    """Where a recorded run is not the one that a job would make, in words."""
    return [*other_than(config, job), *not_as_published(config, job)]


def _odd(digests: Mapping[Path, Mapping[str, Any]]) -> dict[Path, str]:
    """The runs that were not made on the data of most, or on other noisy labels than their trial's.

    Of as many on either side the first ones count.
    """
    odd = _other_than_most(digests, DATA)
    by_trial: dict[str, dict[Path, Mapping[str, Any]]] = {}
    for place, data in digests.items():
        if place not in odd:
            by_trial.setdefault(place.name, {})[place] = data
    for same_trial in by_trial.values():
        odd |= _other_than_most(same_trial, ("y",))
    return odd


def _other_than_most(
    digests: Mapping[Path, Mapping[str, Any]], names: Sequence[str]
) -> dict[Path, str]:
    # As text: a record may have been tampered with, and hold anything.
    seen = Counter(tuple(str(data.get(name)) for name in names) for data in digests.values())
    if len(seen) < 2:
        return {}
    ((usual, _),) = seen.most_common(1)
    odd = {}
    for place, data in digests.items():
        differing = [
            name for name, own in zip(names, usual, strict=True) if str(data.get(name)) != own
        ]
        if differing:
            what = ", ".join(records.DIGESTS[f"data.{name}"] for name in differing)
            odd[place] = (
                f"{what} are not those of the other runs of this column; delete it to run it "
                "again, or choose another --folder"
            )
    return odd
