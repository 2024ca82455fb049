"""Layers with a leading member axis, and random numbers that depend on (member, step, place) alone.

A population draws its dropout masks and its shuffles from a counter-based hash and not from a running generator.
Member i then sees the same numbers whether it trains alone or beside a thousand others, on the CPU or on a GPU, and
nothing has to be synchronised between steps.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "ACTIVATIONS",
    "POSITIVE",
    "Activation",
    "MemberDropout",
    "MemberLinear",
    "MemberStream",
    "Positive",
    "at_most",
    "keep_mask",
    "normal_parameter",
    "positive_parameter",
    "positive_weight",
    "random_bits",
    "select_members",
    "stream_key",
]


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


_Module = TypeVar("_Module", bound=nn.Module)

Activation = Literal["silu", "relu", "tanh", "gelu"]
Positive = Literal["square", "softplus", "abs"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": functional.gelu,
}

POSITIVE: dict[str, Callable[[Tensor], Tensor]] = {
    "square": torch.square,
    "softplus": functional.softplus,
    "abs": torch.abs,
}


_room: ContextVar[list[int] | None] = ContextVar("room", default=None)


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """Within it a network of more parameters is a ValueError, raised before they are made."""
    token = _room.set([count])
    try:
        yield
    finally:
        _room.reset(token)


def _claim(members: int, *shape: int) -> None:
    room = _room.get()
    if room is not None:
        room[0] -= members * math.prod(shape)
        if room[0] < 0:
            raise ValueError("the settings ask for more weights than there are")


def positive_weight(raw: Tensor, positive: Positive) -> Tensor:
    """Non-negative weights from unrestricted ones: w², softplus(w) or |w|."""
    return POSITIVE[positive](raw)


def normal_parameter(generators: Sequence[torch.Generator], shape: tuple[int, ...], std: float) -> nn.Parameter:
    """(K, *shape) normal numbers, member k's from its own generator."""
    _claim(len(generators), *shape)
    return nn.Parameter(torch.stack([torch.randn(shape, generator=g) * std for g in generators]))


def positive_parameter(
    generators: Sequence[torch.Generator], shape: tuple[int, int], positive: Positive, total: float
) -> nn.Parameter:
    """Raw weights (K, in, out) whose non-negative images sum to about ``total`` over the inputs."""
    mean = total / shape[0]
    if positive == "softplus":
        _claim(len(generators), *shape)
        centre = math.log(math.expm1(mean))
        return nn.Parameter(torch.stack([centre + 0.5 * torch.randn(shape, generator=g) for g in generators]))
    std = math.sqrt(mean) if positive == "square" else mean * math.sqrt(math.pi / 2)
    return normal_parameter(generators, shape, std)


def select_members(module: _Module, members: slice | Sequence[int]) -> _Module:
    """A copy of a population's module with some of its members; a slice shares their weights.

    Every parameter and buffer of a population has a leading axis of K (one entry per member) or of 1
    (shared), or is a number.
    """
    count = next(module.parameters()).shape[0]
    own: dict[int, Tensor] = {}
    for p in module.parameters():
        own[id(p)] = nn.Parameter(p.data[members], requires_grad=False)
    for b in module.buffers():
        own[id(b)] = b[members] if b.ndim and b.shape[0] == count else b
    return copy.deepcopy(module, own)


class MemberLinear(nn.Module):
    """y = x W + b for each member: x (K, n, in) or (1, n, in), W (K, in, out), y (K, n, out).

    The last ``n_last`` outputs are apart from a layer's units: they stay last when narrow layers are stacked into
    a wide one.
    """

    def __init__(self, generators: Sequence[torch.Generator], n_in: int, n_out: int, n_last: int = 0) -> None:
        super().__init__()
        self.n_last = n_last
        bound = 1.0 / math.sqrt(max(n_in, 1))
        self.weight = normal_parameter(generators, (n_in, n_out), bound)
        _claim(len(generators), n_out)
        self.bias = nn.Parameter(torch.zeros(len(generators), 1, n_out))

    def forward(self, x: Tensor) -> Tensor:
        """Apply to x of shape (K or 1, n, in)."""
        return torch.baddbmm(self.bias, x.expand(self.weight.shape[0], -1, -1), self.weight)


class MemberStream(nn.Module):
    """Random numbers of each member that depend on its seed, the training step and a place alone.

    The training step counts ``step`` up, in place, so that a captured step draws anew at every replay. Where several
    processes share a batch, ``first_row`` is the place in the batch at which the rows of this one begin.
    """

    seeds: Tensor
    step: Tensor
    first_row: int = 0

    def __init__(self, seeds: Tensor, place: int) -> None:
        super().__init__()
        self.place = place
        self.register_buffer("seeds", seeds.to(torch.int32), persistent=False)
        self.register_buffer("step", torch.zeros((), dtype=torch.int32), persistent=False)

    def keys(self) -> Tensor:
        """The key of each member's stream at this step, (K,)."""
        return stream_key(self.seeds, self.step, self.place)


class MemberDropout(MemberStream):
    """Dropout with a rate per member and masks from counter-based random numbers."""

    rates: Tensor

    def __init__(self, seeds: Tensor, rates: Tensor, place: int) -> None:
        super().__init__(seeds, place)
        self.register_buffer("rates", rates.float(), persistent=False)
        self.note_rates()

    def note_rates(self) -> None:
        """See whether there is anything to drop; to be called when the rates have changed."""
        self.idle = not bool((self.rates > 0).any())

    def mask(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        """What values (K, *shape) are multiplied by while training: 0 at random, else 1 / (1 - rate); None for 1."""
        if not self.training or self.idle:
            return None
        keep = keep_mask(self.keys(), self.rates, shape, self.first_row * math.prod(shape[1:]), dtype)
        return keep.div_((1.0 - self.rates).to(dtype).reshape(-1, *[1] * len(shape)))

    def forward(self, x: Tensor) -> Tensor:
        """Zero entries of x (K, n, w) at random while training; the rest grows by 1 / (1 - rate)."""
        mask = self.mask(tuple(x.shape[1:]), x.dtype)
        return x if mask is None else x * mask
