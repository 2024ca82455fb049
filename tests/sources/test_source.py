"""Tables in pieces: the same rows wherever they come from, each once in whatever order; columns with their roles."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from sumosurv.preprocessing import check_columns, is_categorical
from sumosurv.sources import Roles, RowSource
from sumosurv.sources.blocks import is_source


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.normal(size=1_000), "t": rng.exponential(size=1_000), "d": rng.integers(0, 2, 1_000)})


@pytest.fixture
def folder(frame, tmp_path):
    place = tmp_path / "rows"
    place.mkdir()
    for k, part in enumerate(np.array_split(np.arange(1_000), 3)):
        table = pa.Table.from_pandas(frame.iloc[part], preserve_index=False)
        pq.write_table(table, place / f"{k}.parquet", row_group_size=70)
    (place / "_SUCCESS").touch()
    return place


def test_every_kind_of_source_has_the_same_rows(frame, folder, tmp_path):
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "one.parquet", row_group_size=300)
    batches = pa.Table.from_pandas(frame, preserve_index=False).to_batches(max_chunksize=90)
    kinds = [folder, str(tmp_path / "one.parquet"), ds.dataset(folder, exclude_invalid_files=True), iter(batches)]
    kinds.append(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    for given in kinds:
        assert is_source(given)
        source = RowSource(given)
        assert source.n_rows == 1_000
        read = pd.concat(source.frames(rows=64))
        np.testing.assert_array_equal(read.index, np.arange(1_000))
        pd.testing.assert_frame_equal(read, frame, check_index_type=False)
    assert not any(map(is_source, (frame, frame.to_numpy(), [1, 2], None)))


def test_decimal_numbers_are_numbers_and_dates_are_not(frame, tmp_path):
    whole = frame.assign(x=frame["x"].round(3))
    table = pa.Table.from_pandas(whole, preserve_index=False)
    decimals = pa.array([Decimal(f"{value:.3f}") for value in whole["x"]], pa.decimal128(9, 3))
    days = pa.array(np.arange(1_000), pa.int32()).cast(pa.date32())
    pq.write_table(table.set_column(0, "x", decimals).append_column("day", days), tmp_path / "rows.parquet")
    source = RowSource(tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(pd.concat(source.frames(["x", "t", "d"])), whole, check_index_type=False)
    with pytest.raises(ValueError, match="'day' holds dates"):
        check_columns(next(source.frames(["day"])), np.arange(1_000))


def test_columns_of_text_without_a_value_are_text(tmp_path):
    table = pa.table({"word": pa.array([None, None, "a"], pa.string()), "yes": pa.array([None, None, True])})
    pq.write_table(table, tmp_path / "rows.parquet")
    for part in RowSource(tmp_path / "rows.parquet").frames(rows=2):
        assert [is_categorical(part[name]) for name in part] == [True, True]


def test_a_shuffled_pass_has_each_row_once_and_mixes_pieces(frame, folder):
    source = RowSource(folder)
    parts = list(source.shuffled_frames(3, buffer=80, ways=4))
    read = pd.concat(parts)
    assert sorted(read.index) == list(range(1_000))
    np.testing.assert_array_equal(read["x"], frame["x"][read.index])
    assert len({index // 70 for index in read.index[:80]}) >= 3
    again, other = (pd.concat(source.shuffled_frames(seed, buffer=80, ways=4)).index for seed in (3, 4))
    assert read.index.equals(again)
    assert not read.index.equals(other)


def test_record_batches_are_kept_in_a_file_that_goes_with_the_source(frame):
    source = RowSource(iter(pa.Table.from_pandas(frame).to_batches()))
    path = source.files[0]
    assert pq.read_metadata(path).num_rows == 1_000
    del source
    with pytest.raises(FileNotFoundError):
        pq.read_metadata(path)


def test_what_cannot_be_read_is_said(folder, tmp_path, frame):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no Parquet file in the folder"):
        RowSource(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        RowSource(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("x")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        RowSource(tmp_path / "text.parquet")
    with pytest.raises(ValueError, match="filtered"):
        RowSource(ds.dataset(folder, exclude_invalid_files=True).filter(ds.field("x") > 0))
    with pytest.raises(TypeError, match="record batches; got DataFrame"):
        RowSource(iter([frame]))
    with pytest.raises(ValueError, match="no record batches"):
        RowSource(iter([]))
    with pytest.raises(ValueError, match="no column 'y'"):
        RowSource(folder, columns=["y"])


def test_roles_name_the_outcome(folder):
    source = RowSource(folder)
    roles = Roles.of({"time": "t", "event": "d"}).read(source)
    assert roles.n_causes == 1
    assert roles.covariates(source) == ["x"]
    for y, said in (
        ({"time": "t"}, "Name the outcome: time and event"),
        ({"time": "t", "event": "dead"}, "no column 'dead'"),
        ({"event": "d"}, "Name the outcome: time and event"),
        ({"time": "t", "died": "d"}, "got 'died'"),
    ):
        with pytest.raises(ValueError, match=said):
            Roles.of(y).read(source).outcome(next(source.frames()))
    with pytest.raises(TypeError, match="mapping of column names"):
        Roles.of(np.zeros(3))
    with pytest.raises(TypeError, match="weight must be the name"):
        Roles.of({"time": "t", "event": "d"}, sample_weight=np.ones(3))


def test_fields_are_the_same_in_every_part_and_errors_tell_the_row():
    parts = [
        {"t": [1.0, 2.0], "d": [0, 1], "v": [0.0, 0.0], "k": ["a", "b"]},
        {"t": [3.0, 4.0], "d": [2, 0], "v": [1.0, 0.5], "k": ["a", "c"]},
    ]
    source = RowSource(iter([pa.RecordBatch.from_pydict(part) for part in parts]), columns=["t"])
    roles = Roles.of({"time": "t", "event": "d", "entry": "v", "group": "k"}).read(source)
    assert roles.n_causes == 2
    first, second = (roles.outcome(frame) for frame in source.frames(roles.names, rows=2))
    np.testing.assert_array_equal(first.cause, [0, 1])
    np.testing.assert_array_equal(first.entry, [0, 0])
    np.testing.assert_array_equal(second.cause, [2, 0])
    whole = next(source.frames(roles.names))
    subjects = roles.subject_names(whole)
    assert subjects[0] == subjects[2]
    assert len(set(subjects)) == 3
    named = Roles.of({"time": "t", "event": "k", "event_value": ["c"]}).read(source)
    np.testing.assert_array_equal(named.outcome(whole).event, [False, False, False, True])
    bad = RowSource(iter([pa.RecordBatch.from_pydict({"t": [1.0, 2.0, -1.0], "d": [1, 1, 1]})]))
    told = Roles.of({"time": "t", "event": "d"}).read(bad)
    with pytest.raises(ValueError, match=r"counted from row 2 of the table"):
        [told.outcome(frame) for frame in bad.frames(rows=2)]


def test_the_column_of_events_is_looked_at_before_rows_are_read():
    coded = RowSource(iter([pa.RecordBatch.from_pydict({"t": [1.0, 2.0], "d": [1, 2], "s": ["dead", "alive"]})]))
    with pytest.raises(ValueError, match="event_value 2"):
        Roles.of({"time": "t", "event": "d"}).read(coded)
    with pytest.raises(ValueError, match="say with event_value"):
        Roles.of({"time": "t", "event": "s"}).read(coded)
    with pytest.raises(ValueError, match=r"fitted to 1 cause.*event_value"):
        Roles.of({"time": "t", "event": "d", "event_value": ["1", "2"]}).read(coded, n_causes=1)
