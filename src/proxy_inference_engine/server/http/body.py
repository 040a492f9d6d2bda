"""The one way a request body is read: counted while it streams in, timed, and parsed as strict JSON.

Knows limits and JSON, no schema.
"""

import asyncio
import json
import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, TypeVar

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy_inference_engine.errors import Busy, InvalidRequest, QueueFull, RequestTimeout, TooLarge, UnsupportedMedia
from proxy_inference_engine.served.model import Threads
from proxy_inference_engine.server.http.access import LOCAL_TENANT, visit_of
from proxy_inference_engine.server.http.wire import param_name

T = TypeVar("T")

MAX_BYTES = 256 * 1024 * 1024
FREE_BYTES = 64 * 1024  # of a body: as many are read from a connection anyway
_KEY = "proxy_inference_engine.body_share"


class BodyBudget:
    """Bytes of requests, or of answers, that may be held at once; of what is left nobody gets more than half."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._num_free = max_bytes
        self._held: dict[str, int] = {}

    def take(self, holder: str, num_bytes: int) -> None:
        """Raises QueueFull where the holder has its share already, Busy where others have left nothing."""
        num_held = self._held.get(holder, 0)
        if num_held + num_bytes > self._num_free:
            if num_held:
                raise QueueFull(
                    "You have too many large requests or answers under way at once; wait for some to be over."
                )
            raise Busy("The server has as many large requests or answers under way as it can hold.")
        self._num_free -= num_bytes
        self._held[holder] = num_held + num_bytes

    def give(self, holder: str, num_bytes: int) -> None:
        self._num_free += num_bytes
        self._held[holder] -= num_bytes
        if not self._held[holder]:
            del self._held[holder]


class BodyShare:
    """What one request holds of the budget."""

    def __init__(self, budget: BodyBudget, holder: str, threads: Threads) -> None:
        self._budget = budget
        self._holder = holder
        self._threads = threads
        self._num_bytes = 0

    async def run(self, work: Callable[[], T], num_chars: int) -> T:
        """What goes through so much text, in a thread of the holder's share."""
        return await self._threads.run(work, self._holder, num_chars)

    def grow_to(self, num_bytes: int) -> None:
        """Raises QueueFull or Busy."""
        if num_bytes > max(FREE_BYTES, self._num_bytes):
            self._budget.take(self._holder, num_bytes - self._num_bytes)
            self._num_bytes = num_bytes

    def release(self) -> None:
        """Harmless when nothing is held."""
        if self._num_bytes:
            self._budget.give(self._holder, self._num_bytes)
            self._num_bytes = 0


class Bodies:
    """Middleware: a share of the budget for each request, by its key, or where there are no keys by its address."""

    def __init__(self, app: ASGIApp, budget: BodyBudget, threads: Threads) -> None:
        self._app = app
        self._budget = budget
        self._threads = threads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        scope[_KEY] = share = BodyShare(self._budget, _holder(scope), self._threads)
        try:
            await self._app(scope, receive, send)
        finally:
            share.release()


def share_of(scope: Scope) -> BodyShare:
    """A scope that came past no middleware has a budget of its own."""
    share = scope.get(_KEY) or BodyShare(BodyBudget(), "", Threads())
    assert isinstance(share, BodyShare)
    return share


def _holder(scope: Scope) -> str:
    tenant = visit_of(scope).tenant
    client = scope.get("client")
    return f"address {client[0]}" if tenant == LOCAL_TENANT and client else tenant


JSON_MEDIA = "application/json"
MAX_BODY_BYTES = 32 * 1024 * 1024
RECEIVE_SECONDS = 30.0
SLOW_SECONDS = 5.0  # from then on a body has to come at the least rate
MIN_BYTES_PER_SECOND = 1024
MAX_DEPTH = 64
MAX_INT = 2**63
_SIZE_KEY = "proxy_inference_engine.body_size"
_INLINE_BYTES = 256 * 1024  # bigger bodies are parsed off the event loop

BodyPath = tuple[str | int, ...]


class ClientGone(Exception):
    """The client hung up: nobody is left to answer."""


async def read_json(
    scope: Scope, receive: Receive, prove: Callable[[Any], T], *, media: Collection[str] = (JSON_MEDIA,)
) -> T:
    """What `prove` makes of the parsed body, or the ClientError that says what is wrong with it."""
    share = share_of(scope)
    try:
        share.grow_to(_check_headers(Headers(scope=scope), media))
        body = await _read_in_time(receive, share)
        scope[_SIZE_KEY] = len(body)
        if len(body) <= _INLINE_BYTES:
            return prove(parse_json(body))
        return await share.run(lambda: prove(parse_json(body)), len(body))
    finally:
        share.release()


def note_size(scope: Scope, num_bytes: int) -> None:
    """Note how long the body is, where it came in another way than by `read_json`."""
    scope[_SIZE_KEY] = num_bytes


def body_size(scope: Scope) -> int:
    """Bytes of a body that was read: no text in it is longer."""
    size: int = scope[_SIZE_KEY]
    return size


def _check_headers(headers: Headers, media: Collection[str]) -> int:
    """The length that they announce, 0: none."""
    types = headers.getlist("content-type") or [""]
    if types[0].split(";", 1)[0].strip().lower() not in media or len(types) != 1:
        raise UnsupportedMedia("Send the body as JSON, with the header Content-Type: application/json.")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMedia("A Content-Encoding is not supported; send the body uncompressed.")
    length = headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 12 or int(length) > MAX_BODY_BYTES):
        raise _too_large()
    return int(length) if length.isdecimal() else 0


def _too_slow() -> RequestTimeout:
    return RequestTimeout(f"The request body did not arrive within {RECEIVE_SECONDS:.0f} seconds.")


def _too_large() -> TooLarge:
    return TooLarge(f"The request body is larger than {MAX_BODY_BYTES // 1024**2} MiB.")


async def _read_in_time(receive: Receive, share: BodyShare) -> bytearray:
    try:
        async with asyncio.timeout(RECEIVE_SECONDS):
            return await _read(receive, share)
    except TimeoutError:
        raise _too_slow() from None


async def _read(receive: Receive, share: BodyShare) -> bytearray:
    body = bytearray()  # one block, which goes back to the system whole
    began = time.monotonic()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise _too_large()
        share.grow_to(len(body))
        if not message.get("more_body", False):
            return body
        seconds = time.monotonic() - began
        if seconds > SLOW_SECONDS and len(body) < seconds * MIN_BYTES_PER_SECOND:
            raise RequestTimeout(f"The request body arrives at less than {MIN_BYTES_PER_SECOND} bytes a second.")


class MalformedJson(InvalidRequest):
    """`reason` says what is wrong with it, be it a body or a line of a file."""

    code = "invalid_json"

    def __init__(self, reason: str, path: BodyPath = ()) -> None:
        super().__init__(f"The body {reason}.", param=param_name(path))
        self.reason = reason


def parse_json(body: bytes | bytearray) -> Any:
    """Strict JSON: UTF-8 without BOM, no duplicate keys, no NaN, bounded depth and integers, no lone surrogates."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedJson("is not valid UTF-8") from None
    value = _load(text)
    _Checker(has_escapes=b"\\u" in body).check(value, ())
    return value


def _load(text: str) -> Any:
    try:
        return _parse(text)
    except json.JSONDecodeError as error:
        reason = f"is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise MalformedJson(reason) from None
    except RecursionError:
        raise MalformedJson(f"is nested deeper than {MAX_DEPTH} levels") from None


def _parse(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Python refuses to convert thousands of digits. Any number out of range will do: the check names its place.
        return json.loads(text, object_pairs_hook=_unique, parse_int=_bounded_int)


def _bounded_int(digits: str) -> int:
    return int(digits) if len(digits) <= 20 else MAX_INT


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise MalformedJson("has the same key twice", (repeated,))
    return result


class _Checker:
    """Walks a parsed value and names the first place that strict JSON does not allow."""

    def __init__(self, has_escapes: bool) -> None:
        # Decoded UTF-8 holds no surrogates: they only come from escapes.
        self._has_escapes = has_escapes

    def check(self, value: object, path: BodyPath) -> None:
        if isinstance(value, dict):
            self._check_object(value, path)
        elif isinstance(value, list):
            self._check_list(value, path)
        else:
            self._check_scalar(value, path)

    def _check_object(self, value: Mapping[str, object], path: BodyPath) -> None:
        if len(path) >= MAX_DEPTH:
            _fail(f"nested deeper than {MAX_DEPTH} levels", path)
        for key, item in value.items():
            if self._has_escapes and _has_surrogate(key):
                _fail("a key with a lone surrogate", path)
            self.check(item, (*path, key))

    def _check_list(self, value: list[object], path: BodyPath) -> None:
        if len(path) >= MAX_DEPTH:
            _fail(f"nested deeper than {MAX_DEPTH} levels", path)
        for index, item in enumerate(value):
            if type(item) is int and -MAX_INT <= item < MAX_INT:
                continue  # long lists of token ids stay cheap
            self.check(item, (*path, index))

    def _check_scalar(self, value: object, path: BodyPath) -> None:
        if isinstance(value, str):
            if self._has_escapes and _has_surrogate(value):
                _fail("text with a lone surrogate", path)
        elif isinstance(value, float):
            if not math.isfinite(value):
                _fail("a number that is not finite", path)
        elif isinstance(value, int) and not -MAX_INT <= value < MAX_INT:
            _fail("an integer outside 64 bits", path)


def _has_surrogate(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _fail(what: str, path: BodyPath) -> NoReturn:
    raise MalformedJson(f"has {what}", path)
