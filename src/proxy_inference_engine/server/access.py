"""Middleware around everything: request ids in and out, one log line and one count per request."""

import logging
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy_inference_engine.server.ids import request_id
from proxy_inference_engine.server.metrics import Metrics
from proxy_inference_engine.server.record import Record, attach_record

_logger = logging.getLogger(__name__)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Access:
    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        wanted = Headers(scope=scope).get("x-request-id")
        record = Record(request_id(None if wanted is None else wanted.encode("latin-1")))
        attach_record(scope, record)
        started = time.monotonic()

        async def named_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", record.request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, named_send)
        finally:
            self._note(scope, record, time.monotonic() - started)

    def _note(self, scope: Scope, record: Record, seconds: float) -> None:
        # The route's template, never the path: paths and query strings are the client's.
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.count_request(route, record.status)
        fields = {
            "route": route,
            "status": record.status,
            "ms": round(seconds * 1000, 1),
            "key": record.tenant or None,
            "prompt": record.num_prompt_tokens,
            "completion": record.num_completion_tokens,
            "code": record.error_code,
            "id": record.request_id,
        }
        _logger.info(method, extra={"fields": fields})
