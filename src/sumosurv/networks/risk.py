"""Networks for relative risks: partial likelihood, Breslow's baseline, and Cox-Time, whose risk depends on time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.grouped_sum import add_by_group
from sumosurv.networks.case_control import CaseControl, at_risk_from, case_control_terms, valid_controls
from sumosurv.networks.encoders import Batch, Encoder, Inputs, Observed, Table
from sumosurv.networks.layers import ACTIVATIONS, Activation, MemberLinear, TimeFeatures, select_members
from sumosurv.networks.population import PopulationNetwork, TrainingError
from sumosurv.nonparametric.curves import count

_ROWS = 1 << 13  # training rows evaluated at once
_CELLS = {"cpu": 1 << 15, "cuda": 1 << 22}  # rows × times at once: layers stay in cache, or fill the device


def partial_log_likelihood(
    log_risk: Tensor,
    time: Tensor,
    event: Tensor,
    present: Tensor,
    *,
    entry: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    r"""Return the terms of Cox's partial log-likelihood (Breslow's method for ties), zero for censored rows.

    .. math:: d_i \Big[ g_i - \log \sum_{j: v_j < z_i \le z_j} w_j e^{g_j} \Big]

    with entry times v and weights w of the rows in a risk set; the caller applies the weight of the term itself.
    The cost is that of sorting. With delayed entry, the sum over a risk set is the difference of two cumulative sums,
    in float64.

    Parameters
    ----------
    log_risk : Tensor of shape (K, b)
        g.
    time, event, present : Tensor of shape (K, b)
        Rows that are not present belong to no risk set.
    entry, weight : Tensor of shape (K, b), optional
    """
    late_first = -torch.where(present, time, -1.0)  # absent rows come last and enter no risk set
    ordered, order = torch.sort(late_first, dim=1, stable=True)
    end = torch.searchsorted(ordered.contiguous(), late_first.contiguous(), right=True) - 1  # ties are at risk together
    weighted = log_risk if weight is None else log_risk + torch.log(torch.where(present, weight, 1.0))
    if entry is None:
        total = torch.logcumsumexp(weighted.gather(1, order), dim=1)
        return torch.where(event & present, log_risk - total.gather(1, end), 0.0)
    shift = torch.where(present, weighted, -torch.inf).amax(1, keepdim=True).detach()
    risk = torch.exp(torch.where(present, weighted - shift, -torch.inf).double())
    later_first, later = torch.sort(-at_risk_from(entry), dim=1, stable=True)
    not_yet = functional.pad(risk.gather(1, later).cumsum(1), (1, 0))
    n_later = torch.searchsorted(later_first.contiguous(), -time.contiguous(), right=True)
    sums = risk.gather(1, order).cumsum(1).gather(1, end) - not_yet.gather(1, n_later)
    # a risk set contains at least the case itself, despite rounding
    total = shift + torch.log(torch.maximum(sums, torch.where(event & present, risk, 1.0))).to(log_risk)
    return torch.where(event & present, log_risk - total, 0.0)


def _step_mixture(log_survival: Sequence[Tensor], times: Tensor, half_width: int) -> Tabulated:
    """Return the equal mixture of step functions on common times, itself a step function: S = mean of S_k."""
    survival = torch.exp(torch.logsumexp(torch.stack(list(log_survival)), dim=0)) / len(log_survival)
    return Tabulated(times, survival.clamp_max(1.0), half_width=half_width)


class RiskNetwork(PopulationNetwork):
    r"""g(x) of a proportional hazards model, λ(t|x) = λ₀(t) e^{g(x)}, for K members at once.

    Parameters
    ----------
    generators : sequence of torch.Generator
    encoder : TableEncoder or ModuleEncoder
    half_width : int
        k of the interpolated density, as in `Tabulated`.
    controls : CaseControl, optional
        Controls to train on; None to train on the partial likelihood of the batch.
    shrink : float
        Penalty on the mean of |g| over case and controls, which identifies the level of g.
    """

    terms_are_likelihoods = False
    validation_rows = None
    baseline_times: Tensor
    baseline: Tensor

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        encoder: Encoder,
        *,
        half_width: int,
        controls: CaseControl | None = None,
        shrink: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder, self.half_width, self.controls, self.shrink = encoder, half_width, controls, shrink
        self.head = MemberLinear(generators, encoder.width, 1, scale=0.1)
        self.register_buffer("baseline_times", torch.zeros(1, 0, dtype=torch.float64))
        self.register_buffer("baseline", torch.zeros(len(generators), 0, dtype=torch.float64))

    def forward(self, inputs: Inputs) -> Tensor:
        """g of shape (K, n)."""
        g: Tensor = self.head(self.encoder(inputs))[..., 0]
        return g

    def terms(self, batch: Batch) -> Tensor:
        """Return the term of each row in the partial likelihood, or in its case-control version."""
        g = self(batch.inputs)
        if self.controls is None or not self.training:
            y = batch.outcome
            return partial_log_likelihood(g, y.time, y.event, batch.present, entry=y.entry, weight=y.weight)
        rows, found = valid_controls(self.controls.draw(batch), batch)
        members, b, n = rows.shape
        others = self(batch.table.inputs[rows.reshape(members, -1)]).reshape(members, b, n)
        return case_control_terms(g, others, batch.outcome.event, self.shrink, found)

    def start_training(self, table: Table, rows: Sequence[npt.NDArray[np.int64]]) -> Sequence[npt.NDArray[np.int64]]:
        """Return the rows over which the objective is summed: only cases, if controls are sampled."""
        return rows if self.controls is None else self.controls.take(table, rows)

    def fit_baseline(self, inputs: Inputs, outcome: Observed) -> None:
        """Breslow's baseline, Λ₀(t) = Σ_{tᵢ <= t} dᵢ / Σ_{j: v_j < tᵢ <= z_j} w_j e^{g_j}, from the training rows.

        dᵢ is the weight of the events at tᵢ, v and w are entry times and weights.
        """
        rows = outcome.numpy()
        g = torch.cat([self(inputs[i : i + _ROWS].shared()) for i in range(0, len(rows), _ROWS)], dim=1)
        shift = g.max(dim=1, keepdim=True).values
        counts = [count(rows, risk) for risk in torch.exp(g - shift).detach().cpu().numpy()]
        jumps = counts[0].events > 0
        self.baseline_times = torch.from_numpy(counts[0].times[jumps])[None].to(g)
        with np.errstate(divide="ignore", over="ignore"):  # a baseline that is not finite is rejected below
            hazard = np.stack([own.hazard[jumps] for own in counts])
        self.baseline = torch.from_numpy(np.cumsum(hazard, axis=1)).to(g) * torch.exp(-shift)
        _check_baseline(self.baseline)
        if self.controls is not None:
            self.controls.release()

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if the stored baseline is invalid."""
        _check_stored_baseline(self.baseline_times, self.baseline, members)
        if bool((torch.diff(self.baseline, dim=1) < 0).any()):
            raise ValueError("the cumulative baseline hazard decreases")

    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        """The equal mixture of the members' curves S = exp(-Λ₀ e^g), in scaled time."""
        risk = torch.exp(self(inputs.shared()))
        times = self.baseline_times[0]
        if len(times) == 0:  # there were no events in training
            return Tabulated(times.new_zeros(1), risk.new_ones(risk.shape[1], 1), half_width=self.half_width)
        curves = [-r[:, None] * base for r, base in zip(risk, self.baseline)]
        return _step_mixture(curves, times, self.half_width)


class CoxTimeNetwork(PopulationNetwork):
    r"""g(t, x) of λ(t|x) = λ₀(t) e^{g(t, x)}: layers over the embedding u(x) and time features τ(t).

    The first layer is W u(x) + V τ(t): on a grid, u(x) is evaluated once per subject and τ(t) once per time.

    Parameters
    ----------
    generators : sequence of torch.Generator
    encoder : TableEncoder or ModuleEncoder
    features : TimeFeatures
    widths : sequence of int
        Widths of the hidden layers over embedding and time.
    activation : {"silu", "relu", "tanh", "gelu"}
    half_width : int
        k of the interpolated density, as in `Tabulated`.
    controls : CaseControl
    shrink : float
        Penalty on the mean of |g| over case and controls.
    """

    terms_are_likelihoods = False
    validation_rows = None
    baseline_times: Tensor
    increments: Tensor

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        encoder: Encoder,
        features: TimeFeatures,
        *,
        widths: Sequence[int],
        activation: Activation,
        half_width: int,
        controls: CaseControl,
        shrink: float,
    ) -> None:
        super().__init__()
        self.encoder, self.features, self.activation = encoder, features, activation
        self.half_width, self.controls, self.shrink = half_width, controls, shrink
        self.entry = MemberLinear(generators, encoder.width, widths[0])
        self.clock = MemberLinear(generators, features.n_features, widths[0])
        self.layers = nn.ModuleList(MemberLinear(generators, a, b) for a, b in pairwise(widths))
        self.head = MemberLinear(generators, widths[-1], 1, scale=0.1)
        self.register_buffer("baseline_times", torch.zeros(1, 0, dtype=torch.float64))
        self.register_buffer("increments", torch.zeros(len(generators), 0, dtype=torch.float64))

    def code(self, inputs: Inputs) -> Tensor:
        """Return W u(x) of shape (K, n, w)."""
        code: Tensor = self.entry(self.encoder(inputs))
        return code

    def time_code(self, t: Tensor) -> Tensor:
        """Return V τ(t) of shape (K, m, w) for times (K or 1, m)."""
        code: Tensor = self.clock(self.features(t[:, None])[0][:, 0])
        return code

    def log_risk(self, z: Tensor) -> Tensor:
        """Return g (K, rows) from the sum of the two terms of the first layer (K, rows, w)."""
        act = ACTIVATIONS[self.activation]
        a = act(z)
        for layer in self.layers:
            a = act(layer(a))
        g: Tensor = self.head(a)[..., 0]
        return g

    def terms(self, batch: Batch) -> Tensor:
        """-log(1 + Σⱼ e^{g(tᵢ, xⱼ) - g(tᵢ, xᵢ)}) for each row with an event, with controls j."""
        rows, found = valid_controls(self.controls.draw(batch), batch)
        members, b, n = rows.shape
        time = self.time_code(batch.outcome.time)
        case = self.log_risk(self.code(batch.inputs) + time)
        others = self.code(batch.table.inputs[rows.reshape(members, -1)]) + time.repeat_interleave(n, dim=1)
        controls = self.log_risk(others).reshape(members, b, n)
        return case_control_terms(case, controls, batch.outcome.event, self.shrink if self.training else 0.0, found)

    def start_training(self, table: Table, rows: Sequence[npt.NDArray[np.int64]]) -> Sequence[npt.NDArray[np.int64]]:
        """Return the cases, over which the objective is summed."""
        return self.controls.take(table, rows)

    def fit_baseline(self, inputs: Inputs, outcome: Observed) -> None:
        """The jumps of Λ₀, dᵢ / Σ_{j: v_j < tᵢ <= z_j} w_j e^{g(tᵢ, x_j)}, from the training rows.

        dᵢ is the weight of the events at tᵢ, v and w are entry times and weights.
        """
        order = torch.argsort(outcome.time)
        time, event = outcome.time[order], outcome.event[order]
        entry = None if outcome.entry is None else at_risk_from(outcome.entry[order])
        weight = None if outcome.weight is None else outcome.weight[order]
        self.baseline_times, counts = (part[None] for part in torch.unique(time[event], return_counts=True))
        if weight is not None:
            place = torch.searchsorted(self.baseline_times[0], time[event])
            counts = add_by_group(torch.zeros_like(self.baseline_times), place, weight[event][None])
        moments, first = self.baseline_times[0], torch.searchsorted(time, self.baseline_times[0])
        codes = self.code(inputs[order].shared())
        self.increments = time.new_zeros(len(codes), len(moments))
        for k in range(len(codes)):
            member = select_members(self, slice(k, k + 1))
            clock = member.time_code(moments[None])
            step = max(1, _CELLS["cuda" if time.is_cuda else "cpu"] // max(len(time), 1))
            for j in range(0, len(moments), step):
                part = slice(j, j + step)
                start = int(first[j])  # no row before it is at risk at these times
                g = member._grid(codes[k : k + 1, start:], clock[:, part])
                late = torch.arange(start, len(time), device=time.device)[:, None] >= first[None, part]
                if entry is not None:  # a case is at risk at its own time
                    late &= (entry[start:, None] < moments[part]) | (time[start:, None] == moments[part])
                if weight is not None:
                    g = g + torch.log(weight[start:, None])
                total = torch.logsumexp(torch.where(late, g, -torch.inf), dim=0)
                self.increments[k, part] = counts[0, part].to(time) * torch.exp(-total)
        _check_baseline(self.increments)
        self.controls.release()

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if the stored baseline is invalid."""
        _check_stored_baseline(self.baseline_times, self.increments, members)

    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        r"""The equal mixture of the members' curves exp(-Σ_{tᵢ <= t} ΔΛ₀(tᵢ) e^{g(tᵢ, x)}), in scaled time."""
        codes, times = self.code(inputs.shared()), self.baseline_times[0]
        n = codes.shape[1]
        if len(times) == 0:  # there were no events in training
            return Tabulated(times.new_zeros(1), codes.new_ones(n, 1), half_width=self.half_width)
        total = codes.new_zeros(n, len(times))
        step = max(1, _CELLS["cuda" if times.is_cuda else "cpu"] // len(times))
        for k in range(len(codes)):
            member = select_members(self, slice(k, k + 1))
            clock = member.time_code(times[None])
            for i in range(0, n, step):
                hazard = torch.exp(member._grid(codes[k : k + 1, i : i + step], clock)) * self.increments[k]
                total[i : i + step] += torch.exp(-hazard.cumsum(1))
        return _step_mixture([torch.log(total / len(codes))], times, self.half_width)

    def _grid(self, code: Tensor, clock: Tensor) -> Tensor:
        """g (n, m) of one member, from the first-layer terms of subjects (1, n, w) and of times (1, m, w)."""
        z = code[:, :, None] + clock[:, None]
        return self.log_risk(z.flatten(1, 2)).reshape(code.shape[1], clock.shape[1])


def _check_baseline(jumps: Tensor) -> None:
    """Raise a TrainingError if a baseline hazard is not positive and finite."""
    if not bool(((jumps > 0) & torch.isfinite(jumps)).all()):
        raise TrainingError(
            "The risks of the training rows differ so much that no baseline hazard can be computed. Try a "
            "smaller learning_rate, or a larger weight_decay."
        )


def _check_stored_baseline(times: Tensor, values: Tensor, members: int) -> None:
    """Raise a ValueError if the times and values of a stored baseline do not match."""
    if len(times) != 1 or tuple(values.shape) != (members, times.shape[1]):
        raise ValueError(f"baseline times {tuple(times.shape)} do not match values {tuple(values.shape)}")
    check_increasing(times, "the times of the baseline")
    _check_baseline(values)


def check_increasing(times: Tensor, what: str) -> None:
    """Raise a ValueError if times (members, m) do not increase or are negative."""
    if bool((torch.diff(times, dim=1) <= 0).any()) or bool((times < 0).any()):
        raise ValueError(f"{what} are negative or do not increase")
