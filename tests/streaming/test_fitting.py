"""Fits to rows on disk: what is learned, who is held out, and that they end where a fit in memory does."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import sumosurv
from sumosurv import CoxPH, DeepHit, DeepSurv, SumoNet, Surv, WeibullNet
from sumosurv.estimators import METHODS
from sumosurv.networks import Inputs, Observed, Table
from sumosurv.sources import LevelSketch, RowSource, as_source
from sumosurv.streaming import fitting
from sumosurv.training.batches import Member, StreamBatches, prefetched

SMALL = {"n_members": 2, "covariate_layers": (8,), "time_layers": (8,), "random_state": 0}
SMALL_WEIBULL = {"n_members": 1, "covariate_layers": (4,), "max_epochs": 2, "random_state": 0}
OUTCOME = {"time": "t", "event": "d"}


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.integers(0, 9, n), "c": rng.choice(["u", "v", "w"], n)})
    frame["m"] = np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))
    event = rng.weibull(1.5, n) * np.exp(0.6 * frame["a"] + 0.3 * (frame["c"] == "u"))
    end = 2.0 * rng.random(n)
    return frame.assign(t=np.minimum(event, end), d=(event <= end).astype(int))


def written(frame, path, group=500):
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=group)
    return path


def parts(frame):
    return frame[["a", "b", "c", "m"]], Surv.from_columns(frame, event="d", time="t")


def small_encoder():
    return torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.Tanh())


@pytest.mark.parametrize("encoder", [None, small_encoder])
def test_rows_that_fit_the_buffer_give_the_fit_in_memory(tmp_path, encoder):
    """One row group, the same validation rows: the same batches, and the same weights up to rounding."""
    frame, held_out = rows(900), rows(300, 1)
    path = written(frame, tmp_path / "rows.parquet", 1_000)
    settings = SMALL | {"max_epochs": 3, "encoder": encoder}
    streamed = SumoNet(**settings).fit(path, OUTCOME, validation_data=parts(held_out))
    memory = SumoNet(**settings, components="networks").fit(*parts(frame), validation_data=parts(held_out))
    test = rows(200, 2)
    np.testing.assert_allclose(streamed.predict(parts(test)[0]), memory.predict(parts(test)[0]), atol=2e-5)
    assert streamed.score(*parts(test)) == pytest.approx(memory.score(*parts(test)), abs=2e-4)
    np.testing.assert_allclose(streamed.history_["train"], memory.history_["train"], atol=2e-4)
    np.testing.assert_allclose(streamed.risk_times_, memory.risk_times_, rtol=1e-9)
    for own, other in zip(streamed.preprocessor_.columns, memory.preprocessor_.columns):
        assert (own.name, own.__class__) == (other.name, other.__class__)
        if hasattr(own, "levels"):
            assert (own.levels, own.missing_seen, own.common) == (other.levels, other.missing_seen, other.common)
        else:
            np.testing.assert_allclose(own.knots, other.knots, rtol=1e-9, atol=1e-12)
            assert own.centre == pytest.approx(other.centre, abs=1e-9)
            assert (own.indicator, own.seen) == (other.indicator, other.seen)


def test_a_wide_table_has_the_principal_components_of_memory(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 90)), columns=[f"g{i}" for i in range(90)])
    y = Surv.from_arrays(rng.integers(0, 2, 60), rng.exponential(size=60))
    path = written(frame.assign(d=y["event"], t=y["time"]), tmp_path / "rows.parquet", 25)
    streamed = WeibullNet(**SMALL_WEIBULL).fit(path, OUTCOME, validation_data=(frame[:20], y[:20]))
    memory = WeibullNet(**SMALL_WEIBULL).fit(frame, y, validation_data=(frame[:20], y[:20]))
    expected = memory.preprocessor_.transform(frame).numeric
    assert expected.shape == (60, 59)  # after centring, 60 rows span so many dimensions
    np.testing.assert_allclose(streamed.preprocessor_.transform(frame).numeric, expected, atol=1e-5)
    assert np.isfinite(streamed.score(frame, y))


@pytest.mark.slow
def test_many_buffers_end_at_the_likelihood_of_the_fit_in_memory(tmp_path, monkeypatch):
    frame, test = rows(20_000), rows(10_000, 1)
    path = written(frame, tmp_path / "rows.parquet", 500)
    monkeypatch.setattr("sumosurv.streaming.fitting.BUFFER", 3_000)
    settings = {"n_members": 3, "covariate_layers": (16,), "max_epochs": 10, "random_state": 0}
    streamed = WeibullNet(**settings).fit(path, OUTCOME)
    memory = WeibullNet(**settings).fit(*parts(frame))
    assert streamed.score(*parts(test)) == pytest.approx(memory.score(*parts(test)), abs=0.002)
    assert streamed.n_members_ == 3


@pytest.mark.parametrize("buffer_rows", [160, 10_000])
def test_an_epoch_has_every_training_row_once_for_each_member(tmp_path, buffer_rows):
    frame = rows(1_000)
    path = written(frame, tmp_path / "rows.parquet", 130)
    seen = {}

    class Watched(StreamBatches):
        def epoch(self, number):
            assert len(self.table) <= max(buffer_rows, self.size)
            for batch in super().epoch(number):
                for k in range(2):
                    own = self.table.outcome.time[batch.index[k][batch.present[k]]]
                    seen.setdefault((number, k), []).extend(own.tolist())
                yield batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sumosurv.streaming.fitting.StreamBatches", Watched)
        patch.setattr("sumosurv.streaming.fitting.BUFFER", buffer_rows)
        model = WeibullNet(**plain()).fit(path, OUTCOME)
    assert set(seen) == {(epoch, k) for epoch in range(2) for k in range(2)}
    first = sorted(seen[0, 0])
    assert 750 < len(first) < 850  # a fifth is held out
    assert all(sorted(times) == first for times in seen.values())
    assert len({tuple(times) for times in seen.values()}) == 4  # an order of its own for each member and epoch
    assert set(np.round(np.array(first) * model.time_unit_, 4)) <= set(np.round(frame["t"], 4))


def plain():
    return {"n_members": 2, "covariate_layers": (4,), "max_epochs": 2, "random_state": 0, "batch_size": 64}


def test_rows_in_an_order_are_told_and_rows_in_none_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr("sumosurv.streaming.fitting.BUFFER", 500)
    frame = rows(1_500)
    with pytest.warns(UserWarning, match="nearly ordered by time"):
        WeibullNet(**plain()).fit(written(frame.sort_values("t"), tmp_path / "sorted.parquet", 100), OUTCOME)
    WeibullNet(**plain()).fit(written(frame, tmp_path / "rows.parquet", 100), OUTCOME)  # warnings are errors


def test_the_rows_of_a_subject_are_held_out_together(tmp_path):
    rng = np.random.default_rng(0)
    frame = rows(2_000).assign(id=[f"p{k}" for k in rng.integers(0, 300, 2_000)])
    source = RowSource(written(frame, tmp_path / "rows.parquet", 90))
    summary = fitting.summarise(as_source(source, OUTCOME, groups="id"), fitting.Split(3, 0.25))
    held_out = set(summary.validation[0].index)
    apart = frame.index.to_series().isin(held_out).groupby(frame["id"]).mean()
    assert set(apart) == {0.0, 1.0}
    assert 0.15 < apart.mean() < 0.35
    assert summary.n_train + len(held_out) == 2_000
    assert not held_out & set(summary.sample[0].index)
    assert [column.name for column in summary.columns.learned("quantile")] == ["a", "b", "c", "m"]
    WeibullNet(**plain()).fit(source, OUTCOME, groups="id")


def test_validation_rows_are_bounded_whatever_the_rows():
    assert fitting.Split.of(0, 0.2, 1_000).share == 0.2
    assert fitting.Split.of(0, 0.2, 10**8).share * 10**8 == fitting.MOST_VALIDATION
    assert fitting.Split.of(0, 0.0, 10**8).share == 0.0


@pytest.mark.parametrize("weights", ["counts", "shares"])
def test_weights_count_as_in_memory(tmp_path, weights):
    frame, held_out = rows(700), rows(200, 1)
    rng = np.random.default_rng(1)
    frame["w"] = rng.integers(0, 4, 700).astype(float) if weights == "counts" else rng.exponential(size=700)
    path = written(frame, tmp_path / "rows.parquet", 1_000)
    settings = plain() | {"batch_size": "auto"}
    streamed = WeibullNet(**settings).fit(path, OUTCOME, sample_weight="w", validation_data=parts(held_out))
    memory = WeibullNet(**settings).fit(*parts(frame), sample_weight=frame["w"], validation_data=parts(held_out))
    test = parts(rows(100, 2))[0]
    np.testing.assert_allclose(streamed.predict_median(test), memory.predict_median(test), rtol=1e-3)
    np.testing.assert_allclose(streamed.history_["train"], memory.history_["train"], atol=1e-3)


def test_causes_late_entry_and_intervals(tmp_path):
    frame = rows(1_200)
    rng = np.random.default_rng(2)
    frame["cause"] = np.where(frame["d"] == 1, rng.integers(1, 3, 1_200), 0)
    frame["v"] = 0.3 * frame["t"] * rng.random(1_200)
    frame["low"], frame["high"] = 0.9 * frame["t"], np.where(frame["d"] == 1, 1.1 * frame["t"], np.inf)
    path = written(frame, tmp_path / "rows.parquet", 400)
    source = RowSource(path, columns=["a", "c"])
    causes = SumoNet(**(SMALL | {"max_epochs": 2})).fit(source, {"time": "t", "event": "cause"})
    assert causes.n_causes_ == 2
    assert causes.predict_cumulative_incidence(frame[["a", "c"]][:5], [0.5]).shape == (5, 1, 2)
    late = WeibullNet(**plain()).fit(source, OUTCOME | {"entry": "v"})
    between = WeibullNet(**plain()).fit(source, {"lower": "low", "upper": "high"})
    assert late.last_time_ == frame["t"].max()
    assert between.last_time_ == frame["high"][frame["d"] == 1].max()
    whole = WeibullNet(**plain()).fit(frame[["a", "c"]], Surv.from_columns(frame, event="d", time="t", entry="v"))
    test = frame[["a", "c"]][:200]
    assert np.median(late.predict_median(test) / whole.predict_median(test)) == pytest.approx(1.0, abs=0.1)


def test_recorded_times_are_cells_as_in_memory(tmp_path):
    frame = rows(2_000)
    frame["t"] = np.ceil(frame["t"] * 10)
    path = written(frame, tmp_path / "rows.parquet")
    model = SumoNet(**(SMALL | {"max_epochs": 1})).fit(path, OUTCOME)
    assert model.resolution_ == SumoNet(**(SMALL | {"max_epochs": 1})).fit(*parts(frame)).resolution_ == 1.0


def test_a_streamed_model_is_an_ordinary_one(tmp_path):
    frame = rows(800)
    path = written(frame, tmp_path / "rows.parquet")
    model = SumoNet(max_epochs=1, random_state=0)
    assert model.fit(path, OUTCOME) is model
    assert model.n_members_ == 4
    assert model.get_params()["n_members"] is None
    model.save(tmp_path / "model.sumo")
    X = parts(frame)[0]
    np.testing.assert_array_equal(sumosurv.load(tmp_path / "model.sumo").predict(X), model.predict(X))
    assert set(model.history_["epoch"]) == {0}
    again = SumoNet(max_epochs=1, random_state=0).fit(path, OUTCOME)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert SumoNet()._components_on_disk(10**8)["network"].max_epochs == 1
    assert SumoNet()._components_on_disk(10**5)["network"].max_epochs == 45
    assert SumoNet(n_members=7, max_epochs=3)._components_on_disk(10**8)["network"].max_epochs == 3


@pytest.mark.parametrize(
    "name", [name for name, method in METHODS.items() if method._supports_blocks and name != "SumoNet"]
)
def test_every_method_that_says_so_can_be_streamed(name, tmp_path):
    frame = rows(120)
    model = METHODS[name](n_members=1, covariate_layers=(2,), max_epochs=1, random_state=0)
    model.fit(written(frame, tmp_path / "rows.parquet", 50), OUTCOME)
    assert np.isfinite(model.score(*parts(frame)))


def test_what_cannot_be_streamed_is_refused_in_a_sentence(tmp_path):
    path = written(rows(300), tmp_path / "rows.parquet")
    for model in (CoxPH(), DeepSurv(), DeepHit()):
        with pytest.raises(TypeError, match=f"{type(model).__name__} .*rows on disk"):
            model.fit(path, OUTCOME)
    with pytest.raises(ValueError, match="refit=True is not supported"):
        WeibullNet(refit=True).fit(path, OUTCOME)
    with pytest.raises(TypeError, match="mapping of column names"):
        WeibullNet().fit(path, parts(rows(300))[1])
    model = WeibullNet(**plain()).fit(path, OUTCOME)
    with pytest.raises(TypeError, match="Rows in memory are required"):
        model.predict_distribution(path)
    wild = written(rows(300).assign(a=np.inf), tmp_path / "wild.parquet")
    for seed in (0, 15, 16):  # with the last two the row is held out
        with pytest.raises(ValueError, match="'a' contains infinity in rows 0"):
            WeibullNet(random_state=seed).fit(wild, OUTCOME)


def test_too_many_levels_leave_the_frequent_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("sumosurv.preprocessing.preprocessor.LevelSketch", lambda: LevelSketch(most=3))
    frame = rows(600).assign(c=np.where(np.arange(600) % 3 > 0, "often", np.arange(600).astype(str)))
    source = as_source(written(frame, tmp_path / "rows.parquet", 100), OUTCOME)
    found = fitting.summarise(source, fitting.Split(0, 0.0)).columns.learned("quantile")
    levels = next(column.levels for column in found if column.name == "c")
    assert len(levels) <= 3
    assert "often" in levels


def test_errors_of_the_reader_reach_the_caller_and_it_ends_with_it():
    def broken():
        yield 1
        raise OSError("the disk is gone")

    found = []
    with pytest.raises(OSError, match="the disk is gone"):
        found.extend(prefetched(broken))
    closed = []

    def endless():
        try:
            while True:
                yield 0
        finally:
            closed.append(True)

    some = prefetched(endless)
    assert next(some) == 0
    some.close()
    assert closed == [True]


def test_weights_of_a_buffer_stay_in_place():
    """A captured step reads the tensors of the table: they are filled anew and never replaced."""

    def table(n, start):
        numbers = torch.arange(start, start + n, dtype=torch.float32)
        inputs = Inputs(numbers[:, None], torch.zeros(n, 0, dtype=torch.long))
        return Table(inputs, Observed(torch.ones(n, dtype=torch.bool), numbers))

    members = [Member(0, np.arange(1), None, 0.1, 0.1)]
    made = StreamBatches(
        lambda epoch: (part for part in (table(7, 0), table(5, 7))), 12, table(1, 0), members, 2, torch.device("cpu"), 4
    )
    place, seen = made.table.outcome.time.data_ptr(), []
    assert (made.per_epoch, made.size, len(made.table)) == (6, 2, 4)
    for batch in made.epoch(0):
        assert made.table.outcome.time.data_ptr() == place
        seen += made.table.inputs.numeric[batch.index[0], 0].tolist()
    assert sorted(seen) == list(range(12))


def test_the_clock_of_rounded_times_starts_with_the_first_cell(tmp_path):
    frame = rows(900)
    frame["t"] = np.ceil(10.0 * frame["t"]) / 10.0 + 3.0
    path = written(frame, tmp_path / "rows.parquet")
    model = SumoNet(time_origin="first", max_epochs=2, **SMALL).fit(path, OUTCOME)
    assert model.cells_.width == pytest.approx(0.1)
    assert model.time_origin_ == pytest.approx(frame["t"].min() - 0.1)
    assert np.isfinite(model.history_["train"]).all()


def test_a_checkpoint_of_other_rows_is_not_gone_on_with(tmp_path):
    """The same rows in other pieces are read in another order: what was kept belongs to another training."""
    frame = rows(600)
    settings = SMALL | {"max_epochs": 2}
    kept = tmp_path / "kept"
    SumoNet(**settings).fit(written(frame, tmp_path / "rows.parquet", 300), OUTCOME, checkpoint=kept)
    again = SumoNet(**settings).fit(written(frame, tmp_path / "copy.parquet", 300), OUTCOME, checkpoint=kept)
    assert len(again.history_) == 4  # a copy of the same file: all of it was kept
    with pytest.raises(ValueError, match="another"):
        SumoNet(**settings).fit(written(frame, tmp_path / "rows.parquet", 200), OUTCOME, checkpoint=kept)


def test_columns_of_a_table_in_memory_can_be_named_as_on_disk(tmp_path):
    frame = rows(300)
    named = WeibullNet(**plain()).fit(frame, OUTCOME)
    X, y = parts(frame)
    given = WeibullNet(**plain()).fit(X, y)
    np.testing.assert_array_equal(named.predict(X), given.predict(X))
    assert named.score(frame[list(X.columns)], y) == given.score(written(frame, tmp_path / "rows.parquet"), OUTCOME)
