"""Values and tensors out of a model file, each checked before it is used: a file may be damaged, or made to do harm."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

__all__ = [
    "as_flag",
    "as_list",
    "as_number",
    "as_text",
    "as_whole",
    "check_values",
    "checksum",
    "parse_json",
    "tensor_of",
]

_LARGEST = 2**64  # of a whole number in JSON


def parse_json(text: str | bytes) -> Any:
    """JSON by its letter: a ValueError for NaN, infinity, huge numbers, keys given twice, and nesting without end."""
    try:
        return json.loads(
            text,
            parse_int=_parse_int,
            parse_float=_parse_float,
            parse_constant=_refuse,
            object_pairs_hook=_object,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def checksum(text: str, tensors: Mapping[str, Tensor]) -> bytes:
    """The SHA-256 digest of what a file says and of its tensors, by which damage is noticed."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
        if value.numel():  # a Cox model without events has an empty baseline
            digest.update(value.contiguous().flatten().view(torch.uint8).numpy().data)  # no copy
    return digest.digest()


def as_number(value: Any, what: str, *, low: float = -math.inf, above: float = -math.inf) -> float:
    """A finite number, at least ``low`` and larger than ``above``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} is no number")
    number = float(value)
    if not math.isfinite(number) or number < low or not number > above:
        raise ValueError(f"{what} is {number}")
    return number


def as_whole(value: Any, what: str, *, low: int = 0) -> int:
    """A whole number of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**63:
        raise ValueError(f"{what} is no whole number of at least {low}")
    return value


def as_flag(value: Any, what: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} is neither true nor false")
    return value


def as_text(value: Any, what: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is no text")
    return value


def as_list(value: Any, what: str) -> list[Any]:
    """A list; it may have come as a tuple."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{what} is no list")
    return list(value)


def tensor_of(
    tensors: Mapping[str, Tensor],
    name: str,
    length: int | None = None,
    *,
    dtype: torch.dtype = torch.float64,
    low: float = -math.inf,
    high: float = math.inf,
    increasing: bool = False,
    never_falling: bool = False,
    may_be_nan: bool = False,
) -> Tensor:
    """A vector of a model file: of this dtype and length, finite, in [low, high], in order.

    Parameters
    ----------
    tensors : mapping
    name : str
    length : int, optional
        Any, if None.
    dtype : torch.dtype
    low, high : float
        Least and largest value allowed.
    increasing, never_falling : bool
        Each entry is larger than the one before, or not smaller.
    may_be_nan : bool
        Entries may be NaN or infinite: results that are shown and not used.
    """
    value = tensors[name]
    if value.dtype != dtype or value.ndim != 1 or length not in (None, len(value)):
        wanted = f"{dtype} of shape ({'any' if length is None else length},)"
        raise ValueError(f"{name} is {value.dtype} of shape {tuple(value.shape)} and not {wanted}")
    check_values(value, name, low=low, high=high, may_be_nan=may_be_nan)
    steps = torch.diff(value)
    if (increasing and not bool((steps > 0).all())) or (never_falling and not bool((steps >= 0).all())):
        raise ValueError(f"{name} is not in order")
    return value


def check_values(
    value: Tensor, name: str, *, low: float = -math.inf, high: float = math.inf, may_be_nan: bool = False
) -> None:
    """Raise a ValueError if an entry is not finite or outside [low, high]."""
    if value.is_floating_point() and not may_be_nan and not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} has entries that are not finite")
    if value.numel() and (bool((value < low).any()) or bool((value > high).any())):
        raise ValueError(f"{name} has entries outside [{low:g}, {high:g}]")


def _parse_int(text: str) -> int:
    if len(text) > 21 or abs(number := int(text)) >= _LARGEST:
        raise ValueError(f"it has a number of {len(text)} digits")
    return number


def _parse_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text[:20])


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"it has the number {text}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("it has a key twice")
    return made
