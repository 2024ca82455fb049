"""Serve a model: make the application, and run it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from typing import Any

from sumosurv.serve.model import ServedModel
from sumosurv.serve.request import Limits

_OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")
_LAST_PORT = 65535
_NEEDS = 'The what-if page needs Starlette and uvicorn: pip install "sumosurv[serve]".'


def make_app(
    model: Any,
    *,
    name: str = "",
    unit: str = "",
    causes: Sequence[str] | None = None,
    limits: Limits | None = None,
    hosts: Sequence[str] = (),
) -> Any:
    """An ASGI application with the what-if page and the JSON interface of a fitted model.

    Parameters
    ----------
    model : fitted estimator or search
    name, unit, causes, limits
        As in `ServedModel`.
    hosts : sequence of str
        Accepted names in the Host header, in addition to those of this machine.

    Returns
    -------
    ASGI application
    """
    try:
        from sumosurv.serve.app import build_app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "starlette":
            raise
        raise ModuleNotFoundError(_NEEDS) from None
    served = ServedModel(model, name=name, unit=unit, causes=causes, limits=limits)
    return build_app(served, [*_OWN_NAMES, *hosts])


def serve(
    model: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    hosts: Sequence[str] = (),
    log_level: str = "warning",
    on_start: Callable[[str], None] = print,
    **options: Any,
) -> None:
    """Serve the what-if page of a fitted model until Ctrl-C.

    There is no login: anyone who can reach the address can query the model. By default it is reachable from this
    machine only.

    Parameters
    ----------
    model : fitted estimator or search
    host : str
        Address to listen on.
    port : int, default 8000
        Port; 0 for any free port.
    hosts : sequence of str
        Host names under which browsers on other machines may reach the server.
    log_level : str
        Log level of uvicorn; "info" shows every request.
    on_start : callable
        Called with a message that contains the address, once the page can be opened.
    **options
        As in `make_app`: name, unit, causes, limits.
    """
    try:
        import uvicorn
    except ModuleNotFoundError:
        raise ModuleNotFoundError(_NEEDS) from None
    if not 0 <= port <= _LAST_PORT:
        raise ValueError(f"port must be between 0 and {_LAST_PORT}; got {port}.")
    if not host:  # an empty host means every address of this machine
        raise ValueError("host must be an address to listen on, such as 127.0.0.1.")
    literal = f"[{host}]" if ":" in host else host
    app = make_app(model, hosts=[literal, *hosts], **options)
    limits = options.get("limits") or Limits()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with TCP by name, asyncio sends small answers at once; without, they wait 40 ms for an acknowledgement
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            foreign = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
            remedy = "name an address of this machine" if foreign else "choose another port, or 0 for any free one"
            raise OSError(f"Cannot listen on {host}, port {port} ({error.strerror}); {remedy}.") from None
        listening.listen(128)
        config = uvicorn.Config(
            app,
            log_level=log_level,
            server_header=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=5,
            limit_concurrency=8 * limits.waiting,
            h11_max_incomplete_event_size=65536,
            ws="none",
            lifespan="off",
        )
        on_start(f"http://{literal}:{listening.getsockname()[1]}/")
        uvicorn.Server(config).run(sockets=[listening])
