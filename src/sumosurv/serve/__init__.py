"""A page on which covariates are set and curves are seen, and a JSON interface (extra ``serve``).

Starlette and uvicorn are imported when an application is made or run.
"""

from sumosurv.serve.model import ServedModel
from sumosurv.serve.request import Limits
from sumosurv.serve.run import make_app, serve

__all__ = ["Limits", "ServedModel", "make_app", "serve"]
