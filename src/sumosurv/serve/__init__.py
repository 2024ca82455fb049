"""A what-if page, on which covariates are set and curves are drawn, and a JSON interface (extra ``serve``).

Starlette and uvicorn are imported only when an application is made or run.
"""

from sumosurv.serve.model import ServedModel
from sumosurv.serve.request import Limits
from sumosurv.serve.run import make_app, serve

__all__ = ["Limits", "ServedModel", "make_app", "serve"]
