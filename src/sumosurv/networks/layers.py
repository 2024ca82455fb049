"""Layers with a leading member axis, features of time, and random numbers.

A population draws its dropout masks and its shuffles from a counter-based hash of (member, step, place) and not from a
running generator. Member i then sees the same numbers whether it trains alone or beside a thousand others, on the CPU
or on a GPU, and nothing has to be synchronised between steps.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional


class Workspace:
    """Named tensors in memory that is used again: new pages cost more than the arithmetic on them."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._held: dict[str, Tensor] = {}

    def __call__(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return an uninitialised tensor, in the memory of the last one of this name."""
        size = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < size:
            held = self._held[name] = self._like.new_empty(size, dtype=dtype)
        return held[:size].view(shape)


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32-bit integers under which close inputs have unrelated outputs."""
    y = (x >> 16).bitwise_and_(0xFFFF).bitwise_xor_(x).mul_(0x21F0AAAD)
    y.bitwise_xor_((y >> 15).bitwise_and_(0x1FFFF)).mul_(0x735A2D97)
    return y.bitwise_xor_((y >> 15).bitwise_and_(0x1FFFF))


_HALF, _SHIFT = np.uint32(16), np.uint32(15)
_FIRST, _SECOND, _FACTOR = np.uint32(0x21F0AAAD), np.uint32(0x735A2D97), np.uint32(31)


def _mix_on_host(x: npt.NDArray[np.uint32], y: npt.NDArray[np.uint32] | None = None) -> npt.NDArray[np.uint32]:
    """`_mix` in NumPy, which has unsigned integers and takes a third of the time; overwrites x and y."""
    y = np.right_shift(x, _HALF, out=y)
    y ^= x
    y *= _FIRST
    y ^= np.right_shift(y, _SHIFT, out=x)
    y *= _SECOND
    y ^= np.right_shift(y, _SHIFT, out=x)
    return y


def _unsigned(tensor: Tensor) -> npt.NDArray[np.uint32]:
    return tensor.numpy().view(np.uint32)


def stream_key(seeds: Tensor, *counters: Tensor | int) -> Tensor:
    """One 32-bit key per member from its seed and any number of counters (step, layer, purpose)."""
    if _in_host_memory(seeds):
        few = _mix_on_host(_unsigned(seeds.to(torch.int32)).copy())
        for counter in counters:
            few = _mix_on_host(few * _FACTOR + np.uint32((int(counter) + 0x3C6EF372) & 0xFFFFFFFF))
        return torch.from_numpy(few.view(np.int32))
    key = _mix(seeds.to(torch.int32))
    for counter in counters:
        key = _mix(key * 31 + counter + 0x3C6EF372)
    return key


def random_bits(keys: Tensor, count: int, first: int = 0, memory: Workspace | None = None) -> Tensor:
    """(K, count) integers, uniform over all 32-bit values; row k depends on ``keys[k]`` alone.

    The stream is read from position ``first`` on, so consecutive parts of it can be drawn separately. On a CPU, the
    result can be kept in ``memory``.
    """
    if _in_host_memory(keys):
        memory = memory or Workspace(keys)
        x, y = (_unsigned(memory(name, len(keys), count, dtype=torch.int32)) for name in ("places", "bits"))
        np.add(_places(count, first), _unsigned(keys)[:, None], out=x)
        return torch.from_numpy(_mix_on_host(x, y).view(np.int32))
    # not cached: a CUDA graph must not use tensors that were made outside its capture
    return _mix(_hashed_places(count, first, keys.device) + keys[:, None])


def _in_host_memory(tensor: Tensor) -> bool:
    """Whether NumPy can read the tensor; the tensors of a traced program have no values and must not be cached."""
    return type(tensor) is Tensor and tensor.device.type == "cpu"


def _hashed_places(count: int, first: int, device: torch.device) -> Tensor:
    return _mix(torch.arange(first, first + count, dtype=torch.int32, device=device) + 0x517CC1B7)


@lru_cache(maxsize=8)
def _places(count: int, first: int) -> npt.NDArray[np.uint32]:
    """The hash of the positions, which is the same in every step."""
    return _unsigned(_hashed_places(count, first, torch.device("cpu")))


def drop_threshold(drop: Tensor) -> Tensor:
    """Return the ``drop`` quantile of uniform 32-bit integers."""
    return (drop.double() * 2.0**32 - 2.0**31).clamp_max(2.0**31 - 1).to(torch.int32)


def keep_mask(
    keys: Tensor, threshold: Tensor, shape: tuple[int, ...], first: int = 0, dtype: torch.dtype = torch.bool
) -> Tensor:
    """Return a mask (K, *shape): in row k, 0 for random integers below ``threshold[k]``, else 1."""
    bits = random_bits(keys, math.prod(shape), first)
    kept = torch.empty(bits.shape, dtype=dtype, device=bits.device)
    return torch.ge(bits, threshold[:, None], out=kept).reshape(len(keys), *shape)


_Module = TypeVar("_Module", bound=nn.Module)

Activation = Literal["silu", "relu", "tanh", "gelu"]
Positive = Literal["square", "softplus", "abs"]


def _tanh(z: Tensor) -> Tensor:
    """tanh z; without gradients, as 2σ(2z) - 1, which takes a quarter of the time on a CPU."""
    if z.is_cuda or (torch.is_grad_enabled() and z.requires_grad):
        return torch.tanh(z)
    return torch.sigmoid(2.0 * z).mul_(2.0).sub_(1.0)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "relu": torch.relu,
    "tanh": _tanh,
    "gelu": functional.gelu,
}

POSITIVE: dict[str, Callable[[Tensor], Tensor]] = {
    "square": torch.square,
    "softplus": functional.softplus,
    "abs": torch.abs,
}


TimeFeatureKind = Literal["linear", "log", "marginal"]

LOG_OFFSET = 1e-3  # in log(t + 0.001), with t in scaled time (the last training time is 1)


def positive_weight(raw: Tensor, positive: Positive) -> Tensor:
    """Non-negative weights from unrestricted ones: w², softplus(w) or |w|."""
    return POSITIVE[positive](raw)


def normal_parameter(
    generators: Sequence[torch.Generator], shape: tuple[int, ...], std: float, mean: float = 0.0
) -> nn.Parameter:
    """Return (K, *shape) normal numbers, member k's from its own generator."""
    drawn = [mean + std * torch.randn(shape, generator=g) for g in generators]
    # a population without members has the shapes of the weights, and takes no memory
    return nn.Parameter(torch.stack(drawn) if drawn else torch.empty(0, *shape))


def positive_parameter(
    generators: Sequence[torch.Generator], shape: tuple[int, int], positive: Positive, total: float
) -> nn.Parameter:
    """Return raw weights (K, in, out) whose non-negative images sum to about ``total`` over the inputs."""
    mean = total / shape[0]
    if positive == "softplus":
        return normal_parameter(generators, shape, 0.5, math.log(math.expm1(mean)))
    return normal_parameter(
        generators, shape, math.sqrt(mean) if positive == "square" else mean * math.sqrt(math.pi / 2)
    )


def select_members(module: _Module, members: slice | Sequence[int]) -> _Module:
    """Return a copy of a population's module with some of its members; with a slice, the copy shares their weights.

    Every parameter and buffer of a population has a leading axis of K (one entry per member) or of 1
    (shared), or is a scalar.
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

    Initial weights are multiplied by ``scale``. The last ``n_last`` outputs are not hidden units; they stay last
    when narrow layers are padded and stacked.
    """

    def __init__(
        self, generators: Sequence[torch.Generator], n_in: int, n_out: int, *, scale: float = 1.0, n_last: int = 0
    ) -> None:
        super().__init__()
        self.n_last = n_last
        self.weight = normal_parameter(generators, (n_in, n_out), 1.0 / math.sqrt(max(n_in, 1)))
        self.weight.data.mul_(scale)
        self.bias = nn.Parameter(torch.zeros(len(generators), 1, n_out))

    def forward(self, x: Tensor) -> Tensor:
        """Apply to x of shape (K or 1, n, in)."""
        return torch.baddbmm(self.bias, x.expand(self.weight.shape[0], -1, -1), self.weight)


class MemberStream(nn.Module):
    """Random numbers per member that depend only on its seed, the training step and the stream number ``place``.

    The training loop increments ``step`` in place, so that a CUDA graph draws new numbers at every replay. If several
    processes share a batch, ``first_row`` is the position in the batch of the first row of this process.
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
    threshold: Tensor
    scale: Tensor

    def __init__(self, seeds: Tensor, rates: Tensor, place: int) -> None:
        super().__init__(seeds, place)
        for name in ("rates", "threshold", "scale"):
            self.register_buffer(name, rates.float(), persistent=False)
        self.update_rates()

    def update_rates(self) -> None:
        """Update the values that depend on the rates; must be called after the rates change."""
        self.idle = not bool((self.rates > 0).any())
        self.threshold, self.scale = drop_threshold(self.rates), (1.0 - self.rates).reciprocal()

    def mask(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        """Return factors (K, *shape): 0 with probability ``rate``, else 1 / (1 - rate); None if there is no dropout."""
        if not self.training or self.idle:
            return None
        keep = keep_mask(self.keys(), self.threshold, shape, self.first_row * math.prod(shape[1:]), dtype)
        return keep.mul_(self.scale.to(dtype).reshape(-1, *[1] * len(shape)))

    def fill(self, mask: Tensor, memory: Workspace) -> None:
        """Write the values of `mask` to a tensor in host memory; by NumPy, in half the time."""
        count = mask[0].numel()
        bits = random_bits(self.keys(), count, self.first_row * math.prod(mask.shape[2:]), memory)
        kept = memory("kept", len(mask), count, dtype=torch.bool).numpy()
        np.greater_equal(bits.numpy(), self.threshold.numpy()[:, None], out=kept)
        np.multiply(kept, self.scale.to(mask.dtype).numpy()[:, None], out=mask.numpy().reshape(kept.shape))

    def forward(self, x: Tensor) -> Tensor:
        """In training, set entries of x (K, n, w) to zero at random and multiply the others by 1 / (1 - rate)."""
        mask = self.mask(tuple(x.shape[1:]), x.dtype)
        return x if mask is None else x * mask


class TimeFeatures(nn.Module):
    r"""τ(t): increasing functions of scaled time.

    - "linear": t itself, shifted and scaled;
    - "log": t and log(t + 0.001), which resolves early times;
    - "marginal": these two and half the log-odds of the event in the whole training set, ½ logit F(t). F is the
      Kaplan-Meier estimate at a few quantiles of the event times, interpolated by a monotone cubic in
      log(t + 0.001) and extrapolated linearly. The network starts from the marginal shape and learns how each
      subject departs from it.

    Parameters
    ----------
    kind : {"linear", "log", "marginal"}
    table : Tensor of shape (1 or K, 2 or 3, J)
        For "linear": shift and width. For "marginal": positions, values and slopes at the knots. One table
        for all members, or one per member.
    """

    table: Tensor

    def __init__(self, kind: TimeFeatureKind, table: Tensor | None = None) -> None:
        super().__init__()
        self.kind: TimeFeatureKind = kind
        self.n_features = {"linear": 1, "log": 2, "marginal": 3}[kind]
        self.register_buffer("table", torch.zeros(1, 0, 0) if table is None else table.float())

    def forward(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return τ and τ' at times (K or 1, n or 1, m), with the features on a new last axis."""
        one = torch.ones_like(t)
        if self.kind == "linear":
            shift, width = self.table[:, 0, :, None], self.table[:, 1, :, None]
            return ((t - shift) / width)[..., None], (one / width)[..., None]
        shifted = t + LOG_OFFSET
        features, slopes = [t, torch.log(shifted)], [one, 1.0 / shifted]
        if self.kind == "marginal":
            value, slope = self._marginal(features[1])
            features.append(value)
            slopes.append(slope / shifted)
        shape = features[-1].shape  # one table per member adds the member axis
        return (
            torch.stack([part.expand(shape) for part in features], dim=-1),
            torch.stack([part.expand(shape) for part in slopes], dim=-1),
        )

    def state(self) -> dict[str, Any]:
        """Return the kind and the table as plain values."""
        return {"kind": self.kind, "table": self.table.tolist() if self.table.numel() else None}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TimeFeatures:
        """The inverse of `state`."""
        return cls(state["kind"], None if state["table"] is None else torch.tensor(state["table"]))

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if the stored table is invalid."""
        rows = {"linear": 2, "log": 0, "marginal": 3}[self.kind]
        knots = {"linear": self.table.shape[2] == 1, "log": True, "marginal": self.table.shape[2] >= 2}[self.kind]
        if self.table.shape[1] != rows or not knots:
            raise ValueError(f"the table of the time features has shape {tuple(self.table.shape)}")
        falls = torch.diff(self.table, dim=2)  # differences of positions and values
        bad = (self.table[:, 1] <= 0) if self.kind == "linear" else (falls[:, :1] <= 0) | (falls[:, 1:2] < 0)
        if bool(bad.any()) or bool((self.table[:, 2:] < 0).any()):
            raise ValueError("the table of the time features does not increase")

    def breaks(self) -> list[float]:
        """Return the times at which a feature of the first member is not smooth: the knots of the cubic."""
        if self.kind != "marginal":
            return []
        return (torch.exp(self.table[0, 0].double()) - LOG_OFFSET).tolist()

    def _marginal(self, log_t: Tensor) -> tuple[Tensor, Tensor]:
        """The monotone cubic and its derivative, at log(t + 0.001)."""
        x, y, d = self.table[:, 0], self.table[:, 1], self.table[:, 2]
        shape = (max(len(x), len(log_t)), *log_t.shape[1:])
        s = log_t.expand(len(x), -1, -1).flatten(1) if len(x) > 1 else log_t.reshape(1, -1)
        right = torch.searchsorted(x.contiguous(), s.contiguous()).clamp(1, x.shape[1] - 1)
        left = right - 1
        x0, y0, d0 = x.gather(1, left), y.gather(1, left), d.gather(1, left)
        x1, y1, d1 = x.gather(1, right), y.gather(1, right), d.gather(1, right)
        width = x1 - x0
        whole = (s - x0) / width
        u = whole.clamp(0.0, 1.0)
        value = (
            y0 * (1 + 2 * u) * (1 - u) ** 2
            + width * d0 * u * (1 - u) ** 2
            + y1 * u**2 * (3 - 2 * u)
            + width * d1 * u**2 * (u - 1)
        )
        slope = 6 * u * (1 - u) * (y1 - y0) / width + d0 * (1 - u) * (1 - 3 * u) + d1 * u * (3 * u - 2)
        value = value + (whole - u) * width * torch.where(whole > 1, d1, d0)  # linear beyond the outer knots
        return value.reshape(shape), slope.reshape(shape)
