"""Errors on the routes of Anthropic's API, in its shape. What an error is, and its status, `failures.py` decides."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy_inference_engine.errors import ContextLengthExceeded, PieError
from proxy_inference_engine.server.body import ClientGone
from proxy_inference_engine.server.failures import as_pie_error, send_error
from proxy_inference_engine.server.jsons import dumps
from proxy_inference_engine.server.record import record_of

MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_OF_IMAGES = frozenset(
    {"invalid_image", "invalid_image_url", "too_many_images", "unsupported_content", "url_not_allowed"}
)


def error_event(error: PieError, request_id: str) -> dict[str, Any]:
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": _cue(error) + error.message}, "request_id": request_id}


def _cue(error: PieError) -> str:
    """Words that clients look for, to shorten a conversation or to leave an image out of it and ask again."""
    if isinstance(error, ContextLengthExceeded):
        return "prompt is too long: "
    return "Could not process image: " if error.code in _OF_IMAGES else ""


class MessageErrors:
    """Middleware right inside `Failures`: also what never reaches a route, such as a wrong key, has the shape."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (MESSAGES, COUNT_TOKENS):
            await self._app(scope, receive, send)
            return
        request_id = record_of(scope).request_id
        has_started = False

        async def named_send(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(_named(message, request_id))

        try:
            await self._app(scope, receive, named_send)
        except ClientGone:
            raise
        except Exception as error:
            if has_started:
                raise
            known = error if isinstance(error, HTTPException) else as_pie_error(error)
            body = dumps(error_event(as_pie_error(known), request_id)).encode()
            await send_error(scope, _replacing(named_send, body), known)


def _named(message: Message, request_id: str) -> Message:
    """With the header in which Anthropic's clients look for the id."""
    if message["type"] != "http.response.start":
        return message
    return {**message, "headers": [*message.get("headers", ()), (b"request-id", request_id.encode())]}


def _replacing(send: Send, body: bytes) -> Send:
    async def replaced(message: Message) -> None:
        if message["type"] == "http.response.start":
            others = [(name, value) for name, value in message["headers"] if name != b"content-length"]
            await send({**message, "headers": [*others, (b"content-length", str(len(body)).encode())]})
        else:
            await send({**message, "body": body})

    return replaced
