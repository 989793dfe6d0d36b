"""The HTTP side of a service: POST /predict, GET /health, GET /metrics, GET /openapi.json."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

import nlpctl
from nlpctl.data.passthrough_columns import json_line
from nlpctl.errors import Problem
from nlpctl.layout import TRUNCATED
from nlpctl.names import whole_number
from nlpctl.serve.metrics import CONTENT_TYPE, exposition
from nlpctl.serve.requests import (
    JSON_TYPE,
    Refused,
    Rows,
    busy,
    check_headers,
    failed,
    refuse_framing,
    stopping,
    unusable,
)
from nlpctl.serve.service import Service
from nlpctl.serve.settings import ServeSettings
from nlpctl.serve.starting import HEALTH
from nlpctl.spelling import option

PATHS = ("/predict", *HEALTH, "/metrics", "/openapi.json")
_LARGE = 64_000  # bytes; a larger body is parsed in a thread, so that the event loop stays free
_CLIENT_GONE = 499  # for metrics only; never sent
_REFUSALS = {
    "400": "The body is not JSON",
    "401": f"No API key, or an unknown one (with {option('api-key-file')})",
    "408": "The body did not arrive in time",
    "413": "Too many rows, characters or bytes",
    "415": "Not application/json in UTF-8",
    "422": "A row cannot be used",
    "500": "The service failed",
    "503": "No room now, the message tells why; try again after Retry-After seconds",
}
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "X-API-Key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_ERROR = {
    "type": "object",
    "properties": {
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("message", "where", "hint")},
                "required": ["message"],
            },
        }
    },
    "required": ["errors"],
}


def make_app(service: Service) -> Callable[..., Awaitable[None]]:
    """The ASGI application of a service whose batcher runs."""
    version = nlpctl.__version__
    app = FastAPI(title="nlpctl serve", version=version, docs_url=None, redoc_url=None, redirect_slashes=False)

    @app.post("/predict", openapi_extra=predict_schema(service.keys, service.settings.max_rows))
    async def predict(request: Request) -> Response:
        """One row as an object, or several as a list; the answer has the same form and order."""
        started, asked = time.monotonic(), _flag(request, TRUNCATED)
        check_headers(request.headers.get("content-type", ""), request.headers.get("content-encoding", ""))
        rows = await _read(service, await _body(request, service))
        answers = await _while_connected(request, service.batcher.submit(rows.rows))
        service.truncated.add(sum(answer.get(TRUNCATED, False) for answer in answers))
        if not asked:
            answers = [{name: value for name, value in each.items() if name != TRUNCATED} for each in answers]
        service.seconds.observe(time.monotonic() - started)
        return _json(200, rows.response(answers))

    not_ready: dict[int | str, dict[str, Any]] = {503: _content("It starts, stops, or is broken", {"type": "object"})}

    @app.get("/health/ready", responses=not_ready, openapi_extra={"security": []})
    @app.get("/health", responses=not_ready, openapi_extra={"security": []})
    async def health() -> Response:
        """200 while requests are accepted; 503 while the service stops, or if it is broken."""
        status = "stopping" if service.stopping else "ok" if service.batcher.alive else "broken"
        return _json(200 if status == "ok" else 503, {"status": status, **service.facts()})

    @app.get("/metrics", response_class=PlainTextResponse, responses={401: _content(_REFUSALS["401"], _ERROR)})
    async def metrics() -> Response:
        """Prometheus' text format."""
        current = service.metrics() if service.metrics_of_all is None else await service.metrics_of_all()
        return Response(exposition(current), media_type=CONTENT_TYPE)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return _refusal(error)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        """A bug; the exception goes on to _Outermost, which reports it."""
        return _refusal(failed(error))

    @app.exception_handler(HTTPException)
    async def not_routed(request: Request, error: HTTPException) -> Response:
        hint = "POST /predict, GET /health or GET /metrics"
        problem = Problem(str(error.detail).lower(), f"{request.method} {request.url.path}", hint)
        return _refusal(Refused(error.status_code, problem, headers=error.headers))

    if service.access is not None:
        app.openapi().update(components={"securitySchemes": _SCHEMES}, security=[{name: []} for name in _SCHEMES])
    return _Outermost(app, service)


class _Outermost:
    """Counts requests, sends `Connection: close` while the service stops, and catches every exception."""

    def __init__(self, app: FastAPI, service: Service):
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0
        self._service.arrived += 1

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._service.stopping:
                    message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        try:
            refuse_framing(scope)
            if self._service.access is not None and scope.get("path") not in HEALTH:
                self._service.access.check(scope.get("headers", ()))
            if scope.get("path") == "/predict" and scope.get("method") == "POST":
                self._service.batcher.check_room()  # before routing: under overload this answer must be cheap
            await self._app(scope, receive, send_counted)
        except Refused as error:
            await _refusal(error)(scope, receive, send_counted)
        except ClientDisconnect:
            status = _CLIENT_GONE
        except asyncio.CancelledError:
            if status or not self._service.stopping:
                raise
            self._service.unfinished += 1
            await _refusal(stopping())(scope, receive, send_counted)
        except Exception as error:
            self._service.report(error)
            if not status:
                await _refusal(failed(error))(scope, receive, send_counted)
        finally:
            path = scope.get("path", "") if scope.get("path", "") in PATHS else "other"
            self._service.requests.add(1, path, str(status or _CLIENT_GONE))


def _flag(request: Request, name: str) -> bool:
    """The one parameter of the address, true or false. Refused (422): neither, given twice, or another parameter."""
    for other in request.query_params:
        if other != name:
            raise unusable([Problem("there is no such parameter", other[:60], f"leave it out; there is {name}=true")])
    values = request.query_params.getlist(name)
    if len(values) > 1:
        raise unusable([Problem("the parameter stands twice", name, "send it once")])
    value = values[0] if values else "false"
    if value not in ("true", "false"):
        raise unusable([Problem(f"{value[:60]!r} is not true or false", name, f"send /predict?{name}=true")])
    return value == "true"


async def _body(request: Request, service: Service) -> bytes:
    """The body. Refused: it is too large (413), does not arrive in time (408), or there are too many requests (503)."""
    settings = service.settings
    length = request.headers.get("content-length", "")
    if length.isdecimal() and whole_number(length, settings.max_body) is None:
        raise _too_large(settings)
    if service.arriving >= settings.queue:  # limits memory: each takes up to max_body
        raise busy(f"{service.arriving:,} requests are being received, which is the limit ({option('queue')})", 1)
    service.arriving += 1
    try:
        return await asyncio.wait_for(_collect(request, settings), settings.body_seconds)
    except asyncio.TimeoutError:
        message = f"the body did not arrive within {settings.body_seconds:g} s"
        raise Refused(408, Problem(message, hint="send it again"), headers={"Connection": "close"}) from None
    finally:
        service.arriving -= 1


async def _collect(request: Request, settings: ServeSettings) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > settings.max_body:
            raise _too_large(settings)
        parts.append(part)
    return b"".join(parts)


def _too_large(settings: ServeSettings) -> Refused:
    problem = Problem(f"the body is larger than {settings.max_body} bytes", "body", "send fewer rows at a time")
    return Refused(413, problem)  # read and drop the rest: closing early would reset the connection and lose the answer


async def _read(service: Service, body: bytes) -> Rows:
    if len(body) > _LARGE:
        return await asyncio.to_thread(service.reader.read, body)
    return service.reader.read(body)


async def _while_connected(request: Request, work: Awaitable[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The result of `work`; if the sender disconnects, it is cancelled and ClientDisconnect raised."""
    answering, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        for task in (answering, leaving):
            task.cancel()


async def _left(request: Request) -> None:
    """Returns when the sender has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _refusal(error: Refused) -> Response:
    return _json(error.status, error.content(), error.headers)


def _json(status: int, content: Any, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_line(content), status, dict(headers or {}), JSON_TYPE)


# -- description of POST /predict in /openapi.json -------------------------------------------------


def predict_schema(keys: tuple[str, ...], max_rows: int) -> dict[str, Any]:
    """The body and the answers of POST /predict. `keys`: required keys of a row; others are allowed."""
    row = {"type": "object", "required": list(keys), "properties": {key: {} for key in keys}}
    rows = {"type": "array", "items": row, "minItems": 1, "maxItems": max_rows}
    answer = {"type": "object", "description": "What `nlpctl predict` writes for the row"}
    answers = {"oneOf": [answer, {"type": "array", "items": answer}]}
    responses = {"200": _content("The answers, in the form and order of the rows", answers)}
    responses |= {status: _content(reason, _ERROR) for status, reason in _REFUSALS.items()}
    body = {"required": True, "content": {JSON_TYPE: {"schema": {"oneOf": [row, rows]}}}}
    about = "Each answer says whether its text was cut at data.max_seq_length"
    truncated = {"name": TRUNCATED, "in": "query", "description": about, "schema": {"type": "boolean"}}
    return {"parameters": [truncated], "requestBody": body, "responses": responses}


def _content(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {JSON_TYPE: {"schema": schema}}}
