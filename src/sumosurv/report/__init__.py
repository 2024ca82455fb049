"""One HTML file about a model on given rows, for people who decide (extra ``report``).

Names are loaded when they are first used: the command line asks for the arguments alone.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sumosurv.report.making import Report as Report
    from sumosurv.report.making import make_report as make_report

__all__ = ["Report", "make_report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sumosurv.report' has no attribute {name!r}")
    from sumosurv.report import making

    return getattr(making, name)
