"""SuMo-net, the network of the paper: from covariates to a non-decreasing function of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from sumosurv.distributions import Monotone, SurvivalDistribution
from sumosurv.distributions.monotone import monotone_log_likelihood_terms
from sumosurv.networks.encoders import Batch, Encoder, take_rows
from sumosurv.networks.fused import FusedCurve, fused_curves
from sumosurv.networks.layers import (
    MemberLinear,
    Positive,
    TimeFeatures,
    positive_parameter,
    positive_weight,
    select_members,
)
from sumosurv.networks.population import HORIZON, Curves, TailedNetwork

Derivative = Literal["forward", "autograd", "chain", "difference"]
DERIVATIVES: tuple[Derivative, ...] = ("forward", "autograd", "chain", "difference")

_GATE_SHIFT = math.log(math.e - 1.0)  # softplus(shift) = 1: gates have no effect at first
_SKIP_SHIFT = -3.0  # softplus(shift) = 0.05: a weak direct path at first
_EPSILON = {torch.float64: 1e-6, torch.float32: 1e-3}  # step of the two difference quotients


def _slope_of_tanh(a: Tensor, rows: int) -> Tensor:
    """1 - a² for the first ``rows`` rows of activations a, (K, r, w)."""
    first = a if a.shape[1] == rows else torch.split(a, [rows, a.shape[1] - rows], dim=1)[0]
    return 1.0 - first * first


class MixedNetwork(nn.Module):
    r"""h(t, u), non-decreasing in t: the weights on everything that depends on time are non-negative.

    .. math::
        a_1 = \tanh(W^+_t (g(u) ⊙ τ(t)) + W_u u + b_1), \quad
        a_{l+1} = \tanh(W^+_l a_l + b_{l+1}) \; (+\, a_l), \quad
        h = w^+ · a_L + b \; (+\, s(u) · τ(t)).

    Value and time derivative are propagated through the layers together,
    :math:`a, a' = \tanh(z), (1 - a^2) z'`, so that the density needs no second pass.

    Parameters
    ----------
    generators : sequence of torch.Generator
        One per member, for its initial weights.
    features : TimeFeatures
        τ(t).
    n_code : int
        Width of u, the output of the covariate network.
    widths : sequence of int
        Widths of the hidden layers.
    positive : {"square", "softplus", "abs"}
        Function that maps raw weights to non-negative ones.
    residual : bool
        Add a layer's input to its output if their widths agree.
    gate : bool
        Multiply the time features by positive factors g(u), which can stretch time differently for each subject.
    skip : bool
        Add a direct path s(u)·τ(t) with positive s, so that h keeps increasing when every tanh is saturated.

    Notes
    -----
    ``active`` is empty unless networks of different depth were stacked (see `stack_members`); then it is a mask
    (K, layers) of the layers that each member has.
    """

    shift: Tensor
    active: Tensor

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        features: TimeFeatures,
        *,
        n_code: int,
        widths: Sequence[int],
        positive: Positive,
        residual: bool,
        gate: bool,
        skip: bool,
    ) -> None:
        super().__init__()
        if not widths:
            raise ValueError("The mixed network needs at least one hidden layer.")
        self.features, self.positive, self.residual = features, positive, residual
        self.gate, self.skip, self.width = gate, skip, widths[0]
        extra = features.n_features * (int(gate) + int(skip))
        self.entry = MemberLinear(generators, n_code, widths[0] + extra, n_last=extra)
        with torch.no_grad():
            self.entry.weight[:, :, self.width :] *= 0.1
        shift = torch.tensor([_GATE_SHIFT] * gate + [_SKIP_SHIFT] * skip).repeat_interleave(features.n_features)
        self.register_buffer("shift", shift[None, None], persistent=False)
        self.time_weight = positive_parameter(generators, (features.n_features, widths[0]), positive, total=2.0)
        self.weights = nn.ParameterList(
            positive_parameter(generators, (a, b), positive, total=1.0) for a, b in pairwise(widths)
        )
        k = len(generators)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(k, 1, b)) for b in widths[1:])
        self.out_weight = positive_parameter(generators, (widths[-1], 1), positive, total=2.0)
        self.out_bias = nn.Parameter(torch.zeros(k, 1, 1))
        self.register_buffer("active", torch.zeros(1, 0, dtype=torch.bool))

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if the stored mask of active layers has the wrong shape."""
        if tuple(self.active.shape) not in ((1, 0), (members, len(self.weights) + 1)):
            raise ValueError(f"the mask of active layers has shape {tuple(self.active.shape)}")

    @property
    def members(self) -> int:
        """The number of members."""
        return int(self.out_bias.shape[0])

    def code(self, encoded: Tensor) -> Tensor:
        """Return the covariate terms of the mixed network, (K, n, w): first layer, gates, skip weights."""
        code: Tensor = self.entry(encoded)
        if code.shape[2] == self.width:
            return code
        raw = code[:, :, self.width :] + self.shift
        return torch.cat([code[:, :, : self.width], functional.softplus(raw)], dim=2)

    def value(self, code: Tensor, t: Tensor) -> Tensor:
        """Return h of shape (K, n, m) for ``code`` (K, n, w) and times (K or 1, n or 1, m)."""
        return self.from_features(code, self.features(t)[0][:, None], with_slope=False)[0]

    def value_and_slope(self, code: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and dh/dt, each (K, n, m), from one pass."""
        h, slope = self.from_features(code, torch.stack(self.features(t), dim=1), with_slope=True)
        return h, slope

    def from_features(self, code: Tensor, time: Tensor, *, with_slope: bool) -> tuple[Tensor, ...]:
        """Return h at B times per cell and, if ``with_slope``, dh/dt at the first of them, each (K, n, m).

        ``time`` has shape (K or 1, B or B + 1, n or 1, m, F): on its second axis are the features of the B times, then
        the slopes of the features at the first time. All are rows of one matrix per member: a layer is one product.
        """
        members, n, f, m = code.shape[0], code.shape[1], self.features.n_features, time.shape[3]
        blocks, cells = time.shape[1] - with_slope, n * m
        # split and unbind instead of slices: the gradient of a slice is a full array, zero outside the slice
        first, *factors = torch.split(code, [self.width] + [f] * ((code.shape[2] - self.width) // f), dim=2)
        if self.gate:
            time = time * factors[0][:, None, :, None]
        weight = positive_weight(self.time_weight, self.positive)
        rows = time.expand(members, *time.shape[1:])
        z = torch.bmm(rows.reshape(members, rows[0].numel() // f, f), weight).reshape(*rows.shape[:-1], self.width)
        of_times, *rates = torch.split(z, [blocks, 1] if with_slope else [blocks], dim=1)
        a = torch.tanh(first[:, None, :, None] + of_times).reshape(members, blocks * cells, self.width)
        da = None
        if with_slope:
            da = _slope_of_tanh(a, cells) * rates[0].expand(-1, -1, n, -1, -1).reshape(members, cells, self.width)
        for place, (raw, bias) in enumerate(zip(self.weights, self.biases), start=1):
            w = positive_weight(raw, self.positive)
            if da is None:
                new, d_new = torch.tanh(torch.baddbmm(bias, a, w)), None
            else:
                value, rate = torch.split(torch.bmm(torch.cat([a, da], dim=1), w), [blocks * cells, cells], dim=1)
                new = torch.tanh(value + bias)
                d_new = _slope_of_tanh(new, cells) * rate
            if self.residual and new.shape == a.shape:
                new = new + a
                d_new = None if d_new is None or da is None else d_new + da
            if self.active.numel():
                has = self.active[:, place, None, None]
                new = torch.where(has, new, a)
                d_new = None if d_new is None or da is None else torch.where(has, d_new, da)
            a, da = new, d_new
        w = positive_weight(self.out_weight, self.positive)
        out = list(torch.baddbmm(self.out_bias, a, w).reshape(members, blocks, n, m).unbind(1))
        if da is not None:
            out.append(torch.bmm(da, w).reshape(members, n, m))
        if self.skip:
            path = (time * factors[-1][:, None, :, None]).sum(-1).unbind(1)
            out = [part + direct for part, direct in zip(out, path)]
        return tuple(out)

    def jet(self, code: Tensor, t: Tensor, derivative: Derivative) -> tuple[Tensor, Tensor]:
        r"""Return h and dh/dt by one of the paper's methods.

        "forward": the derivative propagated through the layers (exact). "autograd": reverse-mode
        differentiation of h (exact). "chain": (h(t + ε) - h(t)) / ε, to be used in the chain rule.
        "difference": the slope for which f equals -(S(t + ε) - S(t)) / ε.
        """
        if derivative == "forward":
            return self.value_and_slope(code, t)
        if derivative == "autograd":
            with torch.enable_grad():
                t = t.expand(code.shape[0], code.shape[1], -1).clone().requires_grad_(True)
                h = self.value(code, t)
                (slope,) = torch.autograd.grad(h.sum(), t, create_graph=torch.is_grad_enabled())
            return h, slope
        step = _EPSILON[t.dtype]
        h, h_next = self.value(code, t), self.value(code, t + step)
        if derivative == "chain":
            return h, (h_next - h) / step
        # f = -(S(t + ε) - S(t)) / ε, written as h' with f = h' σ(h) σ(-h)
        density = (torch.sigmoid(-h) - torch.sigmoid(-h_next)) / step
        return h, density / (torch.sigmoid(h) * torch.sigmoid(-h))


class MemberCurve:
    """h and dh/dt of one member for ``code`` (n, w) and times (n or 1, m), as a `Monotone` distribution needs them."""

    def __init__(self, population: MixedNetwork, member: int, derivative: Derivative) -> None:
        self.population, self.member = population, member
        self.derivative: Derivative = derivative

    @cached_property
    def mixed(self) -> MixedNetwork:
        """The member alone, copied only when needed: prediction usually runs through `FusedCurve`."""
        return select_members(self.population, slice(self.member, self.member + 1))

    def __call__(self, code: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """h and its slope."""
        h, slope = self.mixed.jet(code[None], t[None], self.derivative)
        return h[0], slope[0]

    def value(self, code: Tensor, t: Tensor) -> Tensor:
        """h alone."""
        return self.mixed.value(code[None], t[None])[0]


class MonotoneCurves(Curves):
    """The curves of rows under K networks that are monotone in time."""

    def __init__(self, network: MonotoneNetwork, code: Tensor, batch: Batch | None) -> None:
        self.network, self.code = network, code
        self._known: Tensor | None = None  # time features of each row
        features = network.mixed.features
        if batch is not None and len(features.table) == 1 and code.device.type == "cpu":
            every = batch.table.remembered(features, network.features_of)
            self._known = take_rows(every, batch.index).permute(0, 2, 1, 3)[:, :, :, None]

    @cached_property
    def log_start(self) -> Tensor | None:
        """log S(0) before anchoring, (K, n, 1); None if the curve is not anchored."""
        if not self.network.anchored:
            return None
        return functional.logsigmoid(-self.network.mixed.value(self.code, self.code.new_zeros(1, 1, 1)))

    def log_terms(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return log S(t) and log f(t)."""
        h, slope = self.network.mixed.jet(self.code, t, self.network.derivative)
        log_survival, log_density = monotone_log_likelihood_terms(h, slope, self.log_start)
        if self.network.anchored:  # S(0) = 1 exactly
            log_survival = torch.where(t > 0, log_survival.clamp_max(0.0), 0.0)
        return log_survival, log_density

    def observed(self, t: Tensor, event: Tensor) -> Tensor:
        """Return log f(t) for events and log S(t) for censored rows."""
        h, slope = self._jet(t)
        # a censored row does not use its slope, and a slope of zero would make its gradient NaN
        slope = torch.where(event, slope, 1.0)
        log_survival, log_density = monotone_log_likelihood_terms(h, slope, self.log_start)
        return torch.where(event, log_density, log_survival)

    def log_survival(self, t: Tensor) -> Tensor:
        """Return log S(t), without the derivative."""
        result = functional.logsigmoid(-self.network.mixed.value(self.code, t))
        return result if self.log_start is None else result - self.log_start

    def _jet(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and its slope at one time per row; sets ``log_start`` if the same pass computes it."""
        mixed = self.network.mixed
        if self.network.derivative != "forward":
            return mixed.jet(self.code, t, self.network.derivative)
        time = self.network.features(t) if self._known is None else self._known
        h, *start, slope = mixed.from_features(self.code, time, with_slope=True)
        if start:
            self.log_start = functional.logsigmoid(-start[0])
        return h, slope


class MonotoneNetwork(TailedNetwork):
    """SuMo-net: covariate network, mixed network and survival head, for K members at once.

    Parameters
    ----------
    encoder : TableEncoder or ModuleEncoder
    mixed : MixedNetwork
    anchored : bool, default True
        Divide S(t|x) by S(0|x).
    tail : bool, default True
        Beyond scaled time 1, the last training time, extrapolate by `Continued`.
    derivative : {"forward", "autograd", "chain", "difference"}
    """

    def __init__(
        self,
        encoder: Encoder,
        mixed: MixedNetwork,
        *,
        anchored: bool = True,
        tail: bool = True,
        derivative: Derivative = "forward",
    ) -> None:
        super().__init__()
        self.encoder, self.mixed = encoder, mixed
        self.anchored, self.tail = anchored, tail
        self.derivative: Derivative = derivative

    def features(self, t: Tensor) -> Tensor:
        """Stack τ(t), τ(0) if S(0) is needed, and τ'(t) on a second axis."""
        times = [*self.mixed.features(t)]
        if self.anchored:
            times.insert(1, self.mixed.features(t.new_zeros(1, 1, 1))[0].expand_as(times[0]))
        return torch.stack(times, dim=1)

    def features_of(self, times: Tensor) -> Tensor:
        """Return `features` of each time up to the horizon, (n, 2 or 3, F)."""
        near = times.clamp_max(HORIZON) if self.tail else times
        return self.features(near[None, :, None])[0, :, :, 0].transpose(0, 1).contiguous()

    def curves_to_horizon(self, embedding: Tensor, batch: Batch | None) -> MonotoneCurves:
        """Return the curves of rows with these embeddings."""
        return MonotoneCurves(self, self.mixed.code(embedding), batch)

    def members_to_horizon(self, embedding: Tensor) -> Sequence[SurvivalDistribution]:
        """Return each member's distribution of the same rows, in scaled time."""
        codes = self.mixed.code(embedding)
        fast = fused_curves(self.mixed, exact_slope=self.derivative == "forward")
        return [self._member(k, codes[k], fast[k]) for k in range(self.mixed.members)]

    def _member(self, k: int, code: Tensor, fast: FusedCurve) -> Monotone:
        curve = MemberCurve(self.mixed, k, self.derivative)
        return Monotone(
            curve,
            code,
            value=curve.value,
            breaks=[*fast.times.breaks(), HORIZON],
            anchored=self.anchored,
            fast=fast,
        )
