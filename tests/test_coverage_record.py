"""The record of the coverage of intervals (tools/coverage.py) is complete, and its intervals cover."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from sumosurv.scores import SCORES

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("coverage_tool", ROOT / "tools" / "coverage.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_study_is_recorded_and_covers(tool):
    record = json.loads((ROOT / "results" / "coverage.json").read_text())["studies"]
    assert set(record) == set(tool.STUDIES)
    for study in record.values():
        for name, found in study["intervals"].items():
            noise = 4.0 * np.sqrt(study["expected"] * (1.0 - study["expected"]) / study["samples"])
            assert found["coverage"] > study["expected"] - 0.02 - noise, name


def test_every_interval_of_a_sample_is_recorded(tool):
    record = json.loads((ROOT / "results" / "coverage.json").read_text())["studies"]
    for name in ("curves", "incidences", "restricted_means", "cox", "parametric", "fine_gray", "clusters", "audits"):
        assert {row.name for row in tool.one_sample((name, 0))} == set(record[name]["intervals"]), name
    scored = set(record["evaluation"]["intervals"])
    for score in SCORES:
        assert {f"`{score}`", f"`{score}`, difference of two models"} <= scored


def test_intervals_are_counted(tool):
    samples = [
        [tool.Interval("a", 1.0, low, low + 1.0, 1.0), tool.Interval("b", low, low, 2.0, None)] for low in (0.5, 1.5)
    ]
    found = tool.count(
        [*samples, [tool.Interval("a", 1.0, np.nan, np.nan, 1.0), tool.Interval("b", 1.0, 0.0, 0.9, None)]]
    )
    assert found["a"] == {"intervals": 2, "above": 1, "below": 0, "undefined": 1, "coverage": 0.5}
    assert found["b"] == {"intervals": 3, "above": 1, "below": 1, "undefined": 0, "coverage": pytest.approx(1 / 3)}


@pytest.mark.parametrize("name", ["curves", "incidences", "restricted_means", "cox", "parametric", "fine_gray"])
def test_samples_are_repeatable(tool, name):
    first, second = tool.one_sample((name, 3)), tool.one_sample((name, 3))
    assert first == second
    assert all(row.lower <= row.estimate <= row.upper for row in first)


def test_expected_coverage_of_quantiles(tool):
    draws = np.random.default_rng(0).normal(size=(20_000, 41))
    lower, upper = np.quantile(draws[:, :40], [0.025, 0.975], axis=1)
    inside = np.mean((lower <= draws[:, 40]) & (draws[:, 40] <= upper))
    assert tool.expected_coverage(40) == pytest.approx(inside, abs=0.01)
