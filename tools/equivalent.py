"""Mutants that no test can see, since the program does the same with and without them; each with the reason."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["EQUIVALENT", "Equivalent"]


class Equivalent(NamedTuple):
    """One of them: a file of src/sumosurv, its line without spaces at the ends, what is changed there, and why not."""

    path: str
    line: str
    old: str
    new: str
    reason: str


EQUIVALENT: tuple[Equivalent, ...] = ()
