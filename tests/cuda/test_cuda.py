"""What holds on the CPU holds on a GPU: the same likelihood, repeatable fits and predictions, files, mixtures.

They need a GPU and SUMOSURV_TEST_CUDA=1 (``make test-cuda``).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import sumosurv
from sumosurv import CauseSpecific, CoxPH, SumoNet, Surv, SurvivalMixture, WeibullNet, datasets, estimators, load
from sumosurv.estimators.network import NetworkEstimator
from sumosurv.model_files import model_digest
from sumosurv.training import Checkpoints

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU, or SUMOSURV_TEST_CUDA is not set"),
]

N = 400
SMALL = {"n_members": 2, "max_epochs": 3, "random_state": 0}
NETWORKS = [name for name, method in estimators.METHODS.items() if issubclass(method, NetworkEstimator)]
ANY_OUTCOME = [name for name in NETWORKS if "causes" in estimators.METHODS[name]._supported_outcomes]
TIMES = [0.1, 0.5, 1.0]


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    first, second = np.exp(0.5 * X[:, 0]) * rng.weibull(1.5, N), 2 * np.exp(-0.5 * X[:, 1]) * rng.weibull(1.0, N)
    end = rng.uniform(0.2, 3.0, N)
    time = np.minimum(np.minimum(first, second), end)
    cause = np.where(time == end, 0, np.where(time == first, 1, 2))
    return X, cause, time, np.where(rng.random(N) < 0.5, 0.5 * rng.random(N) * time, 0.0)


X, CAUSE, TIME, ENTRY = rows()
LOW = np.floor(5 * TIME) / 5
OUTCOMES = {
    "plain": Surv.from_arrays(CAUSE > 0, TIME),
    "entry": Surv.from_arrays(CAUSE > 0, TIME, ENTRY),
    "causes": Surv.from_arrays(CAUSE, TIME, ENTRY),
    "intervals": Surv.interval(LOW, np.where(CAUSE > 0, LOW + 0.2, np.inf), CAUSE),
}


def fit(name, kind="plain", **options):
    return getattr(sumosurv, name)(**SMALL | {"device": "cuda"} | options).fit(X, OUTCOMES[kind])


@pytest.mark.parametrize("name", NETWORKS)
def test_the_likelihood_is_that_of_the_cpu(name):
    on_gpu, on_cpu = fit(name), fit(name, device="cpu")
    assert on_gpu._device.type == "cuda"
    y = OUTCOMES["plain"]
    np.testing.assert_allclose(on_gpu.score(X, y), on_cpu.score(X, y), rtol=0, atol=2e-4)
    np.testing.assert_allclose(on_gpu.predict_mean(X), on_cpu.predict_mean(X), rtol=0.02)


@pytest.mark.parametrize("kind", ["entry", "causes", "intervals"])
@pytest.mark.parametrize("name", ANY_OUTCOME)
def test_so_it_is_for_every_outcome(name, kind):
    scores = [fit(name, kind, device=device).score(X, OUTCOMES[kind]) for device in ("cpu", "cuda")]
    np.testing.assert_allclose(*scores, rtol=0, atol=2e-4)


@pytest.mark.parametrize("kind", list(OUTCOMES))
def test_the_default_of_several_kinds(kind):
    scores = [
        SumoNet(max_epochs=3, random_state=0, device=device).fit(X, OUTCOMES[kind]).score(X, OUTCOMES[kind])
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_seed_makes_fits_and_predictions_repeatable(name):
    one, two = fit(name), fit(name)
    assert model_digest(one) == model_digest(two)
    for ask in ("predict", "predict_median", "predict_mean"):
        np.testing.assert_array_equal(getattr(one, ask)(X), getattr(two, ask)(X))
        np.testing.assert_array_equal(getattr(one, ask)(X), getattr(one, ask)(X))


@pytest.mark.parametrize("kind", ["plain", "causes"])
@pytest.mark.parametrize("name", ANY_OUTCOME)
def test_files(name, kind, tmp_path):
    model = fit(name, kind)
    model.save(tmp_path / "m.sumo")
    again = load(tmp_path / "m.sumo")
    assert again._device.type == "cuda"
    for ask in ("predict", "predict_mean"):
        np.testing.assert_array_equal(getattr(again, ask)(X), getattr(model, ask)(X))


def test_networks_and_methods_without_them_in_one_mixture(tmp_path):
    y = OUTCOMES["plain"]
    parts = [CoxPH(), WeibullNet(**SMALL, device="cuda"), SumoNet(max_epochs=2, random_state=0, device="cuda")]
    model = SurvivalMixture(parts).fit(X, y)
    each = [part.predict_survival_function(X, TIMES) for part in model.estimators_]
    np.testing.assert_allclose(model.predict_survival_function(X, TIMES), np.mean(each, axis=0), rtol=1e-12)
    assert ((model.predict_restricted_mean(X, 1.0) > 0.1) & (model.predict_restricted_mean(X, 1.0) < 1)).all()
    fitted = [CoxPH().fit(X, y), fit("WeibullNet")]
    both = SurvivalMixture.of(fitted)
    assert fitted[1]._device.type == "cuda"  # it stays where it was
    np.testing.assert_allclose(both.predict_median(X), both._on_cpu().predict_median(X), rtol=1e-12)
    model.save(tmp_path / "m.sumo")
    again = load(tmp_path / "m.sumo")
    np.testing.assert_allclose(again.predict_survival_function(X, TIMES), np.mean(each, axis=0), rtol=1e-12)


def test_causes_one_by_one():
    model = CauseSpecific(WeibullNet(**SMALL, device="cuda")).fit(X, OUTCOMES["causes"])
    found = model.predict_cumulative_incidence(X, TIMES)
    np.testing.assert_allclose(found, model._on_cpu().predict_cumulative_incidence(X, TIMES), atol=1e-6)


class EndedError(Exception):
    pass


def end(epoch):
    if epoch.number == 3:
        raise EndedError


own_encoder = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Tanh())


@pytest.mark.parametrize("encoder", [None, own_encoder], ids=["plain", "encoder"])
def test_a_training_that_goes_on_ends_where_it_would_have_ended(tmp_path, encoder):
    settings, y = SMALL | {"max_epochs": 6, "encoder": encoder, "device": "cuda"}, OUTCOMES["plain"]
    state = torch.cuda.get_rng_state()
    whole = SumoNet(**settings).fit(X, y)
    with pytest.raises(EndedError):
        SumoNet(**settings, verbose=end).fit(X, y, checkpoint=Checkpoints(tmp_path, seconds=0))
    rest = SumoNet(**settings).fit(X, y, checkpoint=Checkpoints(tmp_path, seconds=0))
    assert model_digest(rest) == model_digest(whole)
    assert torch.equal(torch.cuda.get_rng_state(), state)  # a fit leaves the user's random numbers alone


def test_rows_on_disk(tmp_path):
    data = datasets.simulate("weibull", 3000, random_state=0)
    path = tmp_path / "rows.parquet"
    data.X.assign(time=data.y["time"], event=data.y["event"]).to_parquet(path, row_group_size=500)
    y = {"time": "time", "event": "event"}
    scores = [SumoNet(**SMALL, device=device).fit(path, y).score(data.X, data.y) for device in ("cpu", "cuda")]
    np.testing.assert_allclose(*scores, rtol=0, atol=2e-4)
