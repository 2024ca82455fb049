"""Estimators that train a population of networks: all of them share this fit."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from torch import nn

from sumosurv.distributions import Delayed, Rescaled, SurvivalDistribution
from sumosurv.estimators.base import SurvivalEstimator
from sumosurv.networks import Inputs, select_members
from sumosurv.outcome import Outcome, check_outcome
from sumosurv.preprocessing import Preprocessor, time_unit
from sumosurv.training import History, Rows, TrainingData, TrainingPlan, train

__all__ = ["NetworkEstimator", "Prepared"]

_ONE_THREAD_WORK = 2e8  # multiply-adds of a training step below which a second thread costs more than it gives
_SMALLEST_SPLIT = 10  # rows below which none are held out


@dataclass(frozen=True)
class Prepared:
    """The rows of one fit as its networks read them: training rows first, then those of ``validation_data``."""

    data: TrainingData
    outcome: Outcome  # times from the start of the networks' clock, in the user's unit
    n_train: int

    @property
    def training(self) -> Outcome:
        """The outcome of the training rows."""
        return self.outcome[: self.n_train]

    def all_for_training(self) -> Prepared:
        """The same rows, where networks were trained on all of them."""
        return Prepared(self.data, self.outcome, len(self.outcome))

    def own_rows(self, members: int) -> tuple[list[npt.NDArray[np.int64]], list[npt.NDArray[np.int64]] | None]:
        """The same training and validation rows for each of so many members."""
        every = np.arange(len(self.outcome))
        valid = every[self.n_train :]
        return [every[: self.n_train]] * members, [valid] * members if len(valid) else None


class NetworkEstimator(SurvivalEstimator):
    """A population of networks behind one estimator.

    A model defines ``_make_network`` (and ``_make_preprocessor``); this class checks the data, holds out
    validation rows, trains and predicts. A model whose objective is not a right-censored likelihood may
    also say on which rows it is taken (``_cases``), what the network must know of all rows beforehand
    (``_prepare``), and what is added once the weights are final (``_complete``), such as a baseline hazard.
    """

    # the objective has densities in it, which change with the unit of time (a partial likelihood has none)
    _objective_has_density: ClassVar[bool] = True

    ensemble_size: int
    learning_rate: float | None
    weight_decay: float
    max_epochs: int
    batch_size: int | str
    patience: int | None
    validation_fraction: float
    refit: bool
    device: str
    n_threads: int | None
    random_state: Any
    verbose: bool

    network_: nn.Module
    preprocessor_: Preprocessor
    time_unit_: float
    time_origin_: float

    @abstractmethod
    def _make_preprocessor(self) -> Preprocessor:
        """An unfitted preprocessor."""

    @abstractmethod
    def _make_network(self, seeds: npt.NDArray[np.int64], y: Outcome | None, example: Inputs) -> nn.Module:
        """A population with one member per seed, for the outcome (times in the user's unit) and inputs of training.

        Without an outcome (a model file being read) anything fitted to it is a placeholder.
        """

    @abstractmethod
    def _learning_rate(self) -> float:
        """The learning rate to use."""

    def fit(self, X: Any, y: Any, validation_data: tuple[Any, Any] | None = None) -> NetworkEstimator:
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
        self._check_parameters()
        prepared = self._read(X, y, validation_data)
        random = check_random_state(self.random_state)
        seeds = random.randint(0, 2**31 - 1, size=self.ensemble_size).astype(np.int64)
        train_rows, valid_rows = (
            self._split(prepared.outcome, seeds) if validation_data is None else prepared.own_rows(len(seeds))
        )
        data = prepared.data.to(self._device())
        network, history = self._train(data, seeds, train_rows, valid_rows, prepared.training, None)
        self._keep_history(history, prepared.outcome.event, train_rows, valid_rows)
        if self.refit and valid_rows is not None and not history.interrupted:
            stop_after = np.where(history.failed, -1, history.best_epoch)
            rows = [np.arange(len(prepared.outcome))] * self.ensemble_size
            network, history = self._train(data, seeds, rows, None, prepared.training, stop_after)
            prepared = prepared.all_for_training()
        self._adopt(network, history.failed, prepared)
        return self

    def _read(self, X: Any, y: Any, validation_data: tuple[Any, Any] | None) -> Prepared:
        """Check the data and learn from the training rows how networks are to see them."""
        X, outcome = self._start(X, y)
        self.preprocessor_ = self._make_preprocessor().fit(X)
        inputs = self.preprocessor_.transform(X)
        n = len(outcome)
        if validation_data is not None:
            X_valid, y_valid = validation_data
            X_valid = self._check_covariates(X_valid, reset=False)
            more = self.preprocessor_.transform(X_valid)
            inputs = Inputs(torch.cat([inputs.numeric, more.numeric]), torch.cat([inputs.codes, more.codes]))
            outcome = Outcome.join([outcome, check_outcome(y_valid, n_rows=len(X_valid))])
        self.time_origin_ = self._origin(outcome.time)
        if self.time_origin_:
            outcome = outcome.on_clock(self.time_origin_)
        self.time_unit_ = time_unit(outcome.time[:n])
        time, event = torch.from_numpy(outcome.time / self.time_unit_).float(), torch.from_numpy(outcome.event)
        return Prepared(TrainingData(inputs, time, event), outcome, n)

    def _origin(self, times: npt.NDArray[np.float64]) -> float:
        """When the networks' clock starts: at zero."""
        return 0.0

    def _adopt(self, network: nn.Module, failed: npt.NDArray[np.bool_], prepared: Prepared) -> None:
        """Make a trained population the fitted model: its members that worked, and what they still need."""
        self.network_ = self._settle(network, failed)
        self.n_members_ = int(len(failed) - failed.sum())
        with self._threads(0.0), torch.no_grad():
            p = next(self.network_.parameters())
            inputs = prepared.data.inputs[: prepared.n_train]
            self._complete(self.network_, inputs.to(p.device, p.dtype), prepared.training)

    def _cases(self, rows: npt.NDArray[np.int64], event: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """The rows, of those given, over which the objective is summed: all of them."""
        return rows

    def _prepare(self, network: nn.Module, data: TrainingData, rows: Rows) -> None:
        """Tell the network about all training rows of its members: nothing to tell."""

    def _complete(self, network: nn.Module, inputs: Inputs, outcome: Outcome) -> None:
        """Add to the trained network what it needs of the training rows: nothing."""

    def _distribution(self, X: Any) -> SurvivalDistribution:
        return self._distribution_of(self.preprocessor_.transform(X))

    def _distribution_of(self, inputs: Inputs) -> SurvivalDistribution:
        """The distribution of preprocessed rows."""
        p = next(self.network_.parameters())
        inputs = inputs.to(p.device, p.dtype)
        own = Rescaled(self.network_.distribution(inputs), self.time_unit_)  # type: ignore[operator]
        return Delayed(own, self.time_origin_) if self.time_origin_ else own

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        fitted, tensors = super()._state()
        fitted |= {
            "preprocessor_": self.preprocessor_.state(),
            "time_unit_": self.time_unit_,
            "time_origin_": self.time_origin_,
            "n_members_": self.n_members_,
        }
        # weights were trained in float32, so that nothing is lost; tables such as baselines keep their precision
        weights = {f"network.{name}": value for name, value in self.network_.state_dict().items()}
        weights |= {f"network.{name}": value.float() for name, value in self.network_.named_parameters()}
        return fitted, tensors | weights

    def _restore(self, fitted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        super()._restore(fitted, tensors)
        self.preprocessor_ = Preprocessor.from_state(fitted["preprocessor_"])
        self.time_unit_, self.time_origin_ = float(fitted["time_unit_"]), float(fitted["time_origin_"])
        if not self.time_unit_ > 0:
            raise ValueError(f"the unit of time is {self.time_unit_}")
        self.n_members_ = int(fitted["n_members_"])
        shape = self.preprocessor_.row_shape or (self.preprocessor_.n_numeric,)
        example = Inputs(torch.zeros(2, *shape), torch.zeros(2, len(self.preprocessor_.levels), dtype=torch.long))
        network = self._make_network(np.zeros(self.n_members_, dtype=np.int64), None, example).double()
        weights = {name.removeprefix("network."): v for name, v in tensors.items() if name.startswith("network.")}
        for name, buffer in list(network.named_buffers()):
            if name in weights and weights[name].shape != buffer.shape:  # tables whose size depends on the data
                owner, _, leaf = name.rpartition(".")
                setattr(network.get_submodule(owner), leaf, torch.empty_like(weights[name]))
        network.load_state_dict(weights, strict=True)
        self.network_ = network.requires_grad_(False).eval().to(self._device())

    # ------------------------------------------------------------------

    def _train(
        self,
        data: TrainingData,
        seeds: npt.NDArray[np.int64],
        train_rows: list[npt.NDArray[np.int64]],
        valid_rows: list[npt.NDArray[np.int64]] | None,
        outcome: Outcome,
        stop_after: npt.NDArray[np.int64] | None,
    ) -> tuple[nn.Module, History]:
        device = data.time.device
        example = Inputs(data.inputs.numeric[:2].cpu().float(), data.inputs.codes[:2].cpu())
        network = self._make_network(seeds, outcome, example).to(device)
        batch = self._batch_size(len(train_rows[0]))
        plan = TrainingPlan(
            seeds=seeds,
            learning_rate=np.full(len(seeds), self._learning_rate()),
            weight_decay=np.full(len(seeds), float(self.weight_decay)),
            max_epochs=self.max_epochs,
            batch_size=batch,
            patience=self.patience,
            stop_after=stop_after,
            progress=self.verbose,
        )
        work = batch * sum(p.numel() for p in network.parameters())
        with self._threads(work), torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(seeds[0]))  # for dropout inside encoders of the user's own
            self._prepare(network, data, Rows.of(train_rows).to(device))
            event = data.event.cpu().numpy()
            rows = Rows.of([self._cases(part, event) for part in train_rows]).to(device)
            history = train(network, data, rows, None if valid_rows is None else Rows.of(valid_rows).to(device), plan)
        return network, history

    def _settle(self, network: nn.Module, failed: npt.NDArray[np.bool_]) -> nn.Module:
        """The members that worked, in float64 for prediction."""
        if failed.any():
            network = select_members(network, np.flatnonzero(~failed).tolist())
        for p in network.parameters():
            p.data = p.data.contiguous()
            p.requires_grad_(False)
        return network.double().eval()

    def _split(
        self, outcome: Outcome, seeds: npt.NDArray[np.int64]
    ) -> tuple[list[npt.NDArray[np.int64]], list[npt.NDArray[np.int64]] | None]:
        """Each member's own training and validation rows, with the same share of events."""
        n = len(outcome)
        rows = np.arange(n)
        if self.validation_fraction == 0 or n < _SMALLEST_SPLIT:
            return [rows] * len(seeds), None
        counts = np.bincount(outcome.event.astype(int), minlength=2)
        stratify = outcome.event if counts.min() >= 2 and math.ceil(self.validation_fraction * n) >= 2 else None
        pairs = [
            train_test_split(rows, test_size=self.validation_fraction, random_state=int(seed), stratify=stratify)
            for seed in seeds
        ]
        return [np.sort(pair[0]) for pair in pairs], [np.sort(pair[1]) for pair in pairs]

    def _keep_history(
        self,
        history: History,
        event: npt.NDArray[np.bool_],
        train_rows: list[npt.NDArray[np.int64]],
        valid_rows: list[npt.NDArray[np.int64]] | None,
    ) -> None:
        """``history_``: mean log-likelihood per epoch and member, on the scale of the user's times."""
        unit = math.log(self.time_unit_) if self._objective_has_density else 0.0
        train_shift = unit * np.array([event[rows].mean() for rows in train_rows])
        valid_shift = 0.0 if valid_rows is None else unit * np.array([event[rows].mean() for rows in valid_rows])
        epochs, members = len(history.train), self.ensemble_size
        train_values = np.array(history.train) - train_shift
        valid_values = np.array(history.valid) - valid_shift if history.valid else np.full((epochs, members), np.nan)
        self.history_ = pd.DataFrame(
            {
                "epoch": np.repeat(np.arange(epochs), members),
                "member": np.tile(np.arange(members), epochs),
                "train": train_values.ravel(),
                "valid": valid_values.ravel(),
            }
        )
        self.best_epoch_ = history.best_epoch
        self.best_valid_ = history.best_valid - valid_shift

    def _batch_size(self, n: int) -> int:
        if self.batch_size == "full":
            return n
        if self.batch_size != "auto":
            return int(self.batch_size)
        return int(2 ** round(math.log2(max(8.0, 4.0 * math.sqrt(n)))))

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise ValueError(f"device is 'auto', 'cpu' or 'cuda'; got {self.device!r}.") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ValueError("device='cuda' was asked for and torch sees no CUDA device; use device='auto' or 'cpu'.")
        return device

    @contextmanager
    def _threads(self, work: float) -> Iterator[None]:
        """Small networks train faster on one thread than on several that wait for each other."""
        before = torch.get_num_threads()
        wanted = self.n_threads if self.n_threads is not None else (1 if work < _ONE_THREAD_WORK else before)
        torch.set_num_threads(wanted)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _check_parameters(self) -> None:
        for name, low in (("ensemble_size", 1), ("max_epochs", 1)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < low:
                raise ValueError(f"{name} is a whole number of at least {low}; got {value!r}.")
        size = self.batch_size
        if size not in ("auto", "full") and not (isinstance(size, (int, np.integer)) and size >= 1):
            raise ValueError(f"batch_size is 'auto', 'full' or a whole number of at least 1; got {size!r}.")
        for name, low in (("patience", 0), ("n_threads", 1)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, (int, np.integer)) or value < low):
                raise ValueError(f"{name} is None or a whole number of at least {low}; got {value!r}.")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction lies in [0, 1); got {self.validation_fraction!r}.")
        if not self._learning_rate() > 0:
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate!r}.")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay must not be negative; got {self.weight_decay!r}.")
