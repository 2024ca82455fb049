"""Every estimator and search gives what it gave before, up to rounding."""

import json

import numpy as np
import pytest

import golden
from sumosurv.estimators import METHODS

STORED = json.loads(golden.FILE.read_text())


def check(found, stored):
    numbers = {key: value for key, value in found.items() if not isinstance(value, str)}
    assert numbers.keys() == stored.keys()
    for key, value in numbers.items():
        np.testing.assert_allclose(value, stored[key], rtol=1e-4, atol=1e-5, err_msg=key)


NAMES = [(group, name) for group, (names, _) in golden.GROUPS.items() for name in names]


@pytest.mark.filterwarnings("ignore:Columns left out")  # one is constant where it is not missing
@pytest.mark.filterwarnings("ignore:Newton's method has not converged")
@pytest.mark.parametrize(("group", "name"), NAMES)
def test_values_are_unchanged(group, name):
    needed = {"export": "onnxruntime", "RandomSurvivalForest": "sksurv", "CoxPH formula": "formulaic"}
    for module in {needed.get(group), needed.get(name)} - {None}:
        pytest.importorskip(module)
    check(golden.GROUPS[group][1](name), STORED[f"{group} {name}"])


def test_every_stored_value_is_looked_at():
    assert {f"{group} {name}" for group, name in NAMES} == set(STORED)


def test_every_method_has_a_value():
    cases = {method for method, _ in golden.CASES.values()} | {name.split()[0] for name in golden.OTHERS}
    assert set(METHODS) <= cases
