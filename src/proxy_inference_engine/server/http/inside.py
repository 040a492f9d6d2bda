"""Requests that the server makes to itself: the routes and limits are those of clients, and there is no connection.

Who asks is known already, so there is no key and no Host; from there on nothing is different.
"""

import asyncio
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message, Scope

from proxy_inference_engine.served.model import Threads
from proxy_inference_engine.server.http.access import Visit, Visits, attach_visit, note
from proxy_inference_engine.server.http.body import JSON_MEDIA, Bodies, BodyBudget
from proxy_inference_engine.server.http.errors import Failures
from proxy_inference_engine.server.metrics import Metrics

_METHOD = "INSIDE"  # in the log


class InsideAnswer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Inside:
    """`app` is what has the routes, `shared` what they find as the app."""

    def __init__(
        self, app: ASGIApp, shared: Any, budget: BodyBudget, threads: Threads, metrics: Metrics, visits: Visits
    ) -> None:
        self._app = Failures(Bodies(app, budget, threads), shapes={})
        self._shared = shared
        self._metrics = metrics
        self._visits = visits

    async def post(self, path: str, body: bytes, visit: Visit, route: str) -> InsideAnswer:
        """What the route at `path` answers to a body. Cancelling it is a client that leaves. `route`: for the log."""
        scope = self._scope(path, len(body))
        attach_visit(scope, visit)
        number = next(self._visits.numbers)
        self._visits.running[number] = scope
        call = _Call(body)
        try:
            await self._app(scope, call.receive, call.send)
        finally:
            visit.status = call.status or visit.status
            visit.end()
            del self._visits.running[number]
            note(self._metrics.requests, _METHOD, route, visit)
        return InsideAnswer(call.status, dict(call.headers), b"".join(call.parts))

    def _scope(self, path: str, num_bytes: int) -> Scope:
        length = str(num_bytes).encode()
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-type", JSON_MEDIA.encode()), (b"content-length", length)],
            "client": None,
            "server": None,
            "app": self._shared,
        }


class _Call:
    """The two ends of a connection that is none."""

    def __init__(self, body: bytes) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []
        self._body: bytes | None = body

    async def receive(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            await asyncio.Event().wait()  # nobody leaves; whoever cancels this cancels all of it
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message.get("headers", [])
        else:
            self.parts.append(message.get("body", b""))
