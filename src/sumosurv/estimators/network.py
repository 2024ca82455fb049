"""Estimators that train a population of networks: their settings, and the walk from rows to a distribution."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils import check_random_state
from torch import nn

from sumosurv.distributions import Delayed, Rescaled, SurvivalDistribution
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.reading import Learned, Prepared, Reading, read_rows
from sumosurv.networks import Encoder, Inputs, ModuleEncoder, Observed, PopulationNetwork, TableEncoder, select_members
from sumosurv.networks.layers import ACTIVATIONS, Activation
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.preprocessing import NumericScaling, Preprocessor
from sumosurv.training import (
    Epoch,
    History,
    Member,
    Schedule,
    Shift,
    batch_rows,
    explain_memory,
    find_device,
    split_rows,
    threads,
    train,
)

__all__ = ["Generators", "NetworkEstimator"]

Generators = Sequence[torch.Generator]

_KNOWN = ("n_features_in_", "feature_names_in_", "risk_times_")


class _FittedNetwork(SurvivalEstimator):
    """What a fit leaves behind; apart from the dataclass below, whose annotations are constructor arguments."""

    learned_: Learned
    network_: PopulationNetwork
    n_members_: int
    history_: pd.DataFrame
    best_epoch_: npt.NDArray[np.int64]
    best_valid_: npt.NDArray[np.float64]

    @property
    def preprocessor_(self) -> Preprocessor:
        """What was learned of the columns."""
        return self.learned_.preprocessor

    @property
    def time_origin_(self) -> float:
        """When the networks' clock starts."""
        return self.learned_.time_origin

    @property
    def time_unit_(self) -> float:
        """How long it runs: to the largest training time."""
        return self.learned_.time_unit


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkEstimator(_FittedNetwork):
    """A population of networks: covariates to an embedding, the same way for all methods, and that to a distribution.

    A method defines ``_build_network`` and what it must learn of the outcome before (``_learn_start``). Its
    constructor arguments are the fields of its (data)class. ``read``, ``learn``, ``build``, ``member``, ``schedule``
    and ``fitted`` are the steps of ``fit``, each a function of its arguments and of the settings alone; a search takes
    the same steps.

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
    on_epoch : callable, optional
        Called after each epoch with an `Epoch`; see `SumoNet`.
    """

    # settings that each member of a population can have of its own; layers that can be padded to a common shape
    member_settings: ClassVar[tuple[str, ...]] = ("learning_rate", "weight_decay", "dropout")
    padded_settings: ClassVar[tuple[str, ...]] = ("covariate_layers",)

    ensemble_size: int = 16
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

    # ------------------------------------------------------------------ what a method defines

    @abstractmethod
    def _build_network(
        self, start: Mapping[str, Any], encoder: Encoder, generators: Generators, seeds: npt.NDArray[np.int64]
    ) -> PopulationNetwork:
        """The whole network around a covariate network, from what `_learn_start` gave."""

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        """What the network must know of the training outcome (in the user's unit): plain values; nothing here."""
        return {}

    def _check_rows(self, outcome: Outcome) -> None:
        """Raise a ValueError if the method cannot learn from such an outcome."""

    def setting(self, name: str) -> Any:
        """The value of a setting; None stands for its default."""
        value = getattr(self, name)
        return getattr(type(self), name) if value is None else value

    def reading(self) -> Reading:
        """The settings that decide how rows are read."""
        return Reading(self.setting("numeric_scaling"), one_hot=self.encoder is not None)

    # ------------------------------------------------------------------ the walk from rows to a fitted model

    def fit(self, X: Any, y: Any, validation_data: tuple[Any, Any] | None = None) -> Self:
        """Fit to covariates and right-censored times.

        Parameters
        ----------
        X : DataFrame or array of shape (rows, columns)
            Numeric and categorical columns, missing values allowed. With an ``encoder`` also an array of
            more dimensions.
        y : outcome
            `Surv.from_arrays(event, time)`, a two-column DataFrame, or a ``(time, event)`` pair.
        validation_data : tuple (X, y), optional
            Rows for early stopping. Without it each member holds out its own share of the rows,
            ``validation_fraction``, so that together they see them all.
        """
        return self._fit_anew(X, y, validation_data)

    def _fit(self, X: Any, y: Any, validation_data: tuple[Any, Any] | None = None) -> None:
        rows = self.read(X, y, validation_data)
        learned = self.learn(rows)
        seeds = check_random_state(self.random_state).randint(0, 2**31 - 1, size=self.ensemble_size)
        members = [
            self.member(
                int(seed),
                *(
                    split_rows(rows.outcome, int(seed), self.validation_fraction)
                    if validation_data is None
                    else rows.own_rows()
                ),
            )
            for seed in seeds
        ]
        network, history = self._train(learned, rows, members)
        failed = history.failed
        again = self.refit and members[0].valid_rows is not None and not history.interrupted
        if again:
            every = np.arange(len(rows.outcome))
            members = [
                replace(member, train_rows=every, valid_rows=None, stop_after=int(epoch))
                for member, epoch in zip(members, np.where(failed, -1, history.best_epoch))
            ]
            network, second = self._train(learned, rows, members)
            failed = second.failed
        self._become(self.fitted(rows, learned, network, failed, on_all_rows=again))
        self.history_, self.best_epoch_, self.best_valid_ = history.frame(), history.best_epoch, history.best_valid

    def read(self, X: Any, y: Any, validation_data: tuple[Any, Any] | None = None) -> Prepared:
        """Check the rows and turn them into tensors."""
        checked = self._unfitted()
        X, outcome = checked._start(X, y)
        self._check_rows(outcome)
        more = None
        if validation_data is not None:
            X_valid = checked._check_covariates(validation_data[0], reset=False)
            more = X_valid, check_outcome(validation_data[1], n_rows=len(X_valid))
            self._check_rows(more[1])
        known = {name: vars(checked)[name] for name in _KNOWN if name in vars(checked)}
        return read_rows(self.reading(), (X, outcome), more, known)

    def learn(self, rows: Prepared) -> Learned:
        """All that a network must know of the rows."""
        start = self._learn_start(rows.training, rows.time_unit)
        return Learned(rows.preprocessor, rows.time_origin, rows.time_unit, start)

    def build(self, learned: Learned, seeds: npt.NDArray[np.int64]) -> PopulationNetwork:
        """A population with one member per seed; the same for a fit, a trial of a search and a model file."""
        generators = [torch.Generator().manual_seed(int(seed)) for seed in seeds]
        columns = learned.preprocessor
        encoder: Encoder
        if self.encoder is not None:
            encoder = ModuleEncoder(self.encoder, [int(seed) for seed in seeds], learned.example())
        elif columns.row_shape is not None:
            raise ValueError("Arrays of more than two dimensions need an encoder= that reads them.")
        else:
            encoder = TableEncoder(
                generators,
                torch.as_tensor(seeds),
                torch.full((len(seeds),), float(self.setting("dropout"))),
                n_numeric=columns.n_numeric,
                levels=columns.levels,
                widths=self.setting("covariate_layers"),
                activation=self.setting("activation"),
                residual=self.setting("residual"),
                frequencies=self.setting("frequencies"),
            )
        return self._build_network(learned.start, encoder, generators, seeds)

    def member(
        self,
        seed: int,
        train_rows: npt.NDArray[np.int64],
        valid_rows: npt.NDArray[np.int64] | None,
        stop_after: int | None = None,
    ) -> Member:
        """One network with these settings, on some of the rows."""
        rate, decay = float(self.setting("learning_rate")), float(self.weight_decay)
        return Member(seed, train_rows, valid_rows, rate, decay, stop_after)

    def schedule(self, n_rows: int) -> Schedule:
        """How a population with these settings trains on so many rows."""
        return Schedule(self.max_epochs, batch_rows(self.batch_size, n_rows), self.patience, self.n_threads)

    def fitted(
        self,
        rows: Prepared,
        learned: Learned,
        network: PopulationNetwork,
        failed: npt.NDArray[np.bool_],
        *,
        on_all_rows: bool = False,
    ) -> Self:
        """A copy of this estimator that predicts with a trained population: its members that worked.

        Baselines are learned from the training rows, or from all rows where that is what the network was trained on.
        """
        made = self._unfitted()
        made.__dict__.update(rows.known)
        made.learned_, made.n_members_ = learned, int(len(failed) - failed.sum())
        if failed.any():
            network = select_members(network, np.flatnonzero(~failed).tolist())
        for p in network.parameters():
            p.data = p.data.contiguous()
            p.requires_grad_(False)
        made.network_ = network.double().eval()  # prediction is in float64
        n = len(rows.outcome) if on_all_rows else rows.n_train
        outcome = rows.outcome[:n].on_clock(learned.time_origin, learned.time_unit)
        with threads(self.n_threads), torch.no_grad():
            p = next(network.parameters())
            inputs = rows.table.inputs[:n].to(p.device, p.dtype)
            made.network_.fit_baseline(inputs, Observed.of(outcome, torch.float64).to(p.device))
        return made

    # ------------------------------------------------------------------ parts of the walk

    def _train(self, learned: Learned, rows: Prepared, members: Sequence[Member]) -> tuple[PopulationNetwork, History]:
        device = find_device(self.device)
        network = self.build(learned, np.array([member.seed for member in members])).to(device)
        # what mean log-likelihoods lose, member by member, when times are in the user's unit and no longer scaled
        unit = math.log(rows.time_unit) if network.terms_are_likelihoods else 0.0
        held_out = [m.valid_rows for m in members if m.valid_rows is not None]
        shift = Shift(
            unit * np.array([rows.outcome.event[m.train_rows].mean() for m in members]),
            unit * np.array([rows.outcome.event[part].mean() for part in held_out]) if held_out else np.zeros(1),
        )
        own = self.on_epoch
        schedule = replace(
            self.schedule(len(members[0].train_rows)),
            show_progress=bool(self.verbose),
            on_epoch=None if own is None else lambda epoch: own(shift.epoch(epoch)),
        )
        return network, shift.history(train(network, rows.table.to(device), members, schedule))

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return self.distribution_of(self.preprocessor_.transform(X))

    def distribution_of(self, inputs: Inputs) -> SurvivalDistribution:
        """The distribution of preprocessed rows."""
        p = next(self.network_.parameters())
        with explain_memory("Predict fewer rows or times at once, or load the model on the CPU."):
            own = Rescaled(self.network_.distribution(inputs.to(p.device, p.dtype)), self.time_unit_)
        return Delayed(own, self.time_origin_) if self.time_origin_ else own

    # ------------------------------------------------------------------ model files

    def state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a model file keeps: what was learned, and the weights."""
        fitted, tensors = super().state()
        fitted |= {"learned": self.learned_.state(), "n_members_": self.n_members_}
        # weights were trained in float32, so that nothing is lost; tables such as baselines keep their precision
        weights = {f"network.{name}": value for name, value in self.network_.state_dict().items()}
        weights |= {f"network.{name}": value.float() for name, value in self.network_.named_parameters()}
        return fitted, tensors | weights

    def restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `state`, on an estimator that was just made."""
        super().restore(fitted, tensors)
        self.learned_ = Learned.from_state(fitted["learned"])
        self.n_members_ = int(fitted["n_members_"])
        network = self.build(self.learned_, np.zeros(self.n_members_, dtype=np.int64)).double()
        weights = {name.removeprefix("network."): v for name, v in tensors.items() if name.startswith("network.")}
        for name, buffer in list(network.named_buffers()):
            if name in weights and weights[name].shape != buffer.shape:  # tables whose size depends on the data
                owner, _, leaf = name.rpartition(".")
                setattr(network.get_submodule(owner), leaf, torch.empty_like(weights[name]))
        network.load_state_dict(weights, strict=True)
        self.network_ = network.requires_grad_(False).eval().to(find_device(self.device))

    # ------------------------------------------------------------------ checks

    def check_settings(self) -> None:
        """Raise a ValueError that names a setting which cannot be."""
        for name, low in (("ensemble_size", 1), ("max_epochs", 1)):
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
        if not self.weight_decay >= 0:
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
        value = getattr(self, name)
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
