"""What an objective that looks beyond single rows is given: the rows of a batch, and the table they come from."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sumosurv.networks.encoders import Inputs

__all__ = ["Batch"]


@dataclass(frozen=True)
class Batch:
    """Rows (K, b) of each member; where ``present`` is False a row is padding and must not count.

    A network trains on ``log_likelihood(inputs, t, event)``, one term per row, unless it has
    ``batch_terms(batch)``: then terms may depend on the other rows of the batch, or of the table.
    ``validation_rows`` of such a network says how many rows make a batch of the validation score
    (None for all: its terms need the whole risk set).
    """

    inputs: Inputs
    time: Tensor
    event: Tensor
    present: Tensor
    index: Tensor  # of the rows in the table
    table: Inputs
    table_time: Tensor
