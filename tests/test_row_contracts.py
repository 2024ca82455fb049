"""What rows mean, over the functions that read them: weights are repetitions, causes are labels, disk is memory."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sumosurv import CauseSpecific, Conformal, CoxPH, Surv, SurvivalMixture, WeibullNet
from sumosurv.outcome import check_outcome
from sumosurv.preprocessing import Preprocessor
from sumosurv.sources import as_source

RNG = np.random.default_rng(0)
N = 160
X = pd.DataFrame({"a": RNG.normal(size=N), "c": RNG.choice(["u", "v", "w"], N, p=[0.5, 0.3, 0.2])})
EVENT_TIME = RNG.weibull(1.5, N) * np.exp(0.5 * X["a"].to_numpy())
CENSORING = 2.0 * RNG.random(N)
Y = Surv.from_arrays(EVENT_TIME <= CENSORING, np.minimum(EVENT_TIME, CENSORING))
CAUSE = np.where(Y["event"], RNG.integers(1, 3, N), 0)
WEIGHT = np.where(X["c"] == "w", 9, RNG.integers(0, 3, N))  # most rows are not of the most frequent level
REPEATED = np.repeat(np.arange(N), WEIGHT)


@pytest.mark.parametrize("scaling", ["standard", "quantile"])
def test_columns_learned_with_weights_are_those_of_repeated_rows(scaling):
    kept = WEIGHT > 0
    weighted = Preprocessor(scaling).fit(X[kept], WEIGHT[kept].astype(float)).columns
    repeated = Preprocessor(scaling).fit(X.iloc[REPEATED]).columns
    assert weighted[1] == repeated[1]
    assert (weighted[0].seen, weighted[0].indicator) == (repeated[0].seen, repeated[0].indicator)
    np.testing.assert_allclose(weighted[0].knots, repeated[0].knots, rtol=1e-12)
    np.testing.assert_allclose(
        [weighted[0].centre, weighted[0].width], [repeated[0].centre, repeated[0].width], rtol=1e-9, atol=1e-12
    )
    assert weighted[1].levels[weighted[1].common] == "w"


def test_lower_bounds_with_weights_are_those_of_repeated_rows():
    model = CoxPH().fit(X, Y)
    new = X[:20]
    weighted = Conformal.of(model, X, Y, sample_weight=WEIGHT, cutoff=1.0)
    repeated = Conformal.of(model, X.iloc[REPEATED], Y[REPEATED], cutoff=1.0)
    np.testing.assert_allclose(weighted.levels_, repeated.levels_, rtol=1e-9)
    for level in (0.6, 0.8, 0.9):
        found = weighted.lower_bound(new, level)
        np.testing.assert_allclose(found, repeated.lower_bound(new, level), rtol=1e-9)
    unweighted = Conformal.of(model, X, Y, cutoff=1.0)
    assert not np.allclose(found, unweighted.lower_bound(new, 0.9))


@pytest.mark.parametrize("k", [1, 2])
def test_an_event_of_another_cause_is_censoring_at_the_last_time_known_to_be_event_free(k):
    lower = np.floor(4 * Y["time"]) / 4
    upper = np.where(CAUSE > 0, lower + 0.25, np.inf)
    lower = np.where((np.arange(N) % 3 == 0) & (CAUSE > 0), upper, lower)  # some times are known exactly
    own = check_outcome(Surv.interval(lower, upper, CAUSE)).of_cause(k)
    expected = check_outcome(Surv.interval(lower, np.where(k == CAUSE, upper, np.inf)))
    for name in ("event", "time", "upper"):
        np.testing.assert_array_equal(getattr(own, name), getattr(expected, name))
    assert own.cause is None


def test_causes_are_labels():
    """With the names of the causes swapped, so are their incidences."""
    found = []
    for cause in (CAUSE, np.where(CAUSE > 0, 3 - CAUSE, 0)):
        model = CauseSpecific(estimator=CoxPH()).fit(X, Surv.from_arrays(cause, Y["time"]))
        found.append(model.predict_cumulative_incidence(X, [0.3, 0.8]))
    plain, swapped = found
    np.testing.assert_allclose(swapped, plain[:, :, ::-1], atol=1e-9)
    assert not np.allclose(plain[:, :, 0], plain[:, :, 1])


def test_weights_on_disk_are_relative_to_all_rows(tmp_path):
    """Parts of the table have different mean weights."""
    frame = X.assign(t=Y["time"], d=Y["event"], w=np.linspace(0.1, 2.5, N))
    path, roles = tmp_path / "rows.parquet", {"time": "t", "event": "d"}
    frame.to_parquet(path, index=False, row_group_size=30)
    memory = as_source(X, Y, frame["w"])
    stored = as_source(path, roles, "w")
    expected, found = (
        np.concatenate([block.outcome.weight for block in source.blocks()]) for source in (memory, stored)
    )
    np.testing.assert_allclose(found / found.mean(), expected, rtol=1e-12)
    model = CoxPH().fit(X, Y, sample_weight=frame["w"])
    on_disk = model.score(path, roles, sample_weight="w")
    assert on_disk == pytest.approx(model.score(X, Y, sample_weight=frame["w"]), rel=1e-9)
    assert on_disk != pytest.approx(model.score(X, Y), abs=1e-3)


def test_a_sample_of_rows_on_disk_is_not_their_beginning(tmp_path):
    path, roles = tmp_path / "rows.parquet", {"time": "t", "event": "d"}
    X.assign(t=Y["time"], d=Y["event"]).to_parquet(path, index=False, row_group_size=30)
    some, outcome = as_source(path, roles).sample(40)
    rows = some.index.to_numpy()
    assert len(set(rows)) == 40
    assert abs(rows.mean() - (N - 1) / 2) < 20  # three standard deviations
    np.testing.assert_array_equal(outcome.time, Y["time"][rows])
    every, _ = as_source(path, roles).sample(N)
    assert sorted(every.index) == list(range(N))


@pytest.mark.parametrize("make", [Conformal, CauseSpecific, SurvivalMixture])
def test_an_interrupted_part_leaves_the_whole_unfitted(make):
    """Nothing says that the estimator can be used: a warning would be an error."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    part = WeibullNet(n_members=1, covariate_layers=(4,), max_epochs=3, random_state=0, verbose=stop)
    made = make(estimators=[CoxPH(), part]) if make is SurvivalMixture else make(estimator=part)
    before = set(vars(made))
    outcome = Surv.from_arrays(CAUSE, Y["time"]) if make is CauseSpecific else Y
    with pytest.raises(KeyboardInterrupt):
        made.fit(X, outcome)
    assert set(vars(made)) == before
