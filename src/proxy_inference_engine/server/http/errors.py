"""The one place where an error becomes a response. Every route and every middleware ends here."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy_inference_engine.errors import (
    PARAM,
    ClientError,
    EngineFailure,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    PieError,
    QueueFull,
    QuotaExceeded,
    RateLimited,
    RequestTimeout,
    StorageCorrupt,
    Unauthenticated,
    Unavailable,
)
from proxy_inference_engine.server.http.access import STARTS, Visit, visit_of
from proxy_inference_engine.server.http.body import ClientGone
from proxy_inference_engine.server.http.limits import Standing, openai_headers
from proxy_inference_engine.server.http.wire import dumps, param_name

_logger = logging.getLogger(__name__)
_DRAINED_BYTES = 64 * 1024  # an unread body up to this size does not cost the connection
_LONGEST_WAIT_S = 60
_NO_RETRY = (b"x-should-retry", b"false")  # clients would try a 429 or a 500 again, for nothing
_DONE = "data: [DONE]\n\n"
UNSUPPORTED = "unsupported_parameter"


def error_body(error: PieError) -> dict[str, Any]:
    return {"error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}}


def _data_frame(body: dict[str, Any]) -> str:
    return f"data: {dumps(body)}\n\n{_DONE}"


@dataclass(frozen=True, slots=True)
class WireShape:
    """What an API writes beside its answers. These are OpenAI's ways, which all have that do not say otherwise."""

    error: Callable[[PieError, str], dict[str, Any]] = lambda error, _request_id: error_body(error)
    failure: Callable[[dict[str, Any]], str] = _data_frame  # an error in the middle of a stream: its body as frames
    media: bytes = b"text/event-stream; charset=utf-8"  # of a stream
    ping: str = ": ping\n\n"  # in a stream, while nothing is to be said
    end: str = _DONE  # of a stream
    id_header: bytes | None = None  # one more header in which its clients look for the id of the request
    limits: Callable[[Iterable[Standing]], list[tuple[bytes, bytes]]] = openai_headers  # where a key has some


COMMON = WireShape()


def shape_of(path: str, shapes: Mapping[str, WireShape]) -> WireShape:
    """The shape of what a path answers: its own, or that of a path that it lies below."""
    for folder, shape in shapes.items():
        if path == folder or path.startswith(f"{folder}/"):
            return shape
    return COMMON


def error_headers(error: PieError) -> list[tuple[bytes, bytes]]:
    if isinstance(error, QueueFull | RateLimited | Unavailable) and error.retry_after_s is not None:
        wait_s = min(max(error.retry_after_s, 1), _LONGEST_WAIT_S)
        # Clients would come back after a minute, for nothing.
        is_far = isinstance(error, RateLimited) and error.retry_after_s > _LONGEST_WAIT_S
        return [(b"retry-after", str(wait_s).encode()), *([_NO_RETRY] if is_far else [])]
    if isinstance(error, QuotaExceeded | StorageCorrupt):
        return [_NO_RETRY]
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
            return InvalidRequest(f"Missing required parameter: {PARAM}.", param=param, code="missing_parameter")
        case "extra_forbidden":
            return InvalidRequest(f"Unknown parameter: {PARAM}.", param=param, code="unknown_parameter")
        case "unsupported":
            return InvalidRequest(f"{PARAM} {first['msg']}.", param=param, code=UNSUPPORTED)
        case "model_type":  # pydantic would name a class of ours
            return InvalidRequest(f"Invalid value for {PARAM}: Input should be a valid dictionary.", param=param)
        case _:
            return InvalidRequest(f"Invalid value for {PARAM}: {_plain(first['msg'])}.", param=param)


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
    """Middleware: whatever is raised inside becomes the error response of its API, unless an answer has begun.

    `shapes` has the paths whose API does not write as most do. What never reaches a route, such as a wrong key, is
    written as its path's API would.
    """

    def __init__(self, app: ASGIApp, shapes: Mapping[str, WireShape]) -> None:
        self._app = app
        self._shapes = shapes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        shape, visit = shape_of(scope["path"], self._shapes), visit_of(scope)
        visit.media, visit.ping = shape.media, shape.ping
        has_started = False

        # Plain functions that hand on what is to be awaited: they are called for every write.
        def headed_send(message: Message) -> Awaitable[None]:
            if message["type"] in STARTS:
                message = _with_headers(message, visit, shape)
            return send(message)

        def watched_send(message: Message) -> Awaitable[None]:
            nonlocal has_started
            has_started = True
            if visit.is_early and message["type"] == "http.response.start":
                return _nothing()
            return headed_send(message)

        visit.send = headed_send

        async def watched_receive() -> Message:
            message = await visit.listen(receive)
            if message["type"] == "http.request" and not message.get("more_body", False):
                visit.is_body_read = True
            return message

        try:
            await self._app(scope, watched_receive, watched_send)
        except ClientGone:
            return
        except Exception as error:
            if has_started:
                raise
            if visit.is_early:
                await _send_failure(visit, send, error, shape)
            else:
                await _send_error(scope, watched_send, error, shape)


async def _nothing() -> None:
    """What is awaited where nothing is sent."""


async def _send_failure(visit: Visit, send: Send, error: Exception, shape: WireShape) -> None:
    """End a stream with an error that was begun for an answer which never came."""
    shown = as_pie_error(error)
    visit.error_code = shown.code
    frames = shape.failure(shape.error(shown, visit.request_id))
    await send({"type": "http.response.body", "body": frames.encode(), "more_body": False})


def _with_headers(message: Message, visit: Visit, shape: WireShape) -> Message:
    further = list(visit.headers)
    if shape.id_header is not None:
        further.append((shape.id_header, visit.request_id.encode()))
    if visit.limiter is not None:
        further += shape.limits(visit.limiter.standings())
    return {**message, "headers": [*message.get("headers", ()), *further]} if further else message


async def _send_error(scope: Scope, send: Send, error: Exception, shape: WireShape) -> None:
    shown, visit = as_pie_error(error), visit_of(scope)
    visit.error_code = shown.code
    body = dumps(shape.error(shown, visit.request_id)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += error_headers(shown)
    if isinstance(error, HTTPException):
        headers += [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    if isinstance(shown, RequestTimeout) or _has_unread_body(scope):
        headers.append((b"connection", b"close"))
    # A socket that is not opened is answered as a request is.
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    await send({"type": f"{kind}.start", "status": shown.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


def _has_unread_body(scope: Scope) -> bool:
    """Whether so much of the body may still come that the connection should rather close."""
    headers = Headers(scope=scope)
    length = headers.get("content-length", "0")
    is_long = not length.isdecimal() or len(length) > 9 or int(length) > _DRAINED_BYTES
    return not visit_of(scope).is_body_read and (is_long or "transfer-encoding" in headers)


async def raise_http(_request: Request, error: Exception) -> Any:
    """Starlette's own handler would answer in plain text: hand the router's 404 and 405 to `Failures`."""
    raise error
