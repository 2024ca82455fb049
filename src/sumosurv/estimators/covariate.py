"""Estimators that differ in what they make of the covariate network's code; its options are the same for all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.networks import Inputs, ModuleEncoder, TableEncoder, TimeFeatures
from sumosurv.networks.layers import ACTIVATIONS, Activation
from sumosurv.networks.time import TimeFeatureKind
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import NumericScaling, Preprocessor, time_features

__all__ = ["CovariateNetworkEstimator", "Encoder", "Generators", "UsesTimeFeatures"]

Encoder = TableEncoder | ModuleEncoder
Generators = Sequence[torch.Generator]


@dataclass(kw_only=True, eq=False, repr=False)
class CovariateNetworkEstimator(NetworkEstimator):
    """A population of networks: covariates to a code, the same way for all models, and the code to a distribution.

    A model defines ``_make_head``. Its constructor arguments are the fields of its (data)class.

    Parameters
    ----------
    ensemble_size : int
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
        A member is done when its best epoch is more than so many epochs back; None trains all. Either way
        each member keeps the weights of its best epoch on validation rows.
    validation_fraction : float
        Share of rows that each member holds out where ``fit`` gets no ``validation_data``; 0 for none.
    refit : bool
        Train again on all rows, validation rows included, each member for its best number of epochs.
    device : str
        "auto" (CUDA where there is one), "cpu" or "cuda".
    n_threads : int, optional
        CPU threads while training. None: one, where the networks are small.
    random_state : int, RandomState or None
        A seed makes a fit repeatable bit for bit on one machine.
    verbose : bool
        Show a progress bar.
    """

    ensemble_size: int = 16
    covariate_layers: Sequence[int] = (64, 64)
    activation: Activation = "silu"
    residual: bool = True
    dropout: float = 0.5
    frequencies: int = 4
    numeric_scaling: NumericScaling = "quantile"
    encoder: nn.Module | Callable[[], nn.Module] | None = None
    learning_rate: float = 0.01
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

    @abstractmethod
    def _make_head(
        self, generators: Generators, seeds: npt.NDArray[np.int64], encoder: Encoder, y: Outcome | None
    ) -> nn.Module:
        """The whole network around a covariate network; without an outcome what depends on it is a placeholder."""

    def _make_network(self, seeds: npt.NDArray[np.int64], y: Outcome | None, example: Inputs) -> nn.Module:
        generators = [torch.Generator().manual_seed(int(seed)) for seed in seeds]
        encoder: Encoder
        if self.encoder is not None:
            encoder = ModuleEncoder(self.encoder, [int(seed) for seed in seeds], example.numeric)
        else:
            if self.preprocessor_.row_shape is not None:
                raise ValueError("Arrays of more than two dimensions need an encoder= that reads them.")
            encoder = TableEncoder(
                generators,
                torch.as_tensor(seeds),
                torch.full((len(seeds),), float(self.dropout)),
                n_numeric=self.preprocessor_.n_numeric,
                levels=self.preprocessor_.levels,
                widths=self.covariate_layers,
                activation=self.activation,
                residual=self.residual,
                frequencies=self.frequencies,
            )
        return self._make_head(generators, seeds, encoder, y)

    def _make_preprocessor(self) -> Preprocessor:
        return Preprocessor(self.numeric_scaling, one_hot=self.encoder is not None)

    def _learning_rate(self) -> float:
        return float(self.learning_rate)

    def _check_parameters(self) -> None:
        self._check_choice("activation", tuple(ACTIVATIONS))
        self._check_choice("numeric_scaling", ("quantile", "standard"))
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout lies in [0, 1); got {self.dropout!r}.")
        self._check_widths("covariate_layers")
        if not isinstance(self.frequencies, (int, np.integer)) or self.frequencies < 0:
            raise ValueError(f"frequencies is a whole number, zero or more; got {self.frequencies!r}.")
        super()._check_parameters()

    def _check_choice(self, name: str, known: tuple[str, ...]) -> None:
        if getattr(self, name) not in known:
            raise ValueError(f"{name} is one of {', '.join(map(repr, known))}; got {getattr(self, name)!r}.")

    def _check_widths(self, name: str) -> None:
        widths = getattr(self, name)
        listed = isinstance(widths, (Sequence, np.ndarray)) and not isinstance(widths, str)
        if not listed or any(not isinstance(width, (int, np.integer)) or width < 1 for width in widths):
            raise ValueError(f"{name} is a sequence of positive widths; got {getattr(self, name)!r}.")


class UsesTimeFeatures(CovariateNetworkEstimator):
    """For networks that see features of time: fits them, and keeps which they are."""

    time_features: TimeFeatureKind
    time_features_: TimeFeatureKind

    def _make_time_features(self, y: Outcome | None) -> TimeFeatures:
        if y is None:
            return TimeFeatures(self.time_features_)
        features = time_features(self.time_features, y, self.time_unit_)
        self.time_features_ = features.kind
        return features

    def _check_parameters(self) -> None:
        self._check_choice("time_features", ("marginal", "log", "linear"))
        super()._check_parameters()

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        fitted, tensors = super()._state()
        return fitted | {"time_features_": self.time_features_}, tensors

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        self.time_features_ = cast(TimeFeatureKind, fitted["time_features_"])
        super()._restore(fitted, tensors)
