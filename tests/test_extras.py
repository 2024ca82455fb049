"""What needs an optional package says which extra installs it; everything else works without the package."""

from __future__ import annotations

import sys

import pytest

from sumosurv import CoxPH, RandomSurvivalForest, Soden, SumoNetSearch, WeibullNet, datasets, export, serve

DATA = datasets.simulate("weibull", 60, random_state=0)
FRAME = DATA.X.assign(time=DATA.y["time"], event=DATA.y["event"])


@pytest.fixture(scope="module")
def model():
    return WeibullNet(n_members=1, max_epochs=1, random_state=0).fit(DATA.X, DATA.y)


NEEDS = {
    "formula": ("formulaic.parser", lambda model, path: CoxPH.from_formula("Surv(time, event) ~ x", FRAME)),
    "export": ("onnx", lambda model, path: export.export_onnx(model, path)),
    "forest": ("sksurv.ensemble", lambda model, path: RandomSurvivalForest().fit(DATA.X, DATA.y)),
    "ode": ("torchdiffeq", lambda model, path: Soden(solver="dopri5", max_epochs=1).fit(DATA.X, DATA.y)),
    "serve": ("uvicorn", lambda model, path: serve.serve(model)),
    "search": ("optuna", lambda model, path: SumoNetSearch(method="tpe").fit(DATA.X, DATA.y)),
}


@pytest.mark.parametrize("extra", NEEDS)
def test_a_missing_package_names_its_extra(extra, model, monkeypatch, tmp_path):
    package, use = NEEDS[extra]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"sumosurv\[{extra}\]"):
        use(model, tmp_path / "model.onnx")
