"""Who owns a trial where several processes work on one study, and what becomes of those of the dead."""

import sys
import threading
import time
from contextlib import ExitStack, closing

import numpy as np
import pytest
from scipy import stats

from sumosurv import SumoNet, SumoNetSearch, datasets

optuna = pytest.importorskip("optuna", reason="stored studies need Optuna (the extra 'search')")

from sumosurv.search import executor, rounds, study  # noqa: E402
from sumosurv.search.space import decode, draw  # noqa: E402

SPACE = {"dropout": [0.0, 0.2], "learning_rate": stats.loguniform(0.005, 0.03), "alpha": stats.uniform(0.1, 0.8)}


def opened(storage, seed=0, sampler="random", **options):
    return study.OptunaStudy(SPACE, seed, sampler=sampler, storage=storage, name="shared", **options)


def states(storage):
    study = optuna.load_study(study_name="shared", storage=f"sqlite:///{storage}")
    found = [t.state.name for t in sorted(study.get_trials(), key=lambda t: t.number)]
    study._storage.remove_session()
    study._storage._backend.engine.dispose()
    return found[1:]  # the first holds what all agree on


def test_every_number_is_asked_for_once_by_whoever_is_first(tmp_path):
    storage = tmp_path / "study.db"
    with closing(opened(storage)) as a, closing(opened(storage)) as b:
        asked = [a.ask(2, 5), b.ask(2, 5), a.ask(2, 5), b.ask(2, 5)]
        assert [[number for number, _ in part] for part in asked] == [[0, 1], [2, 3], [4], []]
        for number, point in [new for part in asked for new in part]:
            assert point == decode(SPACE, draw(SPACE, 0, number))
        assert a.unfinished(5)
        for study, numbers in ((a, (0, 1, 4)), (b, (2, 3))):
            for number in numbers:
                study.tell(number, float(number))
        assert not b.unfinished(5)
        assert b.unfinished(6)
        assert [(t.number, t.score) for t in a.finished()] == [(i, float(i)) for i in range(5)]


def test_of_two_that_insert_the_last_trial_one_releases_it(tmp_path, monkeypatch):
    """Both see number 0 as free before either has inserted it; a larger search takes the trial that is left."""
    storage = tmp_path / "study.db"
    with closing(opened(storage)) as a, closing(opened(storage)) as b:
        real, asked = study.OptunaStudy._trials, {}

        def trials(self):
            found = real(self)
            if self is a and "b" not in asked:
                asked["b"] = None
                asked["b"] = b.ask(1, 1)  # in between
            return found

        monkeypatch.setattr(study.OptunaStudy, "_trials", trials)
        monkeypatch.setattr(study.OptunaStudy, "_release_abandoned", lambda self: None)
        asked["a"] = a.ask(1, 1)
        assert [number for number, _ in asked["b"]] == [0]
        assert asked["a"] == []
        b.tell(0, 1.0)
        assert states(storage) == ["COMPLETE", "WAITING"]
        assert a.ask(2, 2) == [(1, decode(SPACE, draw(SPACE, 0, 1)))]


def test_many_threads_never_try_a_trial_twice_and_never_one_too_many(tmp_path):
    storage, told, errors = tmp_path / "study.db", [], []
    with ExitStack() as stack:
        studies = [stack.enter_context(closing(opened(storage))) for _ in range(3)]

        def work(study):
            try:
                while study.unfinished(8):
                    for number, _ in study.ask(2, 8):
                        told.append(number)
                        study.tell(number, 1.0)
            except BaseException as error:
                errors.append(error)
            finally:
                study._storage.remove_session()

        threads = [threading.Thread(target=work, args=(study,)) for study in studies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
    assert sorted(told) == list(range(8))


def test_two_that_begin_a_study_agree_on_its_seed_and_layout(tmp_path, monkeypatch):
    storage, others = tmp_path / "study.db", []
    real = optuna.Study.get_trials

    def trials(self, **options):
        found = real(self, **options)
        if not others:  # seen as empty, and begun by another before we write
            others.append(None)
            others[0] = opened(storage, seed=7, layout="grouped")
        return found

    monkeypatch.setattr(optuna.Study, "get_trials", trials)
    with closing(opened(storage, seed=5, layout="padded")) as one, closing(others[0]) as other:
        assert (one.seed, one.layout) == (other.seed, other.layout) == (7, "grouped")


def test_abandoned_trials_are_taken_over(tmp_path, monkeypatch):
    """The heartbeat of one process stops; another waits for the grace period, then tries the same points."""
    storage, now = tmp_path / "study.db", [1000.0]
    monkeypatch.setattr(study.time, "time", lambda: now[0])
    with closing(opened(storage)) as dead, closing(opened(storage)) as alive:
        lost = dead.ask(2, 3)
        assert [number for number, _ in alive.ask(3, 3)] == [2]
        now[0] += study.GRACE - 1.0
        assert alive.ask(3, 3) == []
        now[0] += 2.0
        assert alive.ask(2, 2) == lost
        assert alive.ask(3, 3) == []  # its own trial 2 had no heartbeat either, but it knows that it runs
        dead.tell(0, -5.0)  # it was only suspended: the first result counts
        for number in range(3):
            alive.tell(number, 1.0)
        dead.tell(1, -5.0)
        assert [trial.score for trial in alive.finished()] == [-5.0, 1.0, 1.0]
    assert states(storage) == ["COMPLETE"] * 3


def test_a_result_that_comes_after_the_release_of_its_trial_counts(tmp_path, monkeypatch):
    storage, now = tmp_path / "study.db", [1000.0]
    monkeypatch.setattr(study.time, "time", lambda: now[0])
    with closing(opened(storage)) as suspended, closing(opened(storage)) as other:
        suspended.ask(1, 1)
        now[0] += study.GRACE + 1.0
        assert other.ask(0, 1) == []
        assert states(storage) == ["WAITING"]
        suspended.tell(0, 2.0)
        assert other.ask(1, 1) == []
        assert [trial.score for trial in other.finished()] == [2.0]


def test_heartbeats_keep_a_long_trial(tmp_path, monkeypatch):
    storage = tmp_path / "study.db"
    monkeypatch.setattr(study, "GRACE", 2.0)
    monkeypatch.setattr(study, "HEARTBEAT", 0.2)
    with closing(opened(storage)) as busy, closing(opened(storage)) as other:
        busy.ask(1, 1)
        until = time.monotonic() + 4
        while time.monotonic() < until:
            assert other.ask(1, 1) == []
            time.sleep(0.3)
    assert states(storage) == ["WAITING"]  # closed without a result: free for others


def test_a_heartbeat_survives_a_database_that_is_unreachable(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "HEARTBEAT", 0.01)
    with closing(opened(tmp_path / "study.db")) as busy:
        real, calls, enough = busy._storage.set_trial_user_attr, [], threading.Event()

        def flaky(*given):
            calls.append(given)
            if len(calls) < 3:
                raise OSError("unreachable")
            real(*given)
            enough.set()

        busy.ask(1, 1)
        monkeypatch.setattr(busy._storage, "set_trial_user_attr", flaky)
        assert enough.wait(20)
    count = len(calls)
    time.sleep(0.05)
    assert len(calls) == count


def test_a_trial_without_a_score_counts_as_tried(tmp_path):
    storage = tmp_path / "study.db"
    with closing(opened(storage)) as study:
        study.ask(2, 2)
        study.tell(0, -np.inf)
        study.tell(1, 1.0)
        assert not study.unfinished(2)
        assert [trial.score for trial in study.finished()] == [-np.inf, 1.0]
    with closing(opened(storage)) as study:
        assert study.ask(5, 2) == []


def test_tpe_proposes_after_a_kill_what_it_would_have_proposed(tmp_path):
    def score(number):
        return -((number - 11.3) ** 2) / 10.0

    def rounds_of(study, count):
        found = {}
        for _ in range(count):
            new = study.ask(8, 32)
            found |= dict(new)
            for number, _ in new:
                study.tell(number, score(number))
        return found

    with closing(opened(None, sampler="tpe")) as study:
        whole = rounds_of(study, 4)
    with closing(opened(tmp_path / "study.db", sampler="tpe")) as study:
        first = rounds_of(study, 3)
        study.ask(8, 32)  # given up in the middle of a round
    with closing(opened(tmp_path / "study.db", sampler="tpe")) as study:
        first |= rounds_of(study, 1)
    assert first == whole
    assert len({str(point) for point in whole.values()}) == 32


def fitted(storage, **options):
    data = datasets.simulate("weibull", 120, random_state=1)
    space = {"covariate_layers": [(4,), (16, 16)], "dropout": [0.0, 0.2]}
    given = {"space": space, "n_trials": 3, "random_state": 0, "trials_per_round": 1, "storage": storage}
    return SumoNetSearch(SumoNet(max_epochs=2, device="cpu"), **(given | options)).fit(data.X, data.y)


def test_the_layout_is_that_with_which_the_study_began(tmp_path):
    first = fitted(tmp_path / "study.db", layout="padded")
    with pytest.raises(ValueError, match=r"layout='padded'.*'grouped'"):
        fitted(tmp_path / "study.db", layout="grouped")
    more = fitted(tmp_path / "study.db", n_trials=6, trials_per_round=6)  # which by itself might be grouped
    whole = fitted(None, n_trials=6, layout="padded")
    other = fitted(None, n_trials=6, layout="grouped")
    np.testing.assert_allclose(more.cv_results_["valid_score"], whole.cv_results_["valid_score"], atol=1e-5)
    assert np.abs(other.cv_results_["valid_score"] - whole.cv_results_["valid_score"]).max() > 1e-3
    np.testing.assert_array_equal(more.cv_results_["valid_score"][:3], first.cv_results_["valid_score"])


def test_auto_is_settled_once_and_not_by_every_round(tmp_path, monkeypatch):
    answers = iter(["grouped", "padded", "padded"])
    monkeypatch.setattr(rounds, "choose_layout", lambda *_: next(answers))
    fitted(tmp_path / "study.db", n_trials=2)
    resumed = fitted(tmp_path / "study.db", n_trials=4, mixture=2)
    whole = fitted(None, n_trials=4, layout="grouped", mixture=2)
    np.testing.assert_allclose(resumed.cv_results_["valid_score"], whole.cv_results_["valid_score"], atol=1e-5)
    assert resumed.mixture_score_ == pytest.approx(whole.mixture_score_, abs=1e-5)


def test_a_search_waits_for_the_last_trials_of_others(tmp_path, monkeypatch):
    """Another process has trial 1 and tells its score after two looks; nothing beyond n_trials is tried."""
    fitted(tmp_path / "study.db", n_trials=1)
    monkeypatch.setattr(rounds, "_POLL", 0.0)
    real, looks, others = study.OptunaStudy.ask, [], []

    def ask(self, count, below):
        if not others:
            others.append(real(self, 1, below))  # as if asked for by another
        looks.append(real(self, count, below))
        if len(looks) == 4:
            self.tell(1, 0.25)
        return looks[-1]

    monkeypatch.setattr(study.OptunaStudy, "ask", ask)
    search = fitted(tmp_path / "study.db", n_trials=3, mixture=1)
    assert [[number for number, _ in look] for look in looks] == [[2], [], [], []]
    assert search.cv_results_["valid_score"][1] == 0.25
    assert len(search.cv_results_["trial"]) == 3


def test_a_search_that_breaks_off_leaves_no_trial_running(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(executor, "train_members", broken)
        with pytest.raises(MemoryError):
            fitted(tmp_path / "study.db")
    assert len(fitted(tmp_path / "study.db").cv_results_["trial"]) == 3
    assert not any("heartbeat" in thread.name for thread in threading.enumerate())


def test_a_study_of_another_program_is_refused(tmp_path):
    with closing(opened(tmp_path / "study.db")) as study:
        url = str(study._storage.url)
    other = optuna.create_study(storage=url, study_name="sumosurv")
    other.ask()
    with pytest.raises(ValueError, match=r"'sumosurv' .* another program"):
        fitted(tmp_path / "study.db")
    other._storage.remove_session()
    other._storage._backend.engine.dispose()


def test_a_password_is_not_shown(tmp_path):
    pytest.importorskip("psycopg", reason="needs a driver to be refused by its server")
    with pytest.raises(ValueError, match="could not be opened") as caught:
        opened("postgresql+psycopg://me:secret@127.0.0.1:1/none")
    assert "secret" not in str(caught.value)
    assert "me:***@127.0.0.1" in str(caught.value)


def test_a_driver_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(ModuleNotFoundError, match=r":\*\*\*@there/db .*\[search-"):
        opened("postgresql+psycopg2://me:secret@there/db")
