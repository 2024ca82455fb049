"""Every statistic that R recorded is computed by the library, to six digits or more."""

from __future__ import annotations

from pathlib import Path

import pytest
from against_r import STATISTICS, largest_difference, records

RECORDS = records()


def test_every_entry_is_compared() -> None:
    assert set(STATISTICS) == set(RECORDS)


@pytest.mark.parametrize("name", sorted(set(RECORDS) - {"heart"}))
def test_agrees_with_r(name: str) -> None:
    assert largest_difference(STATISTICS[name](), RECORDS[name]["values"]) < 1e-6


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["heart"])
def test_agrees_with_r_on_real_data(name: str, real_data: Path) -> None:
    assert largest_difference(STATISTICS[name](), RECORDS[name]["values"]) < 1e-6
