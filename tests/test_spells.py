"""Start-stop rows: which values hold when, and errors that name the subject. tests/r compares them with R's tmerge."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sumosurv import CoxPH, Surv, spells

PATIENTS = pd.DataFrame({"who": ["b", "a"], "end": [9, 5], "died": [True, False], "age": [61, 54]}, index=[7, 7])
ROLES = {"id": "who", "stop": "end", "event": "died"}


def table(*rows: tuple[Any, ...], values: str = "x") -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["who", "time", values])


def dated(*rows: tuple[str, float]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["who", "time"])


def lists(frame: pd.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return list(frame[list(names)].itertuples(index=False, name=None))


def test_without_tables_there_is_one_row_per_subject() -> None:
    made = spells.merge(PATIENTS, **ROLES)
    assert list(made.columns) == ["who", "start", "stop", "event", "age"]
    assert lists(made, *made.columns) == [("b", 0.0, 9.0, True, 61), ("a", 0.0, 5.0, False, 54)]


def test_a_value_holds_after_its_time_until_the_next_one() -> None:
    visits = table(("b", 4, 2.0), ("b", 0, 1.0), ("b", 9, 8.0), ("a", 2, 5.0))
    made = spells.merge(PATIENTS, **ROLES, covariates=visits)
    expected = [("b", 0, 4, False, 1.0), ("b", 4, 9, True, 2.0), ("a", 0, 2, False, np.nan), ("a", 2, 5, False, 5.0)]
    pd.testing.assert_frame_equal(
        made.drop(columns="age"),
        pd.DataFrame(expected, columns=["who", "start", "stop", "event", "x"]).astype({"start": float, "stop": float}),
    )


def test_values_before_follow_up_are_those_of_the_first_row() -> None:
    entered = PATIENTS.assign(entry=[3.0, 0.0])
    visits = table(("b", 1, 1.0), ("b", 2, 2.0), ("b", 3, 3.0), ("b", 6, 6.0))
    made = spells.merge(entered, **ROLES, start="entry", covariates=visits, counts={"n": visits}).query("who == 'b'")
    assert lists(made, "start", "stop", "x", "n") == [(3.0, 6.0, 3.0, 3), (6.0, 9.0, 6.0, 4)]
    assert "entry" not in made.columns


def test_the_column_of_baseline_holds_until_the_first_measurement() -> None:
    with_x = PATIENTS.assign(x=[0.5, np.nan])
    made = spells.merge(with_x, **ROLES, covariates=table(("b", 4, 2.0), ("a", 3, 7.0)))
    assert lists(made.fillna(-1.0), "start", "x") == [(0.0, 0.5), (4.0, 2.0), (0.0, -1.0), (3.0, 7.0)]


@pytest.mark.parametrize("kind", [object, "string", "category"])
def test_values_may_be_words(kind: Any) -> None:
    visits = table(("b", 4, "II"), ("b", 6, None), ("b", 7, "I"), values="stage").astype({"stage": kind})
    made = spells.merge(PATIENTS.assign(stage=pd.Series(["0", "III"], [7, 7])), **ROLES, covariates=visits)
    assert lists(made, "start", "stage") == [(0.0, "0"), (4.0, "II"), (7.0, "I"), (0.0, "III")]


def test_a_missing_value_is_skipped() -> None:
    made = spells.merge(PATIENTS, **ROLES, covariates=table(("b", 1, 1.0), ("b", 4, np.nan), ("a", 0, 2.0)))
    assert lists(made.fillna(-1.0), "start", "x") == [(0.0, -1.0), (1.0, 1.0), (0.0, 2.0)]


@pytest.mark.parametrize(
    ("values", "complete", "incomplete"),
    [([3, 4], "i", "f"), ([1.5, 2.5], "f", "f"), ([True, False], "b", "O"), (["I", "II"], "O", "O")],
)
def test_types_of_values_are_those_of_pandas(values: list[Any], complete: str, incomplete: str) -> None:
    visits = pd.DataFrame({"who": ["b", "a"], "time": [0, 0], "x": pd.Series(values)})
    assert spells.merge(PATIENTS, **ROLES, covariates=visits)["x"].dtype.kind == complete
    made = spells.merge(PATIENTS, **ROLES, covariates=visits.iloc[:1])["x"]
    assert made.dtype.kind == incomplete
    assert made.isna().tolist() == [False, True]


@pytest.mark.parametrize("kind", ["category", "string"])
def test_ids_of_any_type(kind: str) -> None:
    patients, events = PATIENTS.astype({"who": kind}), dated(("b", 4.0), ("b", 6.0)).astype({"who": kind})
    made = spells.merge(patients, **ROLES, counts={"n": events})
    assert lists(made, "who", "start", "n") == [("b", 0.0, 0), ("b", 4.0, 1), ("b", 6.0, 2), ("a", 0.0, 0)]
    assert lists(spells.split(made, 5, id="who"), "start") == [(0.0,), (4.0,), (5.0,), (6.0,), (0.0,)]
    assert lists(spells.landmark(made, 5, id="who"), "who", "stop", "n") == [("b", 9.0, 1)]


def test_subjects_with_numbers_are_named_by_the_number() -> None:
    with pytest.raises(ValueError, match=r"^Subject 12 has no follow-up"):
        spells.merge(PATIENTS.assign(who=[11, 12], end=[9, 0]), **ROLES)


def test_counts_and_indicators() -> None:
    events = dated(("b", 4.0), ("b", 2.0), ("b", 4.0), ("b", 9.0))
    made = spells.merge(PATIENTS, **ROLES, counts={"n": events}, indicators={"any": events})
    assert lists(made, "start", "n", "any") == [(0.0, 0, 0), (2.0, 1, 1), (4.0, 3, 1), (0.0, 0, 0)]
    assert len(spells.merge(PATIENTS, **ROLES, indicators={"any": events})) == 3  # later events change nothing
    assert made[["n", "any"]].dtypes.tolist() == [np.dtype(int)] * 2


def test_tables_without_rows_change_nothing() -> None:
    made = spells.merge(PATIENTS, **ROLES, covariates=table(), counts={"n": dated()}, indicators={"any": dated()})
    assert lists(made, "start", "n", "any") == [(0.0, 0, 0)] * 2
    assert made["x"].isna().all()


def test_lags() -> None:
    visits = table(("b", 0, 1.0), ("b", 4, 2.0))
    events = dated(("b", 4.0), ("b", 8.0))
    made = spells.merge(PATIENTS, **ROLES, covariates=visits, counts={"n": events}, lag=1.5).query("who == 'b'")
    assert lists(made.fillna(-1.0), "start", "x", "n") == [(0.0, -1.0, 0), (1.5, 1.0, 0), (5.5, 2.0, 1)]
    made = spells.merge(PATIENTS, **ROLES, covariates=visits, counts={"n": events}, lag={"x": 1.5}).query("who == 'b'")
    assert lists(made, "start", "n") == [(0.0, 0), (1.5, 0), (4.0, 1), (5.5, 1), (8.0, 2)]


def test_rows_after_the_end_are_ignored_with_a_count() -> None:
    with pytest.warns(UserWarning, match=r"2 of 4 rows of covariates .*'b'"):
        made = spells.merge(
            PATIENTS, **ROLES, covariates=table(("b", 4, 2.0), ("b", 10, 3.0), ("a", 6, 1.0), ("a", 5, 1.0))
        )
    assert lists(made, "start", "stop") == [(0.0, 4.0), (4.0, 9.0), (0.0, 5.0)]


def test_causes_stay_whole_numbers() -> None:
    made = spells.merge(PATIENTS.assign(died=[2, 0]), **ROLES, counts={"n": dated(("b", 4.0))})
    assert made["event"].tolist() == [0, 2, 0]
    assert made["event"].dtype.kind == "i"


def test_inputs_are_not_changed() -> None:
    visits, patients = table(("b", 4, 2.0), ("b", 0, 1.0)), PATIENTS.copy()
    copy = visits.copy()
    rows = spells.merge(patients, **ROLES, covariates=visits, counts={"n": visits})
    before = rows.copy()
    spells.split(rows, 3, id="who", period="period")
    spells.landmark(rows, 3, id="who")
    for found, expected in [(visits, copy), (patients, PATIENTS), (rows, before)]:
        pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize(
    ("changed", "options", "facts"),
    [
        ({"who": ["b", "b"]}, {}, r"'b' has more than one row"),
        ({"who": ["b", None]}, {}, r"id .*1 rows of baseline.*row 1"),
        ({"end": [9, 0]}, {}, r"'a' has no follow-up"),
        ({"end": [9, np.nan]}, {}, r"'a' has a missing or infinite 'end'"),
        ({"end": ["9", "5"]}, {}, r"'end' in baseline must hold numbers"),
        ({"end": [True, True]}, {}, r"'end' in baseline must hold numbers"),
        ({"died": [None, 1]}, {}, r"'b' has a missing 'died'"),
        ({"died": ["yes", "no"]}, {}, r"'died' must be bool"),
        ({"start": [0, 0]}, {}, r"baseline has a column 'start'"),
        ({}, {"stop": "stop"}, r"baseline .*'stop'; .*'who', 'end'"),
        ({}, {"covariates": table(("c", 1, 1.0))}, r"'c' is unknown.*covariates"),
        ({}, {"covariates": [table(), table((None, 1, 1.0))]}, r"id .*1 rows of covariates\[1\]"),
        ({}, {"covariates": table(("a", np.nan, 1.0))}, r"'a' .*infinite 'time' .*covariates"),
        ({}, {"covariates": table(("a", 1, 1.0), ("b", 1, 2.0), ("a", 1, 3.0))}, r"'a' has two values .* 'x'"),
        ({}, {"covariates": [table(("a", 1, 1.0))] * 2}, r"'x' is already in use"),
        ({}, {"covariates": table(("a", 1, 1.0), values="stop")}, r"'stop' is already in use"),
        ({}, {"covariates": table(("a", 1, 1.0)), "time": "date"}, r"covariates has no column 'date'"),
        ({}, {"counts": {"age": dated(("a", 1.0))}}, r"'age' is already in use"),
        ({}, {"counts": {"n": dated(("c", 1.0))}}, r"'c' is unknown.*counts\['n'\]"),
        ({}, {"counts": {"n": dated()}, "indicators": {"n": dated()}}, r"'n' is already in use"),
        ({}, {"covariates": table(("a", 1, 1.0)), "lag": -1.0}, r"lag .*>= 0; got -1.0 for 'x'"),
        ({}, {"covariates": table(("a", 1, 1.0)), "lag": {"y": 1.0}}, r"lag names 'y'"),
    ],
)
def test_errors_of_merge(changed: dict[str, Any], options: dict[str, Any], facts: str) -> None:
    with pytest.raises(ValueError, match=facts):
        spells.merge(PATIENTS.assign(**changed), **(ROLES | options))


def test_a_table_must_be_a_frame() -> None:
    with pytest.raises(TypeError, match=r"counts\['n'\] .*DataFrame; got dict"):
        spells.merge(PATIENTS, **ROLES, counts={"n": {"who": ["a"], "time": [1.0]}})


ROWS = pd.DataFrame(
    {"who": ["b", "b", "a"], "start": [0, 4, 0], "stop": [4, 9, 5], "event": [0, 1, 0], "x": [1.0, 2.0, 3.0]}
)


def test_split() -> None:
    made = spells.split(ROWS, [6, 4, 2, 6, 9], id="who", period="period")
    assert lists(made, "who", "start", "stop", "event", "x", "period") == [
        ("b", 0.0, 2.0, 0, 1.0, 1),
        ("b", 2.0, 4.0, 0, 1.0, 2),
        ("b", 4.0, 6.0, 0, 2.0, 3),
        ("b", 6.0, 9.0, 1, 2.0, 4),
        ("a", 0.0, 2.0, 0, 3.0, 1),
        ("a", 2.0, 4.0, 0, 3.0, 2),
        ("a", 4.0, 5.0, 0, 3.0, 3),
    ]


def test_splitting_leaves_a_cox_regression_as_it_is() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    frame = pd.DataFrame({"id": range(80), "t": rng.exponential(np.exp(-x)) + 0.01, "d": rng.random(80) < 0.7, "x": x})
    whole = spells.merge(frame, id="id", stop="t", event="d")
    parts = spells.split(whole, np.quantile(frame["t"], [0.2, 0.5]), id="id")
    assert len(parts) > len(whole)
    fits = [
        CoxPH(robust=True).fit(
            rows[["x"]], Surv.from_columns(rows, event="event", time="stop", entry="start"), groups=rows["id"]
        )
        for rows in (whole, parts)
    ]
    np.testing.assert_allclose(fits[1].coef_, fits[0].coef_, rtol=1e-8)
    np.testing.assert_allclose(fits[1].standard_errors_, fits[0].standard_errors_, rtol=1e-8)


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (0, [("b", 0.0, 9.0, 1, 1.0), ("a", 0.0, 5.0, 0, 3.0)]),
        (4, [("b", 4.0, 9.0, 1, 2.0), ("a", 4.0, 5.0, 0, 3.0)]),  # measured at the landmark: known
        (5, [("b", 5.0, 9.0, 1, 2.0)]),  # the end of follow-up: no longer at risk
        (9, []),
    ],
)
def test_landmark(time: float, expected: list[tuple[Any, ...]]) -> None:
    made = spells.landmark(ROWS, time, id="who")
    assert lists(made, "who", "start", "stop", "event", "x") == expected


def test_landmark_ends_at_the_first_event_or_gap() -> None:
    times = {"start": [0, 2, 5, 0, 2, 6], "stop": [2, 5, 8, 2, 4, 8], "event": [0, 1, 1, 0, 0, 1]}
    made = spells.landmark(pd.DataFrame(times | {"id": [1, 1, 1, 2, 2, 2]}), 1, id="id")
    assert lists(made, "id", "stop", "event") == [(1, 5.0, 1), (2, 4.0, 0)]


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        ({"start": [0, 3, 0]}, r"'b' has overlapping rows"),
        ({"start": [0, 4, 5]}, r"'a' has no follow-up"),
        ({"stop": [4, np.inf, 5]}, r"'b' .*infinite 'stop'"),
        ({"who": ["b", None, "a"]}, r"id is missing"),
        ({"event": [0, 1, np.nan]}, r"'a' has a missing 'event'"),
    ],
)
def test_errors_of_split_and_landmark(changed: dict[str, Any], facts: str) -> None:
    for made in (lambda f: spells.split(f, 2, id="who"), lambda f: spells.landmark(f, 2, id="who")):
        with pytest.raises(ValueError, match=facts):
            made(ROWS.assign(**changed))


def test_settings_of_split_and_landmark_are_checked() -> None:
    with pytest.raises(ValueError, match="cuts must be finite"):
        spells.split(ROWS, [1, np.nan], id="who")
    with pytest.raises(ValueError, match="'x' already"):
        spells.split(ROWS, 1, id="who", period="x")
    with pytest.raises(ValueError, match="landmark must be a finite number"):
        spells.landmark(ROWS, np.nan, id="who")
    with pytest.raises(ValueError, match="no column 'event'"):
        spells.landmark(ROWS.drop(columns="event"), 1, id="who")


def test_the_code_of_the_guide_runs() -> None:
    text = (Path(__file__).parents[1] / "docs" / "outcomes.md").read_text(encoding="utf-8")
    (block,) = [
        part for part in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if "spells.merge" in part
    ]
    made: dict[str, Any] = {}
    exec(block, made)
    assert lists(made["rows"], "id", "start", "infections")[:4] == [(1, 0.0, 0), (1, 4.0, 0), (1, 6.0, 1), (2, 0.0, 0)]
    assert len(made["model"].coef_) == 3


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 10)), max_size=12, unique=True),
    st.integers(0, 2),
)
def test_rows_hold_what_a_direct_search_finds(
    subjects: list[tuple[int, int]], measured: list[tuple[int, int]], lag: int
) -> None:
    n = len(subjects)
    begin = np.array([start for start, _ in subjects], dtype=float)
    end = begin + [length for _, length in subjects]
    baseline = pd.DataFrame({"id": range(n), "from": begin, "to": end, "d": 1})
    measured = [(who, at) for who, at in measured if who < n]
    visits = pd.DataFrame(measured, columns=["id", "time"]).astype({"id": int, "time": float})
    visits["x"] = np.arange(len(visits), dtype=float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        rows = spells.merge(
            baseline, id="id", start="from", stop="to", event="d", covariates=visits, counts={"n": visits}, lag=lag
        )
    for who, mine in rows.groupby("id"):
        known = visits[visits["id"] == who].assign(at=lambda v: v["time"] + lag).sort_values("at")
        inside = sorted({at for at in known["at"] if begin[who] < at < end[who]})
        assert mine["start"].tolist() == [begin[who], *inside]
        assert mine["stop"].tolist() == [*inside, end[who]]
        assert mine["event"].tolist() == [0] * len(inside) + [1]
        for start, x, count in lists(mine, "start", "x", "n"):
            before = known[known["at"] <= start]
            assert count == len(before)
            assert np.isnan(x) if before.empty else x == before["x"].iloc[-1]


def test_codes_of_r_are_not_taken_for_causes_without_a_word() -> None:
    patients = pd.DataFrame({"id": [1, 2], "end": [3.0, 4.0], "died": [2, 1]})
    visits = pd.DataFrame({"id": [1], "time": [1.0], "x": [0.5]})
    with pytest.warns(UserWarning, match=r"'died' .*1 and 2 .*died == 2"):
        spells.merge(patients, id="id", stop="end", event="died", covariates=visits)


def test_an_event_at_the_landmark_is_past() -> None:
    rows = pd.DataFrame({"id": [1, 1], "start": [0.0, 3.0], "stop": [3.0, 9.0], "event": [1, 0]})
    made = spells.landmark(rows, 3.0, id="id")
    assert made[["start", "stop", "event"]].to_numpy().tolist() == [[3.0, 9.0, 0.0]]
