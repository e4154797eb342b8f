"""Refined labels and probabilities from files."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covlearn import records
from covlearn.methods.cal import CAL
from tests.methods.cal_runs import (
    LABELS,
    NOTHING,
    SIZE,
    fitted,
    probs_of,
    refined_of,
    watched,
    write,
)


def lines(*columns: Any, header: str = "") -> str:
    rows = (",".join(map(str, row)) for row in zip(*columns, strict=True))
    return "\n".join([*([header] if header else []), *rows]) + "\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npy", LABELS),
        ("a.npy", LABELS.astype(np.int8)),
        ("a.npz", {"anything": LABELS}),
        ("a.npz", {"labels": LABELS, "other": LABELS[:3]}),
        ("a.txt", lines(LABELS)),
        ("a.csv", lines(LABELS)),
        ("a.CSV", lines(LABELS, header="label")),
        ("a.csv", "\ufeff" + lines(LABELS, header="label").replace("\n", "\r\n")),
        ("a.csv", lines(range(SIZE), LABELS, LABELS * 0, header="idx,suggested,clean")),
    ],
)
def test_labels_from_a_file(name: str, content: Any, tmp_path: Path) -> None:
    path = write(tmp_path / name, content)
    run = fitted(CAL(labels=path, plan=NOTHING))
    assert refined_of(run).tolist() == LABELS.tolist()
    assert list(run.nets) == ["cal"]
    assert run.facts["refined_from"] == path
    assert run.facts["dropped"] == int((LABELS < 0).sum())
    assert run.facts["kept_share"] == pytest.approx(float((run.split.y.numpy() == LABELS).mean()))
    assert run.refined is not None
    assert torch.equal(run.refined[1] > 0, run.refined[0] != run.split.y)
    assert run.calls["cal"]["objective"].refined.tolist() == LABELS.tolist()


def test_labels_of_a_run_are_read_as_they_are_written(tmp_path: Path) -> None:
    columns = {"idx": list(range(SIZE)), "given": [0] * SIZE, "suggested": list(LABELS)}
    records.write_table(tmp_path / "labels.csv", columns)
    run = fitted(CAL(labels=str(tmp_path / "labels.csv"), plan=NOTHING))
    assert refined_of(run).tolist() == LABELS.tolist()


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", LABELS[:-1], "one entry an example, 120, got 119; .*; what is held out is no"),
        ("a.npy", LABELS + 1, "must lie in 0…2 .or −1 for a dropped example., got 3 at position"),
        ("a.npy", LABELS - 1, "got -2 at position"),
        ("a.npy", LABELS.astype(float), "must be integer class numbers, got torch.float64"),
        ("a.npy", LABELS[:, None], "must be a non-empty vector, got shape"),
        ("a.npy", np.array(1), "one entry an example, 120, got 1"),
        ("a.npy", b"no array", "a.npy cannot be read as labels"),
        ("a.npy", b"", "a.npy cannot be read as labels"),
        ("a.npy", pickled(), "cannot be read as labels: .*never unpickled here"),
        ("a.npz", b"PK\x03\x04", "a.npz cannot be read as labels"),
        ("a.npz", {"a": LABELS, "b": LABELS}, "one array, or one named labels, got a, b"),
        ("a.txt", "", "labels must be a non-empty vector"),
        ("a.txt", "0\n1.5\n", "expected a class number, got '1.5' for example 1"),
        ("a.txt", "9" * 30, "a.txt cannot be read as labels"),
        ("a.csv", b"\xff\n", "a.csv cannot be read as labels"),
        ("a.csv", "0,1\n", "expected one label a line, got 2 values"),
        ("a.csv", "a,b\n0,1\n", "one column, or one named suggested, got .a., .b."),
        ("a.csv", "idx,suggested\n0\n", "expected a class number, got '' for example 0"),
        ("a.pkl", b"", "labels must be a file that ends in .npy, .npz, .txt, .csv, got"),
    ],
)
def test_bad_files_of_labels_are_refused(
    name: str, content: Any, message: str, tmp_path: Path
) -> None:
    run = watched()
    with pytest.raises(ValueError, match=message):
        CAL(labels=write(tmp_path / name, content)).fit(run)
    assert not run.nets


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", probs_of()[:-1].numpy(), "one row an example, 120, got 119; what is held out"),
        ("a.npy", probs_of()[:, :2].numpy(), "probs must have 3 columns, one a class, got 2"),
        ("a.npy", 2 * probs_of().numpy(), "rows of probs must sum to 1, row"),
        ("a.npy", LABELS, "probs must be floating point, got torch.int64"),
        ("a.npz", {"a": LABELS, "b": LABELS}, "one array, or one named probs, got a, b"),
        ("a.npy", pickled(), "cannot be read as probs: .*never unpickled here"),
        ("a.csv", "0.5,0.5\n", "probs must be a file that ends in .npy, .npz, got"),
    ],
)
def test_bad_files_of_probabilities_are_refused(
    name: str, content: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        CAL(probs=write(tmp_path / name, content)).fit(watched())


@pytest.mark.parametrize("kind", ["labels", "probs"])
def test_a_file_that_is_not_there_is_named(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"{kind} must be a file, and '.*no\.npy' is none"):
        CAL(**{kind: str(tmp_path / "no.npy")}).fit(watched())  # type: ignore[arg-type]
