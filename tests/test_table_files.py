"""Tables on disk: read as they are meant, or refused with the line and the remedy."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import threading
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sumosurv.datasets import write_parquet
from sumosurv.sources import read_table, write_table

GOOD = "a,b,c\n1,x,2.5\n3,,4.5\n"
FRAME = pd.DataFrame({"a": [1, 3], "b": ["x", np.nan], "c": [2.5, 4.5]})


def written(folder, text, name="t.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,c\n1,2,3,4\n", r"Line 2 .*t\.csv .*4 .*3; .*row names"),
        ("a,b,c\n1,2,3,4\n5,6,7,8\n", r"Line 2 of .* has 4 fields"),
        ("a,b,c\n1,2,3\n1,2,3,4\n", r"Line 3 of .* has 4 fields"),
        ("a,b,c\n1,2,3,\n", r"Line 2 of .* has 4 fields"),
        ("a,b,c\n1,2,3\n\n4,5\n", r"Line 4 .*2 fields .*3; .*empty field"),
        ('a,b,c\n1,"two\nlines",3\n4\n', r"Line 4 of .* has 1 fields"),
        ('a,b\n1,2\n""\n', r"Line 3 of .* has 1 fields"),
        ("", r"t\.csv is empty"),
        ("\n \n", r"t\.csv is empty"),
        ("a,b\n", "has a header but no rows"),
        ("a,b,a\n1,2,3\n", r"t\.csv .*one column named 'a'"),
        ("a;b;c\n1,5;2;3\n", r"single column, 'a;b;c'.*--sep ';'"),
        ("a\tb\n1\t2\n", r"single column, 'a\\tb'.*--sep tab"),
        ('a,b\n1,2\n1,"2\n3,4\n', r"Line 3 of .*t\.csv .*close the quote"),
        ('a,b\n1,"2\n3,4\n5,"6\n', r"Line 2 of .*t\.csv .*close the quote"),
        ('a,b\n1,"two\nlines",3\n', r"Line 2 of .* has 3 fields"),
        ("a,,b\n1,2,3\n", r"Column 2 of .*t\.csv has no heading"),
        ("a,b,\n1,2,\n", r"Column 3 of .*t\.csv has no heading"),
        (",a\nu,1\nu,2\n", r"Column 1 of .*t\.csv has no heading"),
        ("a,b\n1,2\n60\0.5,2\n", r"Line 3 of .*t\.csv .*NUL"),
    ],
)
def test_tables_that_cannot_be_meant(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_table(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "options", "name"),
    [
        (GOOD, {}, "t.csv"),
        ("\ufeff" + GOOD, {}, "t.csv"),
        (GOOD.replace("\n", "\r\n"), {}, "t.csv"),
        ("\n" + GOOD.replace("\n", "\n\n  \n"), {}, "t.csv"),
        (GOOD.replace(",", "\t"), {}, "t.tsv"),
        (GOOD.replace(",", "\t"), {"sep": "\t"}, "t.csv"),
        (GOOD.replace(",", ";").replace(".", ","), {"sep": ";", "decimal": ","}, "t.csv"),
        (GOOD.replace("x", '"x"'), {}, "t.txt"),
    ],
)
def test_forms_of_csv(text, options, name, tmp_path):
    pd.testing.assert_frame_equal(read_table(written(tmp_path, text, name), **options), FRAME)


@pytest.mark.parametrize("index", [None, ["u", "v"]])
def test_row_names_without_a_heading_are_no_column(index, tmp_path):
    FRAME.set_axis(index or range(2)).to_csv(tmp_path / "t.csv")
    with pytest.warns(UserWarning, match="first column of .* has no heading"):
        found = read_table(tmp_path / "t.csv")
    pd.testing.assert_frame_equal(found, FRAME)


@pytest.mark.parametrize("options", [{}, {"sep": ";", "decimal": ","}])
def test_numbers_are_read_to_the_last_bit(options, tmp_path):
    numbers = np.random.default_rng(0).lognormal(0.0, 40.0, 1000)
    frame = pd.DataFrame({"a": [*numbers, 0.1 + 0.2, 5e-324, 1.7976931348623157e308]})
    frame.assign(b=1).to_csv(tmp_path / "t.csv", index=False, **options)
    np.testing.assert_array_equal(read_table(tmp_path / "t.csv", **options)["a"], frame["a"])


def test_a_line_of_blanks_does_not_become_a_row(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\na,b\n1,2\n  \n\n3,4\n\t\n", encoding="utf-8")
    assert read_table(path).to_numpy().tolist() == [[1, 2], [3, 4]]
    path.write_text('a,b\n1,2\n" "\n', encoding="utf-8")  # pandas: a row of missing values
    with pytest.raises(ValueError, match=r"1 rows .* as 2; remove lines"):
        read_table(path)
    for blank in ("\u00a0", "\f"):
        path.write_text(f"a,b\n1,2\n{blank}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"Line 3 .* 1 fields .*header 2"):
            read_table(path)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
@pytest.mark.parametrize("text", ["a,b,c\r\r,1,2\r3,4,5\r", "a,b,c\n\r,1,2\n\r3,4,5\n\r"])
def test_blank_lines_that_end_with_a_carriage_return_shift_nothing(text, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    expected = pd.DataFrame({"a": [np.nan, 3], "b": [1, 4], "c": [2, 5]})
    pd.testing.assert_frame_equal(read_table(path), expected)


def test_a_column_whose_name_holds_a_separator_can_be_read(tmp_path):
    assert list(read_table(written(tmp_path, "a;b\n1\n"), sep=",").columns) == ["a;b"]


def test_a_typo_far_down_does_not_split_a_column(tmp_path):
    """Read in pieces, the first values would be numbers and the later ones text."""
    n = 300_000
    path = written(tmp_path, "a\n" + "1\n" * n + "2o\n")
    assert set(read_table(path)["a"].map(type)) == {str}


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zip"])
def test_compressed_files(suffix, tmp_path):
    path = tmp_path / f"t.csv{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("t.csv", GOOD)
    else:
        path.write_bytes({".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix].compress(GOOD.encode()))
    pd.testing.assert_frame_equal(read_table(path), FRAME)
    whole = path.read_bytes()
    for content in (b"a,b\n1,2\n", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"t\.csv{suffix} .*not a {suffix} file"):
            read_table(path)


def test_a_zip_of_several_files(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("one.csv", GOOD)
        archive.writestr("two.csv", GOOD)
    with pytest.raises(ValueError, match=r"t\.zip holds 2 files; .* single"):
        read_table(tmp_path / "t.zip")


def test_standard_input_and_pipes(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(GOOD))
    pd.testing.assert_frame_equal(read_table(Path("-")), FRAME)
    monkeypatch.setattr("sys.stdin", io.StringIO("a,b\n1\n"))
    with pytest.raises(ValueError, match=r"Line 2 of standard input .*1 field"):
        read_table(Path("-"))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(GOOD,))
    writer.start()
    pd.testing.assert_frame_equal(read_table(pipe), FRAME)
    writer.join()


def test_files_of_another_kind(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match=r"t\.csv .* save it as UTF-8"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"t\.parquet .*as Parquet"):
        read_table(written(tmp_path, GOOD, "t.parquet"))
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_table(tmp_path / "nothing.csv")
    write_parquet(FRAME, tmp_path / "t.pq")
    assert read_table(tmp_path / "t.pq").shape == (2, 3)


NUMBERS = np.array([100.0, 1e-5, 0.1, 1e16, 1e22, np.inf, -np.inf, np.nan, -0.0, 123456.789, 1 / 3, 1e-7, 5e-324])
WORDS = np.array(["", "mean", "mean median", " x", "é", "100", "", "", "", "", "", "", ""], dtype=object)


def cells(text):
    """Rows and columns of a CSV file; numbers by their value, however they are written."""

    def read(cell):
        try:
            return float(cell)
        except ValueError:
            return cell

    return [[read(cell) for cell in row] for row in csv.reader(io.StringIO(text))]


@pytest.mark.parametrize(
    ("columns", "plain"),
    [
        ({"a": NUMBERS, "b": NUMBERS.astype(np.float32)}, True),
        ({"a": NUMBERS, "b": WORDS}, True),
        ({"a": np.arange(13), "b": np.arange(13, dtype=np.uint8), "c": np.where(WORDS == "", None, WORDS)}, True),
        ({"a": pd.array([1, None, *range(11)], dtype="Int64"), "b": NUMBERS}, True),
        ({"a,b": NUMBERS, "c": NUMBERS}, True),
        ({"a": NUMBERS, "b": np.where(WORDS == "x", "", WORDS + ",")}, False),
        ({"a": NUMBERS, "b": WORDS + '"'}, False),
        ({"a": NUMBERS, "b": WORDS + "\n"}, False),
        ({"a": NUMBERS}, False),
        ({"a": NUMBERS, "b": NUMBERS > 0}, False),
        ({"a": NUMBERS, "b": pd.date_range("2024-01-01", periods=13)}, False),
        ({"a": NUMBERS, "b": pd.Categorical(WORDS)}, False),
        ({"a": NUMBERS, "b": np.array([1, *WORDS[1:-1], 2.5], dtype=object)}, False),
    ],
)
def test_a_table_is_written_as_pandas_would(columns, plain, tmp_path, monkeypatch):
    frame, rows = pd.DataFrame(columns, index=range(7, 20)), []
    by_pandas, original = io.StringIO(), pd.DataFrame.to_csv
    original(frame, by_pandas, index=False)
    monkeypatch.setattr(
        pd.DataFrame, "to_csv", lambda part, *given, **more: rows.append(len(part)) or original(part, *given, **more)
    )
    assert write_table([frame[:5], frame[5:]], tmp_path / "t.csv") == len(frame)
    assert rows == ([0, 0] if plain else [5, 8])
    text = (tmp_path / "t.csv").read_text(encoding="utf-8")
    assert cells(text) == cells(by_pandas.getvalue())


def test_lines_with_as_many_separators_as_the_header_may_still_be_parts_of_one_row(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('x,y\n"1,2\n3",4\n')
    table = read_table(path)
    assert table["x"].tolist() == ["1,2\n3"]
    assert table["y"].tolist() == [4]
