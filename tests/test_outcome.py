"""The one target format: every accepted form through every door, and errors that help."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import DataConversionWarning

from sumosurv import CoxPH, KaplanMeier, SumoNet, SumoNetSearch, Surv, check_outcome
from sumosurv.networks.encoders import Inputs, Observed, Table
from sumosurv.outcome import Outcome

TIME = [2.0, 0.0, 7.5, 3.0, 1.0, 6.0]
EVENT = [True, False, True, False, True, True]
N = len(TIME)
EXPECTED = np.array(list(zip(EVENT, TIME)), dtype=[("event", "?"), ("time", "<f8")])
ZERO_ONE = [int(e) for e in EVENT]


def structured(first, second, dtype):
    return np.array(list(zip(first, second)), dtype=dtype)


class Foreign:
    """A table with named columns of a library that is not pandas."""

    def __init__(self, columns):
        self.data, self.columns = {name: np.array(values) for name, values in columns.items()}, list(columns)

    def __getitem__(self, name):
        return self.data[name]

    def __len__(self):
        return N


FORMS = {
    "surv": Surv.from_arrays(EVENT, TIME),
    "surv of ints": Surv.from_arrays(ZERO_ONE, TIME),
    "columns": Surv.from_columns(pd.DataFrame({"t": TIME, "x": 0, "dead": ZERO_ONE}), event="dead", time="t"),
    "from pairs": Surv.from_pairs(list(zip(TIME, EVENT))),
    "structured, other names": structured(EVENT, TIME, [("cens", "?"), ("days", "<f4")]),
    "structured, time first": structured(TIME, EVENT, [("days", "<f8"), ("seen", "?")]),
    "structured, ints by name": structured(TIME, ZERO_ONE, [("time", "<f8"), ("event", "<i8")]),
    "structured, ints by order": structured(ZERO_ONE, TIME, [("a", "<i8"), ("b", "<f8")]),
    "frame": pd.DataFrame({"time": TIME, "event": EVENT}),
    "frame, event first": pd.DataFrame({"event": EVENT, "time": TIME}),
    "frame, ints by name": pd.DataFrame({"status": ZERO_ONE, "futime": TIME}),
    "frame, ints by order": pd.DataFrame({"a": TIME, "b": ZERO_ONE}),
    "frame, ints by one name": pd.DataFrame({"died": ZERO_ONE, "months": TIME}),
    "frame, ints by values": pd.DataFrame({"a": ZERO_ONE, "b": TIME}),
    "frame, y": pd.DataFrame({"y": ZERO_ONE, "time": TIME}),
    "frame, a name that misleads": pd.DataFrame({"death": TIME, "seen": ZERO_ONE}),
    "structured, ints by values": structured(TIME, ZERO_ONE, [("a", "<f8"), ("b", "<i8")]),
    "frame of another library": Foreign({"died": ZERO_ONE, "months": TIME}),
    "frame, own index": pd.DataFrame({"time": TIME, "event": EVENT}, index=list("uvwxyz")),
    "frame, nullable": pd.DataFrame({"time": pd.array(TIME, "Float64"), "event": pd.array(EVENT, "boolean")}),
    "pair of lists": (TIME, EVENT),
    "pair of arrays": (np.array(TIME), np.array(EVENT)),
    "pair of series": (pd.Series(TIME), pd.Series(ZERO_ONE)),
    "list of two arrays": [np.array(TIME), np.array(ZERO_ONE)],
    "list of pairs": list(zip(TIME, EVENT)),
    "table": np.column_stack([TIME, ZERO_ONE]),
    "objects": np.array(list(zip(TIME, EVENT)), dtype=object),
    "floats as events": (TIME, [float(e) for e in EVENT]),
}


def through_fit(y):
    """What ``fit`` understood: seen in what it keeps of the outcome."""
    model = SumoNet(n_members=1, max_epochs=1, covariate_layers=(2,), time_layers=(2,), random_state=0)
    model.fit(np.arange(N, dtype=float)[:, None], y)
    return model


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_alike(form):
    result = check_outcome(FORMS[form])
    assert (result.event.dtype, result.time.dtype) == (EXPECTED["event"].dtype, EXPECTED["time"].dtype)
    np.testing.assert_array_equal(result.array(), EXPECTED)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_alike_by_fit_and_score(form):
    expected, X = through_fit(EXPECTED), np.arange(N, dtype=float)[:, None]
    model = through_fit(FORMS[form])
    np.testing.assert_array_equal(model.risk_times_, expected.risk_times_)
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    assert model.score(X, FORMS[form]) == expected.score(X, EXPECTED)


def test_the_result_is_a_copy():
    event, time = np.array(EVENT), np.array(TIME)
    y = Surv.from_arrays(event, time)
    y["time"][0], y["event"][0] = 99.0, False
    assert time[0] == 2.0
    assert event[0]


def test_times_alone_mean_no_censoring_and_say_so():
    with pytest.warns(UserWarning, match=r"as events.*Surv\.from_arrays"):
        y = check_outcome(TIME)
    assert y.event.all()
    with pytest.warns() as caught:
        check_outcome(np.array(TIME)[:, None])
    assert {warning.category for warning in caught} == {UserWarning, DataConversionWarning}


def door_arrays(event, time):
    return Surv.from_arrays(event, time)


def door_pair(event, time):
    return check_outcome((time, event))


def door_frame(event, time):
    return check_outcome(pd.DataFrame({"time": time, "event": event}))


def door_fit(event, time):
    return through_fit((time, event))


def door_columns(event, time):
    return Surv.from_columns(pd.DataFrame({"time": time, "event": event}), event="event", time="time")


@pytest.mark.parametrize("door", [door_arrays, door_pair, door_frame, door_fit, door_columns])
@pytest.mark.parametrize(
    ("event", "time", "message"),
    [
        (
            EVENT,
            [2.0, -1.0, 7.5, -3.0, 1.0, 6.0],
            r"'time' .*1, 3 .*-1\.0, -3\.0.*start",
        ),
        (
            EVENT,
            [2.0, 1.0, np.nan, 3.0, 1.0, 6.0],
            r"'time' .*NaN.*at 2 .*drop",
        ),
        (EVENT, [2.0, 1.0, 7.5, 3.0, 1.0, np.inf], r"'time' .*inf.*at 5 .*last time"),
        (EVENT, ["2", "x", "7", "3", "1", "6"], r"'time' .*2, 3, 4, \.\.\..*Convert"),
        (EVENT, [2.0, None, "late", 3.0, 1.0, 6.0], r"'time' .*1, 2 .*'late'.*Convert"),
        (EVENT, pd.date_range("2020-01-01", periods=N), r"'time' holds dates; .*dt\.days"),
        (EVENT, EVENT, r"'time' .*True and False.*swapped"),
        (
            EVENT,
            pd.to_timedelta([2, 1, 7, 3, 1, 6], unit="D"),
            r"'time' .*timedelta64.*1, 'D'",
        ),
        ([1, 2, 2, 1, 2, 1], TIME, r"'event' .*1 and 2 .*event == 2"),
        (
            [1, -2, 0, 1, 2.5, 0],
            TIME,
            r"'event' .*1, 4 .*-2\.0, 2\.5.*Rec",
        ),
        ([1, 4, 0, 1, 3, 0], TIME, r"'event' .*4, .*no row has 2.*causes=4"),
        ([1, 365, 0, 1, 90, 0], TIME, r"'event' .*1 to K.*at 1 .*365"),
        ([0.5, 1, 0, 1, 1, 0], TIME, r"'event' .*0/1 .*at 0 .*0\.5"),
        ([1, np.nan, 0, 1, 1, 0], TIME, r"'event' .*0/1 .*at 1 .*nan"),
        (["dead", "alive"] * 3, TIME, r"'event' .*6 rows.*'alive'.*== 'dead'"),
        (["1", "0"] * 3, TIME, r"'event' .*0/1 .*6 rows"),
    ],
)
def test_errors_name_the_column_the_rows_and_the_remedy(door, event, time, message):
    with pytest.raises(ValueError, match=message):
        door(event, time)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y"),
        ((TIME, EVENT[:-1]), r"'time' has 6 rows and 'event' has 5"),
        (([], []), "'time' has no rows"),
        (pd.DataFrame({"a": TIME}), r"time and event; got 1 \('a'\)"),
        (pd.DataFrame({"a": TIME, "b": TIME, "c": EVENT}), "got 3 "),
        (np.zeros((3, 3)), r"\(3, 3\).*Surv\.from_arrays"),
        (
            pd.DataFrame({"start": TIME, "stop": TIME, "event": EVENT}),
            r"'start' .*'stop' .*0, 2, 3, 4, 5 ",
        ),
        (
            pd.DataFrame({"from": TIME, "to": TIME, "event": EVENT}),
            r"'from', 'to', 'event'.*entry=start",
        ),
        (np.zeros((3, 3)), r"\(3, 3\).*time=stop, entry=start"),
        (
            pd.DataFrame({"lower": TIME, "upper": TIME, "time": TIME}),
            r"either .*'lower', 'upper', 'time'",
        ),
        (pd.DataFrame({"a": ZERO_ONE, "b": ZERO_ONE}), r"'a' and 'b' .*zeros and ones.*Surv"),
        (pd.DataFrame({"status": [1, 2] * 3, "days": TIME}), r"'status' .*1 and 2 .*status == 2"),
        (pd.DataFrame({"a": [1, 2] * 3, "b": TIME}), r"'a' holds 1 and 2 .*pass a == 2"),
        (pd.DataFrame({"time": ZERO_ONE, "x": [1, 2] * 3}), r"'x' holds 1 and 2 "),
        (
            structured([1, 2] * 3, TIME, [("status", "<i8"), ("days", "<f8")]),
            r"'status' .*1 and 2 .*status == 2",
        ),
        (structured(TIME, [1, 2] * 3, [("time", "<f8"), ("event", "<i8")]), r"'event' .*1 and 2 .*event == 2"),
        (pd.DataFrame({"event": [1, 2] * 3, "time": TIME}).to_records(index=False), r"'event' holds 1 and 2 "),
        (pd.DataFrame([[1.0, 1], [2.0, 0]], columns=["t", "t"]), "more than one column named 't'"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (
            structured(EVENT, TIME, [("event", "?"), ("time", "<f8")]).reshape(2, 3),
            "fields event and time",
        ),
        (np.zeros(3, dtype=[("a", "?"), ("b", "<f8"), ("c", "<f8")]), "fields event and time"),
        ((np.array(TIME) + 1j, EVENT), "Complex data not supported"),
        (np.zeros((0, 2)), "no rows"),
    ],
)
def test_things_that_are_no_outcome(y, message):
    with pytest.raises(ValueError, match=message):
        check_outcome(y)
    with pytest.raises(ValueError, match=message):
        through_fit(y)


def test_from_columns_lists_the_columns_there_are():
    with pytest.raises(ValueError, match=r"'death'; .* 'days', 'relapse'"):
        Surv.from_columns(pd.DataFrame({"days": [1.0], "relapse": [1]}), event="death", time="days")
    with pytest.raises(ValueError, match=r"'days' .*in 1 rows, first at 0"):
        Surv.from_columns(pd.DataFrame({"days": [-1.0], "relapse": [1]}), event="relapse", time="days")


def test_from_arrays_and_from_pairs_check_shapes():
    with pytest.raises(ValueError, match=r"'time' .*one-dimensional.*\(2, 2\)"):
        Surv.from_arrays([True, False], np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"'event' .*dimensional.*\(1, 2\)"):
        Surv.from_arrays([[True, False]], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"\(time, event\) .* got .*\(2, 3\)"):
        Surv.from_pairs([(1.0, True, 0), (2.0, False, 0)])


def test_row_counts_must_agree():
    with pytest.raises(ValueError, match="X has 4 rows and y has 6"):
        check_outcome(EXPECTED, n_rows=4)
    with pytest.raises(ValueError, match="X has 4 rows and y has 6"):
        SumoNet(max_epochs=1).fit(np.zeros((4, 1)), EXPECTED)


def test_long_lists_of_wrong_rows_are_cut():
    with pytest.raises(ValueError, match=r"100 .*, 4, \.\.\. .*-1\.0(, -1\.0){4}\)"):
        Surv.from_arrays(np.ones(100), -np.ones(100))


def test_scikit_survival_outcomes_are_read():
    sksurv = pytest.importorskip("sksurv.util")
    y = sksurv.Surv.from_arrays(EVENT, TIME, name_event="fstat", name_time="lenfol")
    np.testing.assert_array_equal(check_outcome(y).array(), EXPECTED)


def test_a_record_travels_as_a_whole():
    record = check_outcome(EXPECTED)
    assert check_outcome(record) is record
    np.testing.assert_array_equal(record[[2, 0]].array(), EXPECTED[[2, 0]])
    np.testing.assert_array_equal(Outcome.join([record[:1], record[1:]]).array(), EXPECTED)
    later = record.on_time_scale(origin=-1.0, unit=2.0)
    np.testing.assert_array_equal(later.time, (EXPECTED["time"] + 1.0) / 2.0)
    np.testing.assert_array_equal(later.event, EXPECTED["event"])


def test_tables_that_are_not_computed_yet():
    class LazyFrame:  # what polars' has, which need not be installed
        collect = collect_schema = None

    for X, y in ((LazyFrame(), EXPECTED), (np.zeros((N, 1)), LazyFrame())):
        with pytest.raises(TypeError, match=r"A LazyFrame .* collect\(\)"):
            SumoNet(max_epochs=1).fit(X, y)


def test_polars_outcomes_and_covariates():
    polars = pytest.importorskip("polars")
    y = polars.DataFrame({"died": ZERO_ONE, "months": TIME})
    np.testing.assert_array_equal(check_outcome(y).array(), EXPECTED)
    X = {"age": [50.0, 61.0, None, 48.0, 70.0, 55.0], "sex": ["f", "m", "f", "f", "m", "m"]}
    settings = {"n_members": 1, "max_epochs": 1, "covariate_layers": (2,), "time_layers": (2,), "random_state": 0}
    one = SumoNet(**settings).fit(polars.DataFrame(X), y)
    two = SumoNet(**settings).fit(pd.DataFrame(X), y)
    assert one.feature_names_in_.tolist() == ["age", "sex"]
    np.testing.assert_array_equal(one.predict(polars.DataFrame(X)), two.predict(pd.DataFrame(X)))


def test_time_and_event_as_two_arguments():
    X = np.arange(N, dtype=float)[:, None]
    for model in (SumoNet(), SumoNetSearch(), CoxPH(), KaplanMeier()):
        with pytest.raises((TypeError, ValueError), match=r"Surv\.from_arrays\(event, time\)"):
            model.fit(X, np.array(TIME), np.array(EVENT))
        with pytest.raises((TypeError, ValueError), match=r"Surv\.from_arrays\(event, time\)"):
            model.fit(X, TIME, EVENT)


WEIGHT = np.arange(N) / 4
CAUSE = np.arange(N) % 3


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["no weight", "weight"])
@pytest.mark.parametrize("cause", [None, CAUSE], ids=["no cause", "cause"])
def test_optional_fields_travel_or_stay_none(weight, cause):
    def check(record, rows):
        for found, whole in ((record.weight, weight), (record.cause, cause)):
            if whole is None:
                assert found is None
            else:
                np.testing.assert_array_equal(found, whole[rows])

    record, order = Outcome(EXPECTED["event"], EXPECTED["time"], weight=weight, cause=cause), np.array([4, 0, 3])
    check(record[order], order)
    check(record[record.event], record.event)
    check(Outcome.join([record[:2], record[2:]]), slice(None))
    check(record.on_time_scale(1.0, 2.0)[order], order)

    observed = Observed.of(record, torch.float32)
    check(observed, slice(None))
    assert observed.weight is None or observed.weight.dtype == torch.float32
    assert observed.cause is None or observed.cause.dtype == torch.int64
    check(observed.to(torch.device("cpu")), slice(None))
    check(Observed.join([observed[:2], observed[2:]]), slice(None))
    table = Table(Inputs(torch.zeros(N, 1), torch.zeros(N, 0, dtype=torch.long)), observed)
    index = torch.tensor([[4, 0], [1, 1]])
    check(table.batch(index, torch.ones(2, 2, dtype=torch.bool)).outcome, index.numpy())


def test_tensors_of_a_field_are_given_for_all_rows_or_for_none():
    with_weight, without = (Outcome(EXPECTED["event"], EXPECTED["time"], weight=weight) for weight in (WEIGHT, None))
    with pytest.raises(ValueError, match=r"'weight' .* some of the rows"):
        Observed.join([Observed.of(without), Observed.of(with_weight)])


# ---------------------------------------------------------------------- entry, intervals, causes, weights, subjects

ENTRY = [0.5, 0.0, 3.0, 0.0, 0.25, 5.5]
CAUSES = [2, 0, 1, 0, 3, 1]


def test_joined_outcomes_fill_in_what_only_some_give():
    plain = check_outcome(EXPECTED)
    interval = check_outcome(Surv.interval([1.0, 2.0, 4.0], [3.0, np.inf, 4.0], [2, 0, 1], entry=[0.5, 0.0, 1.0]))
    whole = Outcome.join([plain, interval])
    np.testing.assert_array_equal(whole.entry, [0.0] * N + [0.5, 0.0, 1.0])
    np.testing.assert_array_equal(whole.upper[:N], np.where(EVENT, TIME, np.inf))
    np.testing.assert_array_equal(whole.cause, [*ZERO_ONE, 2, 0, 1])
    np.testing.assert_array_equal(whole.had_event, [*EVENT, True, False, True])
    np.testing.assert_array_equal(whole.event, [*EVENT, False, False, True])
    assert whole.weight is None
    assert whole.group is None


@pytest.mark.parametrize(
    "y",
    [
        Surv.from_arrays(CAUSES, TIME, np.minimum(ENTRY, TIME)),
        pd.DataFrame({"start": np.minimum(ENTRY, TIME), "stop": TIME, "status": CAUSES}),
        Surv.from_columns(
            pd.DataFrame({"a": np.minimum(ENTRY, TIME), "b": TIME, "c": CAUSES}), event="c", time="b", entry="a"
        ),
    ],
    ids=["arrays", "frame", "columns"],
)
def test_entry_and_causes_are_read_alike(y):
    outcome = check_outcome(y)
    np.testing.assert_array_equal(outcome.entry, ENTRY)
    np.testing.assert_array_equal(outcome.cause, CAUSES)
    np.testing.assert_array_equal(outcome.event, np.array(CAUSES) > 0)
    assert outcome.n_causes == 3
    again = check_outcome(outcome.array())
    for name in ("event", "time", "entry", "cause"):
        np.testing.assert_array_equal(getattr(again, name), getattr(outcome, name))
    only = outcome.of_cause(1)
    np.testing.assert_array_equal(only.event, np.array(CAUSES) == 1)
    assert only.cause is None


def test_some_of_the_rows_of_causes_stay_causes():
    y = Surv.from_arrays(CAUSES, TIME)
    assert check_outcome(y[[1, 2, 3, 5]]).cause.tolist() == [0, 1, 0, 1]
    assert check_outcome(y[[0, 2]]).n_causes == 2  # causes 2 and 1, nobody censored: no R coding here
    assert Surv.from_arrays([1, 2, 1], [1.0, 2.0, 3.0], causes=2)["event"].tolist() == [1, 2, 1]


def test_what_says_nothing_is_left_out():
    assert check_outcome(Surv.from_arrays(EVENT, TIME, np.zeros(N))).entry is None
    outcome = check_outcome(Surv.interval(TIME, np.where(EVENT, TIME, np.inf)))
    assert outcome.upper is None
    np.testing.assert_array_equal(outcome.array(), EXPECTED)
    assert check_outcome(EXPECTED, sample_weight=np.ones(N)).weight is None


def test_intervals_have_the_meaning_of_r():
    outcome = check_outcome(pd.DataFrame({"left": [1.0, 2.0, 0.0, 4.0], "right": [3.0, np.inf, 5.0, 4.0]}))
    assert outcome.event.tolist() == [False, False, False, True]
    assert outcome.in_interval.tolist() == [True, False, True, False]
    assert outcome.time.tolist() == [1.0, 2.0, 0.0, 4.0]
    assert outcome.last_time == 5.0
    later = outcome.on_time_scale(origin=0.0, unit=2.0)
    assert later.upper.tolist() == [1.5, np.inf, 2.5, 2.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Surv.from_arrays(EVENT, TIME, TIME), r"'entry' .*'time' in 5 rows.*0, 2"),
        (lambda: Surv.from_arrays(EVENT, TIME, [-1.0] * N), r"'entry' is negative in 6 rows"),
        (lambda: Surv.from_arrays(EVENT, TIME, [0.0]), r"'time' has 6 rows and 'entry' has 1"),
        (lambda: Surv.interval([1.0, 3.0], [2.0, 1.0]), r"'lower' .*'upper' .*at 1 .*swap"),
        (lambda: Surv.interval([1.0, 3.0], [2.0, np.nan]), r"'upper' is missing .*inf"),
        (lambda: Surv.interval([1.0, np.nan], [2.0, 3.0]), r"'lower' .*write 0 .*left-censored"),
        (lambda: Surv.from_arrays(EVENT, TIME, [np.nan] * N), r"'entry' is missing .*write 0"),
        (lambda: Surv.from_arrays(EVENT, TIME, causes=2.5), r"causes, from 1 to 100; got 2.5"),
        (lambda: Surv.from_arrays(EVENT, TIME, causes="2"), r"causes, from 1 to 100; got '2'"),
        (lambda: Surv.interval([1.0, np.inf], [2.0, np.inf]), r"'lower' is infinite"),
        (lambda: Surv.interval([1.0, 3.0], [2.0, np.inf], [1, 2]), r"'event' .*upper limits in 1 rows"),
        (lambda: Surv.interval([1.0, 3.0], [2.0, 4.0], entry=[1.0, 3.5]), r"'entry' .*'lower' in 1 rows"),
        (lambda: Surv.from_arrays([1, 2], [1.0, 2.0], causes=1), r"cause from 1 to 1; 1 rows.*at 1"),
        (lambda: Surv.from_columns(pd.DataFrame({"a": [1.0]}), time="a"), r"event and time, or lower and upper"),
        (lambda: Surv.from_columns(pd.DataFrame({"a": [1.0]}), time="a", lower="a"), r"time and event, or lower and"),
        (lambda: check_outcome(EXPECTED, sample_weight=[1.0]), r"each of the 6 rows; got .*\(1,\)"),
        (lambda: check_outcome(EXPECTED, sample_weight=[-1.0] + [1.0] * 5), r"negative, .*in 1 rows, first at 0"),
        (lambda: check_outcome(EXPECTED, sample_weight=[np.nan] + [1.0] * 5), r"missing .*in 1 rows, first at 0"),
        (lambda: check_outcome(EXPECTED, sample_weight=np.zeros(N)), r"zero in all rows"),
        (lambda: check_outcome(EXPECTED, groups=[1, 2]), r"one subject for each of the 6 rows"),
        (lambda: check_outcome(EXPECTED, groups=["a", None, "b", "c", "d", "e"]), r"groups is missing in 1 rows"),
    ],
)
def test_wrong_entries_limits_causes_and_weights(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_whole_weights_count_rows_and_others_have_mean_one():
    assert check_outcome(EXPECTED, sample_weight=[0, 2, 1, 1, 3, 0]).weight.tolist() == [0, 2, 1, 1, 3, 0]
    scaled = check_outcome(EXPECTED, sample_weight=np.array([0.5, 1.0, 1.5, 0.5, 1.0, 1.5]) * 1e200).weight
    np.testing.assert_allclose(scaled, [0.5, 1.0, 1.5, 0.5, 1.0, 1.5])


def test_subjects_are_numbered():
    assert check_outcome(EXPECTED, groups=["b", "b", "a", "c", "a", "c"]).group.tolist() == [0, 0, 1, 2, 1, 2]
