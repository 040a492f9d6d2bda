"""Errors and pings in the shape of Anthropic's API. What an error is, and its status, `http/errors.py` decides."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from proxy_inference_engine.errors import ContextLengthExceeded, PieError
from proxy_inference_engine.server.http.errors import WireShape
from proxy_inference_engine.server.http.limits import Standing
from proxy_inference_engine.server.http.wire import dumps

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


def frame(event: dict[str, Any]) -> str:
    return f"event: {event['type']}\ndata: {dumps(event)}\n\n"


def error_event(error: PieError, request_id: str) -> dict[str, Any]:
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    body: dict[str, Any] = {"type": kind, "message": _cue(error) + error.message}
    if error.details is not None:
        body["details"] = error.details
    return {"type": "error", "error": body, "request_id": request_id}


def _cue(error: PieError) -> str:
    """Words that clients look for, to shorten a conversation or to leave an image out of it and ask again."""
    if isinstance(error, ContextLengthExceeded):
        return "prompt is too long: "
    return "Could not process image: " if error.code in _OF_IMAGES else ""


def limit_headers(standings: Iterable[Standing]) -> list[tuple[bytes, bytes]]:
    """Where a key stands. Anthropic tells the hour at which all is there again, not how long it takes."""
    headers = []
    for unit, limit, num_left, reset_s in standings:
        at = datetime.now(UTC) + timedelta(seconds=reset_s)
        reset = at.isoformat(timespec="seconds").replace("+00:00", "Z")
        for name, value in (("limit", str(limit)), ("remaining", str(num_left)), ("reset", reset)):
            headers.append((f"anthropic-ratelimit-{unit}-{name}".encode(), value.encode()))
    return headers


# A ping and a failure are events, and nothing follows the last one.
SHAPE = WireShape(
    error_event, frame, ping=frame({"type": "ping"}), end="", id_header=b"request-id", limits=limit_headers
)
