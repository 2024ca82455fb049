"""Members that are trained in several processes: the same bits for every number of processes."""

import multiprocessing
import os
import signal
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest

from sumosurv import SumoNet, Surv, WeibullNet, datasets
from sumosurv.fitting import plan
from sumosurv.networks import TrainingError
from sumosurv.training import forked, loop
from sumosurv.training.forked import Forked, can_fork

needs_fork = pytest.mark.skipif(not can_fork(), reason="processes cannot be forked here")


@pytest.fixture(scope="module")
def rows():
    data = datasets.simulate("weibull", 157, random_state=0)
    return data.X, data.y


@pytest.fixture
def sizes(monkeypatch):
    """How many processes each training had."""
    found = []

    class Counted(Forked):
        def __init__(self, makers):
            found.append(len(makers))
            super().__init__(makers)

    monkeypatch.setattr(loop, "Forked", Counted)
    return found


def fit(rows, n_jobs, method=SumoNet, checkpoint=None, **settings):
    settings = {"n_members": 5, "max_epochs": 3, "batch_size": 45, "random_state": 0, **settings}
    return method(n_jobs=n_jobs, **settings).fit(*rows, checkpoint=checkpoint)


def check_equal(one, other, X):
    for column in ("train", "valid"):
        np.testing.assert_array_equal(one.history_[column], other.history_[column])
    np.testing.assert_array_equal(one.best_epoch_, other.best_epoch_)
    times = [0.2, 1.0]
    np.testing.assert_array_equal(one.predict_survival_function(X, times), other.predict_survival_function(X, times))


@needs_fork
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (SumoNet, {}),
        (SumoNet, {"components": "networks", "patience": 0, "refit": True}),
        (WeibullNet, {"validation_fraction": 0.0}),
    ],
)
def test_the_number_of_processes_does_not_change_the_bits(rows, sizes, method, settings):
    one = fit(rows, 1, method, **settings)
    assert not sizes
    for n_jobs in (2, 7):
        check_equal(one, fit(rows, n_jobs, method, **settings), rows[0])
    assert set(sizes) == {2}  # five members, at least two in each process


@needs_fork
def test_other_components_have_processes_of_their_own(rows, monkeypatch):
    """Their warnings and failures are those of a fit in one process."""
    real, own = plan.FitPlan.fit, os.getpid()

    def fit_of_component(self, *arguments, **options):
        if self.name == "lognormal":
            raise TrainingError("no finite likelihood")
        assert (os.getpid() == own) == (self.name == "network")
        warnings.warn(f"from {self.name}", UserWarning, stacklevel=2)
        return real(self, *arguments, **options)

    monkeypatch.setattr(plan.FitPlan, "fit", fit_of_component)
    with pytest.warns(UserWarning, match="from|could not be trained") as seen:
        fitted = fit(rows, 5)
    texts = [str(warning.message) for warning in seen]
    components = ["network", "small_network", "proportional_hazards"]
    assert texts[:3] == [f"from {name}" for name in components]
    assert "1 of 4 components could not be trained" in texts[3]
    assert list(fitted.components_["component"]) == components


@needs_fork
def test_ctrl_c_ends_the_other_components_too(rows, monkeypatch):
    real = plan.FitPlan.fit

    def fit_of_component(self, *arguments, **options):
        if self.name == "network":
            return replace(real(self, *arguments, **options), interrupted=True)
        time.sleep(60)

    monkeypatch.setattr(plan.FitPlan, "fit", fit_of_component)
    model = SumoNet(n_jobs=5, n_members=5, max_epochs=3, batch_size=45, random_state=0)
    with pytest.warns(RuntimeWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        model.fit(*rows)
    assert list(model.components_["component"]) == ["network"]
    assert not multiprocessing.active_children()


@needs_fork
def test_competing_risks_in_two_processes(rows, sizes):
    X, y = rows
    y = Surv.from_arrays(np.arange(len(X)) % 3, y["time"])
    one, two = (fit((X, y), n_jobs, components="networks") for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.history_["valid"], two.history_["valid"])
    assert sizes == [2]


def test_without_a_number_the_result_is_the_same_up_to_rounding(rows):
    np.testing.assert_allclose(fit(rows, 1).history_["valid"], fit(rows, None).history_["valid"], rtol=1e-4)


@needs_fork
def test_a_fit_with_checkpoints_has_one_process_and_the_same_bits(rows, sizes, tmp_path):
    check_equal(fit(rows, 2), fit(rows, 2, checkpoint=tmp_path), rows[0])
    assert len(sizes) == 4  # of the first fit


@needs_fork
def test_a_callback_is_called_in_this_process_and_may_interrupt(rows):
    seen = []

    def note(epoch):
        seen.append((os.getpid(), epoch.number, len(epoch.train)))
        if epoch.number == 1:
            raise KeyboardInterrupt

    model = SumoNet(n_members=4, max_epochs=9, components="networks", random_state=0, n_jobs=2, verbose=note)
    with pytest.warns(RuntimeWarning, match="interrupted after 2 epochs"), pytest.raises(KeyboardInterrupt):
        model.fit(*rows)
    assert seen == [(os.getpid(), 0, 4), (os.getpid(), 1, 4)]
    assert model.interrupted_
    assert np.isfinite(model.predict_median(rows[0])).all()


@pytest.mark.parametrize("n_jobs", [0, 1.5, "all", True])
def test_other_values_are_refused(rows, n_jobs):
    with pytest.raises(ValueError, match=r"n_jobs .* None or .* other than 0"):
        fit(rows, n_jobs)


# ------------------------------------------------------------------ processes


class Counter:
    def __init__(self):
        self.count = 0

    def add(self, number):
        self.count += number
        return self.count, os.getpid()

    def fail(self):
        raise ArithmeticError("no number")

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)


@needs_fork
def test_objects_live_in_their_processes():
    with Forked([Counter, Counter]) as counters:
        (a, one), (b, two) = counters.ask("add", [1, 2])
        assert (a, b) == (1, 2)
        assert [count for count, _ in counters.ask("add", [10, 20])] == [11, 22]
        assert len({one, two, os.getpid()}) == 3
    assert not any(process.is_alive() for process in counters._processes)


@needs_fork
def test_an_error_is_raised_here_with_its_place():
    with Forked([Counter, Counter]) as counters:
        with pytest.raises(ArithmeticError, match="no number") as found:
            counters.ask("fail")
        assert "in fail" in found.value.__notes__[0]


@needs_fork
def test_a_process_that_ends_is_reported():
    with Forked([Counter, Counter]) as counters, pytest.raises(TrainingError, match="use a smaller n_jobs"):
        counters.ask("die")


@needs_fork
def test_after_an_interrupted_call_answers_belong_to_the_next_one(monkeypatch):
    wait = forked.wait

    def interrupted(pipes):
        monkeypatch.setattr(forked, "wait", wait)
        raise KeyboardInterrupt

    with Forked([Counter, Counter]) as counters:
        monkeypatch.setattr(forked, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            counters.ask("add", [1, 2])
        assert [count for count, _ in counters.ask("add", [10, 20])] == [11, 22]


@needs_fork
def test_processes_end_with_the_process_that_started_them():
    with Forked([Counter, Counter, Counter]) as counters:
        counters.ask("add", [1, 2, 3])
        for pipe in counters._pipes:  # as they are closed when this process ends
            pipe.close()
        for process in counters._processes:
            process.join(30)
            assert process.exitcode == 0
