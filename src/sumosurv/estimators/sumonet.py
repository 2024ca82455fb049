"""SuMo-net as a scikit-learn estimator."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils import check_random_state

from sumosurv.distributions import Continued, Mixture, SurvivalDistribution
from sumosurv.estimators.capacity import Kind, enough_epochs, fit_kinds, stacking_weights
from sumosurv.estimators.members import Members
from sumosurv.estimators.network import Generators, NetworkEstimator, tell_interrupted
from sumosurv.estimators.parametric import LogNormalNet
from sumosurv.estimators.proportional_hazards import ProportionalHazardsNet
from sumosurv.estimators.reading import Reading, Resolution, TimeOrigin
from sumosurv.estimators.time_features import TimeFeaturesMixin
from sumosurv.networks import Encoder, Inputs, MixedNetwork, MonotoneNetwork, TimeFeatures
from sumosurv.networks.layers import POSITIVE, Activation, Positive
from sumosurv.networks.monotone import DERIVATIVES, Derivative
from sumosurv.networks.tail import TailedNetwork
from sumosurv.networks.time import TimeFeatureKind
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import NumericScaling
from sumosurv.stored import as_list, as_number
from sumosurv.training import Epoch, batch_rows

__all__ = ["SumoNet"]

_TRAINING = {"n_members": 16, "weight_decay": 0.1, "max_epochs": 80}

# What each variant means by None.
_VARIANTS: dict[str, dict[str, Any]] = {
    "sumo": {
        "covariate_layers": (64, 64),
        "time_layers": (32, 32),
        "activation": "silu",
        "residual": True,
        "dropout": 0.5,
        "time_features": "marginal",
        "frequencies": 4,
        "numeric_scaling": "quantile",
        "learning_rate": 0.02,
        **_TRAINING,
    },
    "paper": {
        "covariate_layers": (32, 32),
        "time_layers": (32, 32),
        "activation": "tanh",
        "residual": False,
        "dropout": 0.1,
        "time_features": "linear",
        "frequencies": 0,
        "numeric_scaling": "standard",
        "learning_rate": 0.01,
        **_TRAINING,
    },
}

# settings that describe networks of one kind: where all of them are None, several kinds are trained
_OF_ONE_KIND = (
    "n_members",
    "covariate_layers",
    "time_layers",
    "activation",
    "residual",
    "dropout",
    "frequencies",
    "encoder",
    "learning_rate",
    "weight_decay",
)
_SHARED = ("batch_size", "patience", "validation_fraction", "refit", "device", "n_threads", "verbose")
_FULL_SIZE, _FULL_SIZE_OF_MANY, _MANY = 15, 10, 3000  # networks of the full kind, fewer of so many rows or more
_OTHER_SIZE = 5  # networks of each other kind
_ENOUGH = 800  # training rows from which full networks and proportional hazards by themselves are as good as all kinds
_LARGE, _LARGE_DROPOUT = 100_000, 0.1  # training rows from which less is dropped by default
_STREAMED_SIZE, _STREAMED_VISITS = 4, 2e7  # networks of a fit to rows on disk, and rows that each visits
_MAX_COMPONENTS = 64  # of a wide table
_LEAST_WEIGHT = 0.01  # of a kind; one below it is left out of the mixture


@dataclass(kw_only=True, eq=False, repr=False)
class SumoNet(TimeFeaturesMixin):
    r"""SuMo-net: survival regression by a neural network that is monotone in time.

    .. math::
        S(t|x) = \frac{1 - σ(h(t, x))}{1 - σ(h(0, x))}, \qquad f(t|x) = -\frac{∂S(t|x)}{∂t},

    with h non-decreasing in t because every weight between t and h is non-negative. The networks are
    trained on the exact right-censored log-likelihood :math:`d \log f(z|x) + (1 - d) \log S(z|x)`.
    Many of them train side by side as one batched network, each on its own share of the rows, and predict as a
    mixture, whose likelihood is exact too. As long as no setting says how large they are, they are of several kinds,
    and the rows decide how much each counts: see Notes.

    Parameters
    ----------
    variant : {"sumo", "paper"}
        "sumo" is a proper distribution (S(0) = 1, S(∞) = 0; see Notes) with what helps likelihood.
        "paper" is Figure 2 of the paper to the letter: plain tanh layers, time min-max scaled and not
        transformed, no anchoring at zero, no tail. It decides what None means for the options below.
    n_members : int, optional
        Networks in the mixture, all of one kind and with equal weights; 16 where another setting of theirs is given.
        None, with covariate_layers, time_layers, activation, residual, dropout, frequencies, encoder, learning_rate
        and weight_decay None too: networks of several kinds.
    covariate_layers, time_layers : sequence of int, optional
        Hidden widths of the two networks; (64, 64) and (32, 32), in the paper's variant twice (32, 32).
    activation : {"silu", "relu", "tanh", "gelu"}, optional
        Of the covariate network; "silu" ("tanh"). The mixed network always uses tanh.
    residual : bool, optional
        Residual connections between layers of equal width; True (False).
    dropout : float, optional
        In the covariate network; 0.5 (0.1). Where there are several kinds, and in fits to rows on disk, 0.1 from
        100,000 training rows on.
    time_features : {"marginal", "log", "linear"}, optional
        "marginal" ("linear"); see `sumosurv.networks.TimeFeatures`.
    time_origin : {"zero", "first"}
        When events can begin: at time zero, or at the smallest time among the rows given to ``fit``, where S(t) = 1
        up to then. "first" is for records that begin late by design (patients enrolled after three days, say); an
        event before it has likelihood zero.
    resolution : "auto", float or None
        To what times are recorded: 7 for weeks in days. An event at t is then known to lie in a cell of that width, and
        its likelihood is the probability of the cell (`sumosurv.outcome.Cells`), which spikes of the density on
        recorded times cannot raise. "auto" finds the step of an even grid where there are at least five events at each
        recorded time, on average, and leaves other times alone; None takes all times as exact. ``score`` and `evaluate`
        use the cells that the model was fitted with.
    frequencies : int, optional
        Learned periodic features per numeric column; 4 (0).
    numeric_scaling : {"quantile", "standard"}, optional
        Normal scores by quantiles, or mean and standard deviation; "quantile" ("standard").
    positive : {"square", "softplus", "abs"}
        How non-negative weights are made of unrestricted ones.
    derivative : {"forward", "autograd", "chain", "difference"}
        How ∂h/∂t is found. "forward" carries it through the layers: exact, and one pass. The others are
        the paper's ways, for comparison.
    encoder : torch.nn.Module or callable, optional
        Covariate network of your own, replicated per member: maps a float tensor (rows, ...) to
        (rows, width). Or a function that makes one. It reads the preprocessed columns (categories as
        0/1 columns), or arrays of more than two dimensions as they are (images, sequences).
    learning_rate : float, optional
        Of AdamW, falling to zero along a cosine; 0.02 (0.01).
    weight_decay : float, optional
        0.1.
    max_epochs : int, optional
        80; where there are several kinds, 0.6 √rows, 45 at most, but enough for 150 steps, and for 300 of all but the
        full networks below 800 training rows.
    batch_size : int or "auto"
        "auto" is the power of two nearest to 4 √rows.
    patience : int, optional
        A member stops when its best epoch is more than this many epochs ago; None trains all epochs. Either way each
        member keeps the weights of its best epoch on validation rows.
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
        Called after each epoch with one argument that has the attributes ``number``, ``n_epochs``, ``train`` and
        ``valid``: the mean log-likelihoods of ``history_`` by member, ``valid`` None without validation rows; and
        ``kind``, the kind of networks that are being trained, where there are several.

    Attributes
    ----------
    history_ : DataFrame
        Mean log-likelihood on training (dropout on) and validation rows, per epoch and member.
    interrupted_ : bool
        Ctrl-C ended the fit early; see ``fit``.
    best_epoch_, best_valid_ : ndarray
        Of each network.
    n_members_ : int
        Networks in the mixture.
    members_ : DataFrame
        One row for each network that was trained: its kind, its weight in the mixture, the number of its parameters,
        its best epoch, and ``held_out``, the mean log-likelihood of validation rows (of several kinds: under the
        mixture of all networks of its kind that did not train on them).
    time_features_ : str
        The time features in use ("marginal" falls back to "log" with fewer than two event times).
    resolution_ : float or None
        The width of the cells of time; None where times were taken as exact.
    least_hazard_ : float
        Zero where there were events. Where all rows are censored, the hazard past the last training time is at least
        that of half an event in all of the follow-up, so that medians and means stay of a size that can be shown.
    time_origin_, time_unit_ : float
        When the networks' clock starts, and how long it runs: to the largest training time. Past it each member
        has a Gompertz tail, see Notes.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Several kinds of networks.** How flexible a model may be depends on how much the rows can support. By default up
    to four kinds are trained, one after the other, on the folds of one cross-validation: "full" networks (the settings
    above; 15 of them, 10 from 3,000 training rows on), and five each, with weight decay 1, of "small" ones (covariate
    layers of 16, mixed layers of 16, no periodic features), "proportional hazards" (the covariate network of the full
    ones gives a log risk, the baseline hazard is that of all training rows) and "log-normal" regressions (both
    parameters linear in x). From 800 training rows on there are only full networks and proportional hazards. All
    networks of a kind stop at the epoch that is best for the rows they hold out, taken together. Each row's likelihood
    under the networks of a kind that did not train on it gives the weights of the kinds: those of the mixture under
    which such rows are most likely (stacking), with a prior worth two rows that all kinds are equal. Small tables get
    mostly small, proportional-hazards and log-normal members, large ones "full" networks. With ``validation_data`` each
    network stops by itself, and weights are those that suit the validation rows best. A kind with a weight below 0.01
    is left out. Of a wide table, with more than 64 numbers and more than a quarter as many as rows, the networks read
    64 principal components. Past the last training time proportional hazards and log-normal regressions go on as the
    networks do (next paragraph).

    **Beyond the last training time** T the data say nothing. There each network continues from its own hazard at T,
    :math:`λ(t|x) = λ(T|x) e^{g (t - T)}`, with a growth g ≥ 0 that all subjects share, learned from the training rows
    once the networks are final (`sumosurv.networks.tail`); validation rows past T are scored with g = 0 until then, so
    that ``best_valid_`` may differ a little from ``score`` of the same rows. The hazard never falls, so that life
    expectancy and all quantiles are finite. Of the tails that were compared on follow-up that had been cut short none
    was better: see docs/tails.md. What lies beyond T (``last_time_``) is extrapolation all the same: use
    ``predict_restricted_mean`` where that matters.

    Examples
    --------
    >>> from sumosurv import SumoNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = SumoNet(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_survival_function(data.X[:2], times=[0.0, 0.5, 1.0]).shape
    (2, 3)
    """

    padded_settings: ClassVar[tuple[str, ...]] = ("covariate_layers", "time_layers")

    variant: Literal["sumo", "paper"] = "sumo"
    n_members: int | None = None  # type: ignore[assignment]
    covariate_layers: Sequence[int] | None = None
    time_layers: Sequence[int] | None = None
    activation: Activation | None = None
    residual: bool | None = None
    dropout: float | None = None
    time_features: TimeFeatureKind | None = None
    time_origin: TimeOrigin = "zero"
    resolution: Resolution = "auto"
    frequencies: int | None = None
    numeric_scaling: NumericScaling | None = None
    positive: Positive = "square"
    derivative: Derivative = "forward"
    learning_rate: float | None = None
    weight_decay: float | None = None  # type: ignore[assignment]
    max_epochs: int | None = None  # type: ignore[assignment]

    def setting(self, name: str) -> Any:
        """The value of a setting; None stands for what it is in the variant."""
        value = getattr(self, name)
        return _VARIANTS[self.variant][name] if value is None else value

    @property
    def adapts(self) -> bool:
        """Whether networks of several kinds are trained."""
        return self.variant == "sumo" and all(getattr(self, name) is None for name in _OF_ONE_KIND)

    def reading(self) -> Reading:
        """The settings that decide how rows are read."""
        components = _MAX_COMPONENTS if self.adapts else None
        return replace(
            super().reading(),
            time_origin=self.time_origin,
            max_components=components,
            resolution=self.resolution,
        )

    # ------------------------------------------------------------------ several kinds of networks

    def _kinds(self, n_rows: int = 1) -> dict[str, NetworkEstimator]:
        """Unfitted estimators of each kind, for so many training rows."""
        steps = math.ceil(n_rows / batch_rows(self.batch_size, n_rows))
        enough = n_rows >= _ENOUGH
        own_epochs = self.max_epochs or enough_epochs(n_rows, steps, 150)
        epochs = self.max_epochs or enough_epochs(n_rows, steps, 150 if enough else 300)
        own = {name: getattr(self, name) for name in ("time_features", "time_origin", "positive", "derivative")}
        shared = {name: getattr(self, name) for name in _SHARED} | {"numeric_scaling": self.setting("numeric_scaling")}
        other = shared | {
            "n_members": _OTHER_SIZE,
            "max_epochs": epochs,
            "learning_rate": 0.01,
            "weight_decay": 1.0,
        }
        size = _FULL_SIZE if n_rows < _MANY else _FULL_SIZE_OF_MANY
        dropout = _LARGE_DROPOUT if n_rows >= _LARGE else None
        kinds: dict[str, NetworkEstimator] = {
            "full": SumoNet(n_members=size, max_epochs=own_epochs, dropout=dropout, **shared, **own),
            "small": SumoNet(covariate_layers=(16,), time_layers=(16,), frequencies=0, **other, **own),
            "proportional hazards": ProportionalHazardsNet(**other),
            "log-normal": LogNormalNet(covariate_layers=(), frequencies=0, **other),
        }
        if enough:
            kinds = {name: kinds[name] for name in ("full", "proportional hazards")}
        if self.on_epoch is not None:
            for name, kind in kinds.items():
                kind.on_epoch = partial(_with_kind, self.on_epoch, name)
        return kinds

    def _fit(self, X: Any, y: Any, validation_data: tuple[Any, ...] | None = None) -> None:
        if not self.adapts:
            super()._fit(X, y, validation_data)
            return
        rows = self.read(X, y, validation_data)
        given = validation_data is not None
        n_train = rows.n_train if given else round((1 - self.validation_fraction) * rows.n_train)
        random = check_random_state(self.random_state)
        kinds, self.interrupted_ = fit_kinds(self._kinds(max(n_train, 1)), rows, random, own_validation=given)
        held_out = np.stack([kind.held_out for kind in kinds], axis=1)
        weights = stacking_weights(held_out, rows.outcome.weight)
        kept = weights >= _LEAST_WEIGHT
        weights = np.where(kept, weights, 0.0) / weights[kept].sum()
        self.__dict__.update(rows.known)
        self.parts_ = {kind.name: kind.estimator for kind, keep in zip(kinds, kept) if keep}
        self.weights_ = weights[kept]
        self.learned_ = kinds[0].estimator.learned_
        self.n_members_ = sum(part.n_members_ for part in self.parts_.values())
        self.least_hazard_ = _half_an_event(rows.outcome[: rows.n_train])
        self._note_members(kinds, weights)
        if self.interrupted_:
            tell_interrupted(len(self.history_.groupby(["kind", "epoch"])))

    def for_stream(self, n_rows: int) -> SumoNet:
        """Full networks alone: four of them, fewer epochs and less dropout of many rows, unless settings say so."""
        made = self._unfitted()
        if self.dropout is None and self.variant == "sumo" and n_rows >= _LARGE:
            made.dropout = _LARGE_DROPOUT
        if self.adapts:
            made.n_members = _STREAMED_SIZE
        if self.max_epochs is None:
            made.max_epochs = min(45, max(1, round(_STREAMED_VISITS / n_rows)))
        return made

    def _note_members(self, kinds: Sequence[Kind], weights: npt.NDArray[np.float64]) -> None:
        """What is told of the networks of all kinds, one below the other."""
        histories, members, first = [], [], 0
        for kind, weight in zip(kinds, weights):
            made = kind.estimator
            histories.append(made.history_.assign(kind=kind.name, member=made.history_["member"] + first))
            held_out = kind.held_out[np.isfinite(kind.held_out)]
            mean = held_out.mean() if len(held_out) else np.nan
            members.append(made.members_.assign(kind=kind.name, weight=weight * made.members_["weight"], held_out=mean))
            first += len(made.members_)
        self.history_ = pd.concat(histories, ignore_index=True)
        self.members_ = pd.concat(members, ignore_index=True)
        self.best_epoch_ = np.concatenate([kind.estimator.best_epoch_ for kind in kinds])
        self.best_valid_ = np.concatenate([kind.estimator.best_valid_ for kind in kinds])

    @property
    def _device(self) -> torch.device:
        """Where the networks are."""
        return next(iter(self.parts_.values()))._device if hasattr(self, "parts_") else super()._device

    def _on_cpu(self) -> Self:
        """A copy with its networks on the CPU, or the estimator itself if they are there."""
        if not hasattr(self, "parts_") or self._device.type == "cpu":
            return super()._on_cpu()
        made = copy.copy(self)
        made.parts_ = {name: part._on_cpu() for name, part in self.parts_.items()}
        return made

    def distribution_of(self, inputs: Inputs) -> SurvivalDistribution:
        """The distribution of preprocessed rows."""
        if not hasattr(self, "parts_"):
            return super().distribution_of(inputs)
        made = [self._tailed(part, part.distribution_of(inputs)) for part in self.parts_.values()]
        return self._not_immortal(Mixture.of(made, self.weights_))

    def members_of(self, inputs: Inputs) -> Members:
        """What each member says of preprocessed rows, the networks of all kinds one after the other."""
        if not hasattr(self, "parts_"):
            return super().members_of(inputs)
        found = []
        for part in self.parts_.values():
            own = part.members_of(inputs)
            tailed = tuple(self._not_immortal(self._tailed(part, made)) for made in own.distributions)
            found.append(replace(own, distributions=tailed))
        return Members.join(found, self.weights_)

    def _tailed(self, part: NetworkEstimator, made: SurvivalDistribution) -> SurvivalDistribution:
        """What a kind of networks predicts, past the last training time T as the monotone networks go on.

        Parametric kinds have tails of their own, which no rows support.
        """
        if isinstance(part, SumoNet):
            return made
        return Continued(made, self.time_origin_ + self.time_unit_, self.growth_ / self.time_unit_)

    def _not_immortal(self, made: SurvivalDistribution) -> SurvivalDistribution:
        """With ``least_hazard_`` past the last training time, where there was no event."""
        if self.least_hazard_ == 0:
            return made
        return Continued(made, self.time_origin_ + self.time_unit_, 0.0, self.least_hazard_)

    @property
    def growth_(self) -> float:
        """The growth of the hazard past the last training time, in units of 1/T, as the largest networks have it.

        Where causes compete, the smallest of theirs.
        """
        for part in self.parts_.values():
            found = [float(net.growth) for net in part.network_.modules() if isinstance(net, TailedNetwork)]
            if found:
                return min(found)
        return 0.0

    def stored_weights(self) -> dict[str, torch.Tensor]:
        """The tensors of the networks as a model file keeps them."""
        if not hasattr(self, "parts_"):
            return super().stored_weights()
        return {f"{kind}.{k}": v for kind, part in self.parts_.items() for k, v in part.stored_weights().items()}

    def _state(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """What a model file keeps: what was learned, and the weights."""
        fitted, tensors = super()._state()
        if hasattr(self, "parts_"):
            fitted["least_hazard_"] = self.least_hazard_
            fitted["parts"] = [
                {"kind": kind, "weight": weight, "n_members": part.n_members_, "start": dict(part.learned_.start)}
                for (kind, part), weight in zip(self.parts_.items(), self.weights_.tolist())
            ]
        return fitted, tensors

    def restore_network(self, fitted: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        """The networks of a model file."""
        if "parts" not in fitted:
            super().restore_network(fitted, tensors)
            return
        described, known = as_list(fitted["parts"], "parts"), self._kinds()
        names = [part["kind"] for part in described]
        if not names or len(set(names)) < len(names) or not set(names) <= set(known):
            raise ValueError("it has kinds of networks that there are not, or one of them twice")
        self.parts_ = {}
        for own in described:
            part, prefix = known[own["kind"]], f"{own['kind']}."
            part.learned_ = self.learned_.with_start(own["start"])
            weights = {name.removeprefix(prefix): v for name, v in tensors.items() if name.startswith(prefix)}
            own_state = {"n_members_": own["n_members"], "last_time_": self.last_time_}
            part.restore_network(own_state, weights)
            self.parts_[own["kind"]] = part
        self.weights_ = np.array([as_number(own["weight"], "a weight", above=0.0) for own in described])
        if abs(self.weights_.sum() - 1.0) > 1e-9:
            raise ValueError("the weights of the kinds of networks do not sum to one")
        self.least_hazard_ = as_number(fitted["least_hazard_"], "the least hazard", low=0.0)
        self.n_members_ = sum(part.n_members_ for part in self.parts_.values())

    def _build_network(
        self, start: Mapping[str, Any], encoder: Encoder, generators: Generators, seeds: npt.NDArray[np.int64]
    ) -> MonotoneNetwork:
        proper = self.variant == "sumo"
        mixed = MixedNetwork(
            generators,
            TimeFeatures.from_state(start["time_features"]),
            n_code=encoder.width,
            widths=self.setting("time_layers"),
            positive=self.positive,
            residual=self.setting("residual"),
            gate=proper,
            skip=proper,
        )
        return MonotoneNetwork(encoder, mixed, anchored=proper, tail=proper, derivative=self.derivative)

    def _check_settings(self) -> None:
        """Raise a ValueError that names an invalid setting."""
        if self.variant not in _VARIANTS:
            raise ValueError(f"variant is one of {', '.join(map(repr, _VARIANTS))}; got {self.variant!r}.")
        self._check_choice("positive", tuple(POSITIVE))
        self._check_choice("derivative", DERIVATIVES)
        self._check_choice("time_origin", ("zero", "first"))
        width = self.resolution
        number = isinstance(width, (int, float, np.number)) and not isinstance(width, bool)
        if not (width is None or width == "auto" or (number and 0 < float(width) < math.inf)):
            raise ValueError(f"resolution is 'auto', None or the positive width of a cell of time; got {width!r}.")
        self._check_widths("time_layers", at_least_one=True)
        super()._check_settings()


def _half_an_event(outcome: Outcome) -> float:
    """The rate of half an event in all of the follow-up, where there was none; else zero."""
    observed = outcome.weights * (outcome.time - (0.0 if outcome.entry is None else outcome.entry))
    return 0.0 if outcome.had_event.any() or not observed.sum() > 0 else float(0.5 / observed.sum())


def _with_kind(tell: Callable[[Epoch], None], kind: str, epoch: Epoch) -> None:
    tell(replace(epoch, kind=kind))
