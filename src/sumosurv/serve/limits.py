"""How much a request may ask for."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and how long it may take.

    Attributes
    ----------
    body : int
        Bytes of a request.
    rows : int
        Subjects of a request.
    times : int
        Times of a request.
    values : int
        Rows × times of a request.
    band_rows : int
        Subjects of a request for bands, which take a curve of every network.
    seconds : float
        From the first byte of a request to its answer; of reading the body and of waiting and predicting, each.
    waiting : int
        Requests that wait for the model; more are refused (503).
    """

    body: int = 1_000_000
    rows: int = 1_000
    times: int = 1_000
    values: int = 200_000
    band_rows: int = 50
    seconds: float = 10.0
    waiting: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"The limit {field.name} is positive; got {getattr(self, field.name)!r}.")
