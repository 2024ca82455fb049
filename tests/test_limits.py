"""Numbers at which behaviour changes: the last one before the change, and the first one after it."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from sumosurv import CoxPH, KaplanMeier, NetworkSearch, SumoNet, Surv, WeibullNet, check_outcome
from sumosurv.cli.fit import _print_columns
from sumosurv.distributions import Weibull
from sumosurv.estimators.regression import listed as listed_columns
from sumosurv.explain import partial_dependence
from sumosurv.explain.shapley import _is_exact
from sumosurv.fitting.prepared import time_features
from sumosurv.formulas.factors import parse_expression
from sumosurv.nonparametric.curves import coarse_kaplan_meier
from sumosurv.outcome import Cells
from sumosurv.preprocessing import Preprocessor
from sumosurv.preprocessing.levels import check_text, listed
from sumosurv.report.description import limits_section
from sumosurv.report.document import Table
from sumosurv.report.explanations import drivers_section, subjects_section
from sumosurv.report.groups import _levels, groups_section
from sumosurv.report.inputs import ReportInputs
from sumosurv.scores import audit
from sumosurv.scores.censoring import CensoringTestError, check_censoring
from sumosurv.search.space import paper_space, recipe_space
from sumosurv.serve.request import ChoiceField, RequestError, read_rows
from sumosurv.serve.run import serve
from sumosurv.sources import Roles

RNG = np.random.default_rng(0)
N = 120
TIME, EVENT = RNG.exponential(size=N), np.arange(N) % 2 > 0
X = pd.DataFrame({"x": RNG.normal(size=N)})
Y = Surv.from_arrays(EVENT, TIME)


def raises(kind, function, *arguments, **options):
    """Whether a call raises an error."""
    try:
        function(*arguments, **options)
    except kind:
        return True
    return False


def warns(function, *arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*arguments)
    return bool(caught)


def times_of(events, censored, distinct):
    """An outcome with so many events at so many distinct whole times."""
    time = np.concatenate([1 + np.arange(events) % distinct, np.full(censored, distinct)]).astype(float)
    return check_outcome(Surv.from_arrays(np.arange(len(time)) < events, time))


def inputs(columns=1, levels=2):
    """A report on rows with some columns, each of some levels."""
    table = pd.DataFrame({f"c{j}": np.roll(np.arange(N), j) % levels for j in range(columns)})
    model = KaplanMeier().fit(table, Y)
    return ReportInputs(model, table, Y, times=[0.5], n_bootstrap=0, max_rows=20)


def categories(columns):
    found = [item for item in groups_section(inputs(columns)).items if isinstance(item, Table)]
    return len({row[0].split(" = ")[0] for row in found[-1].rows})


def covariates(columns):
    table = next(item for item in subjects_section(inputs(columns)).items if isinstance(item, Table))
    return sum(row[0].startswith("c") for row in table.rows)


def small_groups(columns):
    """With 30 rows per level all are small; the number of them that are named."""
    text = next(item.text for item in limits_section(inputs(columns, 4)).items if "Too few" in item.text)
    return text.count("(")


def censored_rows(n):
    y = check_outcome(Surv.from_arrays(np.arange(N) >= n, TIME))
    return raises(CensoringTestError, check_censoring, "auto", X, y)


def wide(columns):
    table = pd.DataFrame(np.zeros((N, columns)))
    return raises(CensoringTestError, check_censoring, "auto", table, check_outcome(Y))


def shared_times(n):
    """Whether the recipe searches over the time origin if so many of 1,000 rows have the smallest time."""
    time = np.concatenate([np.full(n, 1.0), 2.0 + np.arange(1000 - n)])
    return "time_origin" in recipe_space(SumoNet(), Surv.from_arrays(np.ones(1000, bool), time))


def batch_sizes(n):
    return paper_space(WeibullNet(), Surv.from_arrays(np.ones(n, bool), np.ones(n)))["batch_size"]


def wrong_rows(n):
    """The number of errors that are named for rows with one error each."""
    with pytest.raises(RequestError) as caught:
        read_rows([ChoiceField("a", ("u",), "u", False)], [{"a": "v"}] * n)
    return len(caught.value.errors)


def wide_table(rows, columns):
    """The number of inputs of networks for a wide table."""
    table = pd.DataFrame(np.random.default_rng(1).normal(size=(rows, columns)))
    return Preprocessor(max_components=64).fit(table).n_numeric


# name: (a question, the last number of which the answer is True)
LIMITS = {
    "columns whose Shapley values are exact unless asked": (lambda n: _is_exact("auto", n, None), 6),
    "columns whose Shapley values can be exact": (lambda n: not raises(ValueError, _is_exact, "exact", n, None), 14),
    "characters of an expression": (lambda n: not raises(ValueError, parse_expression, "x" * n), 1000),
    "degrees of freedom in a formula": (
        lambda n: "in their range" not in str(_error(lambda: CoxPH(formula=f"ns(x, df={n})", alpha=1.0).fit(X, Y))),
        100,
    ),
    "columns that a warning names": (lambda n: "more" not in listed_columns(list(range(n))), 5),
    "levels that a warning names": (lambda n: "..." not in listed(["a"] * n), 5),
    "levels that a request names": (
        lambda n: "..." not in str(_error(lambda: ChoiceField("a", tuple(range(n)), 0, False).read("z"))),
        8,
    ),
    "columns in a description of inputs": (
        lambda n: "..." not in Preprocessor().fit(pd.DataFrame(np.eye(30, n))).inputs_description(),
        12,
    ),
    "rows of text that all differ": (lambda n: not warns(check_text, "a", [f"id {i}x" for i in range(n)], n), 19),
    "levels that look like numbers": (lambda n: not warns(check_text, "a", [f"{i}.5" for i in range(n)], 99), 9),
    "values of an event column": (
        lambda n: not raises(
            ValueError,
            Roles(time="t", event="e", event_value=("1",))._check_event_values,
            [pd.Series(np.arange(n))],
            None,
        ),
        100,
    ),
    "levels whose subgroups are scored": (
        lambda n: not raises(
            ValueError, audit, Weibull(np.ones(N), 1.0), X, Y, np.arange(N) % n, scores="log_likelihood", n_bootstrap=0
        ),
        20,
    ),
    "events per time, less one, of times that are exact": (lambda n: Cells.found(times_of(6 * n, 0, 6)) is None, 4),
    "censored rows that are too few to test": (censored_rows, 19),
    "columns of a test of the censoring": (lambda n: not wide(n), 200),
    "rows with the smallest time, of 1,000, that are too few": (lambda n: not shared_times(n), 4),
    "rows of small data in the paper": (lambda n: batch_sizes(n)[0] == 5, 99_999),
    "levels of a group in a report": (lambda n: bool(_levels(pd.DataFrame({"a": np.arange(90) % n}))), 8),
    "columns of groups in a report": (lambda n: categories(n) == n, 6),
    "covariates of an example": (lambda n: covariates(n) == n, 25),
    "small groups that are named, by four": (lambda n: small_groups(n) == 4 * n, 3),
    "columns whose importance is shown": (
        lambda n: "more than" not in getattr(drivers_section(inputs(n)).items[0], "text", ""),
        40,
    ),
    "errors that a request names": (lambda n: wrong_rows(n) == n, 20),
    "ports": (lambda n: "port must be" not in str(_error(lambda: serve(None, port=n))), 65535),
    "columns that networks read as they are": (lambda n: wide_table(100, n) == n, 64),
    "columns per rows, in quarters": (lambda n: wide_table(400, n) == n, 100),
}  # fmt: skip


def _error(function):
    try:
        function()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.filterwarnings("ignore:Columns left out", "ignore:Newton's method", "ignore:The likelihood has no")
def test_behaviour_changes_at_a_number(name, monkeypatch):
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **_: file.write(b"<svg/>"))
    holds, last = LIMITS[name]
    assert holds(last)
    assert not holds(last + 1)


@pytest.mark.parametrize(("events", "knots"), [(7, 2), (23, 2), (24, 3), (79, 9), (80, 10), (500, 10)])
def test_knots_of_the_marginal_time_feature(events, knots):
    """One for eight events, between two and ten."""
    made = time_features(
        "marginal", check_outcome(Surv.from_arrays(np.ones(events, bool), np.arange(1.0, events + 1))), 1.0
    )
    assert made.table.shape[-1] == knots


@pytest.mark.parametrize("n", [1, 8, 27, 1000])
def test_cells_of_a_coarse_curve_are_twice_the_cube_root_of_the_events(n):
    y = Surv.from_arrays(np.ones(n, bool), np.arange(1.0, n + 1))
    assert len(coarse_kaplan_meier(check_outcome(y)).times) == pytest.approx(2 * round(n ** (1 / 3)), abs=1.5)


def test_numbers_of_times():
    model = CoxPH().fit(X, Y)
    np.testing.assert_allclose(model.risk_times_, np.quantile(TIME[EVENT], (np.arange(32) + 0.5) / 32))
    np.testing.assert_allclose(
        partial_dependence(model, X, "x", n_values=2).quantity.times, np.linspace(0, TIME.max(), 50)
    )


@pytest.mark.parametrize("columns", [50, 51])
def test_covariates_that_fit_prints(columns, capsys):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(N, columns))).rename(columns=lambda j: f"c{j}")
    _print_columns(WeibullNet(n_members=1, max_epochs=1, random_state=0).fit(table, Y))
    shown = capsys.readouterr().out
    assert (shown.count(", c") + 1, "51 in all" in shown) == (50, columns == 51)


def test_spaces_of_searches():
    """The paper's appendix, for small data and for KKBOX."""
    y = Surv.from_arrays(np.ones(100_000, bool), np.ones(100_000))
    small, large = paper_space(SumoNet(), y[:10]), paper_space(SumoNet(), y)

    def layers(depths, widths):
        return {(width,) * depth for depth in depths for width in widths}

    assert set(small["covariate_layers"]) == set(small["time_layers"]) == layers((1, 2, 4, 5), (8, 16, 32))
    assert set(large["covariate_layers"]) == layers((4, 6, 8), (128, 256, 512))
    assert set(large["time_layers"]) == layers((1, 2, 4), (8, 16, 32, 64))
    assert small["dropout"] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert large["dropout"].support() == (0.0, 0.7)
    assert small["weight_decay"] == large["weight_decay"] == [0.4, 0.2, 0.1, 0.05, 0.02, 0.01, 0.0]
    assert (small["batch_size"], large["batch_size"]) == ([5, 10, 25, 50, 100, 250], [1000, 2500, 5000])
    assert NetworkSearch(WeibullNet()).space == "paper"
