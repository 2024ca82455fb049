"""Random numbers that depend on (member, step, place) alone.

A population draws its dropout masks and its shuffles from a counter-based hash and not from a running
generator. Member i then sees the same numbers whether it trains alone or beside a thousand others, on
the CPU or on a GPU, and nothing has to be synchronised between steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["keep_mask", "random_bits", "stream_key"]


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32-bit integers under which close inputs have unrelated outputs."""
    y = (x >> 16).bitwise_and_(0xFFFF).bitwise_xor_(x).mul_(0x21F0AAAD)
    y.bitwise_xor_((y >> 15).bitwise_and_(0x1FFFF)).mul_(0x735A2D97)
    return y.bitwise_xor_((y >> 15).bitwise_and_(0x1FFFF))


def stream_key(seeds: Tensor, *counters: Tensor | int) -> Tensor:
    """One 32-bit key per member from its seed and any number of counters (step, layer, purpose)."""
    key = _mix(seeds.to(torch.int32))
    for counter in counters:
        key = _mix(key * 31 + counter + 0x3C6EF372)
    return key


def random_bits(keys: Tensor, count: int, first: int = 0) -> Tensor:
    """(K, count) integers, uniform over all 32-bit values; row k depends on ``keys[k]`` alone.

    They are those at the places from ``first`` on: parts of a stream that are drawn apart make the whole.
    """
    places = torch.arange(first, first + count, dtype=torch.int32, device=keys.device)
    return _mix(_mix(places + 0x517CC1B7) + keys[:, None])


def keep_mask(keys: Tensor, drop: Tensor, shape: tuple[int, ...], first: int = 0) -> Tensor:
    """(K, *shape) booleans, False with probability ``drop[k]`` in row k, from a place of the stream on."""
    count = 1
    for size in shape:
        count *= size
    threshold = (drop.double() * 2.0**32 - 2.0**31).clamp_max(2.0**31 - 1).to(torch.int32)
    return (random_bits(keys, count, first) >= threshold[:, None]).reshape(len(keys), *shape)
