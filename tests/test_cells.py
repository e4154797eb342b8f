"""Cells that spreadsheets do not run, and names that no disk minds."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covlearn.cells import FORMULA, defused, read_cells, restored, safe_name, write_cells


@given(st.text())
def test_a_defused_cell_comes_back(text: str) -> None:
    assert restored(defused(text)) == text


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "＝1"])
def test_formulas_do_not_run(text: str) -> None:
    assert defused(text)[0] not in "=+-@\t\r\n＝＋－＠"


@pytest.mark.parametrize("text", ["-3", "+1.5e-7", "oak", "", "3-4", "'quoted'"])
def test_other_cells_stay(text: str) -> None:
    assert defused(text) == text


def test_a_table_comes_back(tmp_path: Path) -> None:
    rows = [("=a", 'say "hi", you'), ("two\nlines", "'=b"), ("", "ü")]
    write_cells(tmp_path / "t.csv", ["x", "=y"], rows)
    assert read_cells(tmp_path / "t.csv") == {
        "x": ["=a", "two\nlines", ""],
        "=y": ['say "hi", you', "'=b", "ü"],
    }
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        assert not any(cell.startswith(FORMULA) for row in csv.reader(file) for cell in row)
    write_cells(tmp_path / "empty.csv", ["x"], [])
    assert read_cells(tmp_path / "empty.csv") == {"x": []}


@given(st.text() | st.text(alphabet="./\\a: \u200b\u0301"))
def test_a_safe_name_stays_in_its_folder(text: str) -> None:
    name = safe_name(text)
    assert Path("folder", name).parent == Path("folder")
    assert name
    assert name == name.strip()
    assert not name.startswith(".")
    assert not set(name) & set('/\\:*?"<>|\0\n')
    assert len(name.encode()) <= 101
    assert safe_name(name) == name
