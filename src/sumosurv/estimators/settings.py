"""The settings that all network methods share, and their checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import nn

from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.networks.layers import ACTIVATIONS, Activation
from sumosurv.preprocessing import NumericScaling
from sumosurv.training import Epoch

__all__ = ["NetworkSettings"]


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkSettings(SurvivalEstimator):
    """Settings of the covariate network and of its training: the constructor arguments of every network method.

    Parameters
    ----------
    n_members : int
        Networks in the mixture.
    covariate_layers : sequence of int
        Hidden widths of the covariate network; ``()`` makes the model linear in the preprocessed columns.
    activation : {"silu", "relu", "tanh", "gelu"}
    residual : bool
        Residual connections between layers of equal width.
    dropout : float
        In the covariate network.
    frequencies : int
        Learned periodic features per numeric column.
    numeric_scaling : {"quantile", "standard"}
        Normal scores by quantiles, or mean and standard deviation.
    encoder : torch.nn.Module or callable, optional
        Covariate network of your own, replicated per member; see `SumoNet`.
    learning_rate : float
        Of AdamW, falling to zero along a cosine.
    weight_decay : float
    max_epochs : int
    batch_size : int, "auto" or "full"
        "auto" is the power of two nearest to 4 √rows; "full" all rows.
    patience : int, optional
        A member stops when its best epoch is more than this many epochs ago; None trains all epochs. Either way
        each member keeps the weights of its best epoch on validation rows.
    validation_fraction : float
        Share of rows that each member holds out where ``fit`` gets no ``validation_data``; 0 for none.
    refit : bool
        Train again on all rows, validation rows included, each member for its best number of epochs.
    device : str
        "auto" (CUDA if available), "cpu" or "cuda".
    n_threads : int, optional
        CPU threads while training. None: one, where the networks are small.
    random_state : int, RandomState or None
        A seed makes a fit repeatable bit for bit on one machine.
    verbose : bool
        Show a progress bar.
    on_epoch : callable, optional
        Called after each epoch with an `Epoch`; see `SumoNet`.
    """

    n_members: int = 16
    covariate_layers: Sequence[int] | None = (64, 64)
    activation: Activation | None = "silu"
    residual: bool | None = True
    dropout: float | None = 0.5
    frequencies: int | None = 4
    numeric_scaling: NumericScaling | None = "quantile"
    encoder: nn.Module | Callable[[], nn.Module] | None = None
    learning_rate: float | None = 0.01
    weight_decay: float = 0.1
    max_epochs: int = 80
    batch_size: int | Literal["auto", "full"] = "auto"
    patience: int | None = 20
    validation_fraction: float = 0.2
    refit: bool = False
    device: str = "auto"
    n_threads: int | None = None
    random_state: Any = None
    verbose: bool = False
    on_epoch: Callable[[Epoch], None] | None = None

    def setting(self, name: str) -> Any:
        """The value of a setting; None stands for its default."""
        value = getattr(self, name)
        return getattr(type(self), name) if value is None else value

    def _check_settings(self) -> None:
        """Raise a ValueError that names an invalid setting."""
        for name, low in (("n_members", 1), ("max_epochs", 1)):
            self._check_whole(name, low)
        for name, low in (("patience", 0), ("n_threads", 1)):
            self._check_whole(name, low, or_none=True)
        size = self.batch_size
        if size not in ("auto", "full") and not (isinstance(size, (int, np.integer)) and size >= 1):
            raise ValueError(f"batch_size is 'auto', 'full' or a whole number of at least 1; got {size!r}.")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction lies in [0, 1); got {self.validation_fraction!r}.")
        if not self.setting("learning_rate") > 0:
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate!r}.")
        if not self.setting("weight_decay") >= 0:
            raise ValueError(f"weight_decay must not be negative; got {self.weight_decay!r}.")
        self._check_choice("activation", tuple(ACTIVATIONS))
        self._check_choice("numeric_scaling", ("quantile", "standard"))
        if not 0 <= self.setting("dropout") < 1:
            raise ValueError(f"dropout lies in [0, 1); got {self.dropout!r}.")
        self._check_widths("covariate_layers")
        frequencies = self.setting("frequencies")
        if not isinstance(frequencies, (int, np.integer)) or frequencies < 0:
            raise ValueError(f"frequencies is a whole number, zero or more; got {self.frequencies!r}.")
        if not isinstance(self.verbose, (bool, int, np.integer)):
            raise ValueError(f"verbose is True or False; got {self.verbose!r}. A callable goes to on_epoch.")
        if self.on_epoch is not None and not callable(self.on_epoch):
            raise ValueError(f"on_epoch is a function that is called after each epoch; got {self.on_epoch!r}.")

    def _check_whole(self, name: str, low: int, *, or_none: bool = False) -> None:
        value = getattr(self, name) if or_none else self.setting(name)
        if not (or_none and value is None) and (not isinstance(value, (int, np.integer)) or value < low):
            what = "None or a whole number" if or_none else "a whole number"
            raise ValueError(f"{name} is {what} of at least {low}; got {value!r}.")

    def _check_choice(self, name: str, known: tuple[str, ...]) -> None:
        value = self.setting(name)
        if value not in known:
            raise ValueError(f"{name} is one of {', '.join(map(repr, known))}; got {value!r}.")

    def _check_widths(self, name: str, *, at_least_one: bool = False) -> None:
        widths = self.setting(name)
        listed = isinstance(widths, (Sequence, np.ndarray)) and not isinstance(widths, str)
        if not listed or any(not isinstance(width, (int, np.integer)) or width < 1 for width in widths):
            raise ValueError(f"{name} is a sequence of positive widths; got {widths!r}.")
        if at_least_one and not len(widths):
            raise ValueError(f"{name} needs at least one hidden layer.")
