"""Reports: one HTML file about a model on some rows, for decision makers."""

from sumosurv.report.build import Report, make_report

__all__ = ["Report", "make_report"]
