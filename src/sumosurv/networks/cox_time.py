"""Cox-Time: a relative risk that depends on time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.grouped_sum import add_by_group
from sumosurv.networks.case_control import CaseControl, at_risk_from, case_control_terms, found_controls
from sumosurv.networks.data import Batch, Inputs, Observed, Table
from sumosurv.networks.encoders import Encoder
from sumosurv.networks.layers import ACTIVATIONS, Activation, MemberLinear, select_members
from sumosurv.networks.population import PopulationNetwork
from sumosurv.networks.risk import check_baseline, check_stored_baseline, step_mixture
from sumosurv.networks.time import TimeFeatures

__all__ = ["CoxTimeNetwork"]

_CELLS = {"cpu": 1 << 15, "cuda": 1 << 22}  # rows × times at once: layers stay in cache, or fill the device


class CoxTimeNetwork(PopulationNetwork):
    r"""g(t, x) of λ(t|x) = λ₀(t) e^{g(t, x)}: layers over the covariates' code and features of time.

    The first layer is W u(x) + V τ(t): for a table of times u(x) runs once per subject and τ(t) once per
    time.

    Parameters
    ----------
    generators : sequence of torch.Generator
    encoder : TableEncoder or ModuleEncoder
    features : TimeFeatures
    widths : sequence of int
        Hidden layers over code and time.
    activation : {"silu", "relu", "tanh", "gelu"}
    half_width : int
        k of the interpolated density.
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
        self.head = MemberLinear(generators, widths[-1], 1)
        with torch.no_grad():
            self.head.weight.mul_(0.1)
        self.register_buffer("baseline_times", torch.zeros(1, 0, dtype=torch.float64))
        self.register_buffer("increments", torch.zeros(len(generators), 0, dtype=torch.float64))

    def code(self, inputs: Inputs) -> Tensor:
        """W u(x) of shape (K, n, w)."""
        code: Tensor = self.entry(self.encoder(inputs))
        return code

    def time_code(self, t: Tensor) -> Tensor:
        """V τ(t) of times (K or 1, m): shape (K, m, w)."""
        code: Tensor = self.clock(self.features(t[:, None])[0][:, 0])
        return code

    def log_risk(self, z: Tensor) -> Tensor:
        """g of what the two codes add up to, (K, rows, w) to (K, rows)."""
        act = ACTIVATIONS[self.activation]
        a = act(z)
        for layer in self.layers:
            a = act(layer(a))
        g: Tensor = self.head(a)[..., 0]
        return g

    def terms(self, batch: Batch) -> Tensor:
        """-log(1 + Σⱼ e^{g(tᵢ, xⱼ) - g(tᵢ, xᵢ)}) of each row with an event, j its controls."""
        rows, found = found_controls(self.controls.draw(batch), batch)
        members, b, n = rows.shape
        time = self.time_code(batch.outcome.time)
        case = self.log_risk(self.code(batch.inputs) + time)
        others = self.code(batch.table.inputs[rows.reshape(members, -1)]) + time.repeat_interleave(n, dim=1)
        controls = self.log_risk(others).reshape(members, b, n)
        return case_control_terms(case, controls, batch.outcome.event, self.shrink if self.training else 0.0, found)

    def start_training(self, table: Table, rows: Sequence[npt.NDArray[np.int64]]) -> Sequence[npt.NDArray[np.int64]]:
        """The objective is summed over cases."""
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
            step = max(1, _cells(time) // max(len(time), 1))
            for j in range(0, len(moments), step):
                part = slice(j, j + step)
                start = int(first[j])  # nobody before it is at risk at these times
                g = member._grid(codes[k : k + 1, start:], clock[:, part])
                late = torch.arange(start, len(time), device=time.device)[:, None] >= first[None, part]
                if entry is not None:  # a case is at risk at its own time
                    late &= (entry[start:, None] < moments[part]) | (time[start:, None] == moments[part])
                if weight is not None:
                    g = g + torch.log(weight[start:, None])
                total = torch.logsumexp(torch.where(late, g, -torch.inf), dim=0)
                self.increments[k, part] = counts[0, part].to(time) * torch.exp(-total)
        check_baseline(self.increments)
        self.controls.release()

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if a baseline that was read from a file is none."""
        check_stored_baseline(self.baseline_times, self.increments, members)

    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        r"""The equal mixture of the members' curves exp(-Σ_{tᵢ <= t} ΔΛ₀(tᵢ) e^{g(tᵢ, x)}), in scaled time."""
        codes, times = self.code(inputs.shared()), self.baseline_times[0]
        n = codes.shape[1]
        if len(times) == 0:  # no event was ever seen
            return Tabulated(times.new_zeros(1), codes.new_ones(n, 1), half_width=self.half_width)
        total = codes.new_zeros(n, len(times))
        step = max(1, _cells(times) // len(times))
        for k in range(len(codes)):
            member = select_members(self, slice(k, k + 1))
            clock = member.time_code(times[None])
            for i in range(0, n, step):
                hazard = torch.exp(member._grid(codes[k : k + 1, i : i + step], clock)) * self.increments[k]
                total[i : i + step] += torch.exp(-hazard.cumsum(1))
        return step_mixture([torch.log(total / len(codes))], times, self.half_width)

    def _grid(self, code: Tensor, clock: Tensor) -> Tensor:
        """g (n, m) of one member, at codes of subjects (1, n, w) and of times (1, m, w)."""
        z = code[:, :, None] + clock[:, None]
        return self.log_risk(z.flatten(1, 2)).reshape(code.shape[1], clock.shape[1])


def _cells(like: Tensor) -> int:
    return _CELLS.get(like.device.type, _CELLS["cpu"])
