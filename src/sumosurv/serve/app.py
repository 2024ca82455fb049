"""The web application: routes, limits, headers, and the OpenAPI document of the model."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sumosurv._version import __version__
from sumosurv.model_files import parse_json
from sumosurv.serve.model import ServedModel
from sumosurv.serve.request import Field, FieldError, NumberField, RequestError

_PAGE = {  # the files of the page
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/chart.js": ("chart.js", "text/javascript; charset=utf-8"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_OVER_LIMIT = 413
_TEXTS = {404: "There is no such page.", 405: "This page does not accept the HTTP method."}

Scope = dict[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


def build_app(served: ServedModel, hosts: Sequence[str]) -> App:
    """The application for a model; it answers requests whose Host header is one of these names."""
    predictor = _Predictor(served)
    static = {path: files("sumosurv.serve").joinpath("static", name).read_bytes() for path, (name, _) in _PAGE.items()}
    answers = {
        "/health": {"status": "ok", "version": __version__, "model": served.name, "digest": served.digest},
        "/schema": served.schema(),
        "/openapi.json": _openapi(served),
    }

    async def page(request: Request) -> Response:
        return Response(static[request.url.path], media_type=_PAGE[request.url.path][1])

    async def fixed(request: Request) -> Response:
        return _json(answers[request.url.path])

    async def favicon(request: Request) -> Response:
        return Response(status_code=204)

    routes = [Route(path, page, methods=["GET"]) for path in _PAGE]
    routes += [Route(path, fixed, methods=["GET"]) for path in answers]
    routes += [
        Route("/favicon.ico", favicon, methods=["GET"]),
        Route("/predict", predictor.predict, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _failed})
    return _guarded(app, frozenset(host.lower() for host in hosts))


class _Predictor:
    """Answers requests for predictions one at a time, in a single thread, so that the model is never shared."""

    def __init__(self, served: ServedModel) -> None:
        self.served = served
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sumosurv-predict")
        self.waiting = 0

    async def predict(self, request: Request) -> Response:
        limits = self.served.limits
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return _error(415, "body", "send JSON, with the header Content-Type: application/json")
        try:
            body = await asyncio.wait_for(_read(request, limits.body), limits.seconds)
        except TimeoutError:
            return _error(408, "body", f"the request did not arrive within {limits.seconds:g} seconds")
        except ClientDisconnect:
            return Response(status_code=400)
        if body is None:
            return _error(_OVER_LIMIT, "body", f"the request has more than {limits.body} bytes; split it into several")
        if self.waiting >= limits.waiting:
            return _error(503, "body", "too many requests are waiting for the model; try again in a moment", retry=True)
        self.waiting += 1
        try:
            work = asyncio.get_running_loop().run_in_executor(self.thread, self._answer, body)
            return await asyncio.wait_for(work, limits.seconds)
        except TimeoutError:
            return _error(503, "body", f"no answer within {limits.seconds:g} seconds; request less", retry=True)
        finally:
            self.waiting -= 1

    def _answer(self, body: bytes) -> Response:
        try:
            asked = parse_json(body)
        except (ValueError, UnicodeDecodeError) as error:
            return _error(400, "body", f"this is not valid JSON: {error!s:.200}")
        try:
            return _json(self.served.answer(asked))
        except RequestError as error:
            return _errors(422, error.errors)


async def _read(request: Request, most: int) -> bytes | None:
    """The body, or None as soon as it is too long."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            return None
        parts.append(part)
    return b"".join(parts)


def _guarded(app: App, hosts: frozenset[str]) -> App:
    """Add headers to every response, and refuse unknown names in the Host header (to prevent DNS rebinding)."""

    async def guarded(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        named = [value for name, value in scope["headers"] if name == b"host"]
        if len(named) != 1 or _host(named[0]) not in hosts:
            refusal = _error(421, "host", "this host name is not accepted; see --allow-host")
            await refusal(scope, receive, send_with_headers)
            return
        await app(scope, receive, send_with_headers)

    return guarded


def _host(header: bytes) -> str:
    """The name in a Host header, without the port."""
    found = re.fullmatch(r"(\[[^]]*\]|[^:]*)(:\d*)?", header.decode("latin-1").strip().lower())
    return found[1] if found else ""


async def _refused(request: Request, error: Any) -> Response:
    return _error(error.status_code, "request", _TEXTS.get(error.status_code, str(error.detail)))


async def _failed(request: Request, error: Exception) -> Response:
    return _error(500, "request", "the prediction failed; see the log of the server")


def _error(status: int, field: str, message: str, *, retry: bool = False) -> Response:
    made = _errors(status, [FieldError(field, message)])
    if retry:
        made.headers["Retry-After"] = "1"
    return made


def _errors(status: int, errors: Sequence[FieldError]) -> Response:
    return _json({"errors": [vars(error) for error in errors]}, status)


def _json(value: Any, status: int = 200) -> Response:
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "backslashreplace"), status_code=status, media_type="application/json")


def _openapi(served: ServedModel) -> dict[str, Any]:
    """The OpenAPI document of the interface, completed with the covariates, limits and causes of the model."""
    document: dict[str, Any] = json.loads(files("sumosurv.serve").joinpath("openapi.json").read_text(encoding="utf-8"))
    times = f"Times are in {served.unit}. " if served.unit else ""
    causes = f"The causes are {', '.join(served.causes)}." if served.n_causes > 1 else ""
    document["info"] = {"title": f"Predictions of {served.name}", "version": __version__, "description": times + causes}
    schemas = document["components"]["schemas"]
    request, prediction = schemas["Request"]["properties"], schemas["Prediction"]["properties"]
    request["rows"]["maxItems"], request["times"]["maxItems"] = served.limits.rows, served.limits.times
    request["horizon"]["default"] = served.last_time
    schemas["Subject"] |= {
        "required": [field.name for field in served.fields],
        "properties": {field.name: _of_field(field) for field in served.fields},
    }
    absent = ["incidence"] * (served.n_causes == 1)
    if not served.has_members:
        del request["band"]
        absent += ["survival_", "incidence_"]
    schemas["Prediction"]["properties"] = {
        name: schema for name, schema in prediction.items() if not name.startswith(tuple(absent))
    }
    return document


def _of_field(field: Field) -> dict[str, Any]:
    if isinstance(field, NumberField):
        text = "" if field.low is None else f"{field.low:.6g} to {field.high:.6g} in training."
        return {"type": ["number", "null"], "description": text}
    return {"enum": [*field.levels, None]}
