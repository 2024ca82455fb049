"""Estimators that train a population of networks: their settings, and the walk from rows to a distribution."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils import check_random_state

from sumosurv.distributions import Delayed, Rescaled, SurvivalDistribution
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.estimators.causes import cause_shares, rows_of_cause
from sumosurv.estimators.given import check_learns_from, check_validation_data, with_rows
from sumosurv.estimators.members import Members
from sumosurv.estimators.reading import Learned, Prepared, Reading, read_rows, share_seen
from sumosurv.estimators.settings import NetworkSettings
from sumosurv.estimators.weights import check_weights, filled, with_growth
from sumosurv.networks import (
    CausesNetwork,
    Encoder,
    Inputs,
    LikelihoodNetwork,
    ModuleEncoder,
    NoEncoder,
    Observed,
    PopulationNetwork,
    TableEncoder,
    select_members,
)
from sumosurv.networks.layers import at_most
from sumosurv.outcome import Cells, Outcome, check_outcome
from sumosurv.preprocessing import Preprocessor
from sumosurv.sources import Roles, RowSource, is_source
from sumosurv.stored import as_list, as_whole
from sumosurv.training import (
    Checkpoints,
    History,
    Member,
    Schedule,
    Shift,
    batch_rows,
    current_workers,
    explain_memory,
    find_device,
    keeping,
    next_checkpoint,
    split_rows,
    threads,
)
from sumosurv.training import train as train_population

__all__ = ["Generators", "NetworkEstimator", "tell_interrupted"]

Generators = Sequence[torch.Generator]

_DEVICE_CELLS = 1 << 23  # rows × times predicted at once on a device that is not the CPU
_LARGE = 1e4  # a file with a weight above it is tried on a row when it is read
_KNOWN = ("n_features_in_", "feature_names_in_", "n_causes_", "last_time_", "risk_times_", "training_curve_")


class _FittedNetwork(SurvivalEstimator):
    """What a fit leaves behind; apart from the dataclass below, whose annotations are constructor arguments."""

    learned_: Learned
    network_: PopulationNetwork
    n_members_: int
    history_: pd.DataFrame
    best_epoch_: npt.NDArray[np.int64]
    best_valid_: npt.NDArray[np.float64]
    members_: pd.DataFrame
    interrupted_: bool

    @property
    def preprocessor_(self) -> Preprocessor:
        """What was learned of the columns."""
        return self.learned_.preprocessor

    @property
    def cells_(self) -> Cells | None:
        """What recorded times stand for, where that is a cell and no point of time."""
        return self.learned_.cells

    @property
    def resolution_(self) -> float | None:
        """The width of these cells."""
        return None if self.cells_ is None else self.cells_.width

    @property
    def time_origin_(self) -> float:
        """When the networks' clock starts."""
        return self.learned_.time_origin

    @property
    def time_unit_(self) -> float:
        """How long it runs: to the largest training time."""
        return self.learned_.time_unit


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkEstimator(_FittedNetwork, NetworkSettings):
    """A population of networks: covariates to an embedding, the same way for all methods, and that to a distribution.

    A method defines ``_build_network`` and what it must learn of the outcome before (``_learn_start``); its
    constructor arguments are the fields of its (data)class. ``read``, ``learn``, ``build``, ``member``, ``train``,
    ``schedule``, ``fitted`` and ``finished`` are the steps of ``fit``, each a function of its arguments and of the
    settings alone; a search takes the same steps, and so does a fit of several kinds of networks.
    """

    # settings that each member of a population can have of its own; layers that can be padded to a common shape
    member_settings: ClassVar[tuple[str, ...]] = ("learning_rate", "weight_decay", "dropout")
    padded_settings: ClassVar[tuple[str, ...]] = ("covariate_layers",)
    _learns_from: ClassVar[frozenset[str]] = frozenset({"entry", "intervals", "causes", "weights"})
    _streams: ClassVar[bool] = True  # a row's term needs no other rows, so that they can be read in pieces

    # ------------------------------------------------------------------ what a method defines

    @abstractmethod
    def _build_network(
        self, start: Mapping[str, Any], encoder: Encoder, generators: Generators, seeds: npt.NDArray[np.int64]
    ) -> PopulationNetwork:
        """The whole network around a covariate network, from what `_learn_start` gave."""

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        """What the network must know of the training outcome (in the user's unit): plain values; nothing here."""
        return {}

    def _learn_causes(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        """The same where causes compete: what is known of each, under "causes"."""
        return {
            "log_shares": np.log(cause_shares(outcome)).tolist(),
            "causes": [self._learn_start(rows_of_cause(outcome, k + 1), unit) for k in range(outcome.n_causes)],
        }

    def _build_causes(
        self, start: Mapping[str, Any], encoder: Encoder, generators: Generators, seeds: npt.NDArray[np.int64]
    ) -> PopulationNetwork:
        """The whole network where causes compete: shares by a softmax, and a network of this method for each cause."""
        read = NoEncoder(encoder.width)
        parts = [self._build_network(own, read, generators, seeds) for own in as_list(start["causes"], "the causes")]
        likelihoods = [part for part in parts if isinstance(part, LikelihoodNetwork)]
        assert len(likelihoods) == len(parts), "causes are for methods with likelihoods"
        return CausesNetwork(generators, encoder, likelihoods, start["log_shares"])

    def _check_rows(self, outcome: Outcome) -> None:
        """Raise a ValueError if the method cannot learn from such an outcome."""

    def reading(self) -> Reading:
        """The settings that decide how rows are read."""
        return Reading(self.setting("numeric_scaling"), one_hot=self.encoder is not None)

    # ------------------------------------------------------------------ the walk from rows to a fitted model

    def fit(  # type: ignore[override]  # the base takes further arguments only to say that there are none
        self,
        X: Any,
        y: Any,
        validation_data: tuple[Any, ...] | None = None,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        checkpoint: Checkpoints | str | Path | None = None,
    ) -> Self:
        """Fit to covariates and outcomes.

        Parameters
        ----------
        X : DataFrame, array of shape (rows, columns), or rows on disk
            Numeric and categorical columns, missing values allowed. With an ``encoder`` also an array of
            more dimensions. Rows on disk are a Parquet file, a folder of them, a ``pyarrow.dataset.Dataset``, an
            iterator of record batches or a `RowSource`: they are read in pieces and need not fit into memory (see
            docs/large_data.md).
        y : outcome
            `Surv.from_arrays(event, time)`, `Surv.interval(lower, upper)`, a two-column DataFrame, or a
            ``(time, event)`` pair. Of rows on disk the names of columns, ``{"time": "months", "event": "died"}``;
            ``sample_weight`` and ``groups`` are names of columns too.
        validation_data : tuple (X, y) or (X, y, sample_weight), optional
            Rows for early stopping. Without it each member holds out its own share of the rows,
            ``validation_fraction``, so that together they see them all.
        sample_weight : array of shape (rows,), optional
            How many rows each row counts for. Whole numbers count repeats; others are scaled to a mean of one.
        groups : array of shape (rows,), optional
            The subject that each row belongs to, where a subject has several (spells with covariates that change).
            A subject's rows are held out together.
        checkpoint : path or Checkpoints, optional
            A folder that keeps the state of training, every 30 seconds at the end of an epoch
            (`sumosurv.training.Checkpoints` sets how often). The same fit with the same folder goes on from there and
            ends where it would have ended; a folder of other rows, settings or seeds is refused.

        Raises
        ------
        KeyboardInterrupt
            On Ctrl-C, so that the caller of ``fit`` stops too (a grid search, a script). After the first epoch
            the estimator is fitted nevertheless, with each member's best weights so far, and a warning says so: made
            beforehand (``model = SumoNet()``, then ``model.fit(X, y)``), it can be used at once, and its
            ``interrupted_`` is True. Before that, and on a second Ctrl-C, it stays as it was.
        """
        with keeping(checkpoint):
            if is_source(X):
                return self._fit_source(X, y, sample_weight, groups, validation_data)
            check_validation_data(validation_data)
            return self._fit_anew(X, with_rows(y, sample_weight, groups), validation_data)

    def _fit(self, X: Any, y: Any, validation_data: tuple[Any, ...] | None = None) -> None:
        rows = self.read(X, y, validation_data)
        learned = self.learn(rows)
        size = self.setting("n_members")
        seeds = [int(seed) for seed in check_random_state(self.random_state).randint(0, 2**31 - 1, size=size)]
        members = [
            self.member(
                seed,
                *(
                    split_rows(rows.outcome, seed, self.validation_fraction)
                    if validation_data is None
                    else rows.own_rows()
                ),
            )
            for seed in seeds
        ]
        network, history = self.train(learned, rows, members)
        self._become(self.finished(rows, learned, members, network, history))
        if self.interrupted_:
            tell_interrupted(len(history.train))

    def _fit_stream(self, source: RowSource, roles: Roles, validation_data: tuple[Any, ...] | None = None) -> None:
        from sumosurv.streaming.fitting import fit_stream

        made = fit_stream(self, source, roles, validation_data)
        self.__dict__.update({name: value for name, value in vars(made).items() if name.endswith("_")})
        if self.interrupted_:
            tell_interrupted(len(self.history_["epoch"].unique()))

    def for_stream(self, n_rows: int) -> Self:
        """An estimator of one kind of networks, with the settings that a fit to so many rows on disk takes."""
        return self

    def _train_on_all_rows(
        self, learned: Learned, rows: Prepared, members: Sequence[Member], history: History
    ) -> tuple[PopulationNetwork, npt.NDArray[np.bool_]] | None:
        """Train again, each member for its best number of epochs; None if Ctrl-C ended it."""
        every = np.arange(len(rows.outcome))
        again = [
            replace(member, train_rows=every, valid_rows=None, stop_after=int(epoch))
            for member, epoch in zip(members, np.where(history.failed, -1, history.best_epoch))
        ]
        try:
            network, second = self.train(learned, rows, again)
        except KeyboardInterrupt:
            return None
        return None if second.interrupted else (network, second.failed)

    def read(self, X: Any, y: Any, validation_data: tuple[Any, ...] | None = None) -> Prepared:
        """Check the rows and turn them into tensors."""
        checked = self._unfitted()
        X, outcome = checked._start(X, y)
        self._check_rows(outcome)
        more = None
        if validation_data is not None:
            X_valid = checked._check_covariates(validation_data[0], reset=False)
            weight = validation_data[2] if len(validation_data) == 3 else None
            held_out = check_outcome(validation_data[1], n_rows=len(X_valid), sample_weight=weight)
            more = X_valid, held_out if outcome.cause is not None else held_out.any_cause()
            self.check_rows(more[1])
        return read_rows(self.reading(), (X, outcome), more, checked._known())

    def _known(self) -> dict[str, Any]:
        """The fitted attributes that every estimator has."""
        return {name: vars(self)[name] for name in _KNOWN if name in vars(self)}

    def _known_of(self, X: Any, outcome: Outcome) -> dict[str, Any]:
        """These attributes of columns and an outcome that stand for all training rows."""
        noted = self._unfitted()
        noted._check_covariates(X, reset=True)
        noted._note_outcome(outcome)
        return noted._known()

    def check_rows(self, outcome: Outcome) -> None:
        """Raise a ValueError if the method cannot learn from such an outcome."""
        check_learns_from(type(self).__name__, self._learns_from, outcome)
        self._check_rows(outcome)

    def learn(self, rows: Prepared) -> Learned:
        """All that a network must know of the rows."""
        outcome, unit = rows.training, rows.time_unit
        start = self._learn_start(outcome, unit) if outcome.cause is None else self._learn_causes(outcome, unit)
        return Learned(rows.preprocessor, rows.time_origin, rows.time_unit, start, rows.cells)

    def build(self, learned: Learned, seeds: npt.NDArray[np.int64]) -> PopulationNetwork:
        """A population with one member per seed; the same for a fit, a trial of a search and a model file."""
        generators = [torch.Generator().manual_seed(int(seed)) for seed in seeds]
        columns = learned.preprocessor
        encoder: Encoder
        if self.encoder is not None:
            own, said = [int(seed) for seed in seeds], columns.inputs_in_words()
            encoder = ModuleEncoder(self.encoder, own, learned.example(), said)
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
        if "causes" in learned.start:
            return self._build_causes(learned.start, encoder, generators, seeds)
        return self._build_network(learned.start, encoder, generators, seeds)

    def member(
        self,
        seed: int,
        train_rows: npt.NDArray[np.int64],
        valid_rows: npt.NDArray[np.int64] | None,
        stop_after: int | None = None,
    ) -> Member:
        """One network with these settings, on some of the rows."""
        rate, decay = float(self.setting("learning_rate")), float(self.setting("weight_decay"))
        return Member(seed, train_rows, valid_rows, rate, decay, stop_after)

    def schedule(self, n_rows: int) -> Schedule:
        """How a population with these settings trains on so many rows."""
        epochs = self.setting("max_epochs")
        return Schedule(epochs, batch_rows(self.batch_size, n_rows), self.patience, self.n_threads)

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

    def finished(
        self,
        rows: Prepared,
        learned: Learned,
        members: Sequence[Member],
        network: PopulationNetwork,
        history: History,
    ) -> Self:
        """`fitted` with its history, after training again on all rows where ``refit`` asks for it."""
        failed, interrupted, again = history.failed, history.interrupted, False
        if self.refit and members[0].valid_rows is not None and not interrupted:
            second = self._train_on_all_rows(learned, rows, members, history)
            again, interrupted = second is not None, second is None
            network, failed = (network, failed) if second is None else second
        made = self.fitted(rows, learned, network, failed, on_all_rows=again)
        made.history_, made.best_epoch_, made.best_valid_ = history.frame(), history.best_epoch, history.best_valid
        made.interrupted_ = interrupted
        made.members_ = pd.DataFrame(
            {
                "kind": type(self).__name__,
                "weight": ~failed / (~failed).sum(),
                "parameters": sum(p[0].numel() for p in network.parameters()),
                "best_epoch": history.best_epoch,
                "held_out": history.best_valid if members[0].valid_rows is not None else np.nan,
            }
        )
        return made

    def train(self, learned: Learned, rows: Prepared, members: Sequence[Member]) -> tuple[PopulationNetwork, History]:
        """Build and train a population, one network for each member."""
        device = find_device(self.device)
        network = self.build(learned, np.array([member.seed for member in members])).to(device)
        # what mean log-likelihoods lose, member by member, when times are in the user's unit and no longer scaled
        unit = rows.log_unit if network.terms_are_likelihoods else 0.0
        held_out = [m.valid_rows for m in members if m.valid_rows is not None]
        shift = Shift(
            unit * rows.share_seen(members),
            unit * np.array([share_seen(rows.outcome[part]) for part in held_out]) if held_out else np.zeros(1),
        )
        own = self.on_epoch
        schedule = replace(
            self.schedule(rows.n_training(members)),
            show_progress=bool(self.verbose) and current_workers().first,
            on_epoch=None if own is None else lambda epoch: own(shift.epoch(epoch)),
            workers=current_workers(),
            checkpoint=next_checkpoint(),
        )
        batches = rows.batches(members, schedule.batch_size, device)
        history = train_population(network, rows.table.to(device), members, schedule, batches)
        return network, shift.history(history)

    # ------------------------------------------------------------------ prediction

    @property
    def _device(self) -> torch.device:
        """Where the networks are."""
        return next(self.network_.parameters()).device

    def _on_cpu(self) -> Self:
        """A copy with its networks on the CPU, or the estimator itself if they are there."""
        if self._device.type == "cpu":
            return self
        made = copy.copy(self)
        made.network_ = copy.deepcopy(self.network_).to("cpu")
        return made

    def _rows_at_once(self, n_times: int) -> int:
        own = super()._rows_at_once(n_times)
        return own if self._device.type == "cpu" else max(own, _DEVICE_CELLS // max(n_times, 1))

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return self.distribution_of(self.preprocessor_.transform(X, self._device))

    def distribution_of(self, inputs: Inputs) -> SurvivalDistribution:
        """The distribution of preprocessed rows."""
        return self._predicted(self.network_, inputs)

    def _members(self, X: Any) -> Members:
        return self.members_of(self.preprocessor_.transform(X, self._device))

    def members_of(self, inputs: Inputs) -> Members:
        """What each member says of preprocessed rows."""
        each = [select_members(self.network_, [k]) for k in range(self.network_.members)]
        return Members.equal([self._predicted(network, inputs) for network in each])

    def _predicted(self, network: PopulationNetwork, inputs: Inputs) -> SurvivalDistribution:
        """What a network says of preprocessed rows, on the user's clock."""
        p = next(network.parameters())
        with explain_memory("Predict fewer rows or times at once, or load the model on the CPU."):
            try:
                own: SurvivalDistribution = Rescaled(
                    network.distribution(inputs.to(p.device, p.dtype)), self.time_unit_
                )
            except ValueError as error:
                raise ValueError(
                    f"The networks give no distribution for some of these rows: {error} Compare the rows with "
                    "those of the training, and the model file with its source."
                ) from error
        return Delayed(own, self.time_origin_) if self.time_origin_ else own

    # ------------------------------------------------------------------ model files

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a model file keeps: what was learned, and the weights."""
        fitted, tensors = super()._state()
        fitted |= {"learned": self.learned_.state(), "n_members_": self.n_members_}
        tensors |= self.learned_.tensors()
        if (shape := self.preprocessor_.row_shape) is not None:
            tensors["row"] = torch.zeros(1, *shape, dtype=torch.uint8)  # a row that encoders can be tried on
        return fitted, tensors | self.stored_weights()

    def stored_weights(self) -> dict[str, torch.Tensor]:
        """The tensors of the networks as a model file keeps them."""
        # weights were trained in float32, so that nothing is lost; tables such as baselines keep their precision
        weights = {f"network.{name}": value for name, value in self.network_.state_dict().items()}
        return weights | {f"network.{name}": value.float() for name, value in self.network_.named_parameters()}

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `state`, on an estimator that was just made."""
        super()._restore(fitted, tensors)
        self.learned_ = Learned.from_state(fitted["learned"], tensors)
        if _from_before_growth(fitted):
            self.last_time_ = self.time_origin_ + self.time_unit_
        columns = self.preprocessor_
        self._check_columns(columns)
        if columns.row_shape is not None and tuple(tensors["row"].shape) != (1, *columns.row_shape):
            raise ValueError(f"rows have shape {columns.row_shape}, and the one stored {tuple(tensors['row'].shape)}")
        self.restore_network(fitted, tensors)

    def restore_network(self, fitted: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        """The networks of a model file, once it is known what was learned of their rows."""
        columns = self.preprocessor_
        self.n_members_ = as_whole(fitted["n_members_"], "n_members_", low=1)
        weights = {name.removeprefix("network."): v for name, v in tensors.items() if name.startswith("network.")}
        lists = [value for value in vars(self).values() if isinstance(value, tuple)]
        if max(map(len, [*lists, columns.levels])) > len(weights):
            raise ValueError("it has fewer tensors than layers or categories")
        with at_most(sum(value.numel() for value in weights.values())):
            sketch = self.build(self.learned_, np.zeros(1, dtype=np.int64))
            weights = with_growth(sketch, weights) if _from_before_growth(fitted) else weights
            check_weights(sketch, self.n_members_, weights)
        self.network_ = filled(self.build(self.learned_, np.zeros(self.n_members_, dtype=np.int64)).double(), weights)
        self.network_.requires_grad_(False).eval().to(find_device(self.device))
        if any(value.numel() and value.abs().max() > _LARGE for value in weights.values() if value.is_floating_point()):
            self._check_curves()

    def _check_curves(self) -> None:
        """Raise a ValueError if the networks give no curve for a row in the middle of the table."""
        numeric, p = self.learned_.example(), next(self.network_.parameters())
        rows = Inputs(numeric, torch.zeros(len(numeric), len(self.preprocessor_.levels), dtype=torch.long))
        curve = self.network_.distribution(rows.to(p.device, p.dtype)).survival(np.array([0.0, 0.01, 0.1, 0.3, 1.0]))
        if not (np.isfinite(curve).all() and (np.diff(curve, axis=1) <= 1e-9).all()):
            raise ValueError("its weights give no curve that falls")


def _from_before_growth(fitted: Mapping[str, Any]) -> bool:
    """Whether a model file is from before the last training time and the growth past it were kept."""
    return "last_time_" not in fitted


def tell_interrupted(epochs: int) -> None:
    """Warn that a fit was ended early."""
    warnings.warn(
        f"Training was interrupted after {epochs} epochs; the model is fitted with the best weights so far and can be "
        "used.",
        RuntimeWarning,
        stacklevel=5,
    )
