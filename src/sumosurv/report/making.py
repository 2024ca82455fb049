"""Make a report: all sections, rendered into one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sumosurv._version import __version__
from sumosurv.files import check_writable, replacing
from sumosurv.report.card import card_section, limits_section
from sumosurv.report.data import data_section
from sumosurv.report.document import Section
from sumosurv.report.drivers import drivers_section
from sumosurv.report.given import prepare
from sumosurv.report.quality import quality_section
from sumosurv.report.separation import separation_section
from sumosurv.report.subjects import subjects_section

__all__ = ["Report", "make_report"]


@dataclass(frozen=True)
class Report:
    """One HTML file.

    Attributes
    ----------
    html : str
    sections : tuple of Section
        What it is made of.
    """

    html: str
    sections: tuple[Section, ...]

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        check_writable(path)
        with replacing(path) as partial:
            partial.write_text(self.html, encoding="utf-8")

    def __repr__(self) -> str:
        return f"Report({', '.join(section.title for section in self.sections)}; {len(self.html) / 1e6:.2f} MB)"


def make_report(
    model: Any,
    X: Any,
    y: Any,
    *,
    against: Mapping[str, Any] | None = None,
    times: Any = None,
    title: str = "",
    name: str = "",
    unit: str = "",
    causes: Sequence[str] | None = None,
    subjects: bool = True,
    sample_weight: Any = None,
    groups: Any = None,
    n_bootstrap: int = 200,
    max_rows: int = 1000,
    random_state: int = 0,
    verbose: bool = False,
) -> Report:
    """A report on a fitted model and the rows it is tried on: one HTML file that needs nothing else.

    What the data are, how good the model is, whom it separates, what drives it, three subjects, limits, and the model's
    settings, versions and digest. The file has no script and loads nothing.

    Parameters
    ----------
    model : fitted estimator, or pipeline or search around one
    X : table of covariates
        Of rows that the model was not fitted to.
    y : outcome
    against : mapping of names to fitted models, optional
        To compare with, fitted to the same training rows: ``{"Cox": CoxPH().fit(X_train, y_train)}``. The Kaplan-Meier
        curve of the training rows (of causes, the Aalen-Johansen curves) is always there.
    times : float or array, optional
        Horizons that matter, of the time since entry where rows enter late. Risks are shown at the one in the middle;
        by default three, the quartiles of the event times.
    title, name : str
        Of the report, and of the model in it.
    unit : str
        Of time, for labels.
    causes : sequence of str, optional
        Names of the causes, where causes compete.
    subjects : bool
        Show three rows of X as examples.
    sample_weight : array of shape (n,), optional
        How many rows each row counts for.
    groups : array of shape (n,), optional
        The subject that each row belongs to.
    n_bootstrap : int
        Resamples for intervals; 0 for none.
    max_rows : int
        Of more rows, so many are drawn at random for importance and effects.
    random_state : int
    verbose : bool
        Show a progress bar.

    Returns
    -------
    Report
    """
    template = _template()
    given = prepare(
        model,
        X,
        y,
        against=against,
        times=times,
        name=name,
        unit=unit,
        causes=causes,
        sample_weight=sample_weight,
        groups=groups,
        n_bootstrap=n_bootstrap,
        max_rows=max_rows,
        seed=random_state,
    )
    makers = [data_section, quality_section, separation_section, drivers_section]
    makers += [subjects_section] if subjects else []
    makers += [limits_section, card_section]
    sections = tuple(maker(given) for maker in _counted(makers, verbose))
    html = template.render(
        title=title or f"Report on {given.name}",
        name=given.name,
        sections=sections,
        n_rows=len(given.outcome),
        version=__version__,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
    )
    return Report(html, sections)


def _template() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError:
        raise ModuleNotFoundError('A report needs Jinja2 and matplotlib: pip install "sumosurv[report]".') from None
    environment = Environment(
        loader=PackageLoader("sumosurv.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("report.html")


def _counted(makers: list[Any], verbose: bool) -> Any:
    if not verbose:
        return makers
    from tqdm.auto import tqdm

    return tqdm(makers, desc="sections", unit="section")
