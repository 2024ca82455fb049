"""SuMo-net as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from sumosurv.estimators.network import Generators
from sumosurv.estimators.reading import Reading, TimeOrigin
from sumosurv.estimators.time_features import TimeFeaturesMixin
from sumosurv.networks import Encoder, MixedNetwork, MonotoneNetwork, TimeFeatures
from sumosurv.networks.layers import POSITIVE, Activation, Positive
from sumosurv.networks.monotone import DERIVATIVES, Derivative
from sumosurv.networks.time import TimeFeatureKind
from sumosurv.preprocessing import NumericScaling

__all__ = ["SumoNet"]

# What each variant means by None.
_VARIANTS: dict[str, dict[str, Any]] = {
    "sumo": {
        "covariate_layers": (64, 64),
        "mixed_layers": (32, 32),
        "activation": "silu",
        "residual": True,
        "dropout": 0.5,
        "time_features": "marginal",
        "frequencies": 4,
        "numeric_scaling": "quantile",
        "learning_rate": 0.02,
    },
    "paper": {
        "covariate_layers": (32, 32),
        "mixed_layers": (32, 32),
        "activation": "tanh",
        "residual": False,
        "dropout": 0.1,
        "time_features": "linear",
        "frequencies": 0,
        "numeric_scaling": "standard",
        "learning_rate": 0.01,
    },
}


@dataclass(kw_only=True, eq=False, repr=False)
class SumoNet(TimeFeaturesMixin):
    r"""SuMo-net: survival regression by a neural network that is monotone in time.

    .. math::
        S(t|x) = \frac{1 - σ(h(t, x))}{1 - σ(h(0, x))}, \qquad f(t|x) = -\frac{∂S(t|x)}{∂t},

    with h non-decreasing in t because every weight between t and h is non-negative. The networks are
    trained on the exact right-censored log-likelihood :math:`d \log f(z|x) + (1 - d) \log S(z|x)`.
    ``ensemble_size`` of them train side by side as one batched network, each on its own share of the
    rows, and predict as their equal mixture, whose likelihood is exact too.

    Parameters
    ----------
    variant : {"sumo", "paper"}
        "sumo" is a proper distribution (S(0) = 1, S(∞) = 0; see Notes) with what helps likelihood.
        "paper" is Figure 2 of the paper to the letter: plain tanh layers, time min-max scaled and not
        transformed, no anchoring at zero, no tail. It decides what None means for the options below.
    ensemble_size : int
        Networks in the mixture.
    covariate_layers, mixed_layers : sequence of int, optional
        Hidden widths of the two networks; (64, 64) and (32, 32), in the paper's variant twice (32, 32).
    activation : {"silu", "relu", "tanh", "gelu"}, optional
        Of the covariate network; "silu" ("tanh"). The mixed network always uses tanh.
    residual : bool, optional
        Residual connections between layers of equal width; True (False).
    dropout : float, optional
        In the covariate network; 0.5 (0.1).
    time_features : {"marginal", "log", "linear"}, optional
        "marginal" ("linear"); see `sumosurv.networks.TimeFeatures`.
    time_origin : {"zero", "first"}
        When events can begin: at time zero, or at the smallest time among the rows given to ``fit``, where S(t) = 1
        up to then. "first" is for records that begin late by design (patients enrolled after three days, say); an
        event before it has likelihood zero.
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
    weight_decay : float
    max_epochs : int
    batch_size : int or "auto"
        "auto" is the power of two nearest to 4 √rows.
    patience : int, optional
        A member is done when its best epoch is more than so many epochs back; None trains all. Either way each
        member keeps the weights of its best epoch on validation rows.
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
        Called after each epoch with one argument that has the attributes ``number``, ``n_epochs``, ``train`` and
        ``valid``: the mean log-likelihoods of ``history_`` by member, ``valid`` None without validation rows.

    Attributes
    ----------
    history_ : DataFrame
        Mean log-likelihood on training (dropout on) and validation rows, per epoch and member.
    interrupted_ : bool
        Ctrl-C ended the fit early; see ``fit``.
    best_epoch_, best_valid_ : ndarray of shape (ensemble_size,)
    n_members_ : int
        Members in the mixture: ``ensemble_size`` unless one failed.
    time_features_ : str
        The time features in use ("marginal" falls back to "log" with fewer than two event times).
    time_origin_, time_unit_ : float
        When the networks' clock starts, and how long it runs: to the largest training time. Past it each member
        has a Gompertz tail, see Notes.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Past the last training time T no data can tell. There each member goes on from its own hazard at T,
    :math:`λ(t|x) = λ(T|x) e^{g (t - T)}`, with a growth g ≥ 0 that all subjects share, learned from the training rows
    once the networks are final (``network_.growth``, in units of 1/T; `sumosurv.networks.tail`); validation rows past T
    are scored with g = 0 until then, so that ``best_valid_`` may differ a little from ``score`` of the same rows. The
    hazard never
    falls, so that life expectancy and all quantiles are finite. Of the tails that were compared on follow-up that had
    been cut short none was better: see docs/tails.md. What lies beyond T (``last_time_``) is extrapolation all the
    same: use ``predict_restricted_mean`` where that matters.

    Examples
    --------
    >>> from sumosurv import SumoNet, datasets
    >>> data = datasets.simulate("weibull", 300, random_state=0)
    >>> model = SumoNet(ensemble_size=2, max_epochs=10, random_state=0).fit(data.X, data.y)
    >>> model.predict_survival_function(data.X[:2], times=[0.0, 0.5, 1.0]).shape
    (2, 3)
    """

    padded_settings: ClassVar[tuple[str, ...]] = ("covariate_layers", "mixed_layers")

    variant: Literal["sumo", "paper"] = "sumo"
    covariate_layers: Sequence[int] | None = None
    mixed_layers: Sequence[int] | None = None
    activation: Activation | None = None
    residual: bool | None = None
    dropout: float | None = None
    time_features: TimeFeatureKind | None = None
    time_origin: TimeOrigin = "zero"
    frequencies: int | None = None
    numeric_scaling: NumericScaling | None = None
    positive: Positive = "square"
    derivative: Derivative = "forward"
    learning_rate: float | None = None

    def setting(self, name: str) -> Any:
        """The value of a setting; None stands for what it is in the variant."""
        value = getattr(self, name)
        return _VARIANTS[self.variant][name] if value is None else value

    def reading(self) -> Reading:
        """The settings that decide how rows are read."""
        return replace(super().reading(), time_origin=self.time_origin)

    def _build_network(
        self, start: Mapping[str, Any], encoder: Encoder, generators: Generators, seeds: npt.NDArray[np.int64]
    ) -> MonotoneNetwork:
        proper = self.variant == "sumo"
        mixed = MixedNetwork(
            generators,
            TimeFeatures.from_state(start["time_features"]),
            n_code=encoder.width,
            widths=self.setting("mixed_layers"),
            positive=self.positive,
            residual=self.setting("residual"),
            gate=proper,
            skip=proper,
        )
        return MonotoneNetwork(encoder, mixed, anchored=proper, tail=proper, derivative=self.derivative)

    def check_settings(self) -> None:
        """Raise a ValueError that names a setting which cannot be."""
        if self.variant not in _VARIANTS:
            raise ValueError(f"variant is one of {', '.join(map(repr, _VARIANTS))}; got {self.variant!r}.")
        self._check_choice("positive", tuple(POSITIVE))
        self._check_choice("derivative", DERIVATIVES)
        self._check_choice("time_origin", ("zero", "first"))
        self._check_widths("mixed_layers", at_least_one=True)
        super().check_settings()
