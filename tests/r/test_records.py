"""Every statistic that R recorded is computed by the library, to six digits or more."""

from __future__ import annotations

import pytest
from against_r import STATISTICS, largest_difference, records

RECORDS = records()


def test_every_entry_is_compared() -> None:
    assert set(STATISTICS) == set(RECORDS)


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_agrees_with_r(name: str) -> None:
    assert largest_difference(STATISTICS[name](), RECORDS[name]["values"]) < 1e-6
