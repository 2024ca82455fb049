"""Make a report: all sections, rendered into one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sumosurv._version import __version__
from sumosurv.files import check_writable, replacing
from sumosurv.report.description import data_section, limits_section, model_section
from sumosurv.report.document import Section
from sumosurv.report.explanations import drivers_section, subjects_section
from sumosurv.report.groups import groups_section
from sumosurv.report.inputs import ReportInputs
from sumosurv.report.performance import performance_section


@dataclass(frozen=True)
class Report:
    """The result of `make_report`: a report as one HTML file, written by ``save``.

    Attributes
    ----------
    html : str
    sections : tuple of Section
        The content of the report.
    """

    html: str
    sections: tuple[Section, ...]

    def save(self, path: str | Path) -> None:
        """Write the report to a file, completely or not at all."""
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
    verbose: bool = True,
) -> Report:
    """Make a self-contained HTML report on a fitted model and its performance on held-out rows.

    It describes the data, performance, risk groups, what drives the predictions, three example subjects, limitations,
    and the settings, versions and digest of the model. The file has no scripts and no external resources.

    Parameters
    ----------
    model : fitted estimator, or pipeline or search around one
    X : table of covariates
        Rows that were not used to fit the model.
    y : outcome
    against : mapping of names to fitted models, optional
        Models to compare with, fitted to the same training rows: ``{"Cox": CoxPH().fit(X_train, y_train)}``. The
        Kaplan-Meier curve of the training rows (for competing risks, Aalen-Johansen) is always included.
    times : float or array, optional
        Horizons of interest, counted from entry if there is delayed entry. Risks are shown at the middle one. By
        default the quartiles of the event times.
    title, name : str
        Title of the report, and name of the model in it.
    unit : str
        Unit of time, for labels.
    causes : sequence of str, optional
        Names of the competing causes.
    subjects : bool, default True
        Whether to show three rows of X as examples.
    sample_weight : array of shape (n,), optional
        Number of rows that each row represents.
    groups : array of shape (n,), optional
        Subject of each row.
    n_bootstrap : int, default 200
        Bootstrap resamples for intervals; 0 for no intervals.
    max_rows : int, default 1000
        Largest number of rows for importance and effects; a larger table is sampled at random.
    random_state : int, default 0
        Seed.
    verbose : bool, default True
        Whether to show a progress bar if the report takes longer than two seconds.

    Returns
    -------
    Report
    """
    from tqdm.auto import tqdm

    template = _template()
    inputs = ReportInputs(
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
        random_state=random_state,
    )
    makers = [data_section, performance_section, groups_section, drivers_section]
    makers += [subjects_section] if subjects else []
    makers += [limits_section, model_section]
    sections = []
    with tqdm(total=len(makers), unit="section", delay=2, disable=not verbose) as bar:
        for make in makers:
            bar.set_description(f"Report: {make.__name__.removesuffix('_section')}")
            sections.append(make(inputs))
            bar.update()
    html = template.render(
        title=title or f"Report on {inputs.name}",
        name=inputs.name,
        sections=sections,
        n_rows=len(inputs.outcome),
        version=__version__,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
    )
    return Report(html, tuple(sections))


def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("sumosurv.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("report.html")
