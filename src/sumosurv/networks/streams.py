"""Random numbers that depend on (member, step, place) alone.

A population draws its dropout masks and its shuffles from a counter-based hash and not from a running
generator. Member i then sees the same numbers whether it trains alone or beside a thousand others, on
the CPU or on a GPU, and nothing has to be synchronised between steps.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["keep_mask", "random_bits", "stream_key"]


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32-bit integers under which close inputs have unrelated outputs."""
    y = (x >> 16).bitwise_and_(0xFFFF).bitwise_xor_(x).mul_(0x21F0AAAD)
    y.bitwise_xor_((y >> 15).bitwise_and_(0x1FFFF)).mul_(0x735A2D97)
    return y.bitwise_xor_((y >> 15).bitwise_and_(0x1FFFF))


def _mix_few(x: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The same as `_mix`, at a tenth of its price for a handful of numbers in host memory."""
    y = (x ^ (x >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    y = (y ^ (y >> np.uint32(15))) * np.uint32(0x735A2D97)
    return y ^ (y >> np.uint32(15))


def stream_key(seeds: Tensor, *counters: Tensor | int) -> Tensor:
    """One 32-bit key per member from its seed and any number of counters (step, layer, purpose)."""
    if _in_host_memory(seeds):
        few = _mix_few(seeds.to(torch.int32).numpy().view(np.uint32))
        for counter in counters:
            few = _mix_few(few * np.uint32(31) + np.uint32((int(counter) + 0x3C6EF372) & 0xFFFFFFFF))
        return torch.from_numpy(few.view(np.int32))
    key = _mix(seeds.to(torch.int32))
    for counter in counters:
        key = _mix(key * 31 + counter + 0x3C6EF372)
    return key


def random_bits(keys: Tensor, count: int, first: int = 0) -> Tensor:
    """(K, count) integers, uniform over all 32-bit values; row k depends on ``keys[k]`` alone.

    They are those at the places from ``first`` on: parts of a stream that are drawn apart make the whole.
    """
    # a captured step must not hold on to what was made outside of it
    places = _places(count, first) if _in_host_memory(keys) else _hashed_places(count, first, keys.device)
    return _mix(places + keys[:, None])


def _in_host_memory(tensor: Tensor) -> bool:
    """Whether NumPy can read it: tensors of a traced program have no values, and nothing made of them may be kept."""
    return type(tensor) is Tensor and tensor.device.type == "cpu"


def _hashed_places(count: int, first: int, device: torch.device) -> Tensor:
    return _mix(torch.arange(first, first + count, dtype=torch.int32, device=device) + 0x517CC1B7)


@lru_cache(maxsize=8)
def _places(count: int, first: int) -> Tensor:
    """The part of the hash that is the same in every step."""
    return _hashed_places(count, first, torch.device("cpu"))


def keep_mask(
    keys: Tensor, drop: Tensor, shape: tuple[int, ...], first: int = 0, dtype: torch.dtype = torch.bool
) -> Tensor:
    """(K, *shape) times one, or zero with probability ``drop[k]`` in row k, from a place of the stream on."""
    threshold = (drop.double() * 2.0**32 - 2.0**31).clamp_max(2.0**31 - 1).to(torch.int32)
    bits = random_bits(keys, math.prod(shape), first)
    kept = torch.empty(bits.shape, dtype=dtype, device=bits.device)
    return torch.ge(bits, threshold[:, None], out=kept).reshape(len(keys), *shape)
