"""Increasing features of time, with their derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

__all__ = ["LOG_OFFSET", "TimeFeatureKind", "TimeFeatures"]

TimeFeatureKind = Literal["linear", "log", "marginal"]

LOG_OFFSET = 1e-3  # in log(t + 0.001), t being scaled so that the last training time is 1


class TimeFeatures(nn.Module):
    r"""τ(t): increasing functions of scaled time.

    - "linear": t itself, shifted and scaled;
    - "log": t and log(t + 0.001), which gives early times room;
    - "marginal": these two and the log-odds of the event in the whole training set, ½ logit F(t), with
      F from Kaplan-Meier at a few quantiles of the event times and a monotone cubic in log(t + 0.001)
      between them (straight lines beyond). The network starts from the shape that all subjects share
      and learns how each departs from it.

    Parameters
    ----------
    kind : {"linear", "log", "marginal"}
    table : Tensor of shape (1 or K, 2 or 3, J)
        Of "linear": shift and width. Of "marginal": places, values and slopes at the knots. One table
        for all members, or one each.
    """

    table: Tensor

    def __init__(self, kind: TimeFeatureKind, table: Tensor | None = None) -> None:
        super().__init__()
        self.kind: TimeFeatureKind = kind
        self.n_features = {"linear": 1, "log": 2, "marginal": 3}[kind]
        self.register_buffer("table", torch.zeros(1, 0, 0) if table is None else table.float())

    def forward(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """τ and τ' of times (K or 1, n or 1, m), a last axis of features added."""
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
        """As plain values."""
        return {"kind": self.kind, "table": self.table.tolist() if self.table.numel() else None}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TimeFeatures:
        """The inverse of `state`."""
        return cls(state["kind"], None if state["table"] is None else torch.tensor(state["table"]))

    def check_stored(self, members: int) -> None:
        """Raise a ValueError if a table that was read from a file is none of such features."""
        rows = {"linear": 2, "log": 0, "marginal": 3}[self.kind]
        knots = {"linear": self.table.shape[2] == 1, "log": True, "marginal": self.table.shape[2] >= 2}[self.kind]
        if self.table.shape[1] != rows or not knots:
            raise ValueError(f"the table of the time features has shape {tuple(self.table.shape)}")
        falls = torch.diff(self.table, dim=2)  # of places and values
        bad = (self.table[:, 1] <= 0) if self.kind == "linear" else (falls[:, :1] <= 0) | (falls[:, 1:2] < 0)
        if bool(bad.any()) or bool((self.table[:, 2:] < 0).any()):
            raise ValueError("the table of the time features does not increase")

    def breaks(self) -> list[float]:
        """Times at which a feature is not smooth (of the first member): the knots of the cubic."""
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
        value = value + (whole - u) * width * torch.where(whole > 1, d1, d0)  # straight beyond the last knots
        return value.reshape(shape), slope.reshape(shape)
