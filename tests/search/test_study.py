"""Stored studies: resumed after a kill, shared by processes, and never mixed up."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest
from scipy import stats

from sumosurv import SumoNet, SumoNetSearch, datasets

pytest.importorskip("optuna", reason="stored studies and TPE need Optuna (the extra 'search')")

SPACE = {"covariate_layers": [(8,), (16,)], "dropout": [0.0, 0.2], "learning_rate": stats.loguniform(0.005, 0.03)}


@pytest.fixture(scope="module")
def data():
    return datasets.simulate("weibull", 250, random_state=1)


def search(**options):
    given = {"space": SPACE, "n_trials": 6, "random_state": 0, "trials_per_round": 2}
    return SumoNetSearch(SumoNet(max_epochs=2, device="cpu"), **(given | options))


def test_an_interrupted_search_stores_finished_trials_alone(data, tmp_path, monkeypatch):
    from sumosurv.search.rounds import SearchProgress

    left = [3]  # a round trains two trials for two epochs: this is in the middle of the second

    def advance(self, networks):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    storage = tmp_path / "study.db"
    with monkeypatch.context() as patch:
        patch.setattr(SearchProgress, "advance", advance)
        patch.setattr(SearchProgress, "resume", lambda self, trials: None)
        first = search(storage=storage, layout="padded")
        with pytest.warns(RuntimeWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
            first.fit(data.X, data.y)
    assert first.interrupted_
    assert len(first.cv_results_["trial"]) == 4  # the weights of that epoch are kept here
    second = search(storage=storage, layout="padded").fit(data.X, data.y)
    assert len(second.cv_results_["trial"]) == 6
    whole = search(layout="padded").fit(data.X, data.y)  # never interrupted, never stored
    np.testing.assert_array_equal(second.cv_results_["trial"], whole.cv_results_["trial"])
    assert second.cv_results_["params"] == whole.cv_results_["params"]
    np.testing.assert_allclose(second.cv_results_["valid_score"], whole.cv_results_["valid_score"], atol=1e-5)
    np.testing.assert_allclose(second.predict_median(data.X[:5]), whole.predict_median(data.X[:5]), rtol=1e-4)


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_a_stored_search_goes_on_where_it_was(data, tmp_path, method):
    storage = tmp_path / "study.db"
    first = search(storage=storage, n_trials=4, method=method).fit(data.X, data.y)
    second = search(storage=storage, method=method).fit(data.X, data.y)
    assert len(second.cv_results_["trial"]) == 6
    np.testing.assert_array_equal(second.cv_results_["valid_score"][:4], first.cv_results_["valid_score"])
    assert second.cv_results_["params"][:4] == first.cv_results_["params"]
    assert len({str(point) for point in second.cv_results_["params"]}) == 6  # the sampler does not repeat itself


def test_trials_of_another_process_are_trained_again_as_they_were(data, tmp_path):
    """All trials are finished: the mixture is made anew from their seeds and gives the stored scores."""
    storage = tmp_path / "study.db"
    first = search(storage=storage).fit(data.X, data.y)
    again = search(storage=storage).fit(data.X, data.y)
    np.testing.assert_array_equal(again.cv_results_["valid_score"], first.cv_results_["valid_score"])
    assert again.mixture_score_ == pytest.approx(first.mixture_score_, abs=1e-5)
    np.testing.assert_allclose(again.predict_median(data.X[:5]), first.predict_median(data.X[:5]), rtol=1e-4)


def test_a_mixture_of_more_trials_than_auto_looks_at(data, tmp_path, monkeypatch):
    from sumosurv.search import rounds

    monkeypatch.setattr(rounds, "_TRAINED_AGAIN", 2)
    storage = tmp_path / "study.db"
    search(storage=storage).fit(data.X, data.y)
    assert len(search(storage=storage, mixture=5).fit(data.X, data.y).mixture_) == 5
    assert len(search(storage=storage).fit(data.X, data.y).mixture_) <= 2


def test_a_study_of_other_rows_or_another_space_is_refused(data, tmp_path):
    storage = tmp_path / "study.db"
    search(storage=storage, n_trials=2).fit(data.X, data.y)
    with pytest.raises(ValueError, match="another space"):
        search(storage=storage, space={"dropout": [0.1]}).fit(data.X, data.y)
    with pytest.raises(ValueError, match="another set of rows"):
        search(storage=storage).fit(data.X[:200], data.y[:200])
    with pytest.raises(ValueError, match="another set of rows"):
        search(storage=storage).fit(data.X + 1.0, data.y)
    with pytest.raises(ValueError, match="another estimator"):
        search(storage=storage).set_params(estimator__max_epochs=3).fit(data.X, data.y)
    with pytest.raises(ValueError, match="another set of rows"):
        search(storage=storage).fit(data.X.rename(columns=lambda name: f"{name}_"), data.y)
    with pytest.raises(ValueError, match="another estimator"):
        search(storage=storage, cv=3).fit(data.X, data.y)
    loud = search(storage=storage, n_trials=2).set_params(estimator__verbose=lambda epoch: None)
    assert len(loud.fit(data.X, data.y).cv_results_["trial"]) == 2  # a search makes no use of it
    turned = dict(reversed(SPACE.items()))
    assert len(search(storage=storage, n_trials=2, space=turned).fit(data.X, data.y).cv_results_["trial"]) == 2


def test_a_file_that_is_no_database_is_said_at_once(data, tmp_path):
    (tmp_path / "text.db").write_text("not a database at all, but text that is long enough to look at")
    with pytest.raises(ValueError, match=r"text\.db .*: file is not a database") as caught:
        search(storage=tmp_path / "text.db").fit(data.X, data.y)
    assert "SELECT" not in str(caught.value).upper()


def test_every_connection_to_the_database_is_closed(data, tmp_path, monkeypatch):
    """Newer Pythons warn of connections that are left to the garbage collector."""
    made, connect = [], sqlite3.dbapi2.connect

    def noted(*arguments, **options):
        made.append(connect(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(sqlite3.dbapi2, "connect", noted)
    search(storage=tmp_path / "study.db", n_trials=2).fit(data.X, data.y)
    with pytest.raises(ValueError, match="another space"):
        search(storage=tmp_path / "study.db", space={"dropout": [0.1]}).fit(data.X, data.y)
    assert len(made) >= 2
    for connection in made:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("select 1")


def test_tpe_needs_distributions_that_optuna_knows(data):
    with pytest.raises(ValueError, match="uniform, loguniform or randint"):
        search(method="tpe", space={"dropout": stats.beta(2, 2)}).fit(data.X, data.y)


SCRIPT = """
import sys
from scipy import stats
from sumosurv import SumoNet, SumoNetSearch, datasets
data = datasets.simulate("weibull", 250, random_state=1)
space = {"covariate_layers": [(8,), (16,)], "dropout": [0.0, 0.2], "learning_rate": stats.loguniform(0.005, 0.03)}
SumoNetSearch(SumoNet(max_epochs=2, device="cpu"), space=space, n_trials=int(sys.argv[2]), random_state=0,
              trials_per_round=1, storage=sys.argv[1]).fit(data.X, data.y)
"""


def start(storage, trials):
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(storage), str(trials)])


def finished(storage):
    if not storage.exists():
        return 0
    with closing(sqlite3.connect(storage)) as database:
        try:
            return database.execute("select count(*) from trials where state = 'COMPLETE'").fetchone()[0]
        except sqlite3.OperationalError:  # the tables are being made
            return 0


@pytest.mark.skipif(os.name == "nt", reason="kills a process the POSIX way")
def test_a_killed_search_resumes_as_if_it_had_not_been_killed(data, tmp_path, monkeypatch):
    from sumosurv.search import study

    monkeypatch.setattr(study, "GRACE", 2.0)
    storage = tmp_path / "study.db"
    worker = start(storage, 10_000)
    until = time.monotonic() + 120
    while finished(storage) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    done = finished(storage)
    assert done >= 2
    resumed = search(storage=storage, n_trials=done + 2, trials_per_round=1).fit(data.X, data.y)
    whole = search(n_trials=done + 2, trials_per_round=1).fit(data.X, data.y)
    np.testing.assert_array_equal(resumed.cv_results_["trial"], np.arange(done + 2))
    assert resumed.cv_results_["params"] == whole.cv_results_["params"]
    np.testing.assert_allclose(resumed.cv_results_["valid_score"], whole.cv_results_["valid_score"], atol=1e-5)
    with closing(sqlite3.connect(storage)) as database:
        assert database.execute("select count(*) from trials where state = 'RUNNING'").fetchone()[0] == 0


def test_two_processes_share_a_study(data, tmp_path):
    """Another and this one; tests/search/test_postgres.py has two that begin at once."""
    storage = tmp_path / "study.db"
    worker = start(storage, 5)
    until = time.monotonic() + 120
    while finished(storage) < 1 and time.monotonic() < until:
        time.sleep(0.02)
    shared = search(storage=storage, n_trials=5, trials_per_round=1, mixture=1).fit(data.X, data.y)
    assert worker.wait(timeout=240) == 0
    assert finished(storage) == 5
    alone = search(n_trials=5, trials_per_round=1, mixture=1).fit(data.X, data.y)
    assert shared.cv_results_["params"] == alone.cv_results_["params"]
    np.testing.assert_allclose(shared.cv_results_["valid_score"], alone.cv_results_["valid_score"], atol=1e-5)


def test_a_study_that_another_process_is_making_is_waited_for(monkeypatch):
    import optuna

    from sumosurv.search import study

    real, calls, waits = optuna.create_study, [], []

    def create(**options):
        calls.append(options)
        if len(calls) < 4:
            raise optuna.exceptions.StorageInternalError("database is locked")
        return real(**options)

    monkeypatch.setattr(optuna, "create_study", create)
    monkeypatch.setattr(study.time, "sleep", waits.append)
    study.OptunaStudy({"dropout": [0.1]}, 0, sampler="random", storage=None, name="busy")
    assert waits == pytest.approx([0.1, 0.2, 0.3])
    calls[:] = []
    monkeypatch.setattr(study, "_OPEN_ATTEMPTS", 2)
    with pytest.raises(ValueError, match=r"'busy' .*database is locked"):
        study.OptunaStudy({"dropout": [0.1]}, 0, sampler="random", storage=None, name="busy")


@pytest.mark.parametrize(
    ("options", "rounds_of"),
    [
        ({"method": "random"}, [5]),  # nobody learns from results: all at once
        ({"method": "random", "storage": "study.db"}, [3, 2]),  # a round is stored before the next begins
        ({"method": "tpe"}, [2, 2, 1]),  # a round tells the sampler where to look
        ({"method": "tpe", "trials_per_round": 4}, [4, 1]),
    ],
)
def test_trials_come_in_rounds_where_results_are_told_or_stored(data, tmp_path, monkeypatch, options, rounds_of):
    from sumosurv.search import rounds, study

    asked = []
    for kind in (study.Study, study.OptunaStudy):

        def ask(self, count, below, real=kind.ask):
            asked.append(len(new := real(self, count, below)))
            return new

        monkeypatch.setattr(kind, "ask", ask)
    monkeypatch.setattr(rounds, "_ROUND", {"tpe": 2, "random": 3})
    if "storage" in options:
        options = options | {"storage": tmp_path / "study.db"}
    search(**({"n_trials": 5, "trials_per_round": None} | options)).fit(data.X[:80], data.y[:80])
    assert asked == rounds_of


@pytest.mark.parametrize("options", [{"method": "tpe"}, {"storage": "study.db"}])
def test_without_optuna_it_is_said_what_needs_it(data, monkeypatch, options):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ModuleNotFoundError, match=r"sumosurv\[search\]'; method='random'"):
        search(**options).fit(data.X, data.y)


def test_a_database_of_another_program_is_refused_without_its_sql(data, tmp_path, caplog):
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("create table trials(a int)")
        other.commit()
    with pytest.raises(ValueError, match=r"other\.db") as caught:
        search(storage=tmp_path / "other.db").fit(data.X, data.y)
    assert "SELECT" not in str(caught.value) + caplog.text
    assert "new file" in str(caught.value)


def test_rows_on_disk_and_invalid_storages_are_refused(data):
    with pytest.raises(TypeError, match="ndarray"):
        search().fit((row for row in data.X.to_numpy()), data.y)
    with pytest.raises(ValueError, match=r"storage .*3"):
        search(storage=3).fit(data.X, data.y)
