"""SuMo-net as scikit-learn estimators: the default model, and the network of the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from sumosurv.estimators.network import NetworkEstimator
from sumosurv.estimators.parametric import LogNormalNet, ProportionalHazardsNet
from sumosurv.fitting.prepared import Resolution, RowOptions, TimeOrigin, time_features
from sumosurv.fitting.settings import NONE, Constraints, Generators, NetworkMethod, Start, number, one_of, widths
from sumosurv.networks import Encoder, MixedNetwork, MonotoneNetwork, TimeFeatures
from sumosurv.networks.layers import POSITIVE, Activation, Positive
from sumosurv.networks.monotone import DERIVATIVES, Derivative
from sumosurv.outcome import Outcome
from sumosurv.preprocessing import NumericScaling
from sumosurv.training.batches import batch_rows

__all__ = ["PaperSumoNet", "SumoNet"]

Components = Literal["auto", "networks"] | Sequence[str]

_COMPONENTS = ("network", "small_network", "proportional_hazards", "lognormal")
_COMPANIONS_UNTIL = 800  # from so many training rows on, network and proportional_hazards do as well as all components
_MEMBERS = {0: 15, 3_000: 10, 20_000: 6}  # number of networks, by the training rows from which on it holds
_COMPANION_MEMBERS, _COMPANION_PATIENCE = 5, 10
_EPOCHS = 80  # of networks alone
_DROPOUT, _DROPOUT_OF_MANY, _MANY_FOR_DROPOUT = 0.5, 0.1, 100_000
_DISK_MEMBERS, _DISK_VISITS = 4, 2e7  # for rows on disk: number of networks, and row visits per network
_SHARED = ("batch_size", "patience", "validation_fraction", "refit", "device", "n_jobs", "verbose", "numeric_scaling")


@dataclass(kw_only=True, eq=False, repr=False)
class _MonotoneNet(NetworkEstimator):
    """Networks that are monotone in time."""

    time_layers: Sequence[int] = (32, 32)
    time_origin: TimeOrigin = "zero"
    resolution: Resolution = "auto"

    _parameter_constraints: ClassVar[Constraints] = {
        "time_layers": widths(least=1),
        "time_origin": one_of("zero", "first"),
        "resolution": one_of("auto") | number(above=0) | NONE,
    }
    _padded_settings: ClassVar[tuple[str, ...]] = ("covariate_layers", "time_layers")

    def _row_options(self) -> RowOptions:
        return replace(super()._row_options(), time_origin=self.time_origin, resolution=self.resolution)

    def _build_monotone(
        self,
        start: Start,
        encoder: Encoder,
        generators: Generators,
        *,
        positive: Positive = "square",
        derivative: Derivative = "forward",
        plain: bool = False,
    ) -> MonotoneNetwork:
        """Build the network of `SumoNet`, or the paper's: without gates, residual and direct paths, and tail."""
        features, rich = TimeFeatures.from_state(start["time_features"]), not plain
        mixed = MixedNetwork(
            generators,
            features,
            n_code=encoder.width,
            widths=self.time_layers,
            positive=positive,
            residual=rich,
            gate=rich,
            skip=rich,
        )
        return MonotoneNetwork(encoder, mixed, anchored=rich, tail=rich, derivative=derivative)


@dataclass(kw_only=True, eq=False, repr=False)
class SumoNet(_MonotoneNet):
    r"""SuMo-net: survival regression by neural networks that are monotone in time.

    .. math::
        S(t|x) = \frac{1 - σ(h(t, x))}{1 - σ(h(0, x))}, \qquad f(t|x) = -\frac{∂S(t|x)}{∂t},

    with h non-decreasing in t because every weight between t and h is non-negative. The networks are trained on the
    exact log-likelihood, :math:`d \log f(z|x) + (1 - d) \log S(z|x)` for right-censored rows. All networks are trained
    together as one batched network, each on its own subset of the rows, and the prediction is their mixture. Simpler
    components are stacked with the networks, with weights chosen on held-out rows: see Notes.

    Parameters
    ----------
    components : "auto", "networks" or sequence of str
        The stacked components: "network" (the networks described by the parameters below), "small_network",
        "proportional_hazards", "lognormal". "networks" stands for ``("network",)``. "auto":

        ============================== =====================================
        all four                       below 800 training rows
        network, proportional_hazards  from 800 training rows on
        network                        with an ``encoder``, or rows on disk
        ============================== =====================================
    n_members : int, optional
        Number of networks; each other component has the same number, but at most 5. None: 15; 10 from 3,000 and 6 from
        20,000 training rows on; 4 for rows on disk.
    covariate_layers, time_layers : sequence of int, default (64, 64) and (32, 32)
        Hidden widths of the covariate network, and of the network that combines its output with time.
    dropout : float, optional
        Dropout rate in the covariate network. None: 0.5, or 0.1 from 100,000 training rows on.
    frequencies : int, default 4
        Number of learned periodic features per numeric column.
    numeric_scaling : {"quantile", "standard"}
        Scale numeric columns to normal scores by their quantiles, or by mean and standard deviation.
    encoder : torch.nn.Module or callable, optional
        Custom covariate network, or a function that returns one. Each member has its own copy, which maps a float
        tensor (rows, ...) to (rows, width). Its input is the preprocessed columns (categories as 0/1 columns), or
        unchanged arrays with more than two dimensions (images, sequences).
    time_origin : {"zero", "first"}
        Earliest possible event time: zero, or the smallest training time, up to which S(t) = 1. "first" is for studies
        in which early events are impossible by design (for example, patients enrolled after three days).
    resolution : "auto", float or None
        Width of the cells to which times are rounded: 7 for times in days that were recorded in weeks. The likelihood
        of an event is then the probability of its cell (`sumosurv.outcome.Cells`), in ``fit``, ``score`` and
        `evaluate`. "auto" detects an even grid with at least five events per recorded time on average; None treats all
        times as exact.
    learning_rate, weight_decay : float, default 0.02 and 0.1
        Parameters of AdamW; the learning rate decreases to zero along a cosine.
    max_epochs : int, optional
        Maximum number of epochs. None:

        ====================== ====================================================================================
        stacked networks       0.6 √rows, at most 45, but enough for 75 steps
        other components       the same, but enough for 150 steps and at most 800 steps
        networks alone         80
        rows on disk           2e7 / rows, at most 45
        ====================== ====================================================================================
    batch_size : int, "auto" or "full"
        Rows per training step. "auto" is the power of two nearest to 4 √rows; "full" uses all rows.
    patience : int, optional, default 20
        Stop training a member if its validation likelihood has not improved for more than this many epochs (at most 10
        for components other than "network"). None trains for all epochs.
    validation_fraction : float, default 0.2
        Fraction of the rows that each member holds out if ``validation_data`` is not passed to ``fit``; 0 for none.
    refit : bool, default False
        Retrain each member on all rows, including validation rows, for its best number of epochs.
    device : str
        "auto" (CUDA if available), "cpu" or "cuda".
    n_jobs : int, optional
        Number of processes on the CPU, each of which trains at least two of the networks; -1 for one per core. If
        enough processes remain, each other component has its own. The result does not depend on the number of
        processes. None trains in the calling process; the last digits may differ, because batches are not padded.
        Processes are forked, so a single process is used on Windows and macOS, if torch finds a GPU, and for fits with
        a checkpoint or a custom encoder.
    random_state : int, RandomState or None
        With a seed, a fit is bitwise reproducible on the same machine.
    verbose : bool or callable, default False
        True shows a progress bar. A function is called after each epoch with a `sumosurv.training.Epoch`.

    Attributes
    ----------
    components_ : DataFrame
        For each component that was trained: its name, its weight in the mixture, the number of its members, and
        ``held_out``, the mean log-likelihood of held-out rows.
    members_ : DataFrame
        For each network: its component, its weight in the mixture, its number of parameters, its best epoch, and
        ``held_out``.
    history_ : DataFrame
        Mean log-likelihood on training rows (with dropout) and validation rows, per epoch and member.
    best_epoch_, best_valid_ : ndarray
        Best epoch of each network, and its validation log-likelihood.
    n_members_ : int
        Number of networks in the mixture.
    interrupted_ : bool
        Whether Ctrl-C ended the fit early; see ``fit``.
    resolution_ : float or None
        Width of the cells of time; None if times are exact.
    time_origin_, time_unit_ : float
        Origin and length of the networks' time scale, which ends at the largest training time.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Stacking.** The other components are simpler than the networks and have weight decay 1. "small_network" has
    covariate layers of 16, time layers of 16 and no periodic features. In "proportional_hazards" a covariate network
    gives the log risk, with a baseline hazard estimated from all training rows. In "lognormal" both parameters are
    linear in x. All components are trained on the same cross-validation folds, and all networks of a component stop at
    the epoch that is best for the folds combined. The weights of the components maximise the held-out likelihood of the
    mixture, with a prior, worth two rows, that favours equal weights. A component with a weight below 0.01 is dropped.
    With ``validation_data``, each network stops at its own best epoch, and the weights are chosen on the validation
    rows. With a single component, each network holds out its own random rows and stops at its own best epoch.

    For a wide table (more than 64 numeric inputs, and more than one for every four rows), the networks use 64 principal
    components.

    **Beyond the last training time** T, there are no data. Each network continues from its own hazard at T,
    :math:`λ(t|x) = λ(T|x) e^{g (t - T)}`, with a growth rate g ≥ 0 common to all subjects, estimated from the training
    rows after the networks are trained; the other components continue in the same way. During training, validation rows
    beyond T are scored with g = 0, so ``best_valid_`` may differ slightly from ``score`` on the same rows. If all
    training rows are censored, the hazard beyond T is at least half an event per total follow-up time. Life expectancy
    and all quantiles are finite. Predictions beyond T (``last_time_``) are extrapolations; ``predict_restricted_mean``
    with a horizon up to T avoids them (see docs/tails.md).

    Examples
    --------
    >>> from sumosurv import SumoNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = SumoNet(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_survival_function(data.X[:2], times=[0.0, 0.5, 1.0]).shape
    (2, 3)
    >>> list(model.components_["component"])
    ['network', 'small_network', 'proportional_hazards', 'lognormal']
    """

    components: Components = "auto"
    n_members: int | None = None  # type: ignore[assignment]
    dropout: float | None = None  # type: ignore[assignment]
    learning_rate: float = 0.02
    max_epochs: int | None = None  # type: ignore[assignment]

    _parameter_constraints: ClassVar[Constraints] = {
        name: NetworkMethod._parameter_constraints[name] | NONE for name in ("n_members", "dropout", "max_epochs")
    }
    _shares_tail: ClassVar[bool] = True

    def _check_settings(self) -> None:
        super()._check_settings()
        chosen = self.components
        if chosen in ("auto", "networks"):
            return
        known = len(chosen) > 0 and set(chosen) <= set(_COMPONENTS)
        if not known or len(set(chosen)) < len(chosen):
            raise ValueError(
                f"components must be 'auto', 'networks' or a sequence of different names out of {_COMPONENTS}; "
                f"got {chosen!r}."
            )
        if self.encoder is not None and set(chosen) != {"network"}:
            raise ValueError(
                f"Only the component 'network' can use a custom encoder; got components={chosen!r}. Use "
                "components='networks'."
            )

    def _component_names(self, n_rows: int) -> tuple[str, ...]:
        if self.components == "networks" or (self.components == "auto" and self.encoder is not None):
            return ("network",)
        if self.components == "auto":
            return _COMPONENTS if n_rows < _COMPANIONS_UNTIL else ("network", "proportional_hazards")
        return tuple(name for name in _COMPONENTS if name in self.components)

    def _resolved(self, n_rows: int) -> Self:
        members = next(count for least, count in reversed(_MEMBERS.items()) if n_rows >= least)
        dropout = _DROPOUT if n_rows < _MANY_FOR_DROPOUT else _DROPOUT_OF_MANY
        return self._with(
            components="networks",
            n_members=members if self.n_members is None else self.n_members,
            dropout=dropout if self.dropout is None else self.dropout,
            max_epochs=_EPOCHS if self.max_epochs is None else self.max_epochs,
        )

    def _components(self, n_rows: int) -> dict[str, NetworkMethod]:
        names, network = self._component_names(n_rows), self._resolved(n_rows)
        if names == ("network",):
            return {"network": network}
        steps = math.ceil(n_rows / batch_rows(self.batch_size, n_rows))
        companion: dict[str, Any] = {
            "n_members": min(_COMPANION_MEMBERS, network.n_members or 1),
            "max_epochs": self.max_epochs or _enough_epochs(n_rows, steps, 150, 800),
            "learning_rate": 0.01,
            "weight_decay": 1.0,
            "dropout": _DROPOUT,
        }
        shared = {name: getattr(self, name) for name in _SHARED}
        if self.patience is not None:
            companion["patience"] = min(self.patience, _COMPANION_PATIENCE)
        small = {"covariate_layers": (16,), "time_layers": (16,), "frequencies": 0}
        every: dict[str, NetworkMethod] = {
            "network": network._with(max_epochs=self.max_epochs or _enough_epochs(n_rows, steps, 75)),
            "small_network": network._with(**small, **companion),
            "proportional_hazards": ProportionalHazardsNet(**shared | companion),
            "lognormal": LogNormalNet(covariate_layers=(), frequencies=0, **shared | companion),
        }
        return {name: every[name] for name in names}

    def _components_on_disk(self, n_rows: int) -> dict[str, NetworkMethod]:
        if self.components not in ("auto", "networks") and set(self.components) != {"network"}:
            raise ValueError(
                f"Only the component 'network' can be fitted to rows on disk; got components={self.components!r}. Use "
                "components='auto', or read the rows into memory."
            )
        epochs = min(45, max(1, round(_DISK_VISITS / n_rows)))
        network = self._resolved(n_rows)._with(
            n_members=self.n_members or _DISK_MEMBERS, max_epochs=self.max_epochs or epochs
        )
        return {"network": network}

    def _minimum_hazard(self, outcome: Outcome) -> float:
        """Return the rate of half an event in the whole follow-up if there were no events; else zero."""
        observed = outcome.weights * (outcome.time - outcome.entries)
        return 0.0 if outcome.had_event.any() or not observed.sum() > 0 else float(0.5 / observed.sum())

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        return {"time_features": time_features("marginal", outcome, unit).state()}

    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> MonotoneNetwork:
        return self._build_monotone(start, encoder, generators)


def _enough_epochs(n_rows: int, steps: int, least: int, most: float = math.inf) -> int:
    """Return the number of epochs: 0.6 √rows, at most 45, but for ``least`` to ``most`` steps, ``steps`` per epoch."""
    return max(round(min(45, 0.6 * math.sqrt(n_rows), most / steps)), math.ceil(least / steps))


@dataclass(kw_only=True, eq=False, repr=False)
class PaperSumoNet(_MonotoneNet):
    r"""The network of the SuMo-net paper, for comparison with `SumoNet`.

    .. math:: S(t|x) = 1 - σ(h(t, x)), \qquad f(t|x) = -\frac{∂S(t|x)}{∂t},

    with plain tanh layers and min-max scaled time. S(0|x) may be below one and S(∞|x) above zero.

    Parameters
    ----------
    positive : {"square", "softplus", "abs"}
        The function that maps weights to non-negative values.
    derivative : {"forward", "autograd", "chain", "difference"}
        How ∂h/∂t is computed. "forward" propagates the derivative through the layers: exact, and in one pass. The other
        options are the alternatives that the paper compares.
    time_layers, time_origin, resolution, n_members, ..., verbose
        The networks and their training, as in `SumoNet`.

    Examples
    --------
    >>> from sumosurv import PaperSumoNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = PaperSumoNet(n_members=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_survival_function(data.X[:2], times=[0.5, 1.0]).shape
    (2, 2)
    """

    positive: Positive = "square"
    derivative: Derivative = "forward"
    covariate_layers: Sequence[int] = (32, 32)
    dropout: float = 0.1
    frequencies: int = 0
    numeric_scaling: NumericScaling = "standard"

    _parameter_constraints: ClassVar[Constraints] = {
        "positive": one_of(*POSITIVE),
        "derivative": one_of(*DERIVATIVES),
    }
    _activation: ClassVar[Activation] = "tanh"
    _residual: ClassVar[bool] = False

    def _learn_start(self, outcome: Outcome, unit: float) -> dict[str, Any]:
        return {"time_features": time_features("linear", outcome, unit).state()}

    def _build_network(self, start: Start, encoder: Encoder, generators: Generators) -> MonotoneNetwork:
        options: dict[str, Any] = {"positive": self.positive, "derivative": self.derivative}
        return self._build_monotone(start, encoder, generators, plain=True, **options)
