"""Middleware around everything: request ids in and out, one log line and one count per request, and who is here now."""

import asyncio
import itertools
import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import Counter
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy_inference_engine.config import ApiKey
from proxy_inference_engine.errors import Forbidden
from proxy_inference_engine.served.stream import AnswerStream, Counts
from proxy_inference_engine.server.http.limits import Limiter, RateLimits
from proxy_inference_engine.server.http.proxies import FORWARDED_FOR
from proxy_inference_engine.server.http.wire import request_id
from proxy_inference_engine.server.metrics import Metrics
from proxy_inference_engine.server.tracing import CURRENT, Trace, Tracing
from proxy_inference_engine.store import KeyUsage

_logger = logging.getLogger(__name__)
LOCAL_TENANT = "local"  # everybody, where there are no keys
SOCKET_METHOD = "SOCKET"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", SOCKET_METHOD})
STARTS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
_KEY = "proxy_inference_engine.visit"


@dataclass(slots=True)
class Visit:
    """What is noted about one HTTP request while it runs: for the log line, the metrics and the error body.

    Nothing of what was said.
    """

    request_id: str
    tenant: str = ""
    key: ApiKey | None = None  # that let it in
    status: int = 499  # until an answer starts, the client may still leave
    is_body_read: bool = False
    model: str | None = None  # the one that is asked, once that is known
    num_prompt_tokens: int | None = None  # of what is computed without an answer
    answer: AnswerStream | None = None  # once there is one
    error_code: str | None = None
    send: Send | None = None  # to the client, past what the answer goes through
    media: bytes = b""  # of a stream, and what fills silence in it
    ping: str = ""
    is_early: bool = False  # the head of a stream went out before there was an answer: see `say_early`
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)  # of the answer, whatever it is
    limiter: Limiter | None = None  # of its key, where that has limits
    may_lead: bool = False  # its key may go before others
    fills_idle: bool = False  # nobody waits for it, so it keeps nobody waiting
    trace: Trace | None = None  # where somebody follows it
    started: float = field(default_factory=time.monotonic)
    is_routine: bool = False  # a file of the page, or what a dashboard asks each second: a line only if it goes wrong
    stop: Callable[[], bool] | None = None  # a way of its own to be cancelled; False: it is past that
    _endings: list[Callable[[], None]] = field(default_factory=list)
    _is_unwanted: bool = False
    _listener: "asyncio.Task[object] | None" = None

    def at_end(self, call: Callable[[], None]) -> None:
        """When the last byte is written, or nobody reads it any more."""
        self._endings.append(call)

    def end(self) -> None:
        while self._endings:
            self._endings.pop()()

    def fields(self) -> dict[str, object]:
        counts = None if self.answer is None else self.answer.counts
        return {
            "key": self.tenant or None,
            "model": self.model,
            "prompt": self.num_prompt_tokens if counts is None else counts.num_prompt_tokens,
            "completion": None if counts is None or not counts.num_ended else counts.num_tokens,
            "code": self.error_code,
            "id": self.request_id,
        }

    def cancel(self) -> None:
        """The request ends with an error that says so. Call it in the event loop."""
        if self.stop is not None and self.stop():
            return
        self._is_unwanted = True
        if self._listener is not None:
            self._listener.cancel()

    async def listen(self, receive: Receive) -> Message:
        """What the client sends next. Raises Forbidden where the request was cancelled: whoever works for a client
        listens to it at the same time, so that is noticed wherever a request is.
        """
        if not self._is_unwanted:
            self._listener = asyncio.current_task()
            try:
                return await receive()
            except asyncio.CancelledError:
                if not self._is_unwanted or self._listener is None:
                    raise
                self._listener.uncancel()
            finally:
                self._listener = None
        self._is_unwanted = False  # told once
        raise cancelled()


def cancelled() -> Forbidden:
    return Forbidden("The operator of this server cancelled the request.", code="request_cancelled")


def visit_of(scope: Scope) -> Visit:
    visit = scope[_KEY]
    assert isinstance(visit, Visit)
    return visit


def attach_visit(scope: Scope, visit: Visit) -> None:
    scope[_KEY] = visit


class Visits:
    """The requests that are being answered now, by ids of ours: a client may call its own whatever it likes."""

    def __init__(self) -> None:
        self.running: dict[int, Scope] = {}
        self.numbers = itertools.count(1)
        self._prefix = secrets.token_hex(4)  # an id of an earlier run of the server is nobody's now

    def __iter__(self) -> Iterator[tuple[str, Scope]]:
        return ((f"{self._prefix}-{number}", scope) for number, scope in list(self.running.items()))

    def find(self, id_: str) -> Visit | None:
        return next((visit_of(scope) for each, scope in self if each == id_), None)


class UsageBook:
    """What each key has used since the start. The names of keys are the operator's, so they are few."""

    def __init__(self, limits: RateLimits | None = None) -> None:
        self.by_key: defaultdict[str, KeyUsage] = defaultdict(KeyUsage)
        self._limits = limits

    def observe_end(self, tenant: str, counts: Counts, num_tokens: int) -> None:
        """Count what an answer has used: it may end with its request, or go on after it."""
        usage = self.by_key[tenant]
        usage.num_prompt_tokens += counts.num_prompt_tokens
        usage.num_cached_tokens += counts.num_cached_tokens
        usage.num_tokens += num_tokens
        limiter = None if self._limits is None else self._limits.of(tenant)
        if limiter is not None:
            limiter.charge(num_tokens)  # the prompt was charged when the answer began


class Access:
    def __init__(self, app: ASGIApp, metrics: Metrics, visits: Visits, tracing: Tracing | None = None) -> None:
        self._app = app
        self._requests = metrics.requests
        self._visits = visits
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["path"].endswith("/") and len(scope["path"]) > 1:
            # Before anybody looks at it: who may call, and what is answered, depends on the path.
            scope = {**scope, "path": scope["path"].rstrip("/")}
        wanted = Headers(scope=scope).get("x-request-id")
        visit = Visit(request_id(None if wanted is None else wanted.encode("latin-1")))
        attach_visit(scope, visit)
        if self._tracing is not None:
            visit.trace = self._tracing.begin(scope["headers"])
            CURRENT.set(visit.trace)  # in a task of this request alone, and of what it starts
        number = next(self._visits.numbers)
        self._visits.running[number] = scope

        def named_send(message: Message) -> Awaitable[None]:
            if message["type"] in STARTS:
                visit.status = message.get("status", 101)
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", visit.request_id.encode())]
            return send(message)

        try:
            await self._app(scope, receive, named_send)
        finally:
            visit.end()
            del self._visits.running[number]
            self._note(scope, visit)

    def _note(self, scope: Scope, visit: Visit) -> None:
        # The route's template, never the path: paths and query strings are the client's.
        route = getattr(scope.get("route"), "path", "other")
        method = scope.get("method", SOCKET_METHOD)
        note(self._requests, method if method in _METHODS else "other", route, visit, scope.get(FORWARDED_FOR))


def note(requests: Counter, method: str, route: str, visit: Visit, client: str | None = None) -> None:
    """One line and one count: for a request, a socket, and each turn on one."""
    requests.labels(route, str(visit.status)).inc()
    took_ms = round((time.monotonic() - visit.started) * 1000, 1)
    fields = {"route": route, "status": visit.status, "ms": took_ms, **visit.fields()}
    if client is not None:
        fields["client"] = client
    level = logging.DEBUG if visit.is_routine and visit.status < 400 else logging.INFO
    _logger.log(level, method, extra={"fields": fields})
    if visit.trace is not None:
        visit.trace.end(method, route, visit.status, visit.error_code, visit.tenant)
    visit.answer = None  # who still knows of the visit, as a response in the background does, need not hold its images
