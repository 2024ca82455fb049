"""Reports: one HTML file about a model on some rows, for decision makers (extra ``report``).

Names are loaded when they are first used: the command line needs the arguments alone.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sumosurv.report.build import Report as Report
    from sumosurv.report.build import make_report as make_report

__all__ = ["Report", "make_report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sumosurv.report' has no attribute {name!r}")
    from sumosurv.report import build

    return getattr(build, name)
