"""Every estimator and search gives what it gave before: bit for bit on the machine that stored the values."""

import json

import numpy as np
import pytest

import golden

STORED = json.loads(golden.FILE.read_text())
SAME_MACHINE = golden.machine() == STORED["machine"]


def check(found, stored):
    assert found.keys() == stored.keys()
    for key, value in found.items():
        if not isinstance(value, str):
            np.testing.assert_allclose(value, stored[key], rtol=1e-4, atol=1e-5, err_msg=key)
        elif SAME_MACHINE:
            assert value == stored[key], f"{key} differ in their bits"


@pytest.mark.filterwarnings("ignore:Columns left out")  # one is constant where it is not missing
@pytest.mark.parametrize("name", golden.CASES)
def test_estimators(name):
    check(golden.compute(name), STORED["values"][f"estimator {name}"])


@pytest.mark.parametrize("name", golden.SEARCHES)
def test_searches(name):
    check(golden.compute_search(name), STORED["values"][f"search {name}"])


def test_every_stored_value_is_looked_at():
    names = {f"estimator {name}" for name in golden.CASES} | {f"search {name}" for name in golden.SEARCHES}
    assert names == set(STORED["values"])
