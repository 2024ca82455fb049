"""The same rows through every door: in memory, as a Parquet file, a folder, record batches, and on the command line.

What one door refuses, all refuse, with the same facts in the message; what is accepted gives the same numbers.
"""

from __future__ import annotations

import re
import shutil
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sumosurv
from sumosurv import CoxPH, FormulaTransformer, KaplanMeier, ParametricRegression, SumoNet, Surv, WeibullNet
from sumosurv.cli import main
from sumosurv.sources import RowSource, as_source

NAMES = ["a", "c"]
ROLES = {"time": "t", "event": "d"}
FAST = {"n_members": 1, "covariate_layers": (4,), "max_epochs": 2, "random_state": 0}
DOORS = ["memory", "file", "folder", "batches"]


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=n), "c": rng.choice(["u", "v"], n)})
    return frame.assign(t=rng.exponential(size=n).round(3) + 0.1, d=rng.integers(0, 2, n))


def fit_through(door, frame, folder, **named):
    X, y, more = through(door, frame, folder, **named)
    return WeibullNet(**FAST).fit(X, y, **more)


def through(door, frame, folder, roles=ROLES, weight=None, groups=None):
    """X, y and what else `fit` takes, for rows that come through a door."""
    if door == "memory":
        named = {role: name for role, name in roles.items() if role != "event_value"}
        own = [name for name in (*named.values(), weight, groups) if name is not None]
        y = Surv.from_columns(frame, **named)
        more = {"sample_weight": weight, "groups": groups}
        return frame.drop(columns=own), y, {key: frame[name] for key, name in more.items() if name is not None}
    table = pa.Table.from_pandas(frame, preserve_index=False)
    more = {key: name for key, name in (("sample_weight", weight), ("groups", groups)) if name is not None}
    if door == "batches":
        return iter(table.to_batches(max_chunksize=25)), roles, more
    if door == "file":
        pq.write_table(table, folder / "rows.parquet", row_group_size=25)
        return folder / "rows.parquet", roles, more
    shutil.rmtree(folder / "rows", ignore_errors=True)
    (folder / "rows").mkdir()
    for k in range(2):
        pq.write_table(table.slice(30 * k, 30 if k == 0 else None), folder / "rows" / f"{k}.parquet", row_group_size=25)
    return folder / "rows", roles, more


WRONG = {
    "a text event": (lambda f: f.assign(d=np.where(f["d"] == 1, "dead", "alive")), r"'d'.*'(dead|alive)'"),
    "codes of R": (lambda f: f.assign(d=f["d"] + 1), r"'d' holds 1 and 2"),
    "a gap": (lambda f: f.assign(d=2 * f["d"]), r"'d' holds causes up to 2, and no row has 1"),
    "a gap above": (lambda f: f.assign(d=np.where(np.arange(len(f)) == 40, 3, f["d"])), "up to 3, and no row has 2"),
    "a huge code": (lambda f: f.assign(d=np.where(f["d"] == 1, 10**9, 0)), r"'d' must be bool or 0/1.*1000000000"),
    "half an event": (lambda f: f.assign(d=0.5 * f["d"]), r"'d' must be bool or 0/1.*0\.5"),
    "a missing event": (lambda f: f.assign(d=f["d"].where(f.index != 3)), r"'d' must be bool or 0/1.*first at 3"),
    "a negative time": (
        lambda f: f.assign(t=f["t"].where(f.index != 2, -1.0)),
        r"'t' is negative in 1 rows, first at 2",
    ),
    "a missing time": (lambda f: f.assign(t=f["t"].where(f.index != 2)), r"'t' is missing.*first at 2"),
    "a time as text": (lambda f: f.assign(t=f["t"].astype(str)), r"'t' must hold numbers"),
    "dates": (lambda f: f.assign(a=pd.date_range("2020-01-01", periods=len(f))), r"'a' holds dates or durations"),
    "durations": (lambda f: f.assign(a=pd.to_timedelta(np.arange(len(f)), unit="D")), r"'a' holds dates or durations"),
    "dates as text": (lambda f: f.assign(c=[f"2021-03-{1 + i % 28:02d}" for i in range(len(f))]), r"'c' holds dates"),
    "few dates as text": (lambda f: f.assign(c=np.where(f["c"] == "u", "4/3/2021", "5/3/2021")), r"'c' holds dates"),
    "percentages": (lambda f: f.assign(c=[f"{i} %" for i in range(len(f))]), r"'c' holds percentages.*'\d+ %'"),
    "infinity": (lambda f: f.assign(a=f["a"].where(f.index != 4, np.inf)), r"'a' contains infinity in rows 4"),
    "huge numbers": (lambda f: f.assign(a=np.where(f["d"] == 1, 1e308, -1e308)), r"'a' holds values beyond"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_memory_refuses_every_door_refuses(case, tmp_path):
    spoil, facts = WRONG[case]
    frame = spoil(rows())
    said = set()
    for door in DOORS:
        with pytest.raises(ValueError, match=facts) as refused:
            fit_through(door, frame, tmp_path)
        text = re.sub(r" (Recode|If 2 is|Number the|say with|Rows are counted|must be bool).*", "", str(refused.value))
        said.add(text.partition(";")[0].partition(", such as")[0])
    if case != "a text event":  # arrays have no option that names its values
        assert len(said) == 1


@pytest.mark.parametrize("weight", ["negative", "missing", "zero"])
def test_weights_and_groups_are_checked_at_every_door(weight, tmp_path):
    frame = rows().assign(w=1.0, g=np.arange(60).astype(str))
    frame["w"] = {"negative": -1.0, "missing": np.nan, "zero": 0.0}[weight]
    for door in DOORS:
        with pytest.raises(ValueError, match=r"sample_weight is (negative|zero)"):
            fit_through(door, frame, tmp_path, weight="w", groups="g")
    y = Surv.from_columns(frame, event="d", time="t")
    for other in (np.full(60, np.datetime64("2020-01-01")), np.full(60, 2 + 1j), np.full(60, np.timedelta64(1, "D"))):
        with pytest.raises(ValueError, match=r"sample_weight .* 60 rows"):
            sumosurv.check_outcome(y, sample_weight=other)
    frame = frame.assign(w=1.0, g=frame["g"].where(frame.index != 3))
    for door in DOORS:
        with pytest.raises(ValueError, match=r"groups .*in 1 rows, first at 3"):
            fit_through(door, frame, tmp_path, weight="w", groups="g")


CHANGED = {
    "dates": lambda column: pd.date_range("2020-01-01", periods=len(column)),
    "durations": lambda column: pd.to_timedelta(np.arange(len(column)), unit="D"),
    "bool": lambda column: np.arange(len(column)) % 2 == 0,
    "complex": lambda column: column.to_numpy() + 1j,
    "text": lambda column: column.astype(str),
    "category": lambda column: column.round().astype("category"),
    "infinity": lambda column: column.where(column.index != 1, np.inf),
    "huge": lambda column: column.where(column.index != 1, -1.7e308),
}


@pytest.fixture(scope="module")
def models():
    frame = rows()
    y = Surv.from_columns(frame, event="d", time="t")
    made = {
        "network": WeibullNet(**FAST),
        "default": SumoNet(n_members=1, max_epochs=1),
        "cox": CoxPH(),
        "formula": CoxPH(formula="I(a * 2) + c"),
    }
    return {name: model.fit(frame[NAMES], y) for name, model in made.items()}


@pytest.mark.parametrize("change", CHANGED)
@pytest.mark.parametrize("model", ["network", "default", "cox", "formula"])
def test_what_fit_refuses_predict_refuses(change, model, models, tmp_path):
    """A column has the type that it had in training, wherever rows are predicted."""
    frame = rows()
    frame = frame.assign(a=CHANGED[change](frame["a"]))
    with pytest.raises(ValueError, match=r"[cC]olumn 'a'") as memory:
        models[model].predict_survival_function(frame[NAMES], [1.0])
    if change == "dates" and model == "formula":
        with pytest.raises(ValueError, match="Column 'a' holds dates"):
            FormulaTransformer("I(a * 2)").fit(rows()).transform(frame)
    if change in ("complex", "category"):  # Parquet has no complex numbers, and no categories of numbers
        return
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    with pytest.raises(ValueError, match=r"[cC]olumn 'a'") as disk:
        models[model].predict_survival_function(tmp_path / "rows.parquet", [1.0])
    assert str(disk.value) == str(memory.value)
    with pytest.raises(ValueError, match=r"[cC]olumn 'a'"):
        models[model].predict_to_parquet(tmp_path / "rows.parquet", tmp_path / "out.parquet", times=[1.0])
    y = Surv.from_columns(rows(), event="d", time="t")
    with pytest.raises(ValueError, match=r"[cC]olumn 'a'"):
        models[model].score(frame[NAMES], y)


@pytest.mark.parametrize("change", ["dates", "durations"])
def test_a_category_does_not_become_a_date(change, models):
    frame = rows()
    frame = frame.assign(c=CHANGED[change](frame["a"]))
    for model in models.values():
        with pytest.raises(ValueError, match="'c' holds dates or durations"):
            model.predict(frame[NAMES])


def test_the_command_line_refuses_it_too(models, tmp_path, capsys):
    models["cox"].save(tmp_path / "m.sumo")
    frame = rows()
    frame.assign(a=pd.date_range("2020-01-01", periods=60)).to_parquet(tmp_path / "rows.parquet")
    for option in ([], ["--stream"]):
        command = ["predict", str(tmp_path / "m.sumo"), str(tmp_path / "rows.parquet"), *option]
        assert main([*command, "--out", str(tmp_path / "out.parquet")]) == 1
        assert "Column 'a' holds dates or durations" in capsys.readouterr().err
        assert not (tmp_path / "out.parquet").exists()
    frame.assign(a=pd.date_range("2020-01-01", periods=60), p=[f"{i}%" for i in range(60)]).to_csv(
        tmp_path / "rows.csv", index=False
    )
    fit = ["fit", str(tmp_path / "rows.csv"), "--time", "t", "--event", "d", "--method", "CoxPH", "--out"]
    assert main([*fit, str(tmp_path / "n.sumo"), "--drop", "p"]) == 1
    assert "Column 'a' holds dates" in capsys.readouterr().err
    assert main([*fit, str(tmp_path / "n.sumo"), "--drop", "a"]) == 1
    assert "Column 'p' holds percentages" in capsys.readouterr().err


@pytest.mark.parametrize("codes", ["R", "gap", "words", "typo", "spelling", "huge"])
def test_event_codes_on_the_command_line(codes, tmp_path, capsys):
    """A CSV file, a Parquet file and the same file in pieces are refused with one message."""
    frame = rows()
    event = frame["d"].to_numpy()
    frame["d"] = {"R": event + 1, "gap": 2 * event, "huge": event * 10**9}.get(codes, np.where(event == 1, "yes", "no"))
    if codes == "spelling":  # rows that would be censored
        frame.loc[50:, "d"] = frame.loc[50:, "d"].replace("yes", "Yes ")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    option = {"typo": ["--event-value", "Yes"], "spelling": ["--event-value", "yes"]}.get(codes, [])
    said = set()
    for data, more in (("rows.csv", []), ("rows.parquet", []), ("rows.parquet", ["--stream"])):
        command = ["fit", str(tmp_path / data), "--time", "t", "--event", "d", *option, *more]
        assert main([*command, "--method", "WeibullNet", "--quiet", "--out", str(tmp_path / "m.sumo")]) == 1
        said.add(capsys.readouterr().err)
    assert len(said) == 1
    expected = {
        "R": "--event-value 2",
        "gap": "up to 2",
        "huge": "1000000000",
        "words": "--event-value yes",
        "typo": "Yes",
        "spelling": "'Yes '",
    }
    assert expected[codes] in said.pop()


@pytest.mark.parametrize("how", ["sample", "sort_values", "set_index"])
def test_an_index_that_pandas_stored_is_no_covariate(how, tmp_path, capsys):
    frame = rows(80).assign(id=np.arange(100, 180))
    if how == "set_index":
        frame = frame.set_index("id")
    else:
        frame = frame.drop(columns="id")
        frame = frame.sample(frac=1, random_state=0) if how == "sample" else frame.sort_values("t")
    frame.to_parquet(tmp_path / "rows.parquet")
    path = tmp_path / "rows.parquet"
    model = WeibullNet(**FAST).fit(path, ROLES)
    assert list(model.feature_names_in_) == NAMES
    expected = model.predict_survival_function(frame[NAMES], [1.0])
    np.testing.assert_allclose(model.predict_survival_function(path, [1.0]), expected, rtol=1e-12)
    assert model.score(path, ROLES) == pytest.approx(model.score(frame[NAMES], Surv.from_columns(frame, "d", "t")))
    model.save(tmp_path / "m.sumo")
    if how == "set_index":
        for option in ([], ["--stream"]):
            out = tmp_path / f"out{len(option)}.parquet"
            command = ["predict", str(tmp_path / "m.sumo"), str(path), "--id", "id", *option, "--out", str(out)]
            assert main(command) == 0
            np.testing.assert_array_equal(pd.read_parquet(out)["id"], frame.index)
        assert sorted(as_source(path, ROLES, groups="id").covariates) == NAMES


def test_partitions_of_a_folder_are_columns(tmp_path):
    frame = rows().assign(site=np.tile(["north", "south", "west"], 20), year=np.repeat([2020, 2021], 30))
    frame.to_parquet(tmp_path / "rows", partition_cols=["year", "site"])
    source = RowSource(tmp_path / "rows")
    assert sorted(source.columns) == ["a", "c", "d", "site", "t", "year"]
    read = pd.concat(source.frames()).sort_values(["a", "t"])
    expected = frame.sort_values(["a", "t"])
    for name in frame.columns:
        assert read[name].tolist() == expected[name].tolist()
    model = WeibullNet(**FAST).fit(tmp_path / "rows", ROLES)
    assert sorted(model.feature_names_in_) == ["a", "c", "site", "year"]


def test_files_of_a_folder_have_the_same_columns(tmp_path):
    place = tmp_path / "rows"
    place.mkdir()
    frame = rows()
    frame[:30].to_parquet(place / "0.parquet", index=False)
    for other, facts in (
        (frame[30:].drop(columns="c"), r"1\.parquet has no column 'c', which .*0\.parquet has"),
        (frame[30:].assign(extra=1.0), r"0\.parquet has no column 'extra', which .*1\.parquet has"),
        (frame[30:].assign(a="x"), r"'a' holds double in .*0\.parquet and .*string in .*1\.parquet"),
    ):
        other.to_parquet(place / "1.parquet", index=False)
        with pytest.raises(ValueError, match=facts):
            RowSource(place)
    whole = frame.assign(a=np.arange(60))
    whole[:30].to_parquet(place / "0.parquet", index=False)
    whole[30:].assign(a=whole["a"][30:] + 0.5).to_parquet(place / "1.parquet", index=False)
    read = pd.concat(RowSource(place).frames(["a"]))["a"]
    np.testing.assert_array_equal(read, np.arange(60) + 0.5 * (np.arange(60) >= 30))


def test_an_index_in_some_files_of_a_folder(tmp_path):
    """Row numbers are no column, whether pandas stored them or not; an index with a name is one in all files."""
    frame = rows().assign(id=np.arange(60))
    parts = [frame[:30], frame[30:].sort_values("t")]  # a RangeIndex is not stored
    for first, second in (parts, parts[::-1]):
        first.to_parquet(tmp_path / "0.parquet")
        second.to_parquet(tmp_path / "1.parquet")
        source = RowSource(tmp_path)
        assert source.columns == list(frame.columns)
        np.testing.assert_array_equal(pd.concat(source.frames())["id"], [*first["id"], *second["id"]])
    parts[0].set_index("id").to_parquet(tmp_path / "1.parquet")
    with pytest.raises(ValueError, match="'id' is an index in one of"):
        RowSource(tmp_path)


def test_categories_are_categories_in_all_files_of_a_folder(tmp_path):
    """Arrow does not store that a column of numbers holds categories; pandas notes it in each file."""
    frame = rows().assign(grade=np.arange(60) % 3)
    frame[:30].astype({"grade": "category"}).to_parquet(tmp_path / "0.parquet", index=False)
    frame[30:].to_parquet(tmp_path / "1.parquet", index=False)
    with pytest.raises(ValueError, match="'grade' holds categories in one of"):
        RowSource(tmp_path)


def test_a_column_agrees_with_the_name_of_its_folder(tmp_path):
    (tmp_path / "c=u").mkdir()
    frame = rows()
    frame[frame["c"] == "u"].to_parquet(tmp_path / "c=u" / "0.parquet", index=False)
    assert set(pd.concat(RowSource(tmp_path).frames())["c"]) == {"u"}
    frame.to_parquet(tmp_path / "c=u" / "0.parquet", index=False)
    with pytest.raises(ValueError, match=r"folder c=u, .*column 'c' has other"):
        RowSource(tmp_path)


def test_empty_files_and_row_groups_are_passed_over(tmp_path):
    frame = rows()
    table = pa.Table.from_pandas(frame, preserve_index=False)
    expected = fit_through("file", frame, tmp_path).predict(frame[NAMES])
    with pq.ParquetWriter(tmp_path / "groups.parquet", table.schema) as file:
        for start, stop in ((0, 0), (0, 25), (25, 25), (25, 50), (50, 60), (60, 60)):
            file.write_table(table.slice(start, stop - start))
    assert RowSource(tmp_path / "groups.parquet").signature()
    found = WeibullNet(**FAST).fit(tmp_path / "groups.parquet", ROLES)
    np.testing.assert_array_equal(found.predict(frame[NAMES]), expected)
    expected = fit_through("folder", frame, tmp_path).predict(frame[NAMES])
    pq.write_table(table.slice(0, 0), tmp_path / "rows" / "0a.parquet")
    found = WeibullNet(**FAST).fit(tmp_path / "rows", ROLES)
    np.testing.assert_array_equal(found.predict(frame[NAMES]), expected)


@pytest.mark.parametrize("kind", ["category", "decimal"])
def test_event_codes_are_numbers_whatever_their_type(kind, tmp_path, capsys):
    frame = rows()
    fit = ["--time", "t", "--event", "d", "--method", "WeibullNet", "--max-epochs", "1", "--quiet", "--out"]
    frame["d"] = frame["d"].astype("category") if kind == "category" else [Decimal(int(code)) for code in frame["d"]]
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    for option in ([], ["--stream"]):
        assert main(["fit", str(tmp_path / "rows.parquet"), *option, *fit, str(tmp_path / "m.sumo")]) == 0


def test_record_batches_have_one_schema():
    batches = [pa.RecordBatch.from_pydict({"a": [1.0]}), pa.RecordBatch.from_pydict({"b": [1.0]})]
    with pytest.raises(ValueError, match="differs from the first: 'b'"):
        RowSource(iter(batches))


def test_masked_values_are_missing():
    frame = rows()
    X = np.stack([frame["a"], frame["t"].round()], axis=1)
    mask = np.zeros(X.shape, dtype=bool)
    mask[3, 0] = True
    hidden = np.where(mask, 1e6, X)
    y = Surv.from_columns(frame, event="d", time="t")
    settings = FAST | {"numeric_scaling": "standard"}
    expected = WeibullNet(**settings).fit(np.where(mask, np.nan, X), y)
    found = WeibullNet(**settings).fit(np.ma.masked_array(hidden, mask), y)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    np.testing.assert_array_equal(
        found.predict(np.ma.masked_array(hidden, mask)), expected.predict(np.where(mask, np.nan, X))
    )


def test_masked_outcomes_are_refused():
    frame = rows()
    time, event = np.ma.masked_array(frame["t"]), np.ma.masked_array(frame["d"])
    time[4] = np.ma.masked
    with pytest.raises(ValueError, match=r"'time' .*1 rows, first at 4"):
        KaplanMeier().fit(frame[["a"]], (time, frame["d"].to_numpy()))
    event[5] = np.ma.masked
    for y in ((frame["t"].to_numpy(), event), np.ma.stack([frame["t"], event], axis=1)):
        with pytest.raises(ValueError, match=r"'event' .*1 rows .*first at 5"):
            sumosurv.check_outcome(y)
    records = np.ma.masked_array(Surv.from_columns(frame, event="d", time="t"))  # a record has a mask per field
    np.testing.assert_array_equal(sumosurv.check_outcome(records).time, frame["t"])
    records["time"][7] = np.ma.masked
    with pytest.raises(ValueError, match=r"'time' .*NaN.*1 rows, first at 7"):
        sumosurv.check_outcome(records)
    weight = np.ma.masked_array(np.ones(60))
    weight[0] = np.ma.masked
    with pytest.raises(ValueError, match=r"sample_weight .*first at 0"):
        sumosurv.check_outcome((frame["t"].to_numpy(), frame["d"].to_numpy()), sample_weight=weight)


@pytest.mark.parametrize("size", [1e300, 1e200, 1e-200, 1e-310])
@pytest.mark.parametrize("method", [CoxPH, ParametricRegression, WeibullNet])
def test_a_model_of_large_or_small_numbers_can_be_saved(size, method, tmp_path):
    frame = rows()
    frame["a"] *= size / frame["a"].abs().max()
    y = Surv.from_columns(frame, event="d", time="t")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = (method(**FAST) if method is WeibullNet else method()).fit(frame[NAMES], y)
        model.save(tmp_path / "m.sumo")
        expected = model.predict_survival_function(frame[NAMES], [1.0])
        found = sumosurv.load(tmp_path / "m.sumo").predict_survival_function(frame[NAMES], [1.0])
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("unit", [1e-14, 1e14])
def test_a_penalty_does_not_depend_on_the_unit_of_a_column(unit):
    frame = rows()
    y = Surv.from_columns(frame, event="d", time="t")
    expected = CoxPH(alpha=1.0).fit(frame[["a"]], y).coef_
    np.testing.assert_allclose(unit * CoxPH(alpha=1.0).fit(unit * frame[["a"]], y).coef_, expected, rtol=1e-8)
