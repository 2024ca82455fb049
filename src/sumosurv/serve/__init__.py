"""A page on which covariates are set and curves are seen, and a JSON interface (extra ``serve``).

Names are loaded when they are first used, Starlette and uvicorn when an application is made or run.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sumosurv.serve.model import ServedModel as ServedModel
    from sumosurv.serve.request import Limits as Limits
    from sumosurv.serve.run import make_app as make_app
    from sumosurv.serve.run import serve as serve

_HOMES = {"Limits": "request", "ServedModel": "model", "make_app": "run", "serve": "run"}

__all__ = ["Limits", "ServedModel", "make_app", "serve"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sumosurv.serve' has no attribute {name!r}")
    return getattr(import_module(f"sumosurv.serve.{_HOMES[name]}"), name)
