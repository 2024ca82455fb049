"""Numbers that look random and belong to a row or to a subject: splits and samples without a list of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Hashes = npt.NDArray[np.uint64]


def hashed(values: Any, seed: int) -> Hashes:
    """64 bits of each value (a row number, the name of a subject), the same wherever it occurs."""
    plain = np.asarray(values)
    if plain.dtype.kind in "iu":
        bits = plain.astype(np.uint64)
    else:
        bits = pd.util.hash_array(plain.astype(object) if plain.dtype.kind in "OUT" else plain)
    return _mixed(bits + np.uint64((2 * seed + 1) * 0x9E3779B97F4A7C15 % 2**64))


def uniform(hashes: Hashes) -> npt.NDArray[np.float64]:
    """As numbers in [0, 1)."""
    return np.asarray((hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _mixed(bits: Hashes) -> Hashes:
    """The finaliser of splitmix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))
