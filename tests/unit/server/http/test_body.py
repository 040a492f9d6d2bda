"""Strict JSON and the counted, timed reader."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from proxy_inference_engine.errors import InvalidRequest, PieError, RequestTimeout, TooLarge, UnsupportedMedia
from proxy_inference_engine.server.http import body
from proxy_inference_engine.server.http.body import ClientGone, parse_json, read_json
from tests.polling import HANG_S

JSON = [(b"content-type", b"application/json")]

plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(plain_json)
def test_accepts_all_plain_json(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("text", "param"),
    [
        (b"", None),
        (b"{", None),
        (b'{"a": 1} x', None),
        (b"\xef\xbb\xbf{}", None),
        (b'{"a": "\xff"}', None),
        ('{"a": 1}'.encode("utf-16"), None),
        (b'{"a": 1, "a": 2}', "a"),
        (b'{"x": {"b": 1, "a": 1, "b": 2}}', "b"),
        (b'{"temperature": NaN}', "temperature"),
        (b'{"temperature": -Infinity}', "temperature"),
        (b'{"temperature": 1e400}', "temperature"),
        (b'{"logit_bias": {"5": NaN}}', "logit_bias.5"),
        (b'{"n": 9223372036854775808}', "n"),
        (b'{"n": -9223372036854775809}', "n"),
        (b'{"n": 1' + b"0" * 6000 + b"}", "n"),
        (b'{"p": [1, 2, 1' + b"0" * 6000 + b"]}", "p[2]"),
        (b'{"messages": [{"content": "a\\ud800b"}]}', "messages[0].content"),
        (b'{"\\udfff": 1}', None),
        (b"[" * 100_000, None),
        (b'{"n": 1' + b"0" * 6000 + b', "b":}', None),
        (b'{"n": 1' + b"0" * 6000 + b', "b":' + b"[" * 100_000, None),
        (b'{"a":' * 70 + b"1" + b"}" * 70, ".".join("a" * 16)),
    ],
)
def test_refuses_what_is_not_strict(text: bytes, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_json(text)
    assert caught.value.param == param
    assert len(caught.value.message) < 300


def test_depth_limit_is_exact() -> None:
    parse_json(b"[" * 64 + b"]" * 64)
    with pytest.raises(InvalidRequest):
        parse_json(b"[" * 65 + b"]" * 65)


def test_escaped_pairs_and_nul_are_text() -> None:
    assert parse_json(b'"\\ud83d\\ude00 \\u0000"') == "\U0001f600 \0"


def receiver(*messages: Message) -> Any:
    waiting = list(messages)

    async def receive() -> Message:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    return receive


def part(data: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


async def read(headers: list[tuple[bytes, bytes]], *messages: Message) -> Any:
    return await read_json({"type": "http", "headers": headers}, receiver(*messages), lambda value: value)


async def test_reads_in_pieces() -> None:
    assert await read(JSON, part(b'{"a"', True), part(b"", True), part(b": 1}")) == {"a": 1}


async def test_big_bodies_are_parsed_too() -> None:
    text = "x" * 300_000
    assert await read(JSON, part(json.dumps({"a": text}).encode())) == {"a": text}


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ([], UnsupportedMedia),
        ([(b"content-type", b"text/plain")], UnsupportedMedia),
        ([(b"content-type", b"application/x-www-form-urlencoded")], UnsupportedMedia),
        ([*JSON, *JSON], UnsupportedMedia),
        ([*JSON, (b"content-encoding", b"gzip")], UnsupportedMedia),
        ([*JSON, (b"content-length", b"33554433")], TooLarge),
        ([*JSON, (b"content-length", b"9" * 5000)], TooLarge),
    ],
)
async def test_refuses_by_header_before_reading(headers: list[tuple[bytes, bytes]], error: type[PieError]) -> None:
    async with asyncio.timeout(HANG_S):
        with pytest.raises(error):
            await read(headers)


async def test_charset_in_the_content_type_is_fine() -> None:
    assert await read([(b"content-type", b"Application/JSON; charset=utf-8")], part(b"[]")) == []


async def test_counts_while_the_body_streams_in() -> None:
    half = part(b" " * (17 * 1024 * 1024), True)
    with pytest.raises(TooLarge):
        await read(JSON, half, half, half)


async def test_gives_up_on_a_slow_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "RECEIVE_SECONDS", 0.02)
    with pytest.raises(RequestTimeout):
        await read(JSON, part(b"{", True))


async def test_gives_up_on_a_body_that_trickles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "SLOW_SECONDS", -1.0)
    assert await read(JSON, part(b"{", True), part(b"}", False)) == {}  # next to no time: fast enough
    monkeypatch.setattr(body, "MIN_BYTES_PER_SECOND", 10**9)
    with pytest.raises(RequestTimeout, match="bytes a second"):
        await read(JSON, part(b"{", True), part(b"}", False))
    assert await read(JSON, part(b"{}", False)) == {}  # what is complete is taken


async def test_client_may_leave() -> None:
    with pytest.raises(ClientGone):
        await read(JSON, part(b"{", True), {"type": "http.disconnect"})
