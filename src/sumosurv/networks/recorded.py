"""Training on a CPU: likelihoods and gradients of a network as operations that are recorded once and then repeated.

With automatic differentiation, most of the time of a small step is spent on its graph, on memory, and on copies. Here
gradients are written by hand, and a step repeats stored operations on tensors that stay in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sumosurv.distributions.monotone import monotone_log_likelihood_terms
from sumosurv.families import proportional_hazards
from sumosurv.networks.encoders import Table, TableEncoder
from sumosurv.networks.layers import MemberLinear, Workspace
from sumosurv.networks.monotone import MonotoneNetwork
from sumosurv.networks.parametric import ProportionalHazardsNetwork
from sumosurv.networks.population import HORIZON, PopulationNetwork

aten = torch.ops.aten
_ZERO, _ONE, _MINUS_ONE = torch.tensor(0.0), torch.tensor(1.0), torch.tensor(-1.0)

Backward = Callable[[Tensor], None]  # records a backward pass, given the gradient of the result
Head = Callable[[], tuple[Tensor, Sequence[Tensor]]]  # terms (K, b), and their derivatives by what they depend on


def _tanh_of_half(z: Tensor, *, out: Tensor) -> Tensor:
    """tanh(z / 2) = 2σ(z) - 1, in a fifth of the time of torch's tanh."""
    return torch.add(_MINUS_ONE, torch.sigmoid(z, out=out), alpha=2.0, out=out)


# of each activation: a factor of z, a function that writes a to ``out``, and one that multiplies a gradient by da/dz
_ACTIVATIONS: dict[str, tuple[float, Callable[..., Tensor], Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "silu": (1.0, aten.silu.out, lambda g, z, a: aten.silu_backward.grad_input(g, z, grad_input=g)),
    "tanh": (2.0, _tanh_of_half, lambda g, z, a: aten.tanh_backward.grad_input(g, a, grad_input=g)),
}


def can_record(network: PopulationNetwork, table: Table, *, training: bool) -> bool:
    """Whether `RecordedNetwork` supports a network and the rows of a table.

    It supports right-censored rows on a CPU, under proportional hazards and SuMo-nets with squared weights, if all
    members have the same layers and time features, and if no SuMo-net is extrapolated; no time exceeds 1 in training.
    """
    if not isinstance(network, ProportionalHazardsNetwork | MonotoneNetwork) or table.device.type != "cpu":
        return False
    encoder, y = network.encoder, table.outcome
    if not isinstance(encoder, TableEncoder) or not len(encoder.layers) or encoder.activation not in _ACTIVATIONS:
        return False
    if encoder.active.numel() or not (y.entry is y.upper is y.cause is None):
        return False
    if isinstance(network, ProportionalHazardsNetwork):
        return len(network.baseline.features.table) == 1
    mixed = network.mixed
    plain = network.derivative == "forward" and mixed.positive == "square" and not mixed.active.numel()
    extrapolated = not training and network.tail and bool((y.time > HORIZON).any())
    return plain and len(mixed.features.table) == 1 and not extrapolated


class RecordedNetwork:
    """The log-likelihoods of batches of rows, and their gradients.

    Parameters
    ----------
    network : PopulationNetwork
        See `can_record`. Its parameters must stay in place.
    table : Table
    index : Tensor of shape (K, b)
        The row numbers of a batch, which change in place.
    gradients : dict of Tensor by nn.Parameter, optional
        Where to write the gradients; None for likelihoods alone, without dropout.
    """

    def __init__(
        self, network: Any, table: Table, index: Tensor, gradients: Mapping[nn.Parameter, Tensor] | None = None
    ) -> None:
        self.table, self.index = table, index
        self.training, self._like = gradients is not None, next(iter(network.parameters())).detach()
        self._own: Mapping[Any, Tensor] = gradients or {}
        self._scratch = Workspace(self._like)
        self._forward: list[Callable[[], Any]] = []
        self._backward: list[Callable[[], Any]] = []
        self.embedding, back = self._covariates(network.encoder)
        self.of_embedding = torch.zeros_like(self.embedding)
        self._results: list[Tensor] = []  # the gradients of what the head reads
        self._head = (self._monotone if isinstance(network, MonotoneNetwork) else self._proportional)(network)
        if self.training:
            back(self.of_embedding)

    @torch.no_grad()
    def terms(self) -> Tensor:
        """Return the log-likelihoods of the rows, (K, b)."""
        for operation in self._forward:
            operation()
        return self._head()[0]

    @torch.no_grad()
    def terms_and_gradient(self, factor: Tensor) -> Tensor:
        """Return `terms`; write the gradients of minus their sum times ``factor`` (K, b)."""
        for operation in self._forward:
            operation()
        (terms, slopes), minus = self._head(), -factor
        for result, slope in zip(self._results, slopes, strict=True):
            torch.mul(slope, minus, out=result)
        for operation in self._backward:
            operation()
        return terms

    # ------------------------------------------------------------------ what all records are made of

    def _do(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self._forward.append(partial(function, *arguments, **options))

    def _undo(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self._backward.append(partial(function, *arguments, **options))

    def _new(self, *shape: int) -> Tensor:
        made: Tensor = self._like.new_empty(len(self.index), *shape)
        return made

    def _gathered(self, values: Callable[[], Tensor]) -> Tensor:
        """Return a tensor that will hold the rows (K, b, ...) of what is returned for all rows of the table."""
        flat = values().new_empty(self.index.numel(), *values().shape[1:])
        self._forward.append(lambda: torch.index_select(values(), 0, self.index.view(-1), out=flat))
        return flat.view(*self.index.shape, *flat.shape[1:])

    def _rows(self, owner: nn.Module, features: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Return tensors that will hold features of the times of the rows, (K, c, b), and events (K, b) as 0 or 1."""

        def of_all(times: Tensor) -> Tensor:
            return torch.cat([features(times).flatten(1), self.table.outcome.event[:, None]], dim=1)

        rows = self._gathered(lambda: self.table.remembered((owner, "recorded"), of_all)).transpose(1, 2)
        columns = torch.empty_like(rows, memory_format=torch.contiguous_format)
        self._do(columns.copy_, rows)
        return columns[:, :-1], columns[:, -1]

    def _linear(self, x: Tensor, layer: MemberLinear, factor: float = 1.0) -> tuple[Tensor, Callable[..., None]]:
        """Record (x W + b) · factor; the backward pass of x W + b writes the gradient of the last columns of x."""
        weight, bias = layer.weight.detach(), layer.bias.detach()
        z = self._new(x.shape[1], weight.shape[2])
        self._do(torch.baddbmm, bias, x, weight, beta=factor, alpha=factor, out=z)

        def back(of_z: Tensor, of_x: Tensor, *, add: bool = False) -> None:
            self._undo(torch.bmm, x.transpose(1, 2), of_z, out=self._own[layer.weight])
            self._undo(torch.sum, of_z, 1, keepdim=True, out=self._own[layer.bias])
            last = weight[:, weight.shape[1] - of_x.shape[2] :].transpose(1, 2)
            if of_x.numel():
                self._undo(torch.baddbmm, of_x, of_z, last, beta=float(add), out=of_x)

        return z, back

    def _square(self, raw: Tensor) -> tuple[Tensor, Backward]:
        """Record non-negative weights, the squares of raw ones."""
        raw, own = raw.detach(), self._own.get(raw)
        weight = raw.clone(memory_format=torch.contiguous_format)
        self._do(torch.square, raw, out=weight)
        return weight, lambda gradient: self._undo(torch.addcmul, _ZERO, raw, gradient, value=2.0, out=own)

    # ------------------------------------------------------------------ the covariate network

    def _covariates(self, encoder: TableEncoder) -> tuple[Tensor, Backward]:
        """Record `TableEncoder.forward`."""
        numeric, features = self._gathered(lambda: self.table.inputs.numeric), encoder.n_in
        place = p = numeric.shape[2]
        members, n, x = len(numeric), numeric.shape[1], numeric
        of_x = x.new_empty(members, n, features - p)  # without the numbers
        if features > p:
            x = self._new(n, features)
            self._do(x[:, :, :p].copy_, numeric)
        if encoder.frequency is not None and encoder.phase is not None:
            frequency, phase = (own.detach().view(members, 1, -1) for own in (encoder.frequency, encoder.phase))
            angle, each = self._new(n, phase.shape[2]), self._new(n, p, phase.shape[2] // p)
            place += phase.shape[2]
            self._do(each.copy_, numeric[..., None])
            self._do(torch.addcmul, phase, each.view(angle.shape), frequency, out=angle)
            self._do(torch.sin, angle, out=x[:, :, p:place])
        embedded, who = [], torch.arange(members)[:, None]
        codes = self._gathered(lambda: self.table.inputs.codes) if len(encoder.embeddings) else x
        for j, table in enumerate(encoder.embeddings):
            at, columns = (who, codes[:, :, j]), slice(place, place + table.shape[2])
            self._do(lambda out, own, at: out.copy_(own[at]), x[:, :, columns], table.detach(), at)
            embedded.append((table, at, of_x[:, :, columns.start - p : columns.stop - p]))
            place = columns.stop
        factor, activation, derivative = _ACTIVATIONS[encoder.activation]
        a, layers = x, list[Any]()
        modules: Any = zip(encoder.layers, encoder.dropouts)
        for layer, dropout in modules:
            z, back_of_layer = self._linear(a, layer, factor)
            active, mask = torch.empty_like(z), None
            self._do(activation, z, out=active)
            new = active
            if self.training and not dropout.idle:
                mask, new = torch.empty_like(z), torch.empty_like(z)
                self._do(dropout.fill, mask, self._scratch)
                self._do(torch.mul, active, mask, out=new)
            joins = encoder.residual and len(layers) > 0 and new.shape == a.shape
            layers.append((a, z, active, mask, joins, back_of_layer))
            a = torch.empty_like(z) if joins else new
            if joins:
                self._do(torch.add, new, layers[-1][0], out=a)

        def back(gradient: Tensor) -> None:
            for before, z, active, mask, joins, back_of_layer in reversed(layers):
                of_z = gradient if mask is None and not joins else self._scratch("of z", *z.shape)
                if of_z is not gradient:
                    self._undo(torch.mul, gradient, 1.0 if mask is None else mask, out=of_z)
                self._undo(derivative, of_z, z, active)
                if not joins:
                    gradient = of_x if before is x else torch.empty_like(before)
                back_of_layer(of_z, gradient, add=joins)
            if encoder.frequency is not None:
                self._undo(torch.cos, angle, out=angle)
                self._undo(angle.mul_, of_x[:, :, : angle.shape[2]])
                self._undo(torch.sum, angle, 1, keepdim=True, out=self._own[encoder.phase].view(phase.shape))
                self._undo(angle.mul_, each.view(angle.shape))
                self._undo(torch.sum, angle, 1, keepdim=True, out=self._own[encoder.frequency].view(phase.shape))
            for table, at, of_columns in embedded:
                self._undo(self._own[table].zero_)
                self._undo(self._own[table].index_put_, at, of_columns, accumulate=True)

        return a, back

    # ------------------------------------------------------------------ likelihoods

    def _proportional(self, network: ProportionalHazardsNetwork) -> Head:
        known, event = self._rows(network.baseline, lambda times: network.baseline_of(times)[:-1])
        log_hazard, log_slope = known.unbind(1)
        start, log_power = network.baseline_of(self.table.outcome.time[:1])[-1:, :1], network.log_power.detach()
        log_risk, back = self._linear(self.embedding, network.head)
        if self.training:
            self._results = [torch.zeros_like(log_risk[..., 0]), torch.zeros_like(log_risk[..., 0])]
            back(self._results[0][..., None], self.of_embedding)
            self._undo(torch.sum, self._results[1], 1, keepdim=True, out=self._own[network.log_power])

        def head() -> tuple[Tensor, Sequence[Tensor]]:
            found = proportional_hazards(log_risk[..., 0], log_power, log_hazard, log_slope, start)
            terms = torch.where(event > 0, found.density, found.survival)
            if not self.training:
                return terms, ()
            power = torch.exp(log_power)
            scaled, gap = power * log_hazard, power * (log_hazard - start)
            by_risk = event + found.survival
            by_power = event + scaled * by_risk - torch.exp(log_risk[..., 0] + scaled - gap) * gap
            return terms, (by_risk, by_power)

        return head

    def _monotone(self, network: MonotoneNetwork) -> Head:
        features = network.mixed.features
        known, event = self._rows(features, lambda times: network.features_of(times).transpose(1, 2))
        curve, back = self._mixed(network, known.view(len(known), features.n_features, -1, known.shape[2]))
        if self.training:
            gradient = torch.zeros_like(curve)
            self._results = list(gradient.unbind(1))
            back(gradient)

        def head() -> tuple[Tensor, Sequence[Tensor]]:
            h, *start, slope = curve.unbind(1)
            censored = 1.0 - event  # products with zeros and ones are exact, and faster than a choice by row
            slope = torch.maximum(slope, censored)
            log_start = functional.logsigmoid(-start[0]) if start else None
            log_survival, log_density = monotone_log_likelihood_terms(h, slope, log_start)
            by_h = torch.addcmul(event, torch.sigmoid(h), event + 1.0, value=-1.0)
            by_start = [torch.sigmoid(part) for part in start]
            terms = torch.addcmul(log_survival * censored, log_density, event)
            return terms, (by_h, *by_start, event / slope)

        return head

    def _mixed(self, network: MonotoneNetwork, time: Tensor) -> tuple[Tensor, Backward]:
        """Record h at B times per row and dh/dt at the first of them, (K, B + 1, b): see `MixedNetwork.from_features`.

        The features have shape (K, F, B + 1, b): rows are last, because arithmetic on a last axis of three is slow.
        """
        mixed, (members, f, parts, n) = network.mixed, time.shape
        times, width = parts - 1, mixed.width
        code, back_of_entry = self._linear(self.embedding, mixed.entry)
        raw = self._new(code.shape[2] - width, n)
        factors, gated, direct = torch.empty_like(raw), time, torch.empty_like(time)
        if raw.numel():
            self._do(torch.add, code[:, :, width:].transpose(1, 2), mixed.shift.transpose(1, 2), out=raw)
            self._do(aten.softplus.out, raw, out=factors)
        if mixed.gate:
            gated = torch.empty_like(time)
            self._do(torch.mul, time, factors[:, :f, None], out=gated)
        a, layers = gated.view(members, f, parts * n).transpose(1, 2), list[Any]()
        biases = [code[:, None, :, :width], *(bias.detach()[:, None] for bias in mixed.biases)]
        for raw_weight, bias in zip((mixed.time_weight, *mixed.weights), biases):
            weight, back_of_weight = self._square(raw_weight)
            z, new = self._new(parts, n, weight.shape[2]), self._new(parts, n, weight.shape[2])
            self._do(torch.bmm, a, weight, out=z.view(members, parts * n, -1))
            old = a.view(new.shape) if mixed.residual and layers and a.shape[2] == new.shape[3] else None
            tanh, rate = new[:, :times] if old is None else torch.empty_like(new[:, :times]), z[:, times]
            self._do(torch.add, z[:, :times], bias, out=tanh)
            self._do(tanh.mul_, 2.0)
            self._do(_tanh_of_half, tanh, out=tanh)
            self._do(aten.tanh_backward.grad_input, rate, tanh[:, 0], grad_input=new[:, times])
            if old is not None:
                self._do(torch.add, tanh, old[:, :times], out=new[:, :times])
                self._do(new[:, times].add_, old[:, times])
            layers.append((a, tanh, rate, weight, old is not None, back_of_weight))
            a = new.view(members, parts * n, -1)
        last, back_of_last = self._square(mixed.out_weight)
        out = self._new(parts, n)
        # of several layouts of this product, and of that of its gradient below, the fastest
        self._do(torch.bmm, last.transpose(1, 2), a.transpose(1, 2), out=out.view(members, 1, -1))
        self._do(out[:, :times].add_, mixed.out_bias.detach())
        if mixed.skip:
            self._do(torch.mul, gated, factors[:, -f:, None], out=direct)
            for j in range(f):
                self._do(out.add_, direct[:, j])

        def back(gradient: Tensor) -> None:
            row, of_last = gradient.view(members, 1, -1), self._new(1, last.shape[1])
            self._undo(torch.bmm, row, a, out=of_last)
            back_of_last(of_last.transpose(1, 2))
            self._undo(torch.sum, gradient[:, :times], (1, 2), out=self._own[mixed.out_bias].view(members))
            of_a = torch.empty_like(a)
            self._undo(torch.mul, row.transpose(1, 2), last.transpose(1, 2), out=of_a)
            of_bias = [torch.empty_like(code), *(self._own[bias] for bias in mixed.biases)]
            for layer, own_bias in zip(layers[::-1], of_bias[::-1]):
                before, tanh, rate, weight, joins, back_of_weight = layer
                of_new = of_a.view(members, parts, n, -1)
                of_z, of_first = self._scratch("of z", *of_new.shape), self._scratch("of first", *rate.shape)
                of_weight = torch.empty_like(weight)
                rows = of_z.view(members, parts * n, -1)
                self._undo(torch.mul, of_new[:, times], rate, out=of_first)
                self._undo(torch.addcmul, of_new[:, 0], of_first, tanh[:, 0], value=-2.0, out=of_first)
                for j, of_tanh in enumerate((of_first, *of_new[:, 1:].unbind(1))):
                    own = tanh[:, j % times]  # the last is the slope at the first time
                    self._undo(aten.tanh_backward.grad_input, of_tanh, own, grad_input=of_z[:, j])
                self._undo(torch.bmm, before.transpose(1, 2), rows, out=of_weight)
                back_of_weight(of_weight)
                if own_bias is of_bias[0]:
                    of_first_layer = own_bias[:, :, :width]
                    self._undo(of_first_layer.copy_, of_z[:, 0])
                    for j in range(1, times):
                        self._undo(of_first_layer.add_, of_z[:, j])
                    break
                self._undo(torch.sum, of_z[:, :times], (1, 2), out=own_bias.view(members, -1))
                of_a = of_a if joins else torch.empty_like(before)
                self._undo(torch.baddbmm, of_a, rows, weight.transpose(1, 2), beta=float(joins), out=of_a)
            of_raw, of_gated = torch.empty_like(raw), torch.empty_like(time)
            if mixed.skip:
                self._undo(torch.mul, gradient[:, None], gated, out=direct)
                self._undo(torch.sum, direct, 2, out=of_raw[:, -f:])
            if mixed.gate:
                self._undo(torch.bmm, weight, rows.transpose(1, 2), out=of_gated.view(members, f, -1))
                if mixed.skip:
                    self._undo(of_gated.addcmul_, gradient[:, None], factors[:, -f:, None])
                self._undo(of_gated.mul_, time)
                self._undo(torch.sum, of_gated, 2, out=of_raw[:, :f])
            if raw.numel():
                self._undo(torch.sigmoid, raw, out=raw)
                self._undo(torch.mul, of_raw.transpose(1, 2), raw.transpose(1, 2), out=of_bias[0][:, :, width:])
            back_of_entry(of_bias[0], self.of_embedding)

        return out, back
