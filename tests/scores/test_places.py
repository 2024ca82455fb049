"""The same rows in memory, in a Parquet file and in blocks that other processes score: the same scores and errors."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest

from sumosurv import CoxPH, Surv, WeibullNet
from sumosurv.scores import blocks
from sumosurv.scores.blocks import BlockRows, rows_of
from sumosurv.scores.evaluation import evaluate_rows
from sumosurv.sources import as_source

N = 400
SMALL = {"n_members": 1, "covariate_layers": (4,), "max_epochs": 3, "random_state": 0}
X = ["a", "c"]
FIELDS = {
    "right-censored": {},
    "entry": {"entry": "v"},
    "causes": {"event": "cause"},
    "intervals": {"lower": "low", "upper": "high"},
    "entry and causes": {"entry": "v", "event": "cause"},
}
POINTS = {"brier": {"times": [0.3, 0.8]}, "cumulative_dynamic_auc": {"times": 0.5}}
OTHERS = ("log_likelihood", "concordance_td", "integrated_brier", "d_calibration", "survival_crps")
CASES = [
    ("right-censored", {}),
    ("right-censored", {"sample_weight": "w"}),
    ("right-censored", {"sample_weight": "share", "groups": "id"}),
    ("entry", {"sample_weight": "w"}),
    ("causes", {"groups": "id"}),
    ("entry and causes", {"sample_weight": "share"}),
    ("intervals", {"sample_weight": "w"}),
]


def sent(task, parts):
    """What a cluster does, within this process."""
    task = pickle.dumps(task)
    for part in parts:
        yield pickle.loads(pickle.dumps(pickle.loads(task)(pickle.loads(pickle.dumps(part)))))


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=N), "c": rng.choice(["u", "v"], N), "id": rng.integers(0, N // 3, N)})
    event, end = rng.weibull(1.5, N) * np.exp(0.7 * frame["a"]), 2 * rng.random(N)
    frame["t"], frame["d"] = np.ceil(40 * np.minimum(event, end)) / 40, (event <= end).astype(int)
    frame["v"], frame["cause"] = 0.2 * frame["t"], frame["d"] * rng.integers(1, 3, N)
    frame["low"], frame["high"] = frame["t"], np.where(frame["d"] > 0, frame["t"] + 0.2, np.inf)
    return frame.assign(w=rng.integers(0, 4, N), share=rng.random(N))


@pytest.fixture(scope="module")
def path(frame, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    frame.to_parquet(path, index=False, row_group_size=150)
    return path


@pytest.fixture(scope="module")
def models(frame):
    made = {}
    for kind in FIELDS:
        y, options = outcome(kind), SMALL
        made[kind] = WeibullNet(**options).fit(frame[X], Surv.from_columns(frame, **y))
    return made


def outcome(kind):
    named = FIELDS[kind]
    return named if "lower" in named else {"time": "t", "event": "d"} | named


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK", 90)


def places(models, frame, path, y, map_blocks=sent, **more):
    """The rows of each place."""
    own = {name: frame[column] for name, column in more.items()}
    causes = blocks.common_causes(models)
    memory = as_source(frame[X], Surv.from_columns(frame, **y), own.get("sample_weight"), own.get("groups"))
    return {
        "memory": lambda: rows_of(models, memory),
        "Parquet file": lambda: rows_of(models, as_source(path, y, **more, n_causes=causes)),
        "other processes": lambda: BlockRows(models, memory, map_blocks),
    }


def wanted(kind):
    if kind == "intervals":
        return ["log_likelihood", "d_calibration"]
    return {name: {} for name in OTHERS} | POINTS


def compared(found, rtol=1e-8):
    first = found.pop("memory")
    for name, table in found.items():
        for column in ("score", "times", "cause", "model", "against"):
            assert list(table.get(column, [])) == list(first.get(column, [])), name
        np.testing.assert_allclose(table["value"], first["value"], rtol=rtol, err_msg=name)


@pytest.mark.parametrize(("kind", "more"), CASES)
def test_scores_are_the_same_wherever_rows_are(kind, more, models, frame, path):
    compared_with = {} if more else {"other": models[kind]}
    given = places({"one": models[kind], **compared_with}, frame, path, outcome(kind), **more)
    options = {"scores": wanted(kind), "censoring": "marginal", "n_bootstrap": 0}
    compared({name: evaluate_rows(make(), **options) for name, make in given.items()})


def test_default_scores_are_the_same_wherever_rows_are(models, frame, path):
    for kind in ("right-censored", "causes"):
        given = places({"": models[kind]}, frame, path, outcome(kind))
        compared({name: evaluate_rows(make(), times=[0.4], n_bootstrap=0) for name, make in given.items()})


def test_intervals_are_similar_wherever_rows_are(models, frame, path):
    """Of a mean by resamples or by groups that are left out; of a concordance by the same resamples of all rows."""
    given = places({"": models["right-censored"]}, frame, path, outcome("right-censored"), groups="id")
    found = {
        name: evaluate_rows(make(), scores=["log_likelihood", "concordance_td"], n_bootstrap=300)["std_error"]
        for name, make in given.items()
    }
    for name in ("Parquet file", "other processes"):
        np.testing.assert_allclose(found[name], found["memory"], rtol=0.25)


WRONG = {
    "an unknown score": ("right-censored", {"scores": "ibs"}),
    "an unknown option": ("right-censored", {"scores": {"brier": {"time": 1.0}}}),
    "times that no score uses": ("right-censored", {"scores": "log_likelihood", "times": 1.0}),
    "a range for a score at single times": ("right-censored", {"scores": "brier", "times": (0.1, 0.5)}),
    "one time for a score over a range": ("right-censored", {"scores": "integrated_brier", "times": 0.5}),
    "a number of resamples": ("right-censored", {"n_bootstrap": -1}),
    "a confidence level": ("right-censored", {"confidence": 1.0}),
    "a score that needs exact times": ("intervals", {"scores": "brier", "times": 0.5}),
    "a score at times of intervals": ("intervals", {"times": 0.5}),
    "a cause that there is not": ("right-censored", {"scores": {"brier": {"times": 0.5, "cause": 2}}}),
}


@pytest.mark.parametrize("what", WRONG)
def test_errors_are_the_same_wherever_rows_are(what, models, frame, path):
    kind, options = WRONG[what]
    said = {}
    for name, make in places({"": models[kind]}, frame, path, outcome(kind)).items():
        with pytest.raises((ValueError, TypeError)) as error:
            evaluate_rows(make(), **options)
        said[name] = (error.type, str(error.value))
    assert len(set(said.values())) == 1, said


def test_models_with_different_causes_and_missing_columns_are_refused_alike(models, frame, path):
    y, columns = Surv.from_columns(frame, event="d", time="t"), {"time": "t", "event": "d"}
    less = path.parent / "less.parquet"
    frame.drop(columns="c").to_parquet(less)
    different = {"a": models["right-censored"], "b": models["causes"]}
    for given, names, stored in ((different, X, path), ({"": models["entry"]}, ["a"], less)):
        said = set()
        for source in (as_source(frame[names], y), as_source(stored, columns)):
            with pytest.raises(ValueError, match=r"causes|missing columns.*'c'") as error:
                rows_of(given, source)
            said.add(str(error.value).replace(source.name, "table"))
        assert len(said) == 1, said


@pytest.mark.slow
def test_a_cluster_gives_the_scores_and_errors_of_this_process(models, frame, path):
    pytest.importorskip("ray")
    from sumosurv.cluster import Cluster, connected, map_blocks

    cluster = Cluster("local", workers=2)
    with connected(cluster):
        for kind, more in CASES:
            given = places({"": models[kind]}, frame, path, outcome(kind), partial(map_blocks, cluster), **more)
            options = {"scores": wanted(kind), "censoring": "marginal", "n_bootstrap": 0}
            compared({name: evaluate_rows(make(), **options) for name, make in given.items()})
        given = places({"": models["intervals"]}, frame, path, outcome("intervals"), partial(map_blocks, cluster))
        said = set()
        for make in given.values():
            with pytest.raises(ValueError, match="interval") as error:
                evaluate_rows(make(), scores="brier", times=0.5)
            said.add(str(error.value))
        assert len(said) == 1, said


def test_a_pipeline_reads_its_own_columns(frame, path):
    """Not those that its last step sees."""
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    steps = make_pipeline(make_column_transformer((StandardScaler(), ["a"])).set_output(transform="pandas"), CoxPH())
    model = steps.fit(frame[X], Surv.from_columns(frame, event="d", time="t"))
    given = places({"": model}, frame, path, outcome("right-censored"))
    compared({name: evaluate_rows(make(), scores="concordance_td", n_bootstrap=0) for name, make in given.items()})
