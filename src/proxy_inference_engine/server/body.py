"""The one way a request body is read: counted while it streams in, timed, and parsed as strict JSON.

Knows limits and JSON, no schema.
"""

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from proxy_inference_engine.errors import InvalidRequest, RequestTimeout, TooLarge, UnsupportedMedia
from proxy_inference_engine.server.param import param_name

MAX_BODY_BYTES = 32 * 1024 * 1024
RECEIVE_SECONDS = 30.0
SLOW_SECONDS = 5.0  # from then on a body has to come at the least rate
MIN_BYTES_PER_SECOND = 1024
MAX_DEPTH = 64
MAX_INT = 2**63
_SIZE_KEY = "proxy_inference_engine.body_size"
_INLINE_BYTES = 256 * 1024  # bigger bodies are parsed off the event loop

Path = tuple[str | int, ...]
T = TypeVar("T")


class ClientGone(Exception):
    """The client hung up: nobody is left to answer."""


async def read_json(scope: Scope, receive: Receive, prove: Callable[[Any], T]) -> T:
    """What `prove` makes of the parsed body, or the ClientError that says what is wrong with it."""
    _check_headers(Headers(scope=scope))
    try:
        async with asyncio.timeout(RECEIVE_SECONDS):
            body = await _read(receive)
    except TimeoutError:
        raise _too_slow() from None
    scope[_SIZE_KEY] = len(body)
    if len(body) > _INLINE_BYTES:
        return await asyncio.to_thread(lambda: prove(parse_json(body)))
    return prove(parse_json(body))


def body_size(scope: Scope) -> int:
    """Bytes of a body that was read: no text in it is longer."""
    size: int = scope[_SIZE_KEY]
    return size


def _check_headers(headers: Headers) -> None:
    media = headers.get("content-type", "").split(";", 1)[0].strip().lower()
    if media != "application/json" or len(headers.getlist("content-type")) != 1:
        raise UnsupportedMedia("Send the body as JSON, with the header Content-Type: application/json.")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMedia("A Content-Encoding is not supported; send the body uncompressed.")
    length = headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 12 or int(length) > MAX_BODY_BYTES):
        raise _too_large()


def _too_slow() -> RequestTimeout:
    return RequestTimeout(f"The request body did not arrive within {RECEIVE_SECONDS:.0f} seconds.")


def _too_large() -> TooLarge:
    return TooLarge(f"The request body is larger than {MAX_BODY_BYTES // 1024**2} MiB.")


async def _read(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    num_bytes = 0
    began = time.monotonic()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        num_bytes += len(chunk)
        if num_bytes > MAX_BODY_BYTES:
            raise _too_large()
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)
        seconds = time.monotonic() - began
        if seconds > SLOW_SECONDS and num_bytes < seconds * MIN_BYTES_PER_SECOND:
            raise RequestTimeout(f"The request body arrives at less than {MIN_BYTES_PER_SECOND} bytes a second.")


def parse_json(body: bytes) -> Any:
    """Strict JSON: UTF-8 without BOM, no duplicate keys, no NaN, bounded depth and integers, no lone surrogates."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise _invalid("The body is not valid UTF-8.") from None
    value = _load(text)
    _Checker(has_escapes=b"\\u" in body).check(value, ())
    return value


def _load(text: str) -> Any:
    try:
        return _parse(text)
    except json.JSONDecodeError as error:
        message = f"The body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        raise _invalid(message) from None
    except RecursionError:
        raise _invalid(f"The body is nested deeper than {MAX_DEPTH} levels.") from None


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
        raise _invalid("The body has the same key twice.", (repeated,))
    return result


def _invalid(message: str, path: Path = ()) -> InvalidRequest:
    return InvalidRequest(message, param=param_name(path), code="invalid_json")


class _Checker:
    """Walks a parsed value and names the first place that strict JSON does not allow."""

    def __init__(self, has_escapes: bool) -> None:
        # Decoded UTF-8 holds no surrogates: they only come from escapes.
        self._has_escapes = has_escapes

    def check(self, value: object, path: Path) -> None:
        if isinstance(value, dict):
            self._check_object(value, path)
        elif isinstance(value, list):
            self._check_list(value, path)
        else:
            self._check_scalar(value, path)

    def _check_object(self, value: Mapping[str, object], path: Path) -> None:
        if len(path) >= MAX_DEPTH:
            _fail(f"nested deeper than {MAX_DEPTH} levels", path)
        for key, item in value.items():
            if self._has_escapes and _has_surrogate(key):
                _fail("a key with a lone surrogate", path)
            self.check(item, (*path, key))

    def _check_list(self, value: list[object], path: Path) -> None:
        if len(path) >= MAX_DEPTH:
            _fail(f"nested deeper than {MAX_DEPTH} levels", path)
        for index, item in enumerate(value):
            if type(item) is int and -MAX_INT <= item < MAX_INT:
                continue  # long lists of token ids stay cheap
            self.check(item, (*path, index))

    def _check_scalar(self, value: object, path: Path) -> None:
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


def _fail(what: str, path: Path) -> NoReturn:
    raise _invalid(f"The body has {what}.", path)
