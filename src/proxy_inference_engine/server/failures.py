"""The one place where an error becomes a response body. Every route and every middleware ends here."""

import logging
from typing import Any

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy_inference_engine.errors import (
    ClientError,
    EngineFailure,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    PieError,
    QueueFull,
    QuotaExceeded,
    RequestTimeout,
    Unauthenticated,
)
from proxy_inference_engine.server.body import ClientGone
from proxy_inference_engine.server.jsons import dumps
from proxy_inference_engine.server.param import param_name
from proxy_inference_engine.server.record import record_of

_logger = logging.getLogger(__name__)
_DRAINED_BYTES = 64 * 1024  # an unread body up to this size does not cost the connection
UNSUPPORTED = "unsupported_parameter"


def error_body(error: PieError) -> dict[str, Any]:
    return {"error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}}


def error_headers(error: PieError) -> list[tuple[bytes, bytes]]:
    if isinstance(error, QueueFull):
        return [(b"retry-after", str(min(max(error.retry_after_s, 1), 60)).encode())]
    if isinstance(error, QuotaExceeded):
        return [(b"x-should-retry", b"false")]  # clients would try a 429 again, for nothing
    if isinstance(error, Unauthenticated):
        return [(b"www-authenticate", b"Bearer")]
    return []


def as_pie_error(error: BaseException) -> PieError:
    """Any exception as one that may be shown; what we did not expect is logged and shows nothing."""
    if isinstance(error, PieError):
        return error
    if isinstance(error, HTTPException):
        return _from_http(error)
    _logger.error("unexpected error", exc_info=error)
    return EngineFailure("The server had an internal error while processing the request.")


def _from_http(error: HTTPException) -> PieError:
    if error.status_code == 404:
        return NotFound("There is nothing at this path.")
    if error.status_code == 405:
        return MethodNotAllowed("This path does not take this method.", code="method_not_allowed")
    return ClientError("The request is not valid.")


def from_validation(error: ValidationError, data: object) -> InvalidRequest:
    """The first thing a schema did not accept, with the name of the parameter."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    param = param_name(_real_path(first["loc"], data))
    match first["type"]:
        case "missing":
            return InvalidRequest(f"Missing required parameter: {param!r}.", param=param, code="missing_parameter")
        case "extra_forbidden":
            return InvalidRequest(f"Unknown parameter: {param!r}.", param=param, code="unknown_parameter")
        case "unsupported":
            return InvalidRequest(f"{param!r} {first['msg']}.", param=param, code=UNSUPPORTED)
        case _:
            return InvalidRequest(f"Invalid value for {param!r}: {_plain(first['msg'])}.", param=param)


def _real_path(location: tuple[str | int, ...], data: object) -> list[str | int]:
    """The location without the <tags> of unions: only what leads through the data the client sent."""
    path: list[str | int] = []
    for step in location:
        if isinstance(data, dict) and isinstance(step, str) and (step in data or not step.startswith("<")):
            path.append(step)
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            path.append(step)
            data = data[step]
    return path


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ").removesuffix(".")


class Failures:
    """Middleware: whatever is raised inside becomes the error response, unless an answer has begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_started = False

        async def watched_send(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        async def watched_receive() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                record_of(scope).is_body_read = True
            return message

        try:
            await self._app(scope, watched_receive, watched_send)
        except ClientGone:
            return
        except Exception as error:
            if has_started:
                raise
            await send_error(scope, send, error)


async def send_error(scope: Scope, send: Send, error: Exception) -> None:
    shown = as_pie_error(error)
    record_of(scope).error_code = shown.code
    body = dumps(error_body(shown)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += error_headers(shown)
    if isinstance(error, HTTPException):
        headers += [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    if isinstance(shown, RequestTimeout) or _has_unread_body(scope):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": shown.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _has_unread_body(scope: Scope) -> bool:
    """Whether so much of the body may still come that the connection should rather close."""
    headers = Headers(scope=scope)
    length = headers.get("content-length", "0")
    is_long = not length.isdecimal() or len(length) > 9 or int(length) > _DRAINED_BYTES
    return not record_of(scope).is_body_read and (is_long or "transfer-encoding" in headers)


async def raise_http(_request: Request, error: Exception) -> Any:
    """Starlette's own handler would answer in plain text: hand the router's 404 and 405 to `Failures`."""
    raise error
