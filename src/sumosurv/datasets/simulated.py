r"""The paper's three simulated datasets, and data like KKBOX, each with its true distribution.

In the paper's datasets X is uniform on [0, 1], and given X

============  =====================================  ====================
name          event time T                           censoring time C
============  =====================================  ====================
weibull       Weibull, scale 1, shape 2 + 6X         exponential, mean 1.5
checkerboard  CB(4, 6), see `simulate`               exponential, mean 1.5
normal        normal, mean 100, sd 6X                normal, mean 100, sd 6
============  =====================================  ====================

The paper writes N(100, 6X); the second parameter is the standard deviation. `simulate` describes the data like KKBOX,
which are not from the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from sumosurv.datasets import _simulated_kkbox
from sumosurv.distributions import Normal, SurvivalDistribution, Tabulated, Weibull
from sumosurv.outcome import Surv

Name = Literal["weibull", "checkerboard", "normal", "kkbox"]
Floats = npt.NDArray[np.float64]

NAMES: tuple[str, ...] = get_args(Name)
_PAPER_ROWS = 25_000
_COLUMNS, _ROWS = 4, 6  # of the checkerboard
_CENSORING_MEAN = 1.5
_MEAN, _SD = 100.0, 6.0  # of the normal dataset
_SMALLEST_X = 2.0**-53  # the smallest x that is drawn; an sd of 6x is then still positive


@dataclass(frozen=True, eq=False)
class Simulated:
    """A simulated dataset; unpacks as ``X, y``.

    Attributes
    ----------
    name : str
    X : DataFrame
        One column, ``x``; 15 columns for kkbox.
    y : structured array
        The outcome, see `Surv`: time min(T, C), event T <= C.
    event_time, censoring_time : ndarray of shape (n,)
        T and C, of which only the smaller is observed.
    customer : ndarray of shape (n,), or None
        For kkbox, the customer of each row, for `fold_by_customer`.
    """

    name: Name
    X: pd.DataFrame
    y: npt.NDArray[np.void]
    event_time: Floats
    censoring_time: Floats
    customer: npt.NDArray[np.int64] | None = None

    @cached_property
    def distribution(self) -> SurvivalDistribution:
        """The true distribution of T for these rows."""
        return true_distribution(self.name, self.X)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.X, self.y))

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"Simulated({self.name!r}, rows={len(self)})"


def simulate(name: Name, n: int | None = None, random_state: int | np.random.Generator | None = None) -> Simulated:
    """Simulate n rows of one of the paper's simulated datasets, or of data like KKBOX.

    The checkerboard CB(4, 6) splits the unit square of (X, T) into 4 columns and 6 rows. In the 1st and 3rd column, T
    is uniform over the 1st, 3rd and 5th row; in the 2nd and 4th column, over the 2nd, 4th and 6th row. About 55 %
    (weibull), 73 % (checkerboard) and 50 % (normal) of the rows are events.

    "kkbox" resembles KKBOX in form only: 15 columns with the same names and types (numbers, 0/1, and the categories
    city, gender and registered_via with missing values), several rows per customer, 28 % censored. Time is in days, not
    rounded. Given the columns, T is a mixture of two Weibull distributions whose scales and shapes depend on them.
    Customers start within a window of 790 days, and follow-up ends with the window.

    Parameters
    ----------
    name : {"weibull", "checkerboard", "normal", "kkbox"}
    n : int, optional
        Number of rows. By default 25,000, as in the paper, and 2,646,746 for kkbox.
    random_state : int, numpy.random.Generator or None
        The same seed gives the same rows.

    Returns
    -------
    Simulated
        ``X``, ``y``, the true ``distribution``, and the latent event and censoring times.

    Examples
    --------
    >>> data = simulate("weibull", 1000, random_state=0)
    >>> X, y = data
    >>> X.shape, y.dtype.names
    ((1000, 1), ('event', 'time'))
    >>> float(data.distribution.survival(0.0).min())
    1.0
    """
    _check_name(name)
    if n is None:
        n = _simulated_kkbox.ROWS if name == "kkbox" else _PAPER_ROWS
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"n must be an integer of at least 1; got {n!r}.")
    rng = np.random.default_rng(random_state)
    if name == "kkbox":
        X, customer, event_time, censoring_time = _simulated_kkbox.draw(int(n), rng)
        return Simulated(name, X, _outcome(event_time, censoring_time), event_time, censoring_time, customer)
    x = 1.0 - rng.random(n)  # in (0, 1]: at 0 the normal distribution has no density
    if name == "weibull":
        event_time = rng.weibull(_weibull_shape(x))
    elif name == "checkerboard":
        row = 2.0 * rng.integers(_ROWS // 2, size=n) + _odd_column(x)
        event_time = (row + rng.random(n)) / _ROWS
    else:
        event_time = rng.normal(_MEAN, _normal_sd(x))
    # a normal time is negative only beyond 16 standard deviations, which the generator does not reach
    censoring_time = rng.normal(_MEAN, _SD, n) if name == "normal" else rng.exponential(_CENSORING_MEAN, n)
    outcome = _outcome(event_time, censoring_time)
    return Simulated(name, pd.DataFrame({"x": x}), outcome, event_time, censoring_time)


def true_distribution(name: Name, X: Any) -> SurvivalDistribution:
    """The true distribution of the event time of a simulated dataset, for any covariates.

    Parameters
    ----------
    name : {"weibull", "checkerboard", "normal", "kkbox"}
    X : DataFrame with one column, array of shape (n,) or (n, 1)
        Values in [0, 1]. At x = 0 the normal distribution is nearly a point mass at 100 (sd 7e-16). For kkbox, a
        DataFrame with the 15 columns.

    Returns
    -------
    Weibull, Tabulated (constant density in each cell), Normal, or Mixture (kkbox)

    Examples
    --------
    >>> true_distribution("checkerboard", [0.1, 0.3]).density([0.1, 0.2]).round(6)
    array([[2., 0.],
           [0., 2.]])
    >>> true_distribution("normal", [0.25, 0.75]).median()
    array([100., 100.])
    """
    _check_name(name)
    if name == "kkbox":
        return _simulated_kkbox.distribution(X)
    x = _check_x(X)
    if name == "weibull":
        return Weibull(scale=1.0, shape=_weibull_shape(x))
    if name == "normal":
        return Normal(mean=_MEAN, sd=_normal_sd(x))
    knots = np.arange(_ROWS + 1) / _ROWS
    stays = 1.0 - np.repeat(np.arange(_ROWS // 2 + 1), 2) / (_ROWS // 2)  # 1, 1, 2/3, 2/3, 1/3, 1/3, 0, 0
    curves = Tabulated(knots, np.stack([stays[1:], stays[:-1]]), between="density")
    return curves[_odd_column(x)]


def _outcome(event_time: Floats, censoring_time: Floats) -> npt.NDArray[np.void]:
    return Surv.from_arrays(event=event_time <= censoring_time, time=np.minimum(event_time, censoring_time))


def _weibull_shape(x: Floats) -> Floats:
    return 2.0 + 6.0 * x


def _normal_sd(x: Floats) -> Floats:
    return _SD * np.maximum(x, _SMALLEST_X)


def _odd_column(x: Floats) -> npt.NDArray[np.intp]:
    """0 in the 1st and 3rd column of the checkerboard, 1 in the 2nd and 4th; x = 1 is in the last."""
    return np.minimum((_COLUMNS * x).astype(np.intp), _COLUMNS - 1) % 2


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"There is no simulated dataset {name!r}; the names are {', '.join(NAMES)}.")


def _check_x(X: Any) -> Floats:
    x = np.asarray(X, dtype=np.float64)
    if x.ndim == 2 and x.shape[1] == 1:
        x = x[:, 0]
    if x.ndim != 1 or len(x) == 0:
        raise ValueError(f"X must have one column, x, and at least one row; got shape {np.shape(X)}.")
    if not bool(((x >= 0) & (x <= 1)).all()):
        raise ValueError(f"x must lie in [0, 1]; got {float(x[~((x >= 0) & (x <= 1))][0])}.")
    return x
