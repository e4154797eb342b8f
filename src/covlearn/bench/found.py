"""The finished runs of a table: which are its own, and which are left out, in words.

A run is the table's if its record says the same job. That names data and label files by their
paths, so that what was in them is compared, too: the runs of a column have one data set, and those
of one trial the same noisy labels. Reads records alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from covlearn import records
from covlearn.bench.published import not_as_published
from covlearn.bench.table import Cell, Column, Row, Table, job_of
from covlearn.job import other_than

Results = dict[int, tuple[records.Result, Path]]
"""By trial, in order, a result and its folder."""
Found = dict[str, tuple[Results, list[str]]]
"""By row, its results, and what was left out, in words."""

DATA = ("x", "clean", "test_x", "test_y")


def found_in(table: Table, column: Column, folder: Path, settings: Sequence[str] = ()) -> Found:
    """The finished runs of a column, of every row."""
    found: Found = {}
    digests: dict[Path, Mapping[str, Any]] = {}
    for row in table.rows:
        results, left_out = _of_row(table, row, column, folder, settings, digests)
        found[row.name] = results, left_out
    odd = _odd(digests)
    for results, left_out in found.values():
        for trial in [trial for trial, (_, place) in results.items() if place in odd]:
            _, place = results.pop(trial)
            left_out.append(f"{place.relative_to(folder).as_posix()}: {odd[place]}")
    return found


def _of_row(
    table: Table,
    row: Row,
    column: Column,
    folder: Path,
    settings: Sequence[str],
    digests: dict[Path, Mapping[str, Any]],
) -> tuple[Results, list[str]]:
    """The runs that are recorded as a row's; what their data were goes into ``digests``."""
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
            record = records.read(there)
        except ValueError as error:
            left_out.append(f"{name}: {error}")
            continue
        job = job_of(table, Cell(row, column, trial), settings)
        differing = other_run(record.config, job)
        if differing:
            left_out.append(f"{name}: {'; '.join(differing[:3])}")
        elif record.result is not None:
            results[trial] = (record.result, there)
            digests[there] = record.config["data"]
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
