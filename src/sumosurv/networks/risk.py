"""Relative risks by networks: partial likelihood, case-control sampling, and Breslow's baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from sumosurv.distributions import SurvivalDistribution, Tabulated
from sumosurv.networks.data import Batch, Inputs, Observed, Rows, Table
from sumosurv.networks.encoders import Encoder
from sumosurv.networks.layers import MemberLinear, MemberStream
from sumosurv.networks.population import PopulationNetwork, TrainingError
from sumosurv.networks.streams import random_bits

__all__ = [
    "CaseControl",
    "RiskNetwork",
    "case_control_terms",
    "check_baseline",
    "check_increasing",
    "check_stored_baseline",
    "partial_log_likelihood",
    "step_mixture",
]

_CONTROLS = 1 << 8  # the place of the control streams, apart from those of the dropout layers
_ROWS = 1 << 13  # rows of the training table taken at once


def partial_log_likelihood(log_risk: Tensor, time: Tensor, event: Tensor, present: Tensor) -> Tensor:
    r"""The terms of Cox's partial log-likelihood (Breslow's ties), one per row and zero for the censored.

    .. math:: d_i \Big[ g_i - \log \sum_{j: z_j \ge z_i} e^{g_j} \Big]

    Parameters
    ----------
    log_risk : Tensor of shape (K, b)
        g.
    time, event, present : Tensor of shape (K, b)
        Rows that are not present are in nobody's risk set.
    """
    late_first = -torch.where(present, time, -1.0)  # absent rows come last, after every risk set has ended
    ordered, order = torch.sort(late_first, dim=1, stable=True)
    total = torch.logcumsumexp(log_risk.gather(1, order), dim=1)
    end = torch.searchsorted(ordered.contiguous(), late_first.contiguous(), right=True) - 1  # ties are at risk together
    return torch.where(event & present, log_risk - total.gather(1, end), 0.0)


class CaseControl(MemberStream):
    r"""Controls drawn from the risk set: for a case at time t, uniformly from the training rows with z >= t.

    Kvamme, Borgan and Scheel (2019) replace the sum over the risk set by one over the case i and n controls,

    .. math:: -\log\Big(1 + \sum_{j} e^{g_j - g_i}\Big).

    Parameters
    ----------
    seeds : Tensor of shape (K,)
    n_controls : int
    """

    def __init__(self, seeds: Tensor, n_controls: int) -> None:
        super().__init__(seeds, _CONTROLS)
        self.n_controls = n_controls
        self._pool: tuple[Tensor, Tensor, Tensor] | None = None  # no buffer: it is training data, and not the model's

    def take(self, table: Table, rows: Sequence[npt.NDArray[np.int64]]) -> list[npt.NDArray[np.int64]]:
        """Take each member's training rows, from which controls are drawn; returns the cases among them."""
        padded = Rows.of(rows).to(table.device)
        self._pool = _sorted_pool(table.outcome.time[padded.index], padded.index, padded.present)
        event = table.outcome.event.cpu().numpy()
        return [part[event[part]] if event[part].any() else part for part in rows]

    def release(self) -> None:
        """Forget the training rows."""
        self._pool = None

    def draw(self, batch: Batch) -> Tensor:
        """Rows of the table (K, b, n_controls): controls of each row of the batch.

        In training they come from the pool and change from step to step; in evaluation from the batch itself, and
        are the same at each call.
        """
        if self.training and self._pool is not None:
            times, rows, count = self._pool
            keys = self.keys()
        else:
            times, rows, count = _sorted_pool(batch.outcome.time, batch.index, batch.present)
            keys = self.seeds
        members, b = batch.outcome.time.shape
        first = torch.searchsorted(times, batch.outcome.time.contiguous())[:, :, None]
        bits = random_bits(keys, b * self.n_controls).reshape(members, b, self.n_controls)
        uniform = (bits.double() + 2.0**31) / 2.0**32
        size = (count[:, None, None] - first).clamp_min(1)
        chosen = first + (uniform * size).long().clamp_max(size - 1)
        chosen = chosen.clamp_max(rows.shape[1] - 1)
        return rows.gather(1, chosen.reshape(members, -1)).reshape(members, b, self.n_controls)


def _sorted_pool(time: Tensor, index: Tensor, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Times and rows of each member by increasing time, padding last, and how many there are."""
    times, order = torch.sort(torch.where(present, time, torch.inf), dim=1, stable=True)
    return times.contiguous(), index.gather(1, order), present.sum(1)


def step_mixture(log_survival: Sequence[Tensor], times: Tensor, half_width: int) -> Tabulated:
    """The equal mixture of step curves on the same times: a step curve again, S = mean of S_k."""
    survival = torch.exp(torch.logsumexp(torch.stack(list(log_survival)), dim=0)) / len(log_survival)
    return Tabulated(times, survival.clamp_max(1.0), half_width=half_width)


class RiskNetwork(PopulationNetwork):
    r"""g(x) of a proportional hazards model, λ(t|x) = λ₀(t) e^{g(x)}, for K members at once.

    Parameters
    ----------
    generators : sequence of torch.Generator
    encoder : TableEncoder or ModuleEncoder
    half_width : int
        k of the interpolated density.
    controls : CaseControl, optional
        Train on sampled controls; without it on the partial likelihood of the batch.
    shrink : float
        Penalty on the mean of |g| over case and controls, which holds the free level of g.
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
        self.head = MemberLinear(generators, encoder.width, 1)
        with torch.no_grad():
            self.head.weight.mul_(0.1)
        self.register_buffer("baseline_times", torch.zeros(1, 0, dtype=torch.float64))
        self.register_buffer("baseline", torch.zeros(len(generators), 0, dtype=torch.float64))

    def forward(self, inputs: Inputs) -> Tensor:
        """g of shape (K, n)."""
        g: Tensor = self.head(self.encoder(inputs))[..., 0]
        return g

    def terms(self, batch: Batch) -> Tensor:
        """Terms of the partial likelihood, or of its case-control version, per row."""
        g = self(batch.inputs)
        if self.controls is None or not self.training:
            return partial_log_likelihood(g, batch.outcome.time, batch.outcome.event, batch.present)
        rows = self.controls.draw(batch)
        members, b, n = rows.shape
        others = self(batch.table.inputs[rows.reshape(members, -1)]).reshape(members, b, n)
        return case_control_terms(g, others, batch.outcome.event, self.shrink)

    def start_training(self, table: Table, rows: Sequence[npt.NDArray[np.int64]]) -> Sequence[npt.NDArray[np.int64]]:
        """With sampled controls the objective is summed over cases."""
        return rows if self.controls is None else self.controls.take(table, rows)

    def fit_baseline(self, inputs: Inputs, outcome: Observed) -> None:
        """Breslow's baseline, Λ₀(t) = Σ_{tᵢ <= t} dᵢ / Σ_{j: z_j >= tᵢ} e^{g_j}, from the training rows."""
        time, event = outcome.time, outcome.event
        parts = [self(inputs[i : i + _ROWS].shared()) for i in range(0, len(time), _ROWS)]
        g = torch.cat(parts, dim=1)
        distinct, group = torch.unique(time, return_inverse=True)
        shift = g.max(dim=1, keepdim=True).values
        weight = torch.zeros(len(g), len(distinct), dtype=g.dtype, device=g.device)
        weight.index_add_(1, group, torch.exp(g - shift))
        at_risk = weight.flip(1).cumsum(1).flip(1)
        events = torch.zeros_like(distinct).index_add_(0, group, event.to(distinct))
        jumps = events > 0
        self.baseline_times = distinct[jumps][None]
        self.baseline = torch.cumsum(events[jumps] / at_risk[:, jumps], dim=1) * torch.exp(-shift)
        check_baseline(self.baseline)
        if self.controls is not None:
            self.controls.release()

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if a baseline that was read from a file is none."""
        check_stored_baseline(self.baseline_times, self.baseline, members)
        if bool((torch.diff(self.baseline, dim=1) < 0).any()):
            raise ValueError("the baseline falls")

    def distribution(self, inputs: Inputs) -> SurvivalDistribution:
        """The equal mixture of the members' curves S = exp(-Λ₀ e^g), in scaled time."""
        risk = torch.exp(self(inputs.shared()))
        times = self.baseline_times[0]
        if len(times) == 0:  # no event was ever seen
            return Tabulated(times.new_zeros(1), risk.new_ones(risk.shape[1], 1), half_width=self.half_width)
        curves = [-r[:, None] * base for r, base in zip(risk, self.baseline)]
        return step_mixture(curves, times, self.half_width)


def check_baseline(jumps: Tensor) -> None:
    """Raise where a baseline hazard is not positive and finite."""
    if not bool(((jumps > 0) & torch.isfinite(jumps)).all()):
        raise TrainingError(
            "The risks of the training rows are so far apart that no baseline hazard can be computed. Try a "
            "smaller learning_rate, or a larger weight_decay."
        )


def check_stored_baseline(times: Tensor, values: Tensor, members: int) -> None:
    """Raise a ValueError if times and values of a baseline, read from a file, do not belong together."""
    if len(times) != 1 or tuple(values.shape) != (members, times.shape[1]):
        raise ValueError(f"a baseline has times {tuple(times.shape)} and values {tuple(values.shape)}")
    check_increasing(times, "the times of the baseline")
    check_baseline(values)


def check_increasing(times: Tensor, what: str) -> None:
    """Raise a ValueError if times (members, m) do not increase or are negative."""
    if bool((torch.diff(times, dim=1) <= 0).any()) or bool((times < 0).any()):
        raise ValueError(f"{what} do not increase")


def case_control_terms(case: Tensor, controls: Tensor, event: Tensor, shrink: float) -> Tensor:
    r"""-log(1 + Σⱼ e^{gⱼ - gᵢ}) for rows with an event, zero for others, minus shrink · mean |g|.

    Parameters
    ----------
    case : Tensor of shape (K, b)
    controls : Tensor of shape (K, b, n)
    """
    gap = controls - case[..., None]
    terms = -torch.logsumexp(functional.pad(gap, (1, 0)), dim=2)
    if shrink:
        terms = terms - shrink * (case.abs() + controls.abs().mean(dim=2))
    return torch.where(event, terms, 0.0)
