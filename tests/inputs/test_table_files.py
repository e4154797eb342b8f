"""CSV and Parquet files: delimiters, encodings, and which column is which."""

from pathlib import Path

import pandas as pd
import pytest

from covlearn.inputs import read_examples
from tests.inputs.make import text

ROWS = ("size,label", "1,a", "2,b", "4,a", "8,b")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_delimiters_and_encodings(tmp_path: Path, delimiter: str, encoding: str) -> None:
    lines = [row.replace(",", delimiter).replace("a", "ä") for row in ROWS]
    lines[0] = delimiter.join(("size", "label"))
    examples = read_examples(text(tmp_path / "x.csv", *lines, encoding=encoding))
    assert examples.classes == ["b", "ä"]
    assert examples.x.shape == (4, 1)


@pytest.mark.parametrize("start", ["sep=;", "SEP=;", "sep=\t", "sep=^", "sep=,", "sep=; "])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_first_line_says_the_delimiter_to_excel(
    tmp_path: Path, start: str, encoding: str
) -> None:
    mark = start[4]
    rows = ("label,code,size", "a,007,1", "NA,07,2", "a,12,4", "NA,,8")
    lines = [start, *(row.replace(",", mark) for row in rows)]
    path = text(tmp_path / "x.csv", *lines, encoding=encoding)
    examples = read_examples(path)
    assert examples.classes == ["NA", "a"]
    assert examples.x.shape[0] == 4
    assert examples.table["code"].tolist()[:3] == ["007", "07", "12"]
    with pytest.raises(ValueError, match=r"it has no label \(line 7\)"):
        read_examples(text(path, *lines, mark * 2 + "9", encoding=encoding))
    with pytest.raises(ValueError, match="nothing but empty lines"):
        read_examples(text(path, start, encoding=encoding))


def test_labels_and_ids_stay_as_they_are_written(tmp_path: Path) -> None:
    path = text(tmp_path / "x.csv", "id,label,size", "007,NA,1", "07,1.0,2", "7,NA,3", "8,1.0,9")
    examples = read_examples(path)
    assert examples.ids == ["007", "07", "7", "8"]
    assert examples.classes == ["1.0", "NA"]
    assert examples.recipe["id"] == "id"
    other = text(tmp_path / "y.csv", "code,kind,size", "007,NA,1", "07,b,2", "7,NA,3", "8,b,9")
    examples = read_examples(other, label="kind", id="code")
    assert examples.ids == ["007", "07", "7", "8"]
    assert examples.classes == ["NA", "b"]


@pytest.mark.parametrize("name", ["label", "Target", "CLASS", "y"])
def test_the_usual_names_of_labels(tmp_path: Path, name: str) -> None:
    path = text(tmp_path / "x.csv", f"size,{name}", *ROWS[1:])
    assert read_examples(path).recipe["label"] == name


def test_which_column_is_the_label(tmp_path: Path) -> None:
    path = text(tmp_path / "x.csv", "size,species", *ROWS[1:])
    with pytest.raises(
        ValueError,
        match=r"which column of .*x.csv is the label\? .* name one of size, species with label=",
    ):
        read_examples(path)
    assert read_examples(path, label="species").classes == ["a", "b"]
    with pytest.raises(ValueError, match=r"has no column 'specie', which label names.*species"):
        read_examples(path, label="specie")
    with pytest.raises(ValueError, match=r"has no column 'key', which id names"):
        read_examples(path, label="species", id="key")


def test_an_id_column_must_be_one(tmp_path: Path) -> None:
    groups = text(tmp_path / "g.csv", "id,size,label", "1,1,a", "1,2,b", "3,4,a", "3,8,b")
    examples = read_examples(groups)  # each comes twice: no id
    assert examples.ids == ["0", "1", "2", "3"]
    path = text(tmp_path / "x.csv", "id,size,label", "1,1,a", "1,2,b", "3,4,a", "4,8,b")
    with pytest.raises(ValueError, match=r"1 \(line 3\): its id is that of line 2 too"):
        read_examples(path)
    with pytest.raises(
        ValueError, match=r"1 \(line 3\): its id is that of line 2 too.*labels differ"
    ):
        read_examples(path, id="id")
    skipped = read_examples(
        text(
            tmp_path / "y.csv", "id,size,label", "1,1,a", "1,2,b", "3,4,a", "4,8,b", ",3,a", "5,6,b"
        ),
        id="id",
        on_bad="skip",
    )
    assert skipped.ids == ["1", "3", "4", "5"]
    assert [item.id for item in skipped.skipped] == ["1 (line 3)", "line 6"]


def test_empty_files(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"")
    with pytest.raises(ValueError, match=r"x.csv is empty"):
        read_examples(tmp_path / "x.csv")
    with pytest.raises(ValueError, match=r"nothing but empty lines"):
        read_examples(text(tmp_path / "x.csv", "", " "))
    with pytest.raises(ValueError, match=r"has no rows \(the columns size, label\)"):
        read_examples(text(tmp_path / "x.csv", "size,label"))
    pd.DataFrame({"size": [], "label": []}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="has no rows"):
        read_examples(tmp_path / "x.parquet")


def test_a_wrong_delimiter(tmp_path: Path) -> None:
    path = text(tmp_path / "x.csv", *(row.replace(",", "^") for row in ROWS))
    with pytest.raises(ValueError, match=r"which column of .* name one of size\^label"):
        read_examples(path)


def test_lines_of_another_length(tmp_path: Path) -> None:
    path = text(tmp_path / "x.csv", *ROWS, "1,2,3,4")
    with pytest.raises(ValueError, match=r"cannot be read as a CSV file: .*line 6"):
        read_examples(path)


def test_lines_with_a_cell_too_many(tmp_path: Path) -> None:
    path = text(tmp_path / "x.csv", "size,label", "1,a,x", "2,b,x", "3,a,x", "4,b,x")
    with pytest.raises(ValueError, match=r"every line must have as many cells as the first"):
        read_examples(path)


def test_an_index_with_a_name_is_a_column(tmp_path: Path) -> None:
    table = pd.DataFrame({"size": [1, 2, 4, 8], "label": list("abab")})
    table.index = pd.Index(["w", "x", "y", "z"], name="id")
    table.to_parquet(tmp_path / "x.parquet")
    assert read_examples(tmp_path / "x.parquet").ids == ["w", "x", "y", "z"]
    assert read_examples(table).ids == ["w", "x", "y", "z"]


def test_a_wrong_encoding(tmp_path: Path) -> None:
    path = text(tmp_path / "x.csv", "size,label", "1,ä", "2,b", encoding="latin-1")
    with pytest.raises(ValueError, match=r"must be text in UTF-8, but byte 13 is not"):
        read_examples(path)
    (tmp_path / "y.csv").write_bytes(b"size,label\n1,\0\n")
    with pytest.raises(ValueError, match="is no text"):
        read_examples(tmp_path / "y.csv")


def test_a_column_twice(tmp_path: Path) -> None:
    table = pd.DataFrame([[1, 2, "a"]] * 4, columns=["x", "x", "label"])
    with pytest.raises(ValueError, match="columns of different names, but x is twice"):
        read_examples(table)


def test_damaged_parquet(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and more that is no table PAR1")
    with pytest.raises(ValueError, match="cannot be read as a Parquet file"):
        read_examples(tmp_path / "x.parquet")


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = text(tmp_path / "x.csv", *ROWS)

    def denied(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("covlearn.inputs.table_files._read_csv", denied)  # root may read all
    with pytest.raises(ValueError, match=r"x.csv cannot be read: Permission denied"):
        read_examples(path)


def test_quotes_and_spaces_after_the_delimiter(tmp_path: Path) -> None:
    path = text(tmp_path / "x.csv", "size, label", '1, "a, b"', "2, c", '3, "a, b"', "5, c")
    assert read_examples(path).classes == ["a, b", "c"]


def test_bad_rows_are_named_by_their_line_in_the_file(tmp_path: Path) -> None:
    lines = ("", "id;size;label", "1;1;a", "", '2;2;"a', 'b"', " ", "1;4;a", "4;8;b")
    path = text(tmp_path / "x.csv", *lines)
    with pytest.raises(ValueError, match=r"1 \(line 8\): its id is that of line 3 too"):
        read_examples(path)
    frame = pd.DataFrame({"id": [1, 2, 3, 1], "size": [1, 2, 3, 4], "label": ["a", "b"] * 2})
    with pytest.raises(ValueError, match=r"1 \(row 3\): its id is that of row 0 too"):
        read_examples(frame)


def test_rows_without_an_id_are_named_by_their_line_too(tmp_path: Path) -> None:
    path = text(tmp_path / "x.csv", *ROWS, "", "inf,a", "3,")
    with pytest.raises(ValueError, match=r"5: it has no label \(line 8\)\. Put"):
        read_examples(path)
    left = read_examples(path, on_bad="skip").skipped
    assert [item.id for item in left] == ["5", "4"]
    assert left[1].reason.endswith("got inf (line 7)")


def test_whole_numbers_are_handed_on_as_they_are_written(tmp_path: Path) -> None:
    lines = (
        "postcode, count ,code,share,label",
        "007,1,123456789012345678,1.0,a",
        "",
        "010,,123456789012345679,2.50,b",
        "099,NA,,3,a",
        "100, 4,5,4,b",
    )
    examples = read_examples(text(tmp_path / "x.csv", *lines))
    table = examples.table
    assert table["postcode"].tolist() == ["007", "010", "099", "100"]
    assert table["code"].tolist()[:2] == ["123456789012345678", "123456789012345679"]
    assert table["count"].astype("string").fillna("").tolist() == ["1", "", "", "4"]
    assert table["share"].tolist() == [1, 2.5, 3, 4]
    kinds = {column["name"]: column["kind"] for column in examples.recipe["columns"]}
    assert kinds == dict.fromkeys(("postcode", "count", "code", "share"), "number")
    again = read_examples(table, recipe=examples.recipe)  # as of a run whose source is gone
    assert again.x.equal(examples.x)


def test_a_table_without_rows_asks_for_one(tmp_path: Path) -> None:
    recipe = read_examples(text(tmp_path / "x.csv", *ROWS)).recipe
    with pytest.raises(ValueError, match=r"has no rows \(the columns size\); at least one row"):
        read_examples(text(tmp_path / "new.csv", "size"), recipe=recipe)


def test_columns_that_may_be_labels_are_named_first(tmp_path: Path) -> None:
    names = ",".join(f"n{place}" for place in range(25))
    rows = [
        ",".join(str(row + place / 100) for place in range(25)) + f",{'ab'[row % 2]}"
        for row in range(6)
    ]
    path = text(tmp_path / "x.csv", f"{names},sort", *rows)
    for look in (False, True):
        with pytest.raises(ValueError, match=r"name one of sort, n0, n1, .* and 6 more with"):
            read_examples(path, look=look)
    frame = pd.read_csv(path).assign(vector=[[1, 2]] * 6)
    with pytest.raises(ValueError, match=r"name one of sort, n0"):
        read_examples(frame)
