"""Tables of any kind, as CSV to the command line and as frames to fit: used, or refused in a sentence."""

from __future__ import annotations

import pickle
import shutil

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from forging import saved
from fuzz.bench import FUZZ

# what may stand in a field
FIELDS = [
    "", "0", "1", "2", "-1", "0.5", "1e308", "1e-320", "1e999", "nan", "NaN", "inf", "-inf", "NA", "None", "True",
    "false", "yes", "x", "é", "\u202e", '"', '""', '"a,b"', '"a\nb"', "'", " ", "\t", ";", "2020-01-01", "1,5", "0x10",
    "9" * 400, "1_000", "\x00", "\ufeff", "=1+1",
]  # fmt: skip
HEADERS = ["time", "event", "number", "gaps", "text", "", "time ", "Time", "a", "é", '"', "0", "Unnamed: 0"]
ELEMENTS = [
    st.floats(),
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.text(max_size=5),
    st.none(),
    st.sampled_from([pd.NA, pd.NaT, 1j, b"x", (), [], {}, object, np.float32(1), np.datetime64("2020-01-01")]),
]


@st.composite
def csv_tables(draw):
    names = ["time", "event", *draw(st.lists(st.sampled_from(HEADERS), max_size=4))]
    names = draw(st.permutations(names)) if draw(st.booleans()) else names
    rows = draw(st.integers(0, 12))
    # most columns are plain, so that one odd field is not lost among others
    columns = [
        [
            draw(st.sampled_from(FIELDS))
            if draw(st.integers(0, 9)) == 0
            else "1"
            if name == "event"
            else str(1 + i % 5)
            for i in range(rows)
        ]
        for name in names
    ]
    lines = [list(names), *map(list, zip(*columns))]
    if draw(st.integers(0, 4)) == 0:  # a row too long or too short
        line = draw(st.sampled_from(lines))
        line[:] = line[:-1] if draw(st.booleans()) else [*line, "7"]
    text = draw(st.sampled_from(["\n", "\r\n", "\r"])).join(
        draw(st.sampled_from([",", ",", ";", "\t"])).join(line) for line in lines
    )
    content = text.encode(draw(st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16"])))
    return content[: draw(st.integers(0, len(content)))] if draw(st.integers(0, 9)) == 0 else content


@st.composite
def frames(draw):
    rows = draw(st.integers(0, 12))
    odd = st.one_of(*ELEMENTS)
    kinds = [st.floats(-5, 5), st.floats(), st.integers(-3, 3), st.booleans(), st.sampled_from(["u", "w", None]), odd]
    columns = {}
    for j in range(draw(st.integers(0, 4))):
        values = draw(st.lists(draw(st.sampled_from(kinds)), min_size=rows, max_size=rows))
        dtype = draw(st.sampled_from([None, None, object, "category"]))
        try:
            columns[j] = pd.Series(values, dtype=dtype)
        except Exception:  # pandas itself cannot hold it
            columns[j] = pd.Series([0.0] * rows)
    X = pd.DataFrame(columns, index=range(rows))
    X.columns = draw(
        st.lists(st.sampled_from(["a", "b", "", 0, None, ("t", 1)]), min_size=X.shape[1], max_size=X.shape[1])
    )
    time = st.floats() if draw(st.integers(0, 3)) == 0 else st.floats(0, 1e9)
    event = odd if draw(st.integers(0, 5)) == 0 else st.booleans()
    y = [draw(st.lists(kind, min_size=rows, max_size=rows)) for kind in (time, event)]
    return X.to_numpy() if draw(st.integers(0, 5)) == 0 else X, tuple(y)


@FUZZ
@given(csv_tables(), st.booleans())
def test_any_csv(bench, tmp_path_factory, content, fit):
    folder = tmp_path_factory.getbasetemp() / "csv"
    folder.mkdir(exist_ok=True)
    if not (folder / "model.sumo").exists():
        shutil.copy(saved("SumoNet"), folder / "model.sumo")
    (folder / "table.csv").write_bytes(content)
    end = bench.open("read_table" if fit else "predict_table", folder / "table.csv")
    assert end["end"] == "done", end
    assert end["code"] in (0, 1), end


@FUZZ
@given(frames())
def test_any_frame(bench, tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "rows.pickle"
    path.write_bytes(pickle.dumps(rows))
    end = bench.open("fit_frame", path)
    assert not end.get("memory"), end
    assert end["end"] in ("done", "ValueError", "TypeError", "TrainingError"), end
    assert not end.get("code"), f"a risk is NaN: {end}"
